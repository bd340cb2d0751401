//! The machine with a clock that the tests move.

use super::*;

struct Bench {
    machine: Machine,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { machine: Machine::new(), now: Instant::now() }
    }

    /// What is done about an event, without what is said.
    fn step(&mut self, event: Event) -> Vec<Action> {
        let mut actions = self.machine.step(event, self.now);
        actions.retain(|action| !matches!(action, Action::Say(_)));
        actions
    }

    fn said(&mut self, event: Event) -> Vec<Said> {
        let actions = self.machine.step(event, self.now);
        actions
            .into_iter()
            .filter_map(|action| if let Action::Say(said) = action { Some(said) } else { None })
            .collect()
    }

    fn later(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    /// With an operator that runs, and samples.
    fn running() -> Self {
        let mut bench = Self::new();
        bench.step(Event::Begin);
        bench.step(built(1));
        bench.step(prepared());
        bench.step(applied(&[("a.yaml", &["a"]), ("b.yaml", &["b"])]));
        bench
    }
}

fn sample(name: &str) -> Sample {
    let text = str::to_owned;
    Sample { api_version: text("v1"), kind: text("ConfigMap"), namespace: text("default"), name: text(name) }
}

/// Samples were applied: files, with the names of the objects that they hold.
fn applied(files: &[(&str, &[&str])]) -> Event {
    let content = |(path, names): &(&str, &[&str])| Content {
        path: path.into(),
        objects: names.iter().map(|name| sample(name)).collect(),
    };
    Event::Applied {
        files: files.iter().map(content).collect(),
        result: Ok(files.iter().map(|(_, names)| names.len()).sum()),
    }
}

fn deleted(names: &[&str]) -> Event {
    Event::Deleted { result: Ok(names.iter().map(|name| sample(name)).collect()) }
}

fn saved_sample(name: &str) -> Event {
    Event::Saved { sources: Vec::new(), samples: vec![name.into()], gone: Vec::new() }
}

fn gone(name: &str) -> Event {
    Event::Saved { sources: Vec::new(), samples: Vec::new(), gone: vec![name.into()] }
}

fn apply(files: &[&str]) -> Action {
    Action::Apply { files: files.iter().map(PathBuf::from).collect() }
}

fn saved(file: &str) -> Event {
    Event::Saved { sources: vec![file.to_owned()], samples: Vec::new(), gone: Vec::new() }
}

fn built(build: u64) -> Event {
    let program = Program { path: "operator".into(), fresh: false };
    Event::Built { build, took: Duration::from_secs(2), result: Ok(program) }
}

fn failed(build: u64) -> Event {
    Event::Built { build, took: Duration::from_secs(2), result: Err("E0308".into()) }
}

fn prepared() -> Event {
    Event::Prepared { result: Ok(Vec::new()) }
}

fn ended(run: u64) -> Event {
    Event::Ended { run, how: "exit code 1".into() }
}

fn start(run: u64) -> Action {
    Action::Start { run, program: "operator".into() }
}

fn prepare() -> Action {
    Action::Prepare { program: "operator".into() }
}

#[test]
fn everything_starts_in_order() {
    let mut bench = Bench::new();
    assert_eq!(bench.step(Event::Begin), [Action::Build { build: 1 }]);
    assert_eq!(bench.step(built(1)), [prepare()]);
    assert_eq!(bench.step(prepared()), [start(1), Action::Apply { files: Vec::new() }]);
    assert_eq!(bench.machine.wake_at(), None);
}

#[test]
fn a_change_replaces_the_operator_and_keeps_the_samples() {
    let mut bench = Bench::running();
    assert_eq!(bench.step(saved("src/lib.rs")), []);
    bench.later(30);
    assert_eq!(bench.machine.wake_at(), Some(bench.now));
    assert_eq!(bench.step(Event::Time), [Action::Build { build: 2 }]);
    assert!(matches!(bench.machine.operator(), Operator::Running { .. }), "the old one");
    assert_eq!(bench.step(built(2)), [prepare()]);
    assert_eq!(bench.step(prepared()), [Action::Stop]);
    assert_eq!(bench.step(ended(1)), [start(2)]);
}

#[test]
fn files_that_keep_changing_are_built_after_a_while() {
    let mut bench = Bench::running();
    for _ in 0..20 {
        assert_eq!(bench.step(saved("src/lib.rs")), []);
        bench.later(20);
        if bench.machine.wake_at().is_some_and(|at| at <= bench.now) {
            break;
        }
    }
    bench.later(100);
    assert_eq!(bench.step(Event::Time), [Action::Build { build: 2 }]);
}

