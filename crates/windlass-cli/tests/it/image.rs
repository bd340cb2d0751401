//! `windlass image build`: the image that comes out, and a registry that takes it.

pub(crate) mod registry;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::windlass::Sandbox;
use registry::{Access, Registry};
use windlass_server::pki::Authority;

/// The files of an image that was written, unpacked.
fn unpack(sandbox: &Sandbox, file: &str) -> Value {
    let run = |args: &[&str]| {
        let status = Command::new("tar").args(args).current_dir(sandbox.path(".")).status().unwrap();
        assert!(status.success(), "tar {args:?}");
    };
    std::fs::create_dir_all(sandbox.path("layout")).unwrap();
    std::fs::create_dir_all(sandbox.path("root")).unwrap();
    run(&["xf", file, "-C", "layout"]);
    let read = |path: &str| -> Value {
        serde_json::from_slice(&std::fs::read(sandbox.path("layout").join(path)).unwrap()).unwrap()
    };
    let blob = |descriptor: &Value| format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"));
    let index = read("index.json");
    let manifest = read(&blob(&index["manifests"][0]));
    run(&["xzf", &format!("layout/{}", blob(&manifest["layers"][0])), "-C", "root"]);
    let docker = read("manifest.json");
    assert_eq!(docker[0]["Config"], blob(&manifest["config"]));
    read(&blob(&manifest["config"]))
}

#[test]
#[allow(clippy::print_stderr)]
fn the_image_of_a_program_runs_with_nothing_else() {
    let sandbox = Sandbox::new();
    let program = true_program();
    let said = sandbox.succeeds(&format!("image build {program} --tag me/zoo:v1 --label a=b -o json"));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["image"], "docker.io/me/zoo:v1");
    assert_eq!(said["file"], "zoo.tar");
    let mode = std::fs::metadata(sandbox.path("zoo.tar")).unwrap().permissions().mode();
    assert_eq!(mode & 0o400, 0o400);
    assert_eq!(mode & 0o133, 0, "a file that others may read, not change or run: {mode:o}");
    let config = unpack(&sandbox, "zoo.tar");
    assert_eq!(config["config"]["Entrypoint"][0], "/true");
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Labels"]["a"], "b");
    // Equal input, equal image.
    let first = std::fs::read(sandbox.path("zoo.tar")).unwrap();
    sandbox.succeeds(&format!("image build {program} --tag me/zoo:v1 --label a=b --file again.tar"));
    assert!(first == std::fs::read(sandbox.path("again.tar")).unwrap(), "the images differ");
    // With the loader and libraries of the image alone.
    let root = sandbox.path("root");
    match Command::new("chroot").arg(&root).arg("/true").output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("Operation not permitted") => {
            eprintln!("SKIPPED: only root may change the root directory");
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => eprintln!("SKIPPED: chroot cannot be run: {error}"),
    }
}

/// A program that every system has.
fn true_program() -> &'static str {
    ["/usr/bin/true", "/bin/true"].into_iter().find(|path| Path::new(path).exists()).unwrap()
}

#[test]
fn what_is_no_program_for_linux_is_refused() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("notes.txt"), "just text\n").unwrap();
    script(&sandbox.path("run"));
    for (file, what) in [("notes.txt", "is a text file"), ("run", "is a script")] {
        let said = sandbox.windlass(&format!("image build {file} --tag app"));
        assert!(said.stderr.contains(what) && said.stderr.contains("ELF executable for Linux"), "{said:?}");
    }
    assert!(!sandbox.path("app.tar").exists());
    for (user, what) in
        [("root", "is root"), ("0", "is root"), ("0:0", "is root"), ("me", "not a number"), ("1:x", "the group")]
    {
        let said = sandbox.windlass(&format!("image build {} --tag app --user {user}", true_program()));
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        assert!(said.stderr.contains(what) && said.stderr.contains("65532"), "{user}: {said:?}");
    }
    sandbox.succeeds(&format!("image build {} --tag app --user 1000", true_program()));
}

