//! `windlass install`, `uninstall` and `apply` against a cluster of `windlass up`. `tests/tutorials` has them with real
//! operators.

mod deploy;
mod operator;
mod push;
mod samples;

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::process::Said;
use crate::windlass::{Cluster, Sandbox};

/// A definition of Pets, with room for a description of the spec.
fn pets(description: &str) -> String {
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: pets.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: Pet, plural: pets}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{type: object, description: "{description}",
      properties: {{name: {{type: string}}}}}}}}}}}}
"#
    )
}

const PET: &str = "apiVersion: example.com/v1\nkind: Pet\nmetadata: {name: rex}\nspec: {name: Rex}\n";
const HELD: &str =
    "apiVersion: example.com/v1\nkind: Pet\nmetadata: {name: rex, finalizers: [example.com/vet]}\nspec: {name: Rex}\n";

/// A cluster, and a directory to call `windlass` from.
struct Stage {
    cluster: Cluster,
    sandbox: Sandbox,
}

impl Stage {
    fn new() -> Self {
        Self { cluster: Cluster::ephemeral(), sandbox: Sandbox::new() }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.sandbox.path(name), text).unwrap();
    }

    fn windlass(&self, args: &str) -> Said {
        self.sandbox.windlass(&format!("{args} --kubeconfig {}", self.cluster.kubeconfig.display()))
    }

    #[track_caller]
    fn succeeds(&self, args: &str) -> String {
        let said = self.windlass(args);
        assert!(said.status.success(), "windlass {args}: {}{}", said.stdout, said.stderr);
        said.stdout
    }

    #[track_caller]
    fn fails(&self, args: &str) -> Said {
        let said = self.windlass(args);
        assert_eq!(said.status.code(), Some(1), "windlass {args}: {}{}", said.stdout, said.stderr);
        said
    }
}

/// What became of each object, by name.
fn results(text: &str) -> Vec<(String, String)> {
    let value: Value = serde_json::from_str(text).unwrap();
    let objects = value["objects"].as_array().unwrap().iter();
    objects.map(|one| (one["name"].as_str().unwrap().into(), one["result"].as_str().unwrap().into())).collect()
}

#[test]
fn definitions_are_installed_and_uninstalled() {
    let stage = Stage::new();
    stage.write("crd.yaml", &pets(""));
    stage.write("pet.yaml", PET);
    let said = stage.windlass("install -f crd.yaml");
    assert_eq!(said.stdout, "customresourcedefinition.apiextensions.k8s.io/pets.example.com created\n");
    assert!(said.stderr.contains("context \"windlass-default\", https://127.0.0.1:"), "{}", said.stderr);
    assert!(stage.succeeds("install -f crd.yaml").contains(" unchanged"));
    stage.write("crd.yaml", &pets("more"));
    assert!(stage.succeeds("install -f crd.yaml").contains(" configured"));
    // The kind is served at once.
    assert_eq!(stage.succeeds("apply -f pet.yaml"), "pet.example.com/rex created\n");

    let said = stage.fails("uninstall -f crd.yaml");
    assert!(said.stderr.contains("to be deleted: 1 Pet: default/rex"), "{}", said.stderr);
    assert!(said.stderr.contains("--yes"), "{}", said.stderr);
    assert!(stage.succeeds("uninstall -f crd.yaml --yes").contains(" deleted"));
    assert!(stage.succeeds("uninstall -f crd.yaml").contains(" was not there"));
}

#[test]
fn objects_that_hold_their_definition_are_named() {
    let stage = Stage::new();
    stage.write("all.yaml", &format!("{HELD}---\n{}", pets("")));
    stage.succeeds("apply -f all.yaml");
    let said = stage.fails("uninstall -f all.yaml --yes --timeout 1");
    assert!(said.stderr.contains("not gone after 1 s"), "{}", said.stderr);
    assert!(said.stderr.contains("default/rex (held by the finalizer example.com/vet)"), "{}", said.stderr);
    stage.succeeds("uninstall -f all.yaml --yes --remove-finalizers");
}

