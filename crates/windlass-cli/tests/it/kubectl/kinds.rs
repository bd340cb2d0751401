//! Every kind that `kubectl create` can make, and namespaces.

use super::{cells, has, kubectl};

#[test]
fn kubectl_creates_every_kind_it_knows() {
    kubectl!(cluster, k);
    let commands = [
        "namespace other",
        "configmap c --from-literal=a=b",
        "secret generic s --from-literal=a=b",
        "secret docker-registry d --docker-server=x --docker-username=u --docker-password=p",
        "serviceaccount sa",
        "deployment web --image=nginx",
        "service clusterip svc --tcp=80:8080",
        "service nodeport np --tcp=80",
        "service loadbalancer lb --tcp=80",
        "service externalname en --external-name=example.com",
        "quota q --hard=pods=100",
        "role r --verb=get,list --resource=pods,deployments.apps",
        "rolebinding rb --role=r --serviceaccount=default:sa",
        "clusterrole cr --verb=* --resource=nodes",
        "clusterrolebinding crb --clusterrole=cr --user=me",
        "priorityclass pc --value=10 --description=ten",
        "ingress i --rule=a.b/=svc:80",
        "job j --image=busybox",
    ];
    // Older ones ask for versions that Kubernetes no longer serves.
    let newer =
        ["poddisruptionbudget pdb --selector=app=web --min-available=1", "cronjob cj --image=x --schedule=@daily"];
    let commands = commands.into_iter().chain(newer.into_iter().filter(|_| k.at_least(21)));
    for command in commands {
        has(&k.run(&format!("create {command}")), &[" created\n"]);
    }
    assert_eq!(k.field("secret/s", ".data.a"), "Yg==");
    assert_eq!(k.field("secret/d", ".type"), "kubernetes.io/dockerconfigjson");
    has(&k.field("svc/svc", ".spec.clusterIP"), &["10.96."]);
    assert_eq!(k.field("svc/en", ".spec.clusterIP"), "");
    assert_eq!(cells(&k.run("get priorityclass pc"))[1][..3], ["pc", "10", "false"]);
    has(&k.run("autoscale deployment web --max=3"), &["autoscaled"]);
    assert_eq!(k.field("hpa/web", ".spec.minReplicas"), "1");
}

#[test]
fn namespaces_keep_objects_apart() {
    kubectl!(cluster, k);
    k.run("create namespace other");
    k.run("create secret generic same");
    k.run("create secret generic same -n other");
    assert_eq!(k.run("get secrets -A -o name"), "secret/same\nsecret/same\n");
    k.run("delete secret same -n other");
    assert_eq!(k.run("get secrets -o name"), "secret/same\n");
    has(&k.fails("delete namespace default"), &["Forbidden", "this namespace may not be deleted"]);
}
