//! Charts and bundles, checked with Helm where it is installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use windlass_scaffold::{Project, Tree, bundle, chart, kustomize, package, write};

use crate::golden;

/// The chart of a project, and the objects that it was made of.
fn chart_of(project: &Project, root: &Path, image: &str) -> (Tree, Vec<Value>) {
    let objects = package::installation(root, Some(image)).unwrap();
    let input = chart::Input {
        name: project.project_name.as_str(),
        version: "1.2.3",
        objects: &objects,
        optional: &package::optional(root, &objects).unwrap(),
        image,
        definitions: true,
    };
    (chart::chart(&input), objects)
}

fn update(root: &Path, name: &str, tree: &Tree) {
    let plan = package::plan(root, name, tree, false).unwrap();
    assert!(plan.conflicts.is_empty(), "{:?}", plan.conflicts);
    write::write(root, &plan).unwrap();
}

fn helm() -> Option<String> {
    let helm = std::env::var("HELM").unwrap_or_else(|_| "helm".to_owned());
    Command::new(&helm).arg("version").output().is_ok_and(|output| output.status.success()).then_some(helm)
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Objects by kind and name, without what belongs to Helm.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for mut object in objects.into_iter().filter(|object| !object.is_null() && object["kind"] != "Namespace") {
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.remove("app.kubernetes.io/managed-by");
        }
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        assert!(all.insert(name.clone(), object).is_none(), "{name} twice");
    }
    all
}

