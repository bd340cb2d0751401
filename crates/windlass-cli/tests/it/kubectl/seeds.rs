//! The definitions of the seed documents, as far as they say it: each installs, serves its sample, explains
//! itself and has the columns and subresources it declares.
//!
//! What the documents only scaffold (Guestbook, IPPool, Home) has the fields that the scaffold starts with.

use super::{Kubectl, cells, has, kubectl};

/// A definition with its samples, and what kubectl is expected to say of it.
struct Seed {
    manifest: &'static str,
    /// The resource as users type it.
    resource: &'static str,
    /// The resource as kubectl names it in answers.
    full: &'static str,
    sample: &'static str,
    /// What `explain <resource>.spec` says.
    explained: &'static [&'static str],
    /// The table, without the column for the age.
    table: &'static [&'static [&'static str]],
    /// A status patch, and where its effect shows.
    status: Option<(&'static str, &'static str, &'static str)>,
    /// Whether there is a scale.
    scales: bool,
}

const SEEDS: [Seed; 8] = [
    Seed {
        manifest: include_str!("seeds/at.yaml"),
        resource: "ats",
        full: "at.cnat.programming-kubernetes.info",
        sample: "example-at",
        explained: &["schedule\t<string>", "When the command is to run, in UTC."],
        table: &[&["NAME", "SCHEDULE", "PHASE"], &["example-at", "2019-07-03T02:00:00Z"]],
        status: Some((r#"{"status":{"phase":"PENDING"}}"#, ".status.phase", "PENDING")),
        scales: false,
    },
    Seed {
        manifest: include_str!("seeds/crontab.yaml"),
        resource: "ct",
        full: "crontab.stable.example.com",
        sample: "my-new-cron-object",
        explained: &["cronSpec\t<string>", "replicas\t<integer>", "What runs."],
        table: &[&["NAME", "SPEC", "REPLICAS"], &["my-new-cron-object", "* * * * */5", "1"]],
        status: Some((r#"{"status":{"replicas":1}}"#, ".status.replicas", "1")),
        scales: true,
    },
    Seed {
        manifest: include_str!("seeds/foo.yaml"),
        resource: "foos",
        full: "foo.samplecontroller.k8s.io",
        sample: "example-foo",
        explained: &["deploymentName\t<string>", "The Deployment that is kept."],
        table: &[&["NAME", "DEPLOYMENT", "AVAILABLE"], &["example-foo", "example-foo"]],
        status: Some((r#"{"status":{"availableReplicas":1}}"#, ".status.availableReplicas", "1")),
        scales: true,
    },
    Seed {
        manifest: include_str!("seeds/appservice.yaml"),
        resource: "appservices",
        full: "appservice.appcontroller.k8s.io",
        sample: "example-app",
        explained: &["deploymentName\t<string> -required-", "replicas\t<integer> -required-"],
        table: &[&["NAME", "DEPLOYMENT", "WANTED", "AVAILABLE"], &["example-app", "example-app", "2"]],
        // Generated with `genclient:noStatus`: the status is a part of the object like any other.
        status: None,
        scales: true,
    },
    Seed {
        manifest: include_str!("seeds/guestbook.yaml"),
        resource: "guestbooks",
        full: "guestbook.webapp.my.domain",
        sample: "guestbook-sample",
        explained: &["foo\t<string>", "An example field of Guestbook."],
        table: &[&["NAME"], &["guestbook-sample"]],
        status: Some((r#"{"status":{"anything":"goes"}}"#, ".status.anything", "goes")),
        scales: false,
    },
    Seed {
        manifest: include_str!("seeds/ippool.yaml"),
        resource: "ippools",
        full: "ippool.tsi.tiduyun.com",
        sample: "ippool-sample",
        explained: &["cidr\t<string>", "The addresses of the pool."],
        table: &[&["NAME", "RANGE", "USED"], &["ippool-sample", "10.0.0.0/24"]],
        status: Some((r#"{"status":{"used":3}}"#, ".status.used", "3")),
        scales: false,
    },
    Seed {
        manifest: include_str!("seeds/home.yaml"),
        resource: "homes",
        full: "home.ajd.my.domain",
        sample: "home-sample",
        explained: &["foo\t<string>", "An example field of Home."],
        table: &[&["NAME"], &["home-sample"]],
        status: Some((r#"{"status":{"rooms":4}}"#, ".status.rooms", "4")),
        scales: false,
    },
    Seed {
        manifest: include_str!("seeds/pet.yaml"),
        resource: "pets",
        full: "pet.petstore.example.com",
        sample: "pet-sample1",
        explained: &["birthday\t<string> -required-", "type\t<string> -required-", "enum: dog, cat, bird, reptile"],
        table: &[&["NAME"], &["pet-sample1"], &["pet-sample2"]],
        status: Some((r#"{"status":{"id":"23743da5"}}"#, ".status.id", "23743da5")),
        scales: false,
    },
];

#[test]
fn every_definition_of_the_seed_documents_installs_and_serves() {
    kubectl!(cluster, k);
    for seed in &SEEDS {
        install(&k, seed);
        look(&k, seed);
        if let Some(status) = seed.status {
            report(&k, seed, status);
        }
        if seed.scales {
            scale(&k, seed);
        }
    }
    for seed in &SEEDS {
        has(&k.run(&format!("delete {} --all", seed.resource)), &["deleted"]);
    }
    k.run("delete crd --all --timeout=60s");
    assert_eq!(k.run("get crd -o name"), "");
}

fn install(k: &Kubectl, seed: &Seed) {
    let (definition, samples) = seed.manifest.split_once("\n---\n").expect("a definition and samples");
    has(&k.feed("apply -f -", definition), &["created"]);
    k.feed("wait --for=condition=Established --timeout=60s -f -", definition);
    has(&k.feed("apply -f -", samples), &[&format!("{}/{} created", seed.full, seed.sample)]);
    has(&k.feed("apply -f -", samples), &["unchanged"]);
}

fn look(k: &Kubectl, seed: &Seed) {
    let resource = seed.resource;
    let explained = k.run(&format!("explain {resource}.spec"));
    // Older programs do not tell which values there are.
    let told = seed.explained.iter().filter(|text| k.at_least(27) || !text.starts_with("enum:"));
    has(&explained, &told.copied().collect::<Vec<_>>());
    let table = k.run(&format!("get {resource}"));
    for (found, expected) in cells(&table).iter().zip(seed.table) {
        assert_eq!(found[..expected.len()], **expected, "{table}");
    }
    has(&k.run(&format!("describe {resource} {}", seed.sample)), &["Spec:"]);
}

/// The status is apart from the rest: it changes through its subresource alone, and is no new generation.
fn report(k: &Kubectl, seed: &Seed, (patch, path, expected): (&str, &str, &str)) {
    let object = format!("{}/{}", seed.resource, seed.sample);
    k.run(&format!("patch {object} --type=merge -p {patch}"));
    assert_eq!(k.field(&object, path), "", "{object}");
    if k.at_least(24) {
        k.run(&format!("patch {object} --subresource=status --type=merge -p {patch}"));
        assert_eq!(k.field(&object, path), expected, "{object}");
        assert_eq!(k.field(&object, ".metadata.generation"), "1", "{object}");
    }
}

fn scale(k: &Kubectl, seed: &Seed) {
    let object = format!("{}/{}", seed.resource, seed.sample);
    has(&k.run(&format!("scale {object} --replicas=5")), &["scaled"]);
    assert_eq!(k.field(&object, ".spec.replicas"), "5");
    let wrong = format!("scale {object} --replicas=6 --current-replicas=1");
    has(&k.fails(&wrong), &["Expected replicas to be 1, was 5"]);
}