#[test]
fn a_save_during_a_build_cancels_it() {
    let mut bench = Bench::running();
    bench.step(saved("src/lib.rs"));
    bench.later(30);
    bench.step(Event::Time);
    bench.later(500);
    assert_eq!(bench.step(saved("api/src/lib.rs")), [Action::CancelBuild]);
    assert_eq!(bench.step(built(2)), [], "the end of the cancelled build");
    bench.later(30);
    let said = bench.said(Event::Time);
    let files = vec!["src/lib.rs".to_owned(), "api/src/lib.rs".to_owned()];
    assert_eq!(said, [Said::BuildStarted { files }]);
}

#[test]
fn a_failed_build_leaves_the_operator_running() {
    let mut bench = Bench::running();
    bench.step(saved("src/lib.rs"));
    bench.later(30);
    bench.step(Event::Time);
    assert_eq!(bench.step(failed(2)), []);
    assert_eq!(bench.machine.build(), &Build::Failed);
    assert!(matches!(bench.machine.operator(), Operator::Running { .. }));
    bench.step(saved("src/main.rs"));
    bench.later(30);
    assert_eq!(bench.step(Event::Time), [Action::Build { build: 3 }]);
    assert_eq!(bench.machine.files(), ["src/main.rs"]);
}

#[test]
fn a_refused_definition_leaves_the_operator_running() {
    let mut bench = Bench::running();
    bench.step(saved("api/src/lib.rs"));
    bench.later(30);
    bench.step(Event::Time);
    bench.step(built(2));
    assert_eq!(bench.step(Event::Prepared { result: Err("invalid".into()) }), []);
    assert!(matches!(bench.machine.operator(), Operator::Running { .. }));
}

#[test]
fn a_program_that_did_not_change_is_not_restarted() {
    let mut bench = Bench::running();
    bench.step(saved("Cargo.toml"));
    bench.later(30);
    bench.step(Event::Time);
    let program = Program { path: "operator".into(), fresh: true };
    let event = Event::Built { build: 2, took: Duration::from_millis(80), result: Ok(program) };
    assert_eq!(bench.step(event), []);
}

#[test]
fn an_operator_that_ends_is_started_again_later_each_time() {
    let mut bench = Bench::running();
    for (run, seconds) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30)] {
        let again = Duration::from_secs(seconds);
        assert_eq!(bench.said(ended(run)), [Said::OperatorEnded { how: "exit code 1".into(), again }]);
        assert_eq!(bench.step(Event::Time), [], "not yet");
        bench.later(seconds * 1000);
        assert_eq!(bench.step(Event::Time), [start(run + 1)]);
    }
    bench.later(60_000);
    let again = Duration::from_secs(1);
    assert_eq!(bench.said(ended(8)), [Said::OperatorEnded { how: "exit code 1".into(), again }]);
}

#[test]
fn a_restart_stops_and_starts_the_same_program() {
    let mut bench = Bench::running();
    assert_eq!(bench.step(Event::Key(Key::Restart)), [Action::Stop]);
    assert_eq!(bench.step(Event::Key(Key::Restart)), [], "it is stopping already");
    assert_eq!(bench.step(ended(1)), [start(2)]);
    bench.step(ended(2));
    assert_eq!(bench.step(Event::Key(Key::Restart)), [start(3)], "without waiting");
}

#[test]
fn restarts_do_not_start_the_next_program_early() {
    let mut bench = Bench::running();
    bench.step(saved("src/lib.rs"));
    bench.later(30);
    bench.step(Event::Time);
    assert_eq!(bench.step(built(2)), [prepare()]);
    assert_eq!(bench.step(Event::Key(Key::Restart)), [Action::Stop]);
    assert_eq!(bench.step(ended(1)), [start(2)]);
    assert_eq!(bench.step(prepared()), [Action::Stop]);
    assert_eq!(bench.step(ended(2)), [start(3)]);
}

#[test]
fn builds_wait_for_the_program_being_prepared() {
    let mut bench = Bench::running();
    bench.step(saved("src/lib.rs"));
    bench.later(30);
    bench.step(Event::Time);
    assert_eq!(bench.step(built(2)), [prepare()]);
    bench.step(saved("src/lib.rs"));
    bench.later(30);
    bench.step(Event::Time);
    assert_eq!(bench.step(built(3)), []);
    assert_eq!(bench.step(prepared()), [Action::Stop]);
    assert_eq!(bench.step(ended(1)), [start(2), prepare()]);
}

