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
    assert_eq!(config["config"]["Labels"], serde_json::json!({"a": "b", "c": "e"}));
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

    let said = sandbox.fails(&format!("image build {program} --tag app --base gcr.io/distroless/static"));
    assert!(said.contains("a base is an OCI layout on this machine") && said.contains("skopeo copy"), "{said}");
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
