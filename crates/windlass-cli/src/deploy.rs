//! `windlass deploy` and `undeploy`: an operator in its cluster, as `config/default` of its project describes it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use windlass_image::Reference;
use windlass_scaffold::Project;

use crate::against::definitions::is_definition;
use crate::against::target::Target;
use crate::against::{self, apply, documents, made, remove, report, rollout};
use crate::args::{Deploy, USER, Undeploy};
use crate::{image, operator, output, project, uninstall};

/// What generated manifests call the operator's image.
const PLACEHOLDER: &str = "controller:latest";
/// The label of namespaces that a deployment has created, which go with it.
const CREATED_BY: &str = "windlass.dev/created-by";
const DEPLOY: &str = "deploy";
/// The annotation of pods that says what their image holds.
const CONTENT: &str = "windlass.dev/image-digest";

pub(crate) fn run(args: &Deploy) -> Result<ExitCode> {
    let root = project::root(Path::new("."));
    let mut reference = None;
    if !args.skip_build {
        // An image that is built gets its digest from its content.
        let parsed = args.image.as_deref().map(str::parse::<Reference>).transpose();
        reference = parsed.map_err(|error| output::Usage(format!("--image: {error}")))?;
    }
    Target::start_with_pods(&args.target)?;
    // A build takes long; what is known to fail afterwards is said before.
    Target::check_pods(&args.target)?;
    let mut image = None;
    if !args.skip_build {
        let program = operator::release(&args.operator)?;
        manifests(&root, &program)?;
        let settings = image::Settings { entrypoint: None, user: USER.into(), labels: Vec::new(), base: None };
        image = Some(image::build(&program, &settings)?);
    }
    if let (Some(image), None) = (&image, &reference) {
        reference = Some(own_name(&root, image)?);
    }
    let mut objects = render(&root, &args.directory)?;
    if let Some(name) = args.image.clone().or_else(|| reference.as_ref().map(ToString::to_string)) {
        set_image(&mut objects, &name);
    }
    if let Some(image) = &image {
        set_content(&mut objects, image.digest());
    }
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        mark_new_namespaces(&target.client, &mut objects).await;
        if let (Some(image), Some(reference)) = (&image, &reference) {
            deliver(args, &target, image, reference, &root).await?;
        }
        let options = apply::Options {
            namespace: target.namespace.clone(),
            dry_run: false,
            force: true,
            timeout: Duration::from_secs(args.timeout),
            notes: true,
        };
        let done = apply::apply(&target.client, objects, &options, report::line(args.output, false)).await?;
        let code = report::finish(&target, &done, args.output, false);
        if done.iter().any(apply::Done::failed) || args.no_wait {
            return Ok(code);
        }
        for done in done.iter().filter(|done| done.kind == "Deployment") {
            let namespace = done.namespace.as_deref().unwrap_or(&target.namespace);
            rollout::wait(&target.client, namespace, &done.name, Duration::from_secs(args.timeout)).await?;
            output::note(format_args!("{} is rolled out", done.title()));
        }
        Ok(code)
    })
}

/// Brings the image to where the cluster gets it from.
async fn deliver(
    args: &Deploy,
    target: &Target,
    image: &image::Built,
    reference: &Reference,
    root: &Path,
) -> Result<()> {
    if args.push {
        image::push(image, reference).await?;
        output::note(format_args!("pushed {reference}@{}", image.digest()));
        return Ok(());
    }
    let file = if let Some(file) = &args.file {
        file.clone()
    } else {
        let directory = root.join("target");
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        directory.join(format!("{}.tar", reference.short_name()))
    };
    image::write(image, reference, &file)?;
    image::keep(image, reference);
    output::note(format_args!("the image {reference} is in {}", file.display()));
    if let Some((program, arguments)) = loader(&target.context, &file) {
        load(&program, &arguments)?;
        output::note(format_args!("loaded the image with {program}"));
        return Ok(());
    }
    // Clusters of other names may share the images of a container engine, or have nothing to do with this machine.
    let arguments = ["load".to_owned(), "--input".to_owned(), file.display().to_string()];
    for engine in engines(&target.context) {
        match load(engine, &arguments) {
            Ok(()) => {
                output::note(format_args!(
                    "loaded the image with {engine}; a cluster that does not use its images gets it from a registry, with --push"
                ));
                return Ok(());
            }
            Err(error) => output::note(format_args!("{}", output::with_causes(&error))),
        }
    }
    if rollout::nodes(&target.client).await == rollout::Nodes::Simulated {
        output::note(format_args!("the image is not loaded: {}", rollout::SIMULATED));
        return Ok(());
    }
    if target.context.starts_with("windlass-") {
        // Its pods find the images of `windlass image`.
        return Ok(());
    }
    output::note("the nodes of this cluster must have the image already; --push puts it into a registry instead");
    Ok(())
}