/// What is applied to an object that is being deleted would go with it.
#[test]
fn what_is_being_deleted_is_created_again() {
    let stage = Stage::new();
    stage.write("all.yaml", &format!("{HELD}---\n{}", pets("")));
    stage.write("crd.yaml", &pets(""));
    stage.succeeds("apply -f all.yaml");
    stage.fails("uninstall -f crd.yaml --yes --timeout 1");
    let said = stage.fails("install -f crd.yaml --timeout 1");
    let said = format!("{}{}", said.stdout, said.stderr);
    assert!(said.contains("still being deleted after 1 s"), "{said}");
    assert!(said.contains("default/rex (held by the finalizer example.com/vet)"), "{said}");
    assert!(said.contains("`windlass uninstall --remove-finalizers`"), "{said}");

    let install = format!("install -f crd.yaml --kubeconfig {}", stage.cluster.kubeconfig.display());
    let installing = stage.sandbox.command(&install).stdout(std::process::Stdio::piped()).spawn().unwrap();
    stage.succeeds("uninstall -f crd.yaml --yes --remove-finalizers");
    let installed = installing.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&installed.stdout).contains(" created"), "{installed:?}");
    stage.write("pet.yaml", PET);
    assert!(stage.succeeds("apply -f pet.yaml").contains(" created"));
}

/// A webhook that nothing serves.
const SILENT_WEBHOOK: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: pets-webhooks}
webhooks:
- name: vpet.example.com
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {url: 'https://127.0.0.1:9/validate'}
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [pets], operations: [UPDATE]}]
";

#[test]
fn a_webhook_that_keeps_finalizers_is_named() {
    let remedy = "The webhook is registered by validatingwebhookconfiguration/pets-webhooks: start the operator that serves \
                  it, or take it away with `kubectl delete validatingwebhookconfiguration/pets-webhooks`; then run this \
                  command again";
    let stage = Stage::new();
    stage.write("all.yaml", &format!("{HELD}---\n{}---\n{SILENT_WEBHOOK}", pets("")));
    stage.succeeds("apply -f all.yaml");
    stage.write("crd.yaml", &pets(""));
    let said = stage.fails("uninstall -f crd.yaml --yes --remove-finalizers");
    let error = said.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    let begin = "error: the finalizers of default/rex cannot be removed: Internal error occurred: failed calling webhook \
                 \"vpet.example.com\": ";
    assert!(error.starts_with(begin) && error.ends_with(remedy), "{}", said.stderr);
    assert!(!said.stderr.contains("Status {"), "{}", said.stderr);
}

#[test]
fn what_a_server_refuses_is_said_in_its_words() {
    let stage = Stage::new();
    let config = std::fs::read_to_string(&stage.cluster.kubeconfig).unwrap();
    let users = config.find("users:").unwrap();
    let nobody = config[..users].to_owned() + "users: [{name: nobody, user: {token: wrong}}]\n";
    let mut config: Value = serde_saphyr::from_str(&nobody).unwrap();
    config["contexts"][0]["context"]["user"] = "nobody".into();
    stage.write("config", &config.to_string());
    stage.write("crd.yaml", &pets(""));
    for command in ["uninstall -f crd.yaml --yes", "install -f crd.yaml", "nodes list"] {
        let said = stage.sandbox.windlass(&format!("{command} --kubeconfig config"));
        let text = said.stdout + &said.stderr;
        assert_eq!(said.status.code(), Some(1), "{command}: {text}");
        assert!(text.contains("Unauthorized") && !text.contains("Status {"), "{command}: {text}");
    }
}