#[test]
fn an_image_is_built_on_another_one() {
    let sandbox = Sandbox::new();
    let program = true_program();
    // As a tar file: this base has the loader and libraries, which are not added a second time.
    sandbox.succeeds(&format!("image build {program} --tag base --label a=b --label c=d --file base.tar"));
    sandbox.succeeds(&format!("image build {program} --tag app --label c=e --base base.tar --file app.tar"));
    let config = unpack(&sandbox, "app.tar");
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 2);
    assert_eq!(config["config"]["Labels"], json!({"a": "b", "c": "e"}));
    let manifest = manifest(&sandbox);
    let sizes: Vec<u64> =
        manifest["layers"].as_array().unwrap().iter().map(|one| one["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes[1] * 2 < sizes[0], "the libraries are in both layers: {sizes:?}");
    // As a directory, with files only: the loader comes with the program, and goes where links of the base lead to.
    std::fs::create_dir_all(sandbox.path("files/etc")).unwrap();
    std::os::unix::fs::symlink("usr/lib64", sandbox.path("files/lib64")).unwrap();
    std::fs::write(sandbox.path("files/etc/app.conf"), "x").unwrap();
    sandbox.succeeds("image build files --tag plain --entrypoint /etc/app.conf --file plain.tar");
    std::fs::create_dir_all(sandbox.path("plain")).unwrap();
    let tar = Command::new("tar").args(["xf", "plain.tar", "-C", "plain"]).current_dir(sandbox.path(".")).status();
    assert!(tar.unwrap().success());
    sandbox.succeeds(&format!("image build {program} --tag app --base plain --file app.tar"));
    std::fs::remove_dir_all(sandbox.path("root")).unwrap();
    unpack(&sandbox, "app.tar");
    let layers = self::manifest(&sandbox)["layers"].as_array().unwrap().clone();
    assert!(layers[1]["size"].as_u64() > layers[0]["size"].as_u64());
    let digest = layers[1]["digest"].as_str().unwrap().replace(':', "/");
    let list = Command::new("tar").arg("tzf").arg(sandbox.path("layout/blobs").join(digest)).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(!list.lines().any(|path| path.starts_with("lib64")), "{list}");
    if cfg!(target_arch = "x86_64") {
        assert!(list.contains("usr/lib64/ld-linux-x86-64.so.2"), "{list}");
    }

    for nowhere in ["distroless", "./out.d/base", "base/of.tar", "debian:12"] {
        let said = sandbox.fails(&format!("image build {program} --tag app --base {nowhere}"));
        assert!(said.contains("a base is an OCI layout on this machine"), "{said}");
        assert!(said.contains("or an image with its registry, such as gcr.io/"), "{said}");
    }
    let said = sandbox.fails(&format!("image build {program} --tag app --base gcr.io/Distroless"));
    assert!(said.contains("not the name of an image"), "{said}");
    assert!(sandbox.fails(&format!("image build {program} --tag app --base files")).contains("not an OCI layout"));
    std::fs::write(sandbox.path("plain/index.json"), "{}").unwrap();
    assert!(sandbox.fails(&format!("image build {program} --tag app --base plain")).contains("names no images"));
}

/// The manifest of the image that was unpacked.
fn manifest(sandbox: &Sandbox) -> Value {
    let read = |path: &str| -> Value {
        serde_json::from_slice(&std::fs::read(sandbox.path("layout").join(path)).unwrap()).unwrap()
    };
    let digest = read("index.json")["manifests"][0]["digest"].as_str().unwrap().replace(':', "/");
    read(&format!("blobs/{digest}"))
}

#[test]
fn a_directory_becomes_an_image() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("files/etc")).unwrap();
    std::fs::write(sandbox.path("files/etc/app.conf"), "x").unwrap();
    script(&sandbox.path("files/run"));
    std::os::unix::fs::symlink("run", sandbox.path("files/start")).unwrap();
    assert!(sandbox.fails("image build files --tag app").contains("--entrypoint"));
    assert!(sandbox.fails("image build files --tag app --entrypoint /nope").contains("no file /nope"));
    assert!(sandbox.fails("image build files --tag App").contains("not the name of an image"));
    sandbox.succeeds("image build files --tag app --entrypoint /start --file app.tar");
    unpack(&sandbox, "app.tar");
    assert_eq!(std::fs::read_to_string(sandbox.path("root/etc/app.conf")).unwrap(), "x");
    assert_eq!(std::fs::read_link(sandbox.path("root/start")).unwrap(), Path::new("run"));
}