#[test]
fn changed_samples_are_applied_by_themselves() {
    let mut bench = Bench::running();
    assert_eq!(bench.step(saved_sample("b.yaml")), []);
    assert_eq!(bench.step(saved_sample("a.yaml")), []);
    bench.later(30);
    assert_eq!(bench.step(Event::Time), [apply(&["a.yaml", "b.yaml"])]);
    assert_eq!(bench.step(applied(&[("a.yaml", &["a"]), ("b.yaml", &["b"])])), []);
    assert_eq!(bench.step(Event::Key(Key::Samples)), [Action::Recreate]);
}

#[test]
fn objects_of_a_sample_that_is_gone_are_deleted() {
    let mut bench = Bench::running();
    bench.step(gone("a.yaml"));
    bench.later(30);
    assert_eq!(bench.step(Event::Time), [], "an editor may be replacing it");
    bench.later(470);
    assert_eq!(bench.machine.wake_at(), Some(bench.now));
    assert_eq!(bench.step(Event::Time), [apply(&["a.yaml"])]);
    let actions = bench.machine.step(applied(&[("a.yaml", &[])]), bench.now);
    assert_eq!(actions, [Action::Delete { objects: vec![sample("a")] }], "and nothing is said of samples applied");
    let objects = vec![sample("a")];
    assert_eq!(bench.said(deleted(&["a"])), [Said::SamplesDeleted { objects }]);
    // An object that is taken out of its file.
    bench.step(saved_sample("b.yaml"));
    bench.later(30);
    assert_eq!(bench.step(Event::Time), [apply(&["b.yaml"])]);
    let objects = vec![sample("b")];
    assert_eq!(bench.step(applied(&[("b.yaml", &["c"])])), [Action::Delete { objects }]);
}

#[test]
fn a_sample_that_is_replaced_is_not_deleted() {
    let mut bench = Bench::running();
    bench.step(gone("a.yaml"));
    bench.later(10);
    bench.step(saved_sample("a.yaml"));
    bench.later(30);
    assert_eq!(bench.step(Event::Time), [apply(&["a.yaml"])]);
    assert_eq!(bench.step(applied(&[("a.yaml", &["a"])])), []);
    // Renamed: the file that holds its object now is read together with it.
    bench.step(saved_sample("c.yaml"));
    bench.step(gone("a.yaml"));
    bench.later(500);
    assert_eq!(bench.step(Event::Time), [apply(&["a.yaml", "c.yaml"])]);
    assert_eq!(bench.step(applied(&[("a.yaml", &[]), ("c.yaml", &["a"])])), []);
}

#[test]
fn samples_are_worked_on_one_after_the_other() {
    let mut bench = Bench::running();
    bench.step(saved_sample("a.yaml"));
    bench.later(30);
    assert_eq!(bench.step(Event::Time), [apply(&["a.yaml"])]);
    bench.step(saved_sample("b.yaml"));
    bench.later(30);
    assert_eq!(bench.machine.wake_at(), None, "the first are being applied");
    assert_eq!(bench.step(Event::Time), []);
    assert_eq!(bench.step(Event::Key(Key::Samples)), []);
    assert_eq!(bench.step(applied(&[("a.yaml", &[])])), [Action::Delete { objects: vec![sample("a")] }]);
    assert_eq!(bench.step(Event::Time), []);
    assert_eq!(bench.step(deleted(&["a"])), [Action::Recreate]);
    assert_eq!(bench.step(applied(&[("b.yaml", &["b"])])), []);
    assert_eq!(bench.machine.wake_at(), Some(bench.now));
    assert_eq!(bench.step(Event::Time), [apply(&["b.yaml"])]);
}

#[test]
fn a_change_is_reported_when_the_new_operator_reconciles() {
    let mut bench = Bench::running();
    assert_eq!(bench.said(Event::Reconciled { run: 1 }), [], "nothing was changed");
    bench.step(saved("src/lib.rs"));
    bench.later(30);
    bench.step(Event::Time);
    bench.later(2000);
    bench.step(built(2));
    bench.step(prepared());
    bench.step(ended(1));
    assert_eq!(bench.said(Event::Reconciled { run: 1 }), [], "of the old operator");
    bench.later(100);
    let (total, compiler) = (Duration::from_millis(2130), Duration::from_secs(2));
    let files = vec!["src/lib.rs".to_owned()];
    assert_eq!(bench.said(Event::Reconciled { run: 2 }), [Said::Reconciling { files, total, compiler }]);
    assert_eq!(bench.said(Event::Reconciled { run: 2 }), []);
}
