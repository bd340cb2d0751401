//! What `windlass dev` does when: a state machine. Events go in, actions come out; the time is an argument.
//!
//! ```text
//! saved ▸ quiet for a moment ▸ build ▸ prepare (definitions) ▸ stop the old operator ▸ start the new one ▸ reconciled
//! ```
//!
//! The old operator runs until the new one is built and the cluster has its definitions. Files that are saved during a
//! build cancel it. An operator that ends by itself is started again, later each time.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::samples::{Content, Held, Sample};

/// How long no file may change before a build starts: editors write files in several steps.
const QUIET: Duration = Duration::from_millis(30);
/// How long files may keep changing before a build starts all the same.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// How long a sample may be gone before its objects are deleted: editors replace files.
const REPLACED: Duration = Duration::from_millis(500);
/// When an operator that ended is started again for the first time.
const RESTART: Duration = Duration::from_secs(1);
/// The longest wait before an operator is started again.
const RESTART_LIMIT: Duration = Duration::from_secs(30);
/// An operator that ran this long is not one that fails at once.
const STABLE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The machine starts.
    Begin,
    /// Files were written, or are gone: sources, and samples.
    Saved {
        sources: Vec<String>,
        samples: Vec<PathBuf>,
        gone: Vec<PathBuf>,
    },
    /// A build ended. A program that is `fresh` is the one that was built before.
    Built {
        build: u64,
        took: Duration,
        result: Result<Program, String>,
    },
    /// The cluster has the definitions of the program that was built, or has refused them.
    Prepared {
        result: Result<Vec<String>, String>,
    },
    /// The operator's process has ended.
    Ended {
        run: u64,
        how: String,
    },
    /// The operator has reconciled an object.
    Reconciled {
        run: u64,
    },
    /// Samples were read, and applied.
    Applied {
        files: Vec<Content>,
        result: Result<usize, String>,
    },
    /// Objects that no sample holds any more were deleted.
    Deleted {
        result: Result<Vec<Sample>, String>,
    },
    Key(Key),
    /// The time that was asked for has come.
    Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    pub path: PathBuf,
    pub fresh: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Restart,
    Events,
    Samples,
    Quit,
}