fn script(path: &Path) {
    std::fs::write(path, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_image_is_pushed_with_dockers_credentials() {
    let sandbox = Sandbox::new();
    std::fs::copy(true_program(), sandbox.path("run")).unwrap();
    let registry = Registry::start(Access::Token);
    let tag = format!("{}/team/app:v1", registry.address);
    assert!(sandbox.fails(&format!("image build run --tag {tag} --push")).contains("docker login"));
    std::fs::create_dir_all(sandbox.path("docker")).unwrap();
    // me:secret
    let config = format!(r#"{{"auths": {{"{}": {{"auth": "bWU6c2VjcmV0"}}}}}}"#, registry.address);
    std::fs::write(sandbox.path("docker/config.json"), config).unwrap();
    let mut command = sandbox.command(&format!("image build run --tag {tag} --push"));
    let output = command.env("DOCKER_CONFIG", sandbox.path("docker")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let digest = said.trim().rsplit_once('@').unwrap().1;
    assert_eq!(registry.manifest("team/app", "v1").as_deref(), Some(digest));
    assert!(!sandbox.path("app.tar").exists());
}

/// Runs `windlass`, with docker's credentials for a registry if they are given.
fn with_credentials(sandbox: &Sandbox, registry: Option<&Registry>, args: &str) -> crate::process::Said {
    let directory = sandbox.path("docker");
    std::fs::create_dir_all(&directory).unwrap();
    let auths = registry.map(|registry| json!({registry.address.as_str(): {"auth": "bWU6c2VjcmV0"}}));
    std::fs::write(directory.join("config.json"), json!({"auths": auths.unwrap_or_default()}).to_string()).unwrap();
    sandbox.command(args).env("DOCKER_CONFIG", directory).output().unwrap().into()
}

#[test]
fn a_base_is_fetched_from_its_registry() {
    for access in [Access::Anonymous, Access::Token, Access::Password] {
        let sandbox = Sandbox::new();
        let (registry, program) = (Registry::start(access), true_program());
        let name = format!("{}/team/app", registry.address);
        let run = |registry: Option<&Registry>, args: &str| with_credentials(&sandbox, registry, args);
        let known = (access != Access::Anonymous).then_some(&registry);
        let said = run(known, &format!("image build {program} --tag {name}:v1 --label a=b --push --file base.tar"));
        assert!(said.status.success(), "{said:?}");
        let digest = registry.manifest("team/app", "v1").unwrap();

        let build = format!("image build {program} --tag app --file app.tar --base");
        let said = run(known, &format!("{build} {name}:v1"));
        assert!(said.status.success(), "{said:?}");
        let fetched = std::fs::read(sandbox.path("app.tar")).unwrap();
        assert_eq!(unpack(&sandbox, "app.tar")["config"]["Labels"], json!({"a": "b"}));
        for same in ["base.tar", &format!("{name}@{digest}"), &format!("{name}:gone@{digest}")] {
            let said = run(known, &format!("{build} {same}"));
            assert!(said.status.success(), "{said:?}");
            assert!(fetched == std::fs::read(sandbox.path("app.tar")).unwrap(), "{same} gives another image");
        }
        if known.is_some() {
            let said = run(None, &format!("{build} {name}:v1"));
            assert!(!said.status.success() && said.stderr.contains("docker login"), "{said:?}");
        }
    }
}

/// A registry with the image `team/app:v1`, and the digest of its manifest.
fn registry_with_image() -> (Registry, String) {
    let (sandbox, registry) = (Sandbox::new(), Registry::start(Access::Anonymous));
    sandbox.succeeds(&format!("image build {} --tag {}/team/app:v1 --push", true_program(), registry.address));
    let digest = registry.manifest("team/app", "v1").unwrap();
    (registry, digest)
}

/// Builds on the image `team/app:v1` of a registry, for which there is a `hosts.toml`. `windlass` has no images yet.
fn build_with_mirrors(registry: &str, hosts: &str) -> crate::process::Said {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("registries").join(registry);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("hosts.toml"), hosts).unwrap();
    let args = format!("image build {} --tag app --file app.tar --base {registry}/team/app:v1", true_program());
    let output = sandbox.command(&args).env("WINDLASS_REGISTRIES", sandbox.path("registries")).output().unwrap();
    output.into()
}

#[test]
fn mirrors_are_asked_before_their_registry() {
    let ((origin, _), (mirror, _), empty) =
        (registry_with_image(), registry_with_image(), Registry::start(Access::Anonymous));
    // Nothing listens there.
    let gone = "127.0.0.1:1";
    let host = |address: &str| format!("[host.\"http://{address}\"]\n");
    let works = |registry: &str, hosts: &str| {
        let said = build_with_mirrors(registry, hosts);
        assert!(said.status.success(), "{hosts}: {said:?}");
    };
    works(gone, &host(&mirror.address));
    let asked = mirror.asked_for(gone);
    assert!(asked >= 3, "the manifest, the configuration and the layer: {asked}");
    // The registry itself comes last, also if a file names it.
    works(&origin.address, &host(gone));
    works(&origin.address, &format!("server = \"http://{}\"\n{}", origin.address, host(&empty.address)));
    assert!(empty.asked_for(&origin.address) >= 3);
    works(gone, &format!("{}{}", host(&empty.address), host(&mirror.address)));
    // Tags are those of the registry, and content comes from the mirror.
    let asked = mirror.asked_for(&origin.address);
    works(&origin.address, &format!("{}capabilities = [\"pull\"]\n", host(&mirror.address)));
    assert_eq!(mirror.asked_for(&origin.address), asked + 2, "the configuration and the layer");

    let said = build_with_mirrors(gone, &host(&empty.address));
    assert!(!said.status.success() && said.stderr.contains("cannot reach http://127.0.0.1:1"), "{said:?}");
    assert!(
        said.stderr.contains(&format!("before that, {} does not give the manifest: 404", empty.address)),
        "{said:?}"
    );
    let said = build_with_mirrors(gone, "[host]\nmirror = \"x\"\n");
    assert!(!said.status.success() && said.stderr.contains("hosts.toml, line 1: there is no table [host]"), "{said:?}");
}

#[test]
fn a_mirror_that_gives_something_else_is_passed_over() {
    let ((origin, digest), (mirror, same)) = (registry_with_image(), registry_with_image());
    assert_eq!(digest, same);
    let manifest: Value = serde_json::from_slice(&mirror.content(&digest)).unwrap();
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    mirror.spoil(layer, &vec![0; usize::try_from(manifest["layers"][0]["size"].as_u64().unwrap()).unwrap()]);
    let said = build_with_mirrors(&origin.address, &format!("[host.\"http://{}\"]\n", mirror.address));
    assert!(said.status.success(), "{said:?}");
}

#[test]
fn a_registry_on_this_machine_may_use_tls() {
    let sandbox = Sandbox::new();
    let authority = Authority::generate().unwrap();
    std::fs::write(sandbox.path("ca.pem"), authority.certificate()).unwrap();
    let (registry, program) = (Registry::start_tls(Access::Anonymous, &authority), true_program());
    let name = format!("{}/team/app", registry.address);
    let push = format!("image build {program} --tag {name}:v1 --push");
    let said = sandbox.fails(&push);
    assert!(said.contains(&format!("cannot reach https://{}", registry.address)), "{said}");
    assert!(said.contains("to a file that SSL_CERT_FILE names"), "{said}");
    for args in [push, format!("image build {program} --tag app --file app.tar --base {name}:v1")] {
        let output = sandbox.command(&args).env("SSL_CERT_FILE", sandbox.path("ca.pem")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(registry.manifest("team/app", "v1").is_some() && sandbox.path("app.tar").exists());
}

#[test]
fn what_a_registry_sends_is_checked() {
    let sandbox = Sandbox::new();
    let (registry, program) = (Registry::start(Access::Anonymous), true_program());
    let name = format!("{}/team/app", registry.address);
    // From elsewhere: what the store of this machine has is not fetched.
    Sandbox::new().succeeds(&format!("image build {program} --tag {name}:v1 --push"));
    let digest = registry.manifest("team/app", "v1").unwrap();
    let content = registry.content(&digest);
    let manifest: Value = serde_json::from_slice(&content).unwrap();
    let build = |base: &str| format!("image build {program} --tag app --file app.tar --base {name}{base}");
    let fails = |base: &str, why: &str| {
        let said = sandbox.fails(&build(base));
        assert!(said.contains(&format!("cannot fetch {name}{base}")) && said.contains(why), "{base}: {said}");
        assert!(!sandbox.path("app.tar").exists());
    };
    fails(":gone", "manifest unknown");

    // An index leads to the image for the program's architecture.
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let one = |architecture: &str, digest: &str, size: usize| json!({"digest": digest, "size": size, "platform": {"os": "linux", "architecture": architecture}});
    let absent = format!("sha256:{}", "0".repeat(64));
    let ours = one(architecture, &digest, content.len());
    let index = json!({"manifests": [one("s390x", &absent, 7), ours, one("unknown", &absent, 7)]});
    registry.add_manifest("index", index.to_string().as_bytes());
    Sandbox::new().succeeds(&build(":index"));
    registry.add_manifest("other", json!({"manifests": [one("s390x", &absent, 7)]}).to_string().as_bytes());
    fails(":other", "it has 0 images for linux/");
    registry.add_manifest("short", json!({"manifests": [one(architecture, &digest, 7)]}).to_string().as_bytes());
    fails(":short", "cannot read what the registry sends");

    // Sizes are what manifests say, and not more than there may be.
    let with = |tag: &str, change: &dyn Fn(&mut Value)| {
        let mut manifest = manifest.clone();
        change(&mut manifest);
        registry.add_manifest(tag, manifest.to_string().as_bytes());
    };
    with("small", &|manifest| manifest["layers"][0]["size"] = json!(10));
    fails(":small", "cannot read what the registry sends");
    with("large", &|manifest| manifest["layers"][0]["size"] = json!(1_u64 << 50));
    fails(":large", "it is larger than 4 GiB");
    with("path", &|manifest| manifest["layers"][0]["digest"] = json!("sha256:../../../etc/passwd"));
    fails(":path", "is not a digest");
    registry.add_manifest("text", b"hello");
    fails(":text", "its manifest is not JSON");

    // And digests are those of the content.
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    let size = usize::try_from(manifest["layers"][0]["size"].as_u64().unwrap()).unwrap();
    registry.spoil(layer, &vec![0; size]);
    fails(":v1", "the registry gave something else for sha256:");
}

#[test]
fn images_are_kept_loaded_listed_and_removed() {
    let sandbox = Sandbox::new();
    let list = || serde_json::from_str::<Value>(&sandbox.succeeds("image list -o json")).unwrap();
    assert!(sandbox.succeeds("image list").contains("no images"));
    sandbox.succeeds(&format!("image build {} --tag me/app:v1 --file app.tar", true_program()));
    assert_eq!(list()[0]["name"], "docker.io/me/app:v1");
    let said = sandbox.succeeds("image load app.tar --tag other");
    assert!(said.contains("as docker.io/library/other:latest"), "{said}");
    assert_eq!(list()[0]["digest"], list()[1]["digest"]);
    sandbox.succeeds("image remove me/app:v1 other");
    assert_eq!(list(), json!([]));
    let blobs = std::fs::read_dir(sandbox.path("clusters/.images/blobs/sha256")).unwrap().count();
    assert_eq!(blobs, 0, "what nothing names is deleted");
    assert!(sandbox.fails("image remove other").contains("there is no image docker.io/library/other:latest"));
    sandbox.succeeds("image load app.tar");
    assert_eq!(list()[0]["name"], "docker.io/me/app:v1");
    std::fs::write(sandbox.path("x.tar"), "x").unwrap();
    assert!(sandbox.fails("image load x.tar").contains("cannot load x.tar"));
}
