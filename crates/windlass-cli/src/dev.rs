//! `windlass dev`: the operator of a project, built and run again whenever its sources change.
//!
//! ```text
//! sources ──► machine ──► build ──► definitions ──► operator ──► board ──► display
//!                ▲                                     │ log       ▲
//!                └──────────── reconciled ◄────────────┘           └─ objects of the cluster
//! ```
//!
//! What happens when is decided by [`machine`], which is pure. The rest carries it out in tasks that report back through
//! one bounded channel. The cluster and its objects stay when the loop ends; processes do not, however it ends.

mod board;
mod cluster;
mod display;
mod logs;
mod machine;
mod objects;
mod process;
mod samples;
mod sources;
mod tiltfile;
mod told;
mod view;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use windlass_scaffold::Project;
use windlass_scaffold::project::Resource;

use crate::against::apply::Done;
use crate::against::target::Target;
use crate::args::Dev;
use crate::paint::Paint;
use crate::run::{account, reach};
use crate::screen::Keys;
use crate::signals::Signals;
use crate::{output, project};
use board::Board;
use cluster::Cluster;
use display::Display;
use logs::Line;
use machine::{Action, Event, Key, Machine, Operator, Said};
use process::{Launch, Running};
use samples::Content;
use sources::{Saved, Sources};
use told::Told;

/// How often the view is drawn again while nothing happens.
const FRAME: Duration = Duration::from_millis(200);
/// How much may wait to be handled: logs are held up by then.
const INPUTS: usize = 1024;
/// How long an operator that logs no reconciles must run before `--once` takes it for one that works.
const PROVEN: Duration = Duration::from_secs(5);

/// What the tasks report.
enum Input {
    Event(Event),
    /// What cargo does.
    Progress(String),
    Log {
        run: u64,
        line: Line,
    },
    Installed {
        definitions: Vec<Value>,
        names: Vec<String>,
    },
    Applied(cluster::Applied),
    Object(objects::Change),
    Tell(Told),
}

