//! `windlass up --runtime process`: pods that are processes of this machine. They need no namespaces, so what any runtime does
//! with images is tested with them.
#![cfg(target_os = "linux")]

use std::path::Path;

use crate::image::registry::{Access, Registry};
use crate::machine::Machine;
use crate::process::eventually;
use crate::windlass::Sandbox;

/// A pod with the programs of the machine, in the directory of its image.
fn pod(name: &str, image: &str, policy: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  \
         - {{name: main, image: \"{image}\", imagePullPolicy: {policy}, env: [{{name: GREETING, value: hello}}],\n     \
         command: [sh, -c, \"echo $GREETING from $(cat version); exec sleep 1000\"]}}\n"
    )
}

/// Makes an image whose only file says which version it is.
fn make_image(sandbox: &Sandbox, version: &str, args: &str) {
    std::fs::create_dir_all(sandbox.path("files")).unwrap();
    std::fs::write(sandbox.path("files/version"), version).unwrap();
    sandbox.succeeds(&format!("image build files --entrypoint /version {args}"));
}

#[test]
fn a_pod_runs_as_a_process_of_this_machine() {
    let Some(machine) = Machine::with_processes() else { return };
    assert!(machine.said.contains("there are no Services, cluster DNS and Ingresses"), "{}", machine.said);
    let condition = |name: &str| {
        let path = format!(r#"{{.items[0].status.conditions[?(@.type=="{name}")].reason}}"#);
        machine.run(&format!("get node -o jsonpath={path}"))
    };
    assert_eq!(condition("ContainersIsolated"), "ProcessesOfTheHost");
    assert_eq!(condition("PodNetwork"), "NetworkOfTheHost");
    make_image(&machine.sandbox, "one", "--tag me/app:v1");
    machine.apply(&pod("app", "me/app:v1", "IfNotPresent"));
    machine.is_ready("app");
    eventually("the pod writes", || (machine.run("logs app") == "hello from one\n").then_some(()));
    assert_eq!(machine.run("exec app -- cat version"), "one");
    assert!(!machine.kubectl("exec app -- false").0);
    assert_eq!(machine.parents().len(), 1);
    machine.run("delete pod app");
    eventually("its parent has ended", || machine.parents().is_empty().then_some(()));
    // The cluster ends pods that still run.
    machine.apply(&pod("more", "me/app:v1", "Never"));
    machine.is_ready("more");
    machine.leaves_nothing();
}

/// How many files there are in a directory of the store of images, without those that lock others.
fn count(machine: &Machine, dir: &str) -> usize {
    let dir = machine.sandbox.path("clusters/.images").join(dir);
    let is_lock = |path: &Path| path.extension().is_some_and(|extension| extension == "lock");
    std::fs::read_dir(dir).unwrap().flatten().filter(|entry| !is_lock(&entry.path())).count()
}

#[test]
fn tags_are_pulled_again_and_old_content_deleted() {
    let Some(machine) = Machine::with_processes() else { return };
    let (registry, elsewhere) = (Registry::start(Access::Anonymous), Sandbox::new());
    let image = format!("{}/team/app:v1", registry.address);
    let push = |version: &str| make_image(&elsewhere, version, &format!("--tag {image} --push"));
    let said = |pod: &str| {
        machine.is_ready(pod);
        eventually("the pod writes", || Some(machine.run(&format!("logs {pod}"))).filter(|said| !said.is_empty()))
    };
    push("one");
    machine.apply(&pod("first", &image, "Always"));
    assert_eq!(said("first"), "hello from one\n");
    // The manifest, the configuration and the layer.
    assert_eq!((count(&machine, "blobs/sha256"), count(&machine, "roots")), (3, 1));

    // The registry has another one now, and only `Always` asks for it.
    push("two");
    machine.apply(&pod("kept", &image, "IfNotPresent"));
    assert_eq!(said("kept"), "hello from one\n");
    machine.apply(&pod("never", &image, "Never"));
    assert_eq!(said("never"), "hello from one\n");
    machine.run("delete pod first kept never");
    machine.apply(&pod("second", &image, "Always"));
    assert_eq!(said("second"), "hello from two\n");
    assert_eq!((count(&machine, "blobs/sha256"), count(&machine, "roots")), (3, 1));

    // What a pod uses stays until the cluster ends.
    push("three");
    machine.apply(&pod("third", &image, "Always"));
    assert_eq!(said("third"), "hello from three\n");
    assert_eq!(machine.run("exec second -- cat version"), "two");
    assert_eq!(count(&machine, "roots"), 2);
    machine.sandbox.succeeds("down");
    assert_eq!((count(&machine, "blobs/sha256"), count(&machine, "roots")), (3, 1));
}

#[test]
fn an_image_that_must_not_be_pulled_is_not() {
    let Some(machine) = Machine::with_processes() else { return };
    machine.apply(&pod("never", "127.0.0.1:1/team/app:v1", "Never"));
    let state = "get pod never -o jsonpath={.status.containerStatuses[0].state.waiting}";
    let said = eventually("the image is missing", || {
        Some(machine.run(state)).filter(|said| said.contains("ErrImageNeverPull"))
    });
    assert!(said.contains("is not present with pull policy of Never"), "{said}");
    // A registry is never asked for one that was made here.
    make_image(&machine.sandbox, "local", "--tag 127.0.0.1:1/team/app:v1");
    let pods = ["Always", "Never"]
        .map(|policy| pod(&policy.to_lowercase().replace("never", "present"), "127.0.0.1:1/team/app:v1", policy));
    machine.apply(&pods.concat());
    machine.is_ready("always");
    machine.is_ready("present");
}