fn load(program: &str, arguments: &[String]) -> Result<()> {
    let loaded = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let loaded =
        loaded.with_context(|| format!("cannot run {program}, which loads images into the cluster's nodes"))?;
    if !loaded.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&loaded.stderr).trim());
    }
    Ok(())
}

/// The container engines on this machine, in the order in which they are tried. A cluster of `windlass up` has images of
/// its own.
fn engines(context: &str) -> Vec<&'static str> {
    if context.starts_with("windlass-") {
        return Vec::new();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    ["docker", "podman"].into_iter().filter(is_there).collect()
}

/// The program that loads a tar file into the nodes of a cluster, by the name that the context has.
fn loader(context: &str, file: &Path) -> Option<(String, Vec<String>)> {
    let file = file.display().to_string();
    // Their nodes have the images of docker itself.
    if ["docker-desktop", "rancher-desktop", "orbstack", "colima"].contains(&context) {
        return Some(("docker".into(), ["load", "--input", &file].map(str::to_owned).to_vec()));
    }
    if let Some(name) = context.strip_prefix("kind-") {
        return Some(("kind".into(), ["load", "image-archive", &file, "--name", name].map(str::to_owned).to_vec()));
    }
    if let Some(name) = context.strip_prefix("k3d-") {
        return Some(("k3d".into(), ["image", "import", &file, "--cluster", name].map(str::to_owned).to_vec()));
    }
    let name = (context == "minikube").then(|| ["image", "load", &file].map(str::to_owned).to_vec());
    name.map(|arguments| ("minikube".into(), arguments))
}

/// Renders the kustomization of a project.
fn render(root: &Path, directory: &str) -> Result<Vec<Value>> {
    if !root.join(directory).is_dir() {
        bail!("there is no {directory} in {}; go to the project's directory, or name another one", root.display());
    }
    documents::render(root, directory)
}

/// Writes the manifests that come from the code, so that what is applied fits the program.
fn manifests(root: &Path, program: &Path) -> Result<()> {
    let mut command = Command::new(std::env::current_exe().context("cannot find the windlass program")?);
    command.args(["manifests", "--write", "--program"]).arg(program).current_dir(root).stdin(Stdio::null());
    let output = command.output().context("cannot run windlass manifests")?;
    if !output.status.success() {
        bail!("windlass manifests: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// What an image is called that has not been given a name: by its project, so that projects do not replace each other's, and
/// by its content.
fn own_name(root: &Path, image: &image::Built) -> Result<Reference> {
    let text = std::fs::read_to_string(root.join("PROJECT"));
    let project = text.ok().and_then(|text| Some(Project::parse(&text).ok()?.project_name.to_string()));
    let digest = image.digest();
    let content = digest.rsplit(':').next().unwrap_or_default();
    let name = project.as_deref().unwrap_or("controller");
    Ok(format!("{name}:{}", content.get(..12).unwrap_or(content)).parse()?)
}

/// Says in the operator's pods what their image holds, so that another image of the same name is rolled out as well.
fn set_content(objects: &mut [Value], digest: &str) {
    for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let template = &mut object["spec"]["template"];
        let containers = template["spec"]["containers"].as_array();
        if containers.into_iter().flatten().any(|container| container["name"] == "manager") {
            template["metadata"]["annotations"][CONTENT] = digest.into();
        }
    }
}

/// Sets the image of the operator's containers.
fn set_image(objects: &mut [Value], image: &str) {
    for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array_mut();
        for container in containers.into_iter().flatten() {
            if container["image"] == PLACEHOLDER || container["name"] == "manager" {
                container["image"] = image.into();
            }
        }
    }
}

/// Labels the namespaces that are not there yet, and those that an earlier deployment has made.
async fn mark_new_namespaces(client: &kube::Client, objects: &mut [Value]) {
    for object in objects.iter_mut().filter(|object| is_namespace(object)) {
        // A user who may not read namespaces does not create them either; applying it says what is not allowed.
        let Ok(found) = apply::get(client, &namespace_path(object)).await else { continue };
        // One that is being deleted will be gone, and is created again.
        let is_new = |found: Value| is_made_here(&found) || found["metadata"]["deletionTimestamp"].is_string();
        if found.is_none_or(is_new) {
            object["metadata"]["labels"][CREATED_BY] = DEPLOY.into();
        }
    }
}

/// Takes the namespaces out of what is to be deleted that were there before the operator was deployed: they may hold
/// objects of others.
async fn keep_others_namespaces(client: &kube::Client, objects: &mut Vec<Value>) -> Result<()> {
    let mut kept = Vec::new();
    for object in objects.iter().filter(|object| is_namespace(object)) {
        let found = apply::get(client, &namespace_path(object)).await?;
        if found.is_some_and(|found| !is_made_here(&found)) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            output::note(format_args!(
                "the namespace {name} stays: `windlass deploy` did not create it. `kubectl delete namespace {name}` \
                 deletes it with everything in it"
            ));
            kept.push(object["metadata"]["name"].clone());
        }
    }
    objects.retain(|object| !is_namespace(object) || !kept.contains(&object["metadata"]["name"]));
    Ok(())
}

