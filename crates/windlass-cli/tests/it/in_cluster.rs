//! An operator in a cluster of `windlass up --runtime container`: pods of an image that `windlass image build` has made,
//! deployed by `windlass deploy`. The operator and the store that it looks after are those of the example `petstore`, and
//! their program is this one.
#![cfg(target_os = "linux")]

use std::path::Path;

use ::windlass::Manager;
use ::windlass::lease::LeaderElection;
use petstore::controller::pet::Timing;
use petstore::service::client::StoreClient;
use petstore::service::server::{PetStore, PetStoreServer};
use tokio_util::sync::CancellationToken;

use crate::machine::Machine;
use crate::process::eventually;

/// Makes this program a part of what is deployed: the operator, the store, or a client that reads the operator's metrics.
const ROLE: &str = "WINDLASS_TEST_ROLE";
const METRICS: &str = "https://petstore-controller-manager-metrics-service.petstore-system.svc:8443";

/// The program of the image. It is a test so that it is a part of this program, and does nothing elsewhere.
#[test]
fn operator_program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "operator" => operate().await,
            "store" => {
                let server = PetStoreServer::bind("0.0.0.0:6742", PetStore::in_memory()).await.unwrap();
                server.serve(CancellationToken::new()).await.unwrap();
            }
            _ => scrape().await,
        }
    });
}

async fn operate() {
    let client = ::windlass::config::client().await.unwrap();
    let certificates = petstore::webhook::certificates(client.default_namespace(), None);
    let builder = Manager::builder(client)
        .name("petstore")
        .definitions(petstore_api::definitions().unwrap())
        .probes(":8081")
        .metrics(":8443")
        .authenticate_metrics()
        .leader_election(LeaderElection::new("petstore"))
        .webhooks(petstore::webhook::webhooks().certificates(certificates));
    let store = StoreClient::connect_lazy("petstore-service.petstore.svc.cluster.local:6742").unwrap();
    petstore::operator(builder, store, Timing::default()).unwrap().run().await.unwrap();
}

/// Prints the metrics of the operator, as Prometheus reads them: with the token of its ServiceAccount.
#[allow(clippy::print_stdout, reason = "it is a program")]
async fn scrape() {
    let mut config = kube::Config::incluster().unwrap();
    config.cluster_url = METRICS.parse().unwrap();
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).unwrap();
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    match client.request_text(request).await {
        Ok(metrics) => println!("{metrics}"),
        Err(error) => println!("refused: {error}"),
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The project of the example, with two replicas of this program.
fn project(sandbox: &crate::windlass::Sandbox) {
    let petstore = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/petstore");
    std::fs::copy(petstore.join("PROJECT"), sandbox.path("PROJECT")).unwrap();
    copy(&petstore.join("config"), &sandbox.path("config"));
    let edit = |file: &str, edits: &[(&str, &str)]| {
        let path = sandbox.path(file);
        let mut text = std::fs::read_to_string(&path).unwrap();
        for (old, new) in edits {
            assert!(text.contains(old), "no {old:?} in {file}");
            text = text.replace(old, new);
        }
        std::fs::write(path, text).unwrap();
    };
    let arguments = "- in_cluster::operator_program\n            - --exact\n            - --nocapture\n          env:\n            \
                     - {name: WINDLASS_TEST_ROLE, value: operator}";
    let old = "- --leader-elect\n            - --health-probe-bind-address=:8081";
    let edits = [
        ("replicas: 1", "replicas: 2"),
        (old, arguments),
        ("initialDelaySeconds: 5\n            periodSeconds: 10", "periodSeconds: 1"),
    ];
    edit("config/manager/manager.yaml", &edits);
    let patch = "patches:\n  - path: manager_metrics_patch.yaml\n    target:\n      kind: Deployment";
    edit("config/default/kustomization.yaml", &[(patch, "")]);
}

/// The store, and clients that may and may not read metrics.
const STORE: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: petstore}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: petstore-server, namespace: petstore}
spec:
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      containers:
      - name: store
        image: petstore-operator:v1
        args: [in_cluster::operator_program, --exact, --nocapture]
        env: [{name: WINDLASS_TEST_ROLE, value: store}]
        readinessProbe: {tcpSocket: {port: 6742}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: petstore-service, namespace: petstore}
spec: {selector: {app: store}, ports: [{port: 6742}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: petstore-metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: default}]
";

