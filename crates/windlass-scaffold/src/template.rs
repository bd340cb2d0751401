//! The templates of generated files.
//!
//! A template is the file itself with «variables» and lines that begin with `%%` for conditions and loops: the usual
//! braces mean something in Rust, YAML, TOML and Helm already. No template is called `Cargo.toml`: Cargo would take its
//! directory for another package and leave it out.

use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value};

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        const TEMPLATES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../templates/", $name)))),*];
    };
}

templates![
    "root/cargo.toml.in",
    "root/gitignore",
    "root/dockerignore",
    "root/Dockerfile",
    "root/justfile",
    "root/rustfmt.toml",
    "root/Makefile",
    "root/README.md",
    "root/AGENTS.md",
    "root/test.yml",
    "root/license-apache2",
    "root/license-mit",
    "api/cargo.toml.in",
    "api/types.rs",
    "operator/main.rs",
    "operator/lib.rs",
    "operator/controller.rs",
    "operator/reconciler.rs",
    "operator/reconciler_foreign.rs",
    "webhook/webhook.rs",
    "webhook/kind.rs",
    "webhook/conversion.rs",
    "tests/main.rs",
    "tests/kind.rs",
    "config/default.yaml",
    "config/metrics_service.yaml",
    "config/manager_metrics_patch.yaml",
    "config/manager_kustomization.yaml",
    "config/manager.yaml",
    "config/rbac_kustomization.yaml",
    "config/service_account.yaml",
    "config/metrics_reader_role.yaml",
    "config/person_role.yaml",
    "config/crd_kustomization.yaml",
    "config/samples_kustomization.yaml",
    "config/sample.yaml",
    "config/network_policy_kustomization.yaml",
    "config/allow_traffic.yaml",
    "config/monitor_kustomization.yaml",
    "config/monitor.yaml",
    "config/webhook_kustomization.yaml",
    "config/webhook_service.yaml",
    "config/pod_disruption_budget.yaml",
    "config/crd_patches_kustomization.yaml",
    "config/crd_patch.yaml",
    "config/crd_kustomizeconfig.yaml",
    "config/certmanager_kustomization.yaml",
    "config/certmanager_config.yaml",
    "config/certmanager_issuer.yaml",
    "config/certmanager_certificate.yaml",
    "config/certmanager_patch.yaml",
];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .variable_delimiters("«", "»")
        .block_delimiters("⟦", "⟧")
        .comment_delimiters("⟦#", "#⟧")
        .line_statement_prefix("%% ")
        .build()
        .expect("invariant: the delimiters differ");
    environment.set_syntax(syntax);
    environment.set_keep_trailing_newline(true);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Nothing here is HTML.
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    for (name, text) in TEMPLATES {
        environment.add_template(name, text).expect("invariant: a test renders every template");
    }
    environment
});

/// Renders a template of this crate.
pub(crate) fn render(name: &str, values: Value) -> String {
    let template = ENVIRONMENT.get_template(name).expect("invariant: templates are named by constants");
    template.render(values).expect("invariant: tests render every template with every option")
}