#[test]
fn a_directory_with_a_kustomization_is_installed_as_it_says() {
    let stage = Stage::new();
    std::fs::create_dir_all(stage.sandbox.path("crd/patches")).unwrap();
    std::fs::create_dir_all(stage.sandbox.path("crd/bases")).unwrap();
    stage.write("crd/bases/pets.yaml", &pets(""));
    // Neither a definition by itself, nor named by the kustomization.
    let patch = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: pets.example.com, \
                 annotations: {patched: 'yes'}}\n";
    stage.write("crd/patches/pets.yaml", patch);
    stage.write("crd/other.yaml", &pets("").replace("pets", "cats").replace("Pet", "Cat"));
    stage.write("crd/kustomization.yaml", "resources: [bases/pets.yaml]\npatches: [{path: patches/pets.yaml}]\n");
    let said = stage.succeeds("install -f crd");
    assert_eq!(said, "customresourcedefinition.apiextensions.k8s.io/pets.example.com created\n");
    let unpatched = stage.succeeds("install -f crd/bases/pets.yaml");
    assert!(unpatched.contains(" configured"), "the annotation was there: {unpatched}");
    assert!(stage.succeeds("install -f crd").contains(" configured"));
    assert!(stage.succeeds("install -f crd").contains(" unchanged"));
    assert!(stage.succeeds("uninstall -f crd").contains("pets.example.com deleted"));
    // Without one, all files of the directory are read.
    std::fs::remove_file(stage.sandbox.path("crd/kustomization.yaml")).unwrap();
    std::fs::remove_dir_all(stage.sandbox.path("crd/patches")).unwrap();
    assert!(stage.succeeds("install -f crd").contains("cats.example.com created"));
}

#[test]
fn a_definition_of_a_megabyte_is_installed() {
    let stage = Stage::new();
    let description = "Says what a pet is, at length. ".repeat(35_000);
    assert!(description.len() > 1_000_000);
    stage.write("crd.yaml", &pets(&description));
    stage.write("pet.yaml", PET);
    stage.succeeds("install -f crd.yaml");
    assert!(stage.succeeds("install -f crd.yaml").contains(" unchanged"));
    stage.succeeds("apply -f pet.yaml");
}

#[test]
fn directories_are_applied_in_the_order_that_works() {
    let stage = Stage::new();
    std::fs::create_dir_all(stage.sandbox.path("all/more")).unwrap();
    stage.write("all/a.yaml", &PET.replace("{name: rex}", "{name: rex, namespace: zoo}"));
    stage.write("all/b.yaml", &pets(""));
    stage.write(
        "all/c.json",
        r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "zoo", "labels": {"a": "b"}}}"#,
    );
    stage.write("all/kustomization.yaml", "resources: [a.yaml]\n");
    stage.write("all/more/d.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\n");
    let all = |result: &str| ["zoo", "pets.example.com", "rex"].map(|name| (name.to_owned(), result.to_owned()));
    let dry = results(&stage.succeeds("apply -f all --dry-run -o json"));
    let unchecked =
        |(name, result): (String, String)| (name, if result == "unchecked" { "created".into() } else { result });
    assert_eq!(dry.into_iter().map(unchecked).collect::<Vec<_>>(), all("created"));
    assert_eq!(results(&stage.succeeds("apply -f all -o json")), all("created"));
    assert_eq!(results(&stage.succeeds("apply -f all -o json")), all("unchanged"));
    assert_eq!(results(&stage.succeeds("apply -f all -o json --dry-run")), all("unchanged"));
    assert!(stage.succeeds("apply -R -f all").contains("configmap/d created"));
}

#[test]
fn one_object_that_fails_does_not_hide_the_others() {
    let stage = Stage::new();
    let mut text = String::new();
    for (version, kind, name) in [("v1", "ConfigMap", "a"), ("v1", "ConfigMap", "B_B"), ("no.such/v1", "Thing", "c")] {
        writeln!(text, "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}").unwrap();
    }
    text.push_str("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: z}\n");
    stage.write("all.yaml", &text);
    let said = stage.fails("apply -f all.yaml -n default");
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", said.stdout);
    assert_eq!(lines[0], "configmap/a created");
    assert!(lines[1].starts_with("configmap/B_B failed: ") && lines[1].contains("lowercase RFC 1123"), "{}", lines[1]);
    assert!(
        said.stdout.contains("thing.no.such/c failed: the server has no kind Thing in no.such/v1"),
        "{}",
        said.stdout
    );
    assert!(said.stdout.contains("configmap/z created"), "{}", said.stdout);
    assert!(said.stderr.contains("2 of 4 objects failed"), "{}", said.stderr);
}

