//! `get --watch`.

use super::{deployment, kubectl};

#[test]
fn a_watch_shows_what_happens() {
    kubectl!(cluster, k);
    k.run("create secret generic before");
    let watch = k.spawn("get secrets --watch --output-watch-events --no-headers");
    let event = |kind: &str, name: &str| {
        let line = watch.line().expect("the watch goes on");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], [kind, name], "{line}");
    };
    event("ADDED", "before");
    k.run("create secret generic after --from-literal=a=b");
    event("ADDED", "after");
    k.run("label secret after tier=front");
    event("MODIFIED", "after");
    k.run("delete secret before after");
    event("DELETED", "before");
    event("DELETED", "after");
}

#[test]
fn a_watch_of_one_object_sees_only_that() {
    kubectl!(cluster, k);
    k.feed("create -f -", &deployment(1, "nginx"));
    let watch = k.spawn("get deployment web --watch -o jsonpath={.spec.replicas}{\"\\n\"}");
    assert_eq!(watch.line().as_deref(), Some("1"));
    k.run("create deployment noise --image=nginx");
    k.run("scale deployment web --replicas=2");
    assert_eq!(watch.line().as_deref(), Some("2"));
}

#[test]
fn selector_watches_see_objects_enter_and_leave() {
    kubectl!(cluster, k);
    let watch = k.spawn("get roles -l tier=front --watch-only --output-watch-events --no-headers");
    // The watch has no first list, so only what follows its start is seen.
    crate::process::eventually("the watch is open", || {
        let metrics = k.run("get --raw /metrics");
        let open = metrics.lines().find(|l| l.starts_with("apiserver_longrunning_requests") && l.contains("\"roles\""));
        open.is_some_and(|line| line.ends_with(" 1")).then_some(())
    });
    k.run("create role one --verb=get --resource=pods");
    k.run("label role one tier=front");
    k.run("label role one tier=back --overwrite");
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.line());
    }
    let words: Vec<&str> = seen.iter().flat_map(|line| line.split_whitespace().take(2)).collect();
    assert_eq!(words, ["ADDED", "one", "DELETED", "one"]);
}