#[test]
fn helm_gives_the_objects_of_the_kustomization() {
    let Some(helm) = helm() else {
        eprintln!("SKIPPED: helm is not installed");
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for (name, project) in crate::projects() {
        let root = scratch.path().join(name);
        crate::written(&project, &root);
        let (tree, objects) = chart_of(&project, &root, "example.com:5000/shop:v1");
        update(&root, "chart", &tree);
        let directory = root.join(chart::DIRECTORY);
        let directory = directory.to_str().unwrap();
        run(&helm, &["lint", "--strict", directory]);
        let template = |more: &[&str]| {
            let arguments = [&["template", "release", directory, "--namespace", "shop-system"], more].concat();
            let text = run(&helm, &arguments);
            by_name(serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{error}\n{text}")))
        };
        let (own, expected) = (template(&["--set", "crd.keep=false"]), by_name(objects));
        assert_eq!(own.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{name}");
        for (object, expected) in &expected {
            let text = |object: &Value| serde_json::to_string_pretty(object).unwrap();
            assert!(own[object] == *expected, "{}", diffy::create_patch(&text(expected), &text(&own[object])));
        }
        // Everything turned off, and everything chosen, is still what Kubernetes reads.
        let off =
            ["crd", "webhook", "metrics", "podDisruptionBudget"].map(|part| format!("{part}.enable=false")).join(",");
        let off = template(&["--set", &format!("{off},rbac.helpers=false")]);
        assert!(
            !off.keys().any(|name| name.contains("CustomResource") || name.contains("metrics")),
            "{:?}",
            off.keys()
        );
        let on = "networkPolicy.enable=true,prometheus.enable=true,manager.replicas=3,manager.nodeSelector.a=b,\
                  manager.tolerations[0].key=x,manager.env[0].name=A,manager.env[0].value=B,manager.args[0]=--x,\
                  manager.image.tag=sha256:abc,manager.image.pullPolicy=Always,manager.priorityClassName=high";
        let on = template(&["--set", on]);
        assert!(
            on.keys().any(|name| name.contains("ServiceMonitor"))
                && on.keys().any(|name| name.contains("NetworkPolicy"))
        );
        let deployment = on.iter().find(|(name, _)| name.contains("Deployment")).unwrap().1;
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!((&deployment["spec"]["replicas"], &pod["nodeSelector"]["a"]), (&3.into(), &"b".into()));
        assert_eq!(pod["containers"][0]["image"], "example.com:5000/shop@sha256:abc");
        let kept = on.iter().filter(|(name, _)| name.contains("CustomResourceDefinition"));
        assert!(kept.clone().all(|(_, object)| object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"));
    }
}

#[test]
fn edits_of_a_chart_are_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    let (_, project) = crate::projects().remove(0);
    crate::written(&project, root);
    update(root, "chart", &chart_of(&project, root, "shop:v1").0);
    let values = root.join("dist/chart/values.yaml");
    let edited = format!("{}\nmine: true\n", std::fs::read_to_string(&values).unwrap());
    std::fs::write(&values, &edited).unwrap();
    update(root, "chart", &chart_of(&project, root, "shop:v2").0);
    let merged = std::fs::read_to_string(&values).unwrap();
    assert!(merged.contains("tag: v2") && merged.contains("mine: true"), "{merged}");
    // A second run changes nothing.
    let (tree, _) = chart_of(&project, root, "shop:v2");
    assert!(package::plan(root, "chart", &tree, false).unwrap().changes.is_empty());
}

#[test]
fn a_definition_of_a_megabyte_is_packaged() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    let (_, project) = crate::projects().remove(0);
    crate::written(&project, root);
    let path = root.join("config/crd/bases/sales.my.domain_orders.yaml");
    let mut definition: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let properties =
        &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    for number in 0..10_000 {
        let description = format!("The field {number}, of which there are many, with a description of a usual length.");
        properties[format!("field{number}")] = serde_json::json!({"type": "string", "description": description});
    }
    assert!(definition.to_string().len() > 1 << 20);
    std::fs::write(&path, kustomize::to_yaml(&[definition])).unwrap();
    let (tree, objects) = chart_of(&project, root, "shop:v1");
    update(root, "chart", &tree);
    let size = |text: &str| text.len() > 1 << 20;
    assert!(size(tree.get("dist/chart/templates/crd/customresourcedefinition-orders.sales.my.domain.yaml").unwrap()));
    assert!(size(&kustomize::to_yaml(&objects)));
    if let Some(helm) = helm() {
        run(&helm, &["lint", root.join(chart::DIRECTORY).to_str().unwrap()]);
    }
}

#[test]
fn packages_are_those_that_were_checked() {
    let scratch = tempfile::tempdir().unwrap();
    let (_, project) = crate::projects().remove(0);
    crate::written(&project, scratch.path());
    let (chart, objects) = chart_of(&project, scratch.path(), "example.com/shop:v1");
    let samples = kustomize::build(scratch.path(), package::SAMPLES).unwrap();
    let (version, channel, namespaced) = ("1.2.3", "alpha", false);
    let input = bundle::Input { name: "shop", version, channel, objects: &objects, samples: &samples, namespaced };
    let bundle = bundle::bundle(&input);
    let installer = kustomize::to_yaml(&objects);
    let files = chart.iter().chain(bundle.iter()).chain([("dist/install.yaml", installer.as_str())]);
    golden::check("packages.txt", files);
}

#[test]
fn a_bundle_says_what_is_installed() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, project) in crate::projects() {
        let root = scratch.path().join(name);
        crate::written(&project, &root);
        let objects = package::installation(&root, Some("example.com/shop:v1")).unwrap();
        let samples = kustomize::build(&root, package::SAMPLES).unwrap_or_default();
        let input = bundle::Input {
            name: "shop",
            version: "1.2.3",
            channel: "alpha",
            objects: &objects,
            samples: &samples,
            namespaced: project.namespaced,
        };
        let tree = bundle::bundle(&input);
        let csv = tree.get("bundle/manifests/shop.clusterserviceversion.yaml").unwrap();
        let csv: Value = serde_saphyr::from_str(csv).unwrap();
        let spec = &csv["spec"];
        assert_eq!(csv["metadata"]["name"], "shop.v1.2.3");
        assert_eq!(spec["install"]["spec"]["deployments"][0]["name"], "shop-controller-manager");
        let count = |value: &Value| value.as_array().map_or(0, Vec::len);
        let versions = project.resources.iter().filter(|resource| resource.api.is_some()).count();
        assert_eq!(count(&spec["customresourcedefinitions"]["owned"]), versions, "{name}");
        let examples: Vec<Value> =
            serde_json::from_str(csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap()).unwrap();
        assert_eq!(examples.len(), versions);
        // Two admission webhooks and one conversion.
        assert_eq!(count(&spec["webhookdefinitions"]), if project.has_webhooks() { 3 } else { 0 });
        assert_eq!(count(&spec["install"]["spec"]["clusterPermissions"]), usize::from(!project.namespaced));
        assert_eq!(count(&spec["install"]["spec"]["permissions"]), 1);
        let files: Vec<&str> = tree.paths().collect();
        assert!(
            !files.iter().any(|path| path.contains("webhook-service") || path.contains("manager-role")),
            "{files:?}"
        );
    }
}