#[test]
fn fields_of_others_are_taken_over_only_when_asked() {
    let stage = Stage::new();
    stage.write("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n");
    stage.succeeds("apply -f a.yaml");
    let config = stage.cluster.kubeconfig.clone();
    set_by_another(&config);
    let said = stage.fails("apply -f a.yaml");
    assert!(
        said.stdout.contains("conflict with \"other\"") && said.stdout.contains("--force-conflicts"),
        "{}",
        said.stdout
    );
    assert!(stage.succeeds("apply -f a.yaml --force-conflicts").contains(" configured"));
}

/// Has another program set the value.
fn set_by_another(kubeconfig: &Path) {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, Patch, PatchParams};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = windlass::config::Loader::default().kubeconfig(kubeconfig).client().await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        let patch = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "2"}});
        maps.patch("a", &PatchParams::apply("other").force(), &Patch::Apply(&patch)).await.unwrap();
    });
}

#[test]
fn results_are_printed_in_every_format() {
    let stage = Stage::new();
    stage.write(
        "list.yaml",
        "apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]\n",
    );
    let yaml = stage.succeeds("apply -f list.yaml -o yaml");
    assert!(yaml.contains("kind: ConfigMap\n") && yaml.contains("result: created"), "{yaml}");
    assert_eq!(stage.succeeds("apply -f list.yaml -o table"), "configmap/a unchanged\nconfigmap/b unchanged\n");
    let mut command = stage.sandbox.command("apply -f list.yaml -n");
    let said: Said = command.arg("Bad NS").output().unwrap().into();
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(said.stderr.contains("a namespace is at most 63 lower-case letters"), "{said:?}");
}

#[test]
fn standard_input_is_read() {
    let stage = Stage::new();
    let file = std::fs::File::create_new(stage.sandbox.path("in")).unwrap();
    std::io::Write::write_all(&mut &file, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").unwrap();
    let args = format!("apply -f - --kubeconfig {}", stage.cluster.kubeconfig.display());
    let mut command = stage.sandbox.command(&args);
    let said: Said = command.stdin(std::fs::File::open(stage.sandbox.path("in")).unwrap()).output().unwrap().into();
    assert_eq!(said.stdout, "configmap/a created\n", "{}", said.stderr);
}

#[test]
fn the_cluster_is_chosen_by_context() {
    let stage = Stage::new();
    stage.write("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    let said = stage.fails("apply -f a.yaml --context nowhere");
    assert!(said.stderr.contains("no context \"nowhere\"; there are: windlass-default"), "{}", said.stderr);
    assert!(stage.sandbox.fails("apply -f a.yaml").contains("there is no kubeconfig at"));
    let said = stage.sandbox.fails("apply -f a.yaml --kubeconfig nowhere.config");
    assert!(said.contains("there is no kubeconfig at nowhere.config; start a cluster with `windlass up`"), "{said}");
    stage.write("broken.config", "clusters: [");
    let said = stage.sandbox.fails("apply -f a.yaml --kubeconfig broken.config");
    assert!(said.contains("broken.config is not a kubeconfig that can be read"), "{said}");
    for command in ["undeploy --yes", "deploy --skip-build"] {
        let said = stage.fails(command).stderr;
        assert!(
            said.contains("there is no config/default in") && said.contains("go to the project's directory"),
            "{said}"
        );
    }
    std::fs::copy(&stage.cluster.kubeconfig, stage.sandbox.user_kubeconfig()).unwrap();
    stage.sandbox.succeeds("apply -f a.yaml --context windlass-default");
    assert!(stage.sandbox.fails("apply -f a.yaml --embedded --context x").contains("cannot be used with"));
    assert!(stage.sandbox.fails("apply -f missing.yaml").contains("cannot read missing.yaml"));
}

#[test]
fn an_embedded_cluster_is_started_when_it_does_not_run() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("a.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").unwrap();
    let said = sandbox.windlass("apply -f a.yaml --embedded=zoo");
    assert!(said.stderr.contains("starting cluster \"zoo\""), "{}{}", said.stdout, said.stderr);
    assert_eq!(said.stdout, "configmap/a created\n");
    let said = sandbox.windlass("apply -f a.yaml --embedded=zoo");
    assert_eq!(said.stdout, "configmap/a unchanged\n", "{}", said.stderr);
    assert!(!said.stderr.contains("starting"), "{}", said.stderr);
    sandbox.succeeds("down --name zoo --purge");
}