fn is_namespace(object: &Value) -> bool {
    object["kind"] == "Namespace" && object["apiVersion"] == "v1"
}

fn is_made_here(namespace: &Value) -> bool {
    namespace["metadata"]["labels"][CREATED_BY] == DEPLOY
}

fn namespace_path(namespace: &Value) -> String {
    format!("/api/v1/namespaces/{}", namespace["metadata"]["name"].as_str().unwrap_or_default())
}

pub(crate) fn undo(args: &Undeploy) -> Result<ExitCode> {
    let root: PathBuf = project::root(Path::new("."));
    let objects = render(&root, &args.directory)?;
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        let (definitions, mut others): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_definition);
        let options = remove::Options {
            namespace: target.namespace.clone(),
            timeout: Duration::from_secs(args.timeout),
            remove_finalizers: args.remove_finalizers,
        };
        let mut done = Vec::new();
        // While the operator runs: it cleans up after its objects.
        if !args.keep_crds {
            uninstall::consent(&target, &definitions, args.yes).await?;
            let report = report::line(args.output, false);
            done.extend(remove::remove(&target.client, definitions, &options, report).await?);
        }
        keep_others_namespaces(&target.client, &mut others).await?;
        let made = made::outside_of(made::candidates(&others, &target.namespace), &others);
        // An operator that still runs would register its webhooks again.
        let (programs, mut others): (Vec<Value>, Vec<Value>) = others.into_iter().partition(remove::has_pods);
        done.extend(remove::remove(&target.client, programs, &options, report::line(args.output, false)).await?);
        others.extend(made::find(&target.client, made).await);
        done.extend(remove::remove(&target.client, others, &options, report::line(args.output, false)).await?);
        Ok(report::finish(&target, &done, args.output, false))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_operators_image_is_set() {
        let containers = json!([
            {"name": "manager", "image": "controller:latest"}, {"name": "proxy", "image": "proxy:1"},
        ]);
        let mut objects = [json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": containers}}}})];
        set_image(&mut objects, "registry.example.com/pets:v1");
        let containers = &objects[0]["spec"]["template"]["spec"]["containers"];
        assert_eq!([&containers[0]["image"], &containers[1]["image"]], ["registry.example.com/pets:v1", "proxy:1"]);
    }

    #[test]
    fn another_image_of_the_same_name_is_rolled_out() {
        let mut objects = [
            json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"name": "manager"}]}}}}),
            json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"name": "other"}]}}}}),
        ];
        set_content(&mut objects, "sha256:1");
        assert_eq!(objects[0]["spec"]["template"]["metadata"]["annotations"][CONTENT], "sha256:1");
        assert_eq!(objects[1]["spec"]["template"]["metadata"], Value::Null);
    }

    #[test]
    fn local_clusters_have_a_program_that_loads_images() {
        let file = Path::new("a.tar");
        let (program, arguments) = loader("kind-dev", file).expect("kind");
        assert_eq!((program.as_str(), arguments.join(" ").as_str()), ("kind", "load image-archive a.tar --name dev"));
        assert_eq!(loader("k3d-dev", file).expect("k3d").0, "k3d");
        assert_eq!(loader("minikube", file).expect("minikube").0, "minikube");
        assert_eq!(loader("docker-desktop", file).expect("docker").1, ["load", "--input", "a.tar"]);
        assert_eq!(loader("windlass-default", file), None);
    }
}
