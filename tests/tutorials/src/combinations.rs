//! Projects with many combinations of options. Each has a name of its own, because all are in one workspace.

/// A name, and what is typed.
pub(crate) const ALL: [(&str, &[&str]); 20] = [
    ("bare", &["init"]),
    ("bare-namespaced", &["init --namespaced --license none"]),
    ("mit-license", &["init --license mit --owner 'The Pet Shop'", "create api --group a --version v1 --kind Cat"]),
    ("apache-license", &["init --license apache2 --owner Zoo", "create api --group a --version v1 --kind Cat"]),
    ("no-license", &["init --license copyright --owner Zoo", "create api --group a --version v1 --kind Cat"]),
    ("cluster-scope", &["init", "create api --group a --version v1 --kind Cat --namespaced=false"]),
    ("watch-namespace", &["init --namespaced", "create api --group a --version v1 --kind Cat"]),
    ("no-controller", &["init", "create api --group a --version v1 --kind Cat --controller=false"]),
    (
        "two-controllers",
        &[
            "init",
            "create api --group a --version v1 --kind Cat",
            "create api --group a --version v1 --kind Cat --resource=false --controller-name cat-feeder",
        ],
    ),
    (
        "names",
        &["init", "create api --group a --version v1 --kind Mouse --plural mice --shortname mo,m --namespaced=false"],
    ),
    (
        "odd-names",
        &[
            "init --domain x--y.example",
            "create api --group my-group.sub --version v1beta2 --kind HTTPRoute2",
            "create api --group my-group.sub --version v1beta2 --kind A --controller=false",
        ],
    ),
    (
        "many-groups",
        &[
            "init --multigroup",
            "create api --group a --version v1 --kind Cat",
            "create api --group b-c --version v1alpha1 --kind Cat",
            "create webhook --group b-c --kind Cat --validation",
            "create api --group dog --version v1 --kind Dog",
        ],
    ),
    (
        "groups-later",
        &[
            "init",
            "create api --group a --version v1 --kind Cat",
            "edit --multigroup",
            "create api --group b --version v1 --kind Dog --namespaced=false",
        ],
    ),
    (
        "versions",
        &[
            "init",
            "create api --group a --version v1 --kind Cat",
            "create api --group a --version v1beta1 --kind Cat --controller=false",
            "create api --group a --version v2alpha1 --kind Cat --controller=false",
        ],
    ),
    ("defaulting", &["init", "create api --group a --version v1 --kind Cat", "create webhook --kind Cat --defaulting"]),
    (
        "validation",
        &[
            "init --namespaced",
            "create api --group a --version v1 --kind Cat --namespaced=false",
            "create webhook --kind Cat --programmatic-validation",
        ],
    ),
    (
        "conversion",
        &[
            "init",
            "create api --group a --version v1 --kind Cat",
            "create api --group a --version v2 --kind Cat --controller=false",
            "create webhook --kind Cat --conversion --hub v1",
            "create webhook --kind Cat --version v1 --defaulting --validation",
        ],
    ),
    (
        "multigroup-conversion",
        &[
            "init --multigroup --namespaced --license mit",
            "create api --group a --version v1 --kind Cat",
            "create api --group a --version v1alpha1 --kind Cat --controller=false",
            "create webhook --kind Cat --conversion --hub v1",
        ],
    ),
    (
        "built-in",
        &[
            "init --multigroup",
            "create api --group apps --version v1 --kind Deployment --resource=false",
            "create api --group core --version v1 --kind Pod --resource=false",
            "create api --group batch --version v1 --kind Job --resource=false",
        ],
    ),
    (
        "external",
        &[
            "init",
            "create api --group webapp --version v1 --kind Guestbook --resource=false \
             --external-api-path guestbook_api::v1 --external-api-domain my.domain \
             --external-api-module 'guestbook-api = { path = \"../guestbook/api\" }'",
        ],
    ),
];