const SCRAPER: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: scraper-ACCOUNT}
spec:
  serviceAccountName: ACCOUNT
  restartPolicy: Never
  containers:
  - name: main
    image: petstore-operator:v1
    args: [in_cluster::operator_program, --exact, --nocapture]
    env: [{name: WINDLASS_TEST_ROLE, value: scraper}]
";

const PET: &str = "apiVersion: petstore.example.com/v1alpha1\nkind: Pet\nmetadata: {name: NAME}\nspec: {name: NAME, type: dog, birthday: \"2021-04-01T00:00:00Z\"}\n";

/// The pod that leads.
fn leader(machine: &Machine) -> String {
    eventually("there is a leader", || {
        let holder = machine.run("get lease -n petstore-system petstore -o jsonpath={.spec.holderIdentity}");
        let pods = machine.run("get pods -n petstore-system -o jsonpath={.items[*].metadata.name}");
        pods.split_whitespace().find(|pod| holder.contains(*pod)).map(str::to_owned)
    })
}

/// What a client with a ServiceAccount reads of the operator's metrics.
fn scraped(machine: &Machine, account: &str) -> String {
    machine.apply(&SCRAPER.replace("ACCOUNT", account));
    eventually("the metrics are read", || {
        let phase = format!("get pod scraper-{account} -o jsonpath={{.status.phase}}");
        matches!(machine.run(&phase).as_str(), "Succeeded" | "Failed").then_some(())
    });
    machine.run(&format!("logs scraper-{account}"))
}

#[test]
fn an_operator_is_deployed_and_survives_the_control_plane() {
    let program = std::env::current_exe().unwrap();
    let started = Machine::start(|sandbox| {
        sandbox.succeeds(&format!("image build {} --tag petstore-operator:v1", program.display()));
        project(sandbox);
    });
    let Some(machine) = started else { return };
    machine.apply(STORE);
    let said = machine.sandbox.windlass("deploy --skip-build --image petstore-operator:v1 --timeout 120");
    let pods = machine.kubectl("logs -n petstore-system -l control-plane=controller-manager --tail 20").1;
    assert!(said.status.success(), "{}{}{pods}", said.stdout, said.stderr);
    assert!(said.stderr.contains("deployment.apps/petstore-controller-manager is rolled out"), "{}", said.stderr);

    // The API server reaches the webhooks by their Service: versions are converted, and a bad date is refused.
    let create = |name: &str| {
        machine.apply(&PET.replace("NAME", name));
        let id = format!("get pet {name} -o jsonpath={{.status.id}}");
        eventually("the pet is in the store", || Some(machine.run(&id)).filter(|id| !id.is_empty()))
    };
    create("first");
    assert_eq!(machine.run("get pets.v1beta1.petstore.example.com first -o jsonpath={.spec.species}"), "dog");
    assert_eq!(machine.run("get pets.v1alpha1.petstore.example.com first -o jsonpath={.spec.type}"), "dog");
    // A time that the schema takes, on a day that no calendar has.
    let bad = PET.replace("NAME", "bad").replace("2021-04-01T00:00:00Z", "9999-12-31T23:59:59-12:00");
    std::fs::write(machine.sandbox.path("bad.yaml"), bad).unwrap();
    let (applied, said) = machine.kubectl("apply -f bad.yaml");
    assert!(!applied && said.contains("no day of the calendar"), "{said}");

    // Its metrics are read with a token that may. The Service leads to either replica, and only the leader reconciles.
    let metrics = scraped(&machine, "prometheus");
    assert!(metrics.contains("leader_election_master_status{"), "{metrics}");
    let refused = scraped(&machine, "default");
    assert!(refused.contains("refused:") && !refused.contains("leader_election"), "{refused}");

    let first = leader(&machine);
    machine.crash_and_restart();
    create("second");
    let restarts =
        machine.run("get pods -n petstore-system -o jsonpath={.items[*].status.containerStatuses[0].restartCount}");
    assert_eq!(restarts, "0 0");

    // The other replica takes over.
    machine.run(&format!("delete pod -n petstore-system {first}"));
    eventually("another leads", || (leader(&machine) != first).then_some(()));
    create("third");
    machine.run("delete pet third");

    // Replicas that still run would register their webhooks again, and then Pets could not be changed.
    machine.sandbox.succeeds("undeploy --keep-crds --timeout 120");
    let webhooks = "get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name";
    assert_eq!(machine.run(webhooks), "");
    machine.leaves_nothing();
}
