//! Generated Rust is formatted as `cargo fmt` formats it.

use std::process::Command;

use windlass_scaffold::command::{self, NewApi, Webhooks};
use windlass_scaffold::scaffold::{self, Mode};

use super::{Dir, api, project, selector};

/// The list of its types is two characters shorter than a line.
const EDGE: &str = "Validatingadmissionrule";
/// As long as the longest kind of Kubernetes.
const LONG: &str = "ValidatingAdmissionRuleBindings2";

#[test]
fn generated_code_is_formatted() {
    if Command::new("rustfmt").arg("--version").output().is_err() {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("SKIPPED: there is no rustfmt");
        }
        return;
    }
    for kind in ["At", "IPPool", "Guestbook", "CertificateRequest", "HorizontalPodScaler", EDGE, LONG] {
        for multigroup in [false, true] {
            let mut new = project();
            new.multigroup = multigroup;
            new.namespaced = multigroup;
            let dir = Dir::new(&new);
            check(&dir);
            dir.create(api("webapp", "v1", kind));
            dir.create(NewApi { resource: false, ..api("apps", "v1", "Deployment") });
            check(&dir);
            dir.create(NewApi { controller: false, ..api("webapp", "v1beta1", kind) });
            let hub = selector("v1", kind);
            dir.webhook(&hub, &Webhooks { conversion: true, ..Webhooks::default() });
            check(&dir);
            dir.webhook(&hub, &Webhooks { defaulting: true, ..Webhooks::default() });
            check(&dir);
            dir.webhook(&hub, &Webhooks { validation: true, ..Webhooks::default() });
            check(&dir);
            scaffold::generate_client(dir.path(), Mode::default()).unwrap();
            check(&dir);
            dir.run(|project| {
                command::delete_webhook(project, &hub, &Webhooks { defaulting: true, ..Webhooks::default() })
            });
            check(&dir);
        }
    }
}

fn check(dir: &Dir) {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args([
        "--check",
        "--edition",
        "2024",
        "--color",
        "never",
        "src/lib.rs",
        "src/main.rs",
        "api/src/lib.rs",
        "tests/it/main.rs",
    ]);
    let output = rustfmt.current_dir(dir.path()).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
