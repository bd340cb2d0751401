//! An operator in a cluster of `windlass up --runtime container`: pods of an image that `windlass image build` has made,
//! deployed by `windlass deploy`. The operator is that of the example `home`, and its program is this one.
#![cfg(target_os = "linux")]

use std::path::Path;

use ::windlass::Manager;
use ::windlass::lease::LeaderElection;

use crate::machine::Machine;
use crate::process::eventually;

/// Makes this program the operator.
const OPERATOR: &str = "WINDLASS_TEST_OPERATOR";

/// The program of the image. It is a test so that it is a part of this program, and does nothing elsewhere.
#[test]
fn operator_program() {
    if std::env::var_os(OPERATOR).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = ::windlass::config::client().await.unwrap();
        let certificates = home::webhook::certificates(client.default_namespace(), None);
        let builder = Manager::builder(client)
            .name("home")
            .definitions(home_api::definitions().unwrap())
            .probes(":8081")
            .leader_election(LeaderElection::new("home"))
            .webhooks(home::webhook::webhooks().certificates(certificates));
        home::operator(builder).unwrap().run().await.unwrap();
    });
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
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/home");
    std::fs::copy(home.join("PROJECT"), sandbox.path("PROJECT")).unwrap();
    copy(&home.join("config"), &sandbox.path("config"));
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
                     - {name: WINDLASS_TEST_OPERATOR, value: 'yes'}";
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

const HOME: &str = "apiVersion: ajd.my.domain/v1\nkind: Home\nmetadata: {name: NAME}\nspec: {address: 1 Main Street, occupied: true, rooms: [{name: bath}]}\n";

/// The pod that leads.
fn leader(machine: &Machine) -> String {
    eventually("there is a leader", || {
        let holder = machine.run("get lease -n home-system home -o jsonpath={.spec.holderIdentity}");
        let pods = machine.run("get pods -n home-system -o jsonpath={.items[*].metadata.name}");
        pods.split_whitespace().find(|pod| holder.contains(*pod)).map(str::to_owned)
    })
}

#[test]
fn an_operator_is_deployed_and_survives_the_control_plane() {
    let program = std::env::current_exe().unwrap();
    let started = Machine::start(|sandbox| {
        sandbox.succeeds(&format!("image build {} --tag home-operator:v1", program.display()));
        project(sandbox);
    });
    let Some(machine) = started else { return };
    let said = machine.sandbox.windlass("deploy --skip-build --image home-operator:v1 --timeout 120");
    let pods = machine.kubectl("logs -n home-system -l control-plane=controller-manager --tail 20").1;
    assert!(said.status.success(), "{}{}{pods}", said.stdout, said.stderr);
    assert!(said.stderr.contains("deployment.apps/home-controller-manager is rolled out"), "{}", said.stderr);

    // The API server reaches the webhooks by their Service: defaults are set, and the answer to a deletion is theirs.
    let create = |name: &str| {
        machine.apply(&HOME.replace("NAME", name));
        let map = format!("get configmap {name}-thermostats -o jsonpath={{.data.bath}}");
        eventually("the operator works", || {
            Some(machine.kubectl(&map)).filter(|(found, _)| *found).map(|(_, said)| said)
        })
    };
    let warmth = create("first");
    assert_eq!(machine.run("get home first -o jsonpath={.spec.rooms[0].celsius}"), warmth);
    let (deleted, said) = machine.kubectl("delete home first");
    assert!(!deleted && said.contains("somebody lives there"), "{said}");

    let first = leader(&machine);
    machine.crash_and_restart();
    create("second");
    let restarts =
        machine.run("get pods -n home-system -o jsonpath={.items[*].status.containerStatuses[0].restartCount}");
    assert_eq!(restarts, "0 0");

    // The other replica takes over.
    machine.run(&format!("delete pod -n home-system {first}"));
    eventually("another leads", || (leader(&machine) != first).then_some(()));
    create("third");

    // Replicas that still run would register their webhooks again, and then nobody could change a Home.
    machine.sandbox.succeeds("undeploy --keep-crds --timeout 120");
    let webhooks = "get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name";
    assert_eq!(machine.run(webhooks), "");
    machine.run("label home third without=operator");
    machine.leaves_nothing();
}