pub(crate) fn run(args: &Dev) -> Result<ExitCode> {
    let root = project::cargo_root()?;
    if args.tiltfile {
        let created = tiltfile::write(&root)?;
        output::line(if created { "create Tiltfile\n\nnext: tilt up" } else { "nothing to change" });
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(samples) = args.samples.as_ref().filter(|samples| !samples.exists()) {
        return Err(output::Usage(format!("--samples: there is no file or directory {}", samples.display())).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(perform(args, &root));
    // Keys are read by a thread that ends with the process.
    runtime.shutdown_background();
    code
}

async fn perform(args: &Dev, root: &Path) -> Result<ExitCode> {
    let mut signals = Signals::with_quit().context("cannot listen for signals")?;
    let named = args.target.target();
    let target = tokio::select! {
        target = Target::connect(&named) => target?,
        code = signals.recv() => return Ok(ExitCode::from(code)),
    };
    let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
    let (send, mut inputs) = mpsc::channel(INPUTS);
    let mut dev = Loop::new(args, root, &target, directory.path(), send.clone())?;
    let mut watched = JoinSet::new();
    dev.watch_sources(&mut watched, &send)?;
    let _keys = dev.read_keys(&send);
    dev.begin(&target);
    let ended = dev.run(&mut inputs, &mut signals).await;
    dev.finish(&mut inputs, &mut signals).await;
    dev.display.close();
    ended
}

/// The groups and kinds whose versions the project's operator converts.
fn converted(root: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root.join("PROJECT")).unwrap_or_default();
    let Ok(project) = Project::parse(&text) else { return Vec::new() };
    let has_conversion = |resource: &&Resource| resource.webhooks.as_ref().is_some_and(|webhooks| webhooks.conversion);
    let converted = project.resources.iter().filter(has_conversion);
    converted.map(|resource| (resource.qualified_group(), resource.kind.to_string())).collect()
}

/// The loop: the machine, what it is carried out with, and what is shown of it.
struct Loop<'a> {
    args: &'a Dev,
    root: PathBuf,
    machine: Machine,
    board: Board,
    display: Display,
    cluster: Cluster,
    launch: Launch,
    /// What the cluster has of the operator.
    definitions: Vec<Value>,
    build: Option<Running>,
    operator: Option<Running>,
    /// Tasks that end by themselves.
    work: JoinSet<()>,
    watches: JoinSet<()>,
    inputs: mpsc::Sender<Input>,
    /// Whether the samples were applied.
    applied: bool,
    /// Whether the operator has reconciled something since it was started.
    reconciled: bool,
    /// When --once gives up.
    deadline: Option<Instant>,
    /// How the loop ends, once it does.
    end: Option<ExitCode>,
}

impl<'a> Loop<'a> {
    fn new(args: &'a Dev, root: &Path, target: &Target, directory: &Path, inputs: mpsc::Sender<Input>) -> Result<Self> {
        let namespace = args.namespace.clone().unwrap_or_else(|| target.namespace.clone());
        let kubeconfig = directory.join("kubeconfig");
        target.write_kubeconfig(&kubeconfig, |config| account::use_namespace(config, target, &namespace))?;
        let webhooks = reach::address(target, None);
        let launch = Launch { program: PathBuf::new(), arguments: args.arguments.clone(), kubeconfig, webhooks };
        // Files are reported with their whole names.
        let root = root.canonicalize().with_context(|| format!("cannot read {}", root.display()))?;
        let samples = args.samples.clone().unwrap_or_else(|| root.join("config/samples"));
        let samples = samples.canonicalize().unwrap_or(samples);
        let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let cluster = format!("{} at {}", target.context, target.server);
        let converted = converted(&root);
        Ok(Self {
            args,
            root,
            machine: Machine::new(),
            board: Board::new(name, cluster),
            display: Display::choose(args.output),
            cluster: Cluster { client: target.client.clone(), namespace, samples, converted },
            launch,
            definitions: Vec::new(),
            build: None,
            operator: None,
            work: JoinSet::new(),
            watches: JoinSet::new(),
            inputs,
            applied: false,
            reconciled: false,
            deadline: None,
            end: None,
        })
    }

    fn watch_sources(&self, tasks: &mut JoinSet<()>, inputs: &mpsc::Sender<Input>) -> Result<()> {
        if self.args.once {
            return Ok(());
        }
        let mut watched = Sources::watch(&self.root, &self.cluster.samples)?;
        let inputs = inputs.clone();
        tasks.spawn(async move {
            loop {
                let (input, last) = match watched.next().await {
                    Ok(Saved { sources, samples, gone }) => {
                        (Input::Event(Event::Saved { sources, samples, gone }), false)
                    }
                    Err(error) => (Input::Tell(Told::Note(output::with_causes(&error))), true),
                };
                if inputs.send(input).await.is_err() || last {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Reads keys if there is a view that names them.
    fn read_keys(&self, inputs: &mpsc::Sender<Input>) -> Option<Keys> {
        let keys = self.display.is_live().then(Keys::take)??;
        let inputs = inputs.clone();
        std::thread::spawn(move || {
            use std::io::Read as _;
            for byte in std::io::stdin().lock().bytes() {
                let Ok(byte) = byte else { return };
                if let Some(key) = Key::from_byte(byte)
                    && inputs.blocking_send(Input::Event(Event::Key(key))).is_err()
                {
                    return;
                }
            }
        });
        Some(keys)
    }

    fn begin(&mut self, target: &Target) {
        self.tell(&Told::Cluster {
            context: target.context.clone(),
            server: target.server.clone(),
            namespace: self.cluster.namespace.clone(),
        });
        match &self.args.operator.program {
            // There is nothing to build.
            Some(program) => {
                let program = machine::Program { path: program.clone(), fresh: false };
                self.step(Event::Built { build: 0, took: Duration::ZERO, result: Ok(program) });
            }
            None => self.step(Event::Begin),
        }
    }

    async fn run(&mut self, inputs: &mut mpsc::Receiver<Input>, signals: &mut Signals) -> Result<ExitCode> {
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        while self.end.is_none() {
            let wake = [self.machine.wake_at(), self.deadline, self.proven_at()].into_iter().flatten().min();
            let live = self.display.is_live();
            // Cancel-safe: all of them.
            tokio::select! {
                biased;
                code = signals.recv() => return Ok(ExitCode::from(code)),
                Some(input) = inputs.recv() => self.handle(input),
                () = sleep_until(wake) => self.step(Event::Time),
                _ = frames.tick(), if live => self.display.draw(&self.machine, &self.board),
                Some(_) = self.work.join_next() => {}
            }
            self.check_once();
            self.check_deadline();
        }
        Ok(self.end.unwrap_or(ExitCode::SUCCESS))
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.step(event),
            Input::Progress(doing) => self.board.progress = Some(doing),
            Input::Log { run, line: Line::Reconciled(done) } => {
                self.reconciled = true;
                self.board.reconciled(done.clone());
                self.tell(&Told::Reconciled(done));
                self.step(Event::Reconciled { run });
            }
            Input::Log { line: Line::Text { level, text }, .. } => self.tell(&Told::Log { level, text }),
            Input::Installed { definitions, names } => {
                if definitions != self.definitions {
                    self.watch_objects(&definitions);
                    self.definitions = definitions;
                }
                self.step(Event::Prepared { result: Ok(names) });
            }
            Input::Applied(cluster::Applied { files, result: Ok(done) }) => self.applied(files, &done),
            Input::Applied(cluster::Applied { files, result: Err(error) }) => {
                self.step(Event::Applied { files, result: Err(output::with_causes(&error)) });
                self.fail_once();
            }
            Input::Object(change) => {
                for told in self.board.change(change, Instant::now()) {
                    self.tell(&told);
                }
            }
            Input::Tell(told) => self.tell(&told),
        }
    }

    fn applied(&mut self, files: Vec<Content>, done: &[Done]) {
        self.step(Event::Applied { files, result: Ok(done.len()) });
        let kinds: BTreeSet<&str> =
            self.definitions.iter().filter_map(|definition| definition["spec"]["names"]["kind"].as_str()).collect();
        let awaited = done.iter().filter(|done| kinds.contains(done.kind.as_str())).map(|done| {
            let name = match &done.namespace {
                Some(namespace) => format!("{namespace}/{}", done.name),
                None => done.name.clone(),
            };
            ((done.kind.clone(), name), done.version.clone())
        });
        let now = Instant::now();
        if !done.is_empty() {
            self.board.applied(awaited, now);
        }
        if let Some(told) = self.board.all_ready(now) {
            self.tell(&told);
        }
        self.applied = true;
    }

    fn step(&mut self, event: Event) {
        for action in self.machine.step(event, Instant::now()) {
            if let Err(error) = self.carry_out(action) {
                self.tell(&Told::Note(output::with_causes(&error)));
                self.fail_once();
            }
        }
    }

    fn carry_out(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Say(said) => {
                match &said {
                    Said::BuildStarted { .. } => self.board.progress = None,
                    Said::BuildFinished { took, .. } => self.board.last_build = Some(*took),
                    Said::OperatorStarted { .. } => {
                        self.reconciled = false;
                        if self.args.once && self.deadline.is_none() {
                            self.deadline = Some(Instant::now() + Duration::from_secs(self.args.timeout));
                        }
                    }
                    _ => {}
                }
                let failed = matches!(said, Said::BuildFailed { .. } | Said::NotPrepared { .. });
                self.tell(&Told::Said(said));
                if failed {
                    self.fail_once();
                }
            }
            Action::Build { build } => {
                let colours = self.display.is_live() && Paint::on(&std::io::stdout()).0;
                let running = process::build(build, &self.args.operator, &self.root, colours, self.inputs.clone());
                self.build = Some(running?);
            }
            Action::CancelBuild => self.build = None,
            Action::Prepare { program } => self.prepare(program),
            // Its guard ends it.
            Action::Stop => self.operator = None,
            Action::Start { run, program } => {
                self.launch.program = program;
                self.operator = Some(self.launch.start(run, &self.inputs)?);
            }
            Action::Apply { files } => {
                self.spawn(move |cluster| async move { Input::Applied(cluster.apply(&files).await) });
            }
            Action::Delete { objects } => {
                for sample in &objects {
                    self.board.forget(sample);
                }
                self.spawn(move |cluster| async move {
                    let deleted = cluster.delete(&objects).await;
                    let result = deleted.map(|()| objects).map_err(|error| output::with_causes(&error));
                    Input::Event(Event::Deleted { result })
                });
            }
            Action::Recreate => {
                self.tell(&Told::Note("deleting the samples".to_owned()));
                self.spawn(|cluster| async move { Input::Applied(cluster.recreate().await) });
            }
            Action::ShowEvents => {
                let definitions = self.definitions.clone();
                self.spawn(|cluster| async move {
                    let events = cluster.events(&definitions).await;
                    Input::Tell(events.map_or_else(|error| Told::Note(output::with_causes(&error)), Told::Events))
                });
            }
            Action::Quit => self.end = Some(ExitCode::SUCCESS),
        }
        Ok(())
    }

    fn prepare(&mut self, program: PathBuf) {
        let (operator, arguments) = (self.args.operator.clone(), self.args.arguments.clone());
        let before = self.definitions.clone();
        self.spawn(move |cluster| async move {
            match cluster.install(&program, &operator, &arguments, &before).await {
                Ok((definitions, names)) => Input::Installed { definitions, names },
                Err(error) => Input::Event(Event::Prepared { result: Err(output::with_causes(&error)) }),
            }
        });
    }

    /// Does something with the cluster, and reports what came of it.
    fn spawn<F>(&mut self, work: impl FnOnce(Cluster) -> F)
    where
        F: Future<Output = Input> + Send + 'static,
    {
        let (work, inputs) = (work(self.cluster.clone()), self.inputs.clone());
        self.work.spawn(async move {
            let _ = inputs.send(work.await).await;
        });
    }

    fn watch_objects(&mut self, definitions: &[Value]) {
        self.watches = JoinSet::new();
        for definition in definitions {
            let (send, mut changes) = mpsc::channel(INPUTS);
            self.watches.spawn(objects::watch(self.cluster.client.clone(), definition.clone(), send));
            let inputs = self.inputs.clone();
            self.watches.spawn(async move {
                while let Some(change) = changes.recv().await {
                    let _ = inputs.send(Input::Object(change)).await;
                }
            });
        }
    }

    fn tell(&mut self, told: &Told) {
        self.display.tell(told, &self.machine, &self.board);
    }

    fn fail_once(&mut self) {
        if self.args.once {
            self.end = Some(ExitCode::FAILURE);
        }
    }

    /// When the operator has run long enough for `--once`. `None` while something else is waited for.
    fn proven_at(&self) -> Option<Instant> {
        let (ready, count) = self.board.samples();
        match self.machine.operator() {
            Operator::Running { since } if self.args.once && self.applied && ready == count => {
                Some(if self.reconciled { *since } else { *since + PROVEN })
            }
            _ => None,
        }
    }

    /// Ends `--once` when the samples are ready and the operator works: they may be ready since an earlier run.
    fn check_once(&mut self) {
        if self.end.is_none() && self.proven_at().is_some_and(|at| Instant::now() >= at) {
            self.end = Some(ExitCode::SUCCESS);
        }
    }

    fn check_deadline(&mut self) {
        if self.end.is_none() && self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let waiting = match &self.board.waiting()[..] {
                [] => "the operator does not keep running".to_owned(),
                names => names.join(", "),
            };
            self.tell(&Told::Note(format!("not ready after {} s: {waiting}", self.args.timeout)));
            self.end = Some(ExitCode::FAILURE);
        }
    }

    /// Ends what runs. A second signal ends the process at once, and the guards the rest.
    async fn finish(&mut self, inputs: &mut mpsc::Receiver<Input>, signals: &mut Signals) {
        let (build, operator) = (self.build.take(), self.operator.take());
        let stopped = async {
            if let Some(build) = build {
                build.stop().await;
            }
            if let Some(operator) = operator {
                operator.stop().await;
            }
        };
        let mut stopped = std::pin::pin!(stopped);
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => return,
                _ = signals.recv() => return,
                // The operator's last lines; if they were not read it would wait.
                Some(input) = inputs.recv() => if let Input::Log { line: Line::Text { level, text }, .. } = input {
                    self.tell(&Told::Log { level, text });
                },
            }
        }
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
