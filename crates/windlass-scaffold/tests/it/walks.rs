//! Whatever the order of commands, each does its work or is refused, and a refused one changes nothing.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use windlass_scaffold::Project;
use windlass_scaffold::command::{self, CommandError, Edit, NewApi, Selector, Webhooks};
use windlass_scaffold::name::{ControllerName, Kind, Version};
use windlass_scaffold::render::render;
use windlass_scaffold::scaffold::{self, Mode};

use super::{Dir, Group, api, project};

#[derive(Debug, Clone)]
enum Step {
    Api(Box<NewApi>),
    Webhook(Selector, Webhooks),
    DeleteApi(Selector),
    DeleteWebhook(Selector, Webhooks),
    Multigroup(bool),
    Client(bool),
}

/// Names that differ in case, in where words end, and in suffixes that file names have.
const KINDS: [&str; 10] =
    ["Pet", "BPet", "PetV2", "PetConversion", "URLMap", "Map", "Client", "Ingress", "GroupPet", "Sales"];
const GROUPS: [Option<&str>; 9] = [
    None,
    Some("a"),
    Some("a-b"),
    Some("a.b"),
    Some("web"),
    Some("web-url"),
    Some("client"),
    Some("lib"),
    Some("networking"),
];
const VERSIONS: [&str; 3] = ["v1", "v2", "v1beta1"];

fn new_api() -> impl Strategy<Value = NewApi> {
    let names = (select(&GROUPS[..]), select(&VERSIONS[..]), select(&KINDS[..]));
    let controllers = select(vec![None, Some("pet"), Some("a"), Some("pet-v2"), Some("client")]);
    (names, any::<bool>(), any::<bool>(), controllers).prop_map(
        |((group, version, kind), resource, controller, name)| NewApi {
            group: group.map(|group| Group::new(group).unwrap()),
            resource,
            controller,
            controller_name: name.map(|name| ControllerName::new(name).unwrap()),
            builtin_name: true,
            ..api("a", version, kind)
        },
    )
}

fn selectors() -> impl Strategy<Value = Selector> {
    let group = proptest::option::of(select(&GROUPS[..]));
    let version = proptest::option::of(select(&VERSIONS[..]));
    (group, version, select(&KINDS[..])).prop_map(|(group, version, kind)| Selector {
        group: group.flatten().map(|group| Group::new(group).unwrap()),
        version: version.map(|version| Version::new(version).unwrap()),
        kind: Kind::new(kind).unwrap(),
    })
}

fn webhooks() -> impl Strategy<Value = Webhooks> {
    let spokes = subsequence(&VERSIONS[..], 0..=2);
    (any::<bool>(), any::<bool>(), any::<bool>(), spokes).prop_map(|(defaulting, validation, conversion, spokes)| {
        let spokes = spokes.into_iter().map(|version| Version::new(version).unwrap()).collect();
        Webhooks { defaulting, validation, conversion, spokes, ..Webhooks::default() }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => new_api().prop_map(|new| Step::Api(Box::new(new))),
        3 => (selectors(), webhooks()).prop_map(|(selector, webhooks)| Step::Webhook(selector, webhooks)),
        2 => selectors().prop_map(Step::DeleteApi),
        1 => (selectors(), webhooks()).prop_map(|(selector, webhooks)| Step::DeleteWebhook(selector, webhooks)),
        1 => any::<bool>().prop_map(Step::Multigroup),
        1 => any::<bool>().prop_map(Step::Client),
    ];
    proptest::collection::vec(step, 1..24)
}

fn apply(project: &mut Project, step: &Step) -> Result<(), CommandError> {
    match step {
        Step::Api(new) => command::create_api(project, (**new).clone()),
        Step::Webhook(selector, new) => command::create_webhook(project, selector, new),
        Step::DeleteApi(selector) => command::delete_api(project, selector),
        Step::DeleteWebhook(selector, gone) => command::delete_webhook(project, selector, gone),
        Step::Multigroup(multigroup) => {
            command::edit(project, Edit { multigroup: Some(*multigroup), ..Edit::default() })
        }
        Step::Client(client) => {
            project.settings_mut().client = *client;
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Files of a project without edits are always those that are generated for its description.
    #[test]
    fn commands_in_any_order_end_in_a_whole_project(multigroup in any::<bool>(), steps in steps()) {
        let mut new = project();
        new.multigroup = multigroup;
        let dir = Dir::new(&new);
        for step in steps {
            let before = scaffold::open(dir.path()).unwrap();
            let done = scaffold::change(dir.path(), Mode::default(), |project| apply(project, &step));
            let after = scaffold::open(dir.path()).unwrap();
            if done.is_err() {
                prop_assert_eq!(&after, &before);
            }
            let tree = render(&after);
            prop_assert_eq!(tree.clash(), None);
            let mut files = dir.files();
            files.remove(".windlass/generated");
            let generated = tree.iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
            prop_assert_eq!(files, generated);
        }
    }
}