impl Key {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        match byte.to_ascii_lowercase() {
            b'r' => Some(Self::Restart),
            b'e' => Some(Self::Events),
            b's' => Some(Self::Samples),
            b'q' => Some(Self::Quit),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Build {
        build: u64,
    },
    CancelBuild,
    Prepare {
        program: PathBuf,
    },
    Stop,
    Start {
        run: u64,
        program: PathBuf,
    },
    /// Applies these samples, all if none is named.
    Apply {
        files: Vec<PathBuf>,
    },
    /// Deletes objects that no sample holds any more.
    Delete {
        objects: Vec<Sample>,
    },
    /// Deletes the samples and applies them again.
    Recreate,
    ShowEvents,
    Quit,
    Say(Said),
}

/// What people are told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    BuildStarted {
        files: Vec<String>,
    },
    BuildFailed {
        took: Duration,
        errors: String,
    },
    BuildFinished {
        took: Duration,
        fresh: bool,
    },
    Definitions {
        names: Vec<String>,
    },
    NotPrepared {
        why: String,
    },
    OperatorStarted {
        run: u64,
    },
    OperatorEnded {
        how: String,
        again: Duration,
    },
    SamplesApplied {
        count: usize,
    },
    SamplesDeleted {
        objects: Vec<Sample>,
    },
    SamplesFailed {
        why: String,
    },
    /// A change is at work: from the moment a file was saved to the first reconcile of the new operator.
    Reconciling {
        files: Vec<String>,
        total: Duration,
        compiler: Duration,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Build {
    /// Nothing to do; the last build succeeded.
    Idle,
    /// Files change; the build starts when that ends.
    Waiting {
        due: Instant,
        latest: Instant,
    },
    Running {
        since: Instant,
    },
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operator {
    /// There is none yet.
    None,
    Running {
        since: Instant,
    },
    Stopping,
    /// It has ended by itself.
    Ended {
        how: String,
        again: Instant,
    },
}

pub(super) struct Machine {
    build: Build,
    builds: u64,
    /// What the build that waits or runs is for.
    files: Vec<String>,
    /// When the first of these files was saved.
    saved: Option<Instant>,
    /// The program that runs, or ran last.
    program: Option<PathBuf>,
    /// The program that comes next, whose definitions are being applied or which waits for the old one's end.
    next: Option<Next>,
    /// One that was built meanwhile.
    queued: Option<PathBuf>,
    operator: Operator,
    runs: u64,
    backoff: Duration,
    samples: Samples,
    /// What the samples held when they were read last.
    held: Held,
    /// Whether samples are being applied or deleted. One after the other: what is applied late must not bring back what
    /// was deleted.
    busy: bool,
    /// Whether the samples are to be made again after that.
    again: bool,
    cycle: Option<Cycle>,
}

struct Next {
    program: PathBuf,
    /// The cluster has its definitions.
    prepared: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Samples {
    /// Applied once the operator runs.
    Outstanding,
    Applied,
    /// These were saved, and these are gone.
    Changed {
        files: BTreeSet<PathBuf>,
        gone: BTreeSet<PathBuf>,
        due: Instant,
    },
}

/// A change on its way to the operator.
struct Cycle {
    files: Vec<String>,
    saved: Instant,
    compiler: Duration,
    run: Option<u64>,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self {
            build: Build::Idle,
            builds: 0,
            files: Vec::new(),
            saved: None,
            program: None,
            next: None,
            queued: None,
            operator: Operator::None,
            runs: 0,
            backoff: RESTART,
            samples: Samples::Outstanding,
            held: Held::default(),
            busy: false,
            again: false,
            cycle: None,
        }
    }

    pub(super) fn build(&self) -> &Build {
        &self.build
    }

    pub(super) fn operator(&self) -> &Operator {
        &self.operator
    }

    /// What the last build was for.
    pub(super) fn files(&self) -> &[String] {
        &self.files
    }

    /// When [`Event::Time`] is wanted.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let build = match self.build {
            Build::Waiting { due, latest } => Some(due.min(latest)),
            _ => None,
        };
        let samples = match &self.samples {
            Samples::Changed { due, .. } if !self.busy => Some(*due),
            _ => None,
        };
        let again = match &self.operator {
            Operator::Ended { again, .. } if self.next.is_none() => Some(*again),
            _ => None,
        };
        [build, samples, again].into_iter().flatten().min()
    }

    pub(super) fn step(&mut self, event: Event, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Begin => self.start_build(now, &mut actions),
            Event::Saved { sources, samples, gone } => {
                self.saved(sources, now, &mut actions);
                self.saved_samples(samples, gone, now);
            }
            Event::Built { build, took, result } if build == self.builds => {
                self.built(took, result, &mut actions);
            }
            Event::Prepared { result } => self.prepared(result, now, &mut actions),
            Event::Ended { run, how } if run == self.runs => self.ended(how, now, &mut actions),
            // Of a build that was cancelled, or an operator that was replaced.
            Event::Built { .. } | Event::Ended { .. } => {}
            Event::Reconciled { run } => self.reconciled(run, now, &mut actions),
            Event::Applied { files, result } => self.applied(files, result, &mut actions),
            Event::Deleted { result } => {
                actions.push(Action::Say(match result {
                    Ok(objects) => Said::SamplesDeleted { objects },
                    Err(why) => Said::SamplesFailed { why },
                }));
                self.free(&mut actions);
            }
            Event::Key(key) => self.pressed(key, now, &mut actions),
            Event::Time => self.time(now, &mut actions),
        }
        actions
    }

    fn start_build(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.builds += 1;
        self.build = Build::Running { since: now };
        actions.push(Action::Say(Said::BuildStarted { files: self.files.clone() }));
        actions.push(Action::Build { build: self.builds });
    }

    fn saved(&mut self, sources: Vec<String>, now: Instant, actions: &mut Vec<Action>) {
        if !sources.is_empty() {
            match self.build {
                Build::Waiting { ref mut due, .. } => *due = now + QUIET,
                ref mut build => {
                    if let Build::Running { .. } = build {
                        actions.push(Action::CancelBuild);
                        // Its end is of no interest any more.
                        self.builds += 1;
                    } else {
                        self.files.clear();
                        self.saved = None;
                    }
                    *build = Build::Waiting { due: now + QUIET, latest: now + LONGEST_WAIT };
                }
            }
            self.saved.get_or_insert(now);
            for file in sources {
                if !self.files.contains(&file) {
                    self.files.push(file);
                }
            }
        }
    }

    fn saved_samples(&mut self, samples: Vec<PathBuf>, gone: Vec<PathBuf>, now: Instant) {
        // All of them are applied once the operator runs.
        if (samples.is_empty() && gone.is_empty()) || self.samples == Samples::Outstanding {
            return;
        }
        let (mut files, mut missing) = match std::mem::replace(&mut self.samples, Samples::Applied) {
            Samples::Changed { files, gone, .. } => (files, gone),
            _ => (BTreeSet::new(), BTreeSet::new()),
        };
        missing.extend(gone);
        missing.retain(|path| !samples.contains(path));
        files.extend(samples);
        files.retain(|path| !missing.contains(path));
        let due = now + if missing.is_empty() { QUIET } else { REPLACED };
        self.samples = Samples::Changed { files, gone: missing, due };
    }

    /// What samples hold now is known, also if the server has refused some of it.
    fn applied(&mut self, files: Vec<Content>, result: Result<usize, String>, actions: &mut Vec<Action>) {
        let nothing_left = !files.is_empty() && files.iter().all(|file| file.objects.is_empty());
        let objects = self.held.read(files);
        match result {
            // There was nothing to apply; what is deleted is said by itself.
            Ok(0) if nothing_left => {}
            Ok(count) => actions.push(Action::Say(Said::SamplesApplied { count })),
            Err(why) => actions.push(Action::Say(Said::SamplesFailed { why })),
        }
        if objects.is_empty() {
            self.free(actions);
        } else {
            actions.push(Action::Delete { objects });
        }
    }

    /// The samples can be worked on again.
    fn free(&mut self, actions: &mut Vec<Action>) {
        self.busy = std::mem::take(&mut self.again);
        if self.busy {
            actions.push(Action::Recreate);
        }
    }

    fn built(&mut self, took: Duration, result: Result<Program, String>, actions: &mut Vec<Action>) {
        match result {
            Err(errors) => {
                self.build = Build::Failed;
                actions.push(Action::Say(Said::BuildFailed { took, errors }));
            }
            Ok(program) => {
                self.build = Build::Idle;
                let same = program.fresh && self.program.as_ref() == Some(&program.path) && self.next.is_none();
                let fresh = same && matches!(self.operator, Operator::Running { .. });
                actions.push(Action::Say(Said::BuildFinished { took, fresh }));
                if fresh {
                    return;
                }
                if let Some(saved) = self.saved.take() {
                    self.cycle = Some(Cycle { files: self.files.clone(), saved, compiler: took, run: None });
                }
                if self.next.is_some() {
                    self.queued = Some(program.path);
                } else {
                    self.prepare(program.path, actions);
                }
            }
        }
    }

    fn prepare(&mut self, program: PathBuf, actions: &mut Vec<Action>) {
        self.next = Some(Next { program: program.clone(), prepared: false });
        actions.push(Action::Prepare { program });
    }

    fn prepared(&mut self, result: Result<Vec<String>, String>, now: Instant, actions: &mut Vec<Action>) {
        match result {
            Err(why) => {
                self.next = None;
                actions.push(Action::Say(Said::NotPrepared { why }));
                if let Some(program) = self.queued.take() {
                    self.prepare(program, actions);
                }
            }
            Ok(names) => {
                if !names.is_empty() {
                    actions.push(Action::Say(Said::Definitions { names }));
                }
                if let Some(next) = &mut self.next {
                    next.prepared = true;
                }
                match self.operator {
                    Operator::Running { .. } => {
                        self.operator = Operator::Stopping;
                        actions.push(Action::Stop);
                    }
                    // It is told already.
                    Operator::Stopping => {}
                    Operator::None | Operator::Ended { .. } => self.start_next(now, actions),
                }
            }
        }
    }

    /// Starts the program that comes next.
    fn start_next(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(next) = self.next.take() else { return };
        self.program = Some(next.program);
        self.backoff = RESTART;
        self.start(now, actions);
        if let Some(program) = self.queued.take() {
            self.prepare(program, actions);
        }
    }

    fn start(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(program) = self.program.clone() else { return };
        self.runs += 1;
        self.operator = Operator::Running { since: now };
        if let Some(cycle) = &mut self.cycle {
            cycle.run = Some(self.runs);
        }
        actions.push(Action::Start { run: self.runs, program });
        actions.push(Action::Say(Said::OperatorStarted { run: self.runs }));
        if self.samples == Samples::Outstanding {
            (self.samples, self.busy) = (Samples::Applied, true);
            actions.push(Action::Apply { files: Vec::new() });
        }
    }

    fn ended(&mut self, how: String, now: Instant, actions: &mut Vec<Action>) {
        match self.operator {
            Operator::Stopping if self.next.as_ref().is_some_and(|next| next.prepared) => self.start_next(now, actions),
            Operator::Stopping => self.start(now, actions),
            Operator::Running { since } => {
                if now.duration_since(since) >= STABLE {
                    self.backoff = RESTART;
                }
                let again = self.backoff;
                self.backoff = (again * 2).min(RESTART_LIMIT);
                actions.push(Action::Say(Said::OperatorEnded { how: how.clone(), again }));
                self.operator = Operator::Ended { how, again: now + again };
            }
            Operator::None | Operator::Ended { .. } => {}
        }
    }

    fn reconciled(&mut self, run: u64, now: Instant, actions: &mut Vec<Action>) {
        if let Some(cycle) = self.cycle.take_if(|cycle| cycle.run == Some(run)) {
            let total = now.duration_since(cycle.saved);
            actions.push(Action::Say(Said::Reconciling { files: cycle.files, total, compiler: cycle.compiler }));
        }
    }

    fn pressed(&mut self, key: Key, now: Instant, actions: &mut Vec<Action>) {
        match key {
            Key::Quit => actions.push(Action::Quit),
            Key::Events => actions.push(Action::ShowEvents),
            Key::Samples if self.busy => self.again = true,
            Key::Samples => {
                self.busy = true;
                actions.push(Action::Recreate);
            }
            Key::Restart => match self.operator {
                Operator::Running { .. } => {
                    self.operator = Operator::Stopping;
                    actions.push(Action::Stop);
                }
                Operator::Ended { .. } if self.next.is_none() => self.start(now, actions),
                Operator::None if self.build == Build::Failed => self.start_build(now, actions),
                _ => {}
            },
        }
    }

    fn time(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Build::Waiting { due, latest } = self.build
            && now >= due.min(latest)
        {
            self.start_build(now, actions);
        }
        if let Samples::Changed { files, gone, due } = &self.samples
            && now >= *due
            && !self.busy
        {
            actions.push(Action::Apply { files: files.union(gone).cloned().collect() });
            (self.samples, self.busy) = (Samples::Applied, true);
        }
        if let Operator::Ended { again, .. } = self.operator
            && now >= again
            && self.next.is_none()
        {
            self.start(now, actions);
        }
    }
}

#[cfg(test)]
mod tests;
