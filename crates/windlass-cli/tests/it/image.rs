//! `windlass image build`: the image that comes out, and a registry that takes it.

mod registry;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::windlass::Sandbox;
use registry::Registry;

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
    let program = ["/usr/bin/true", "/bin/true"].into_iter().find(|path| Path::new(path).exists()).unwrap();
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
    script(&sandbox.path("run"));
    let registry = Registry::start();
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
