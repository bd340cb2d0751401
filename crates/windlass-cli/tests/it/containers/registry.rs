//! Images that pods pull from Debian's `docker-registry`, with passwords.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::Containers;
use crate::process::eventually;
use crate::windlass::Sandbox;

/// A registry that asks for the user `me` with the password `pw`.
struct Registry {
    child: Child,
    address: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The user and the password as Apache keeps them: bcrypt of `pw`.
const USERS: &str = "me:$2a$05$JarN940HwnFiGJpqcUf3tOv5FWzLUMVhjPyJEoZfNEU3m0FA9mYRS\n";

impl Registry {
    fn start(sandbox: &Sandbox) -> Option<Self> {
        // A port that is free now; another process may take it before the registry does, and then the test is repeated.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::fs::write(sandbox.path("users"), USERS).unwrap();
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {0}/registry}}}}\nhttp: {{addr: \"{free}\"}}\n\
             auth: {{htpasswd: {{realm: test, path: {0}/users}}}}\n",
            sandbox.path("").display()
        );
        std::fs::write(sandbox.path("registry.yml"), config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(sandbox.path("registry.yml"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = child else {
            eprintln!("SKIPPED: there is no docker-registry (Debian: docker-registry)");
            return None;
        };
        let registry = Self { child, address: free.to_string() };
        eventually("the registry listens", || std::net::TcpStream::connect(free).ok());
        Some(registry)
    }
}

/// Pushes the image `team/damaged:v1`, and changes a byte of it in the registry, which does not notice.
fn damage_another_image(sandbox: &Sandbox, at: &str) {
    std::fs::create_dir(sandbox.path("other")).unwrap();
    std::fs::write(sandbox.path("other/file"), "only in this image").unwrap();
    let blobs = || -> BTreeSet<PathBuf> {
        let found =
            Command::new("find").arg(sandbox.path("registry")).args(["-path", "*/blobs/*", "-name", "data"]).output();
        String::from_utf8(found.unwrap().stdout).unwrap().lines().map(PathBuf::from).collect()
    };
    let before = blobs();
    sandbox.succeeds(&format!("image build other --tag {at}/team/damaged:v1 --entrypoint /file --push"));
    // Of what is new, the documents are JSON.
    let new: Vec<PathBuf> = blobs().difference(&before).cloned().collect();
    let is_layer = |path: &&PathBuf| !std::fs::read(path).unwrap().starts_with(b"{");
    let layer = new.iter().find(is_layer).expect("a layer");
    let mut bytes = std::fs::read(layer).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(layer, bytes).unwrap();
    sandbox.succeeds(&format!("image remove {at}/team/damaged:v1"));
}

fn pod(name: &str, image: &str, secrets: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n  \
         imagePullSecrets: [{secrets}]\n  containers: [{{name: main, image: \"{image}\", command: [sleep, \"1000\"]}}]\n"
    )
}

#[test]
fn images_are_pulled_with_the_secrets_of_pods() {
    let Some(cluster) = Containers::start() else { return };
    let Some(registry) = Registry::start(&cluster.sandbox) else { return };
    let at = &registry.address;
    let docker = cluster.sandbox.path(".docker");
    std::fs::create_dir(&docker).unwrap();
    // bWU6cHc= is me:pw.
    let config = format!(r#"{{"auths": {{"{at}": {{"auth": "bWU6cHc="}}}}}}"#);
    std::fs::write(docker.join("config.json"), config).unwrap();
    cluster.sandbox.succeeds(&format!("image build files --tag {at}/team/app:v1 --entrypoint /bin/busybox --push"));
    damage_another_image(&cluster.sandbox, at);
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["copy", "--dest-tls-verify=false", "--dest-creds", "me:pw", "--dest-compress-format", "zstd"]);
    skopeo.arg(format!("oci-archive:{}", cluster.sandbox.path("web.tar").display()));
    let pushed = skopeo.arg(format!("docker://{at}/team/zstd:v1")).env("HOME", cluster.sandbox.path("")).output();
    let has_zstd = pushed.as_ref().is_ok_and(|output| output.status.success());
    if !has_zstd {
        eprintln!("SKIPPED: an image with zstd, because skopeo cannot push it: {pushed:?}");
    }
    cluster.sandbox.succeeds(&format!("image remove {at}/team/app:v1"));
    std::fs::remove_dir_all(&docker).unwrap();
    for (name, password) in [("good", "pw"), ("bad", "no")] {
        cluster.succeeds(&format!(
            "create secret docker-registry {name} --docker-server={at} --docker-username=me --docker-password={password}"
        ));
    }
    let zeros = "0".repeat(64);
    let failures = [
        ("refused", format!("{at}/team/app:v1"), "{name: bad}", "refuses the credentials"),
        ("anonymous", format!("{at}/team/app:v1"), "", "the pod has no imagePullSecrets"),
        ("tag", format!("{at}/team/app:v2"), "{name: good}", "manifest unknown"),
        ("digest", format!("{at}/team/app@sha256:{zeros}"), "{name: good}", "manifest unknown"),
        ("damaged", format!("{at}/team/damaged:v1"), "{name: good}", "gave something else for sha256:"),
        ("dead", "127.0.0.1:1/team/app:v1".to_owned(), "", "Connection refused"),
    ];
    let mut manifest = String::new();
    for (name, image, secrets, _) in &failures {
        manifest += &pod(name, image, secrets);
    }
    cluster.apply(&manifest);
    for (name, _, _, why) in &failures {
        eventually("the pod says why its image is not there", || {
            let state = format!("get pod {name} -o jsonpath={{.status.containerStatuses[0].state.waiting}}");
            let said = cluster.succeeds(&state);
            (said.contains(why) && said.contains("ImagePullBackOff")).then_some(())
        });
    }
    // With the right Secret among others, and with that of the ServiceAccount.
    let mut good = pod("pulled", &format!("{at}/team/app:v1"), "{name: bad}, {name: good}");
    if has_zstd {
        good += &pod("zstd", &format!("{at}/team/zstd:v1"), "{name: good}");
    }
    cluster.apply(&good);
    cluster.is_ready("pulled");
    if has_zstd {
        cluster.is_ready("zstd");
    }
    cluster.sandbox.succeeds(&format!("image remove {at}/team/app:v1"));
    cluster.succeeds(r#"patch serviceaccount default -p {"imagePullSecrets":[{"name":"good"}]}"#);
    cluster.apply(&pod("account", &format!("{at}/team/app:v1"), ""));
    cluster.is_ready("account");
}
