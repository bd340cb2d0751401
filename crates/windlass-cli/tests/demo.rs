//! `windlass demo`, run as a user runs it: to its end, interrupted, and on a terminal.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A demo takes a fraction of a second; one that takes this long hangs.
const DEMO_TIMEOUT: Duration = Duration::from_secs(60);

/// A demo that has nothing of the user's: no home, no directory for temporary files, no variables.
struct Demo {
    home: TempDir,
    child: Child,
}

impl Demo {
    fn start(args: &[&str], env: &[(&str, &str)], stdout: Stdio) -> Self {
        let home = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .arg("demo")
            .args(args)
            .current_dir(home.path())
            .env_clear()
            .envs([("HOME", home.path()), ("TMPDIR", home.path())])
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { home, child }
    }

    fn piped(args: &[&str]) -> Self {
        Self::start(args, &[], Stdio::piped())
    }

    fn lines(&mut self) -> Lines<BufReader<ChildStdout>> {
        BufReader::new(self.child.stdout.take().unwrap()).lines()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Waits for the end, after which there must be no file.
    async fn end(mut self) -> Ended {
        let (mut out, mut err) = (String::new(), String::new());
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let ending = async {
            if let Some(mut stdout) = stdout {
                stdout.read_to_string(&mut out).await.unwrap();
            }
            stderr.unwrap().read_to_string(&mut err).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = tokio::time::timeout(DEMO_TIMEOUT, ending).await.expect("the demo ends");
        assert_eq!(files(self.home.path()), [] as [PathBuf; 0]);
        Ended { status, out, err }
    }
}

#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    out: String,
    err: String,
}

fn files(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Reads until a line has `text` in it, and returns that line.
async fn line_with(lines: &mut Lines<BufReader<ChildStdout>>, text: &str) -> String {
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(text) {
                return line;
            }
        }
        panic!("no line has {text:?}")
    };
    tokio::time::timeout(DEMO_TIMEOUT, found).await.expect("the demo says something")
}

/// Whether anything listens where a line says that the cluster is.
async fn is_served(line: &str) -> bool {
    let address = line.split_whitespace().find_map(|word| word.strip_prefix("https://")).unwrap();
    tokio::net::TcpStream::connect(address).await.is_ok()
}

#[tokio::test]
async fn every_example_has_a_demo() {
    let list = Demo::piped(&["--list", "-o", "json"]).end().await;
    let list: Value = serde_json::from_str(&list.out).unwrap();
    let names: Vec<&str> =
        list["demos"].as_array().unwrap().iter().map(|demo| demo["name"].as_str().unwrap()).collect();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut projects = files(&examples);
    projects.retain(|project| project.join("Cargo.toml").exists());
    assert_eq!(names.len(), projects.len(), "{names:?} {projects:?}");
    for name in names {
        assert!(projects.contains(&examples.join(name)), "{name} is no example");
        let ended = Demo::piped(&[name]).end().await;
        assert!(ended.status.success() && ended.err.is_empty(), "{name}: {ended:?}");
        assert!(ended.out.contains("cluster ready") && ended.out.contains("done in"), "{name}: {}", ended.out);
    }
    let unknown = Demo::piped(&["nothing"]).end().await;
    assert!(!unknown.status.success() && unknown.err.contains("there is no demo \"nothing\""), "{unknown:?}");
}

#[tokio::test]
async fn a_demo_tells_its_story_and_ends() {
    let ended = Demo::piped(&[]).end().await;
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.err, "");
    assert!(!ended.out.contains('\x1b'), "{}", ended.out);

    let mut rest = ended.out.as_str();
    for milestone in [
        "cluster ready",
        "Pet kind served",
        "pet store open",
        "operator running",
        "Thor and Tron applied",
        "both have ids",
        "NAME",
        "Thor is Thorbert",
        "same id",
        "both deleted",
        "cleaned up",
        "done in",
    ] {
        let Some((_, after)) = rest.split_once(milestone) else {
            panic!("{milestone:?} is missing or out of order in:\n{}", ended.out);
        };
        rest = after;
    }
    let table: Vec<Vec<&str>> = ended.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let rows = |pet: &str| -> Vec<&Vec<&str>> { table.iter().filter(|row| row.first() == Some(&pet)).collect() };
    let thor = rows("thor");
    let id = thor[0][3];
    assert_eq!(id.len(), 36, "{thor:?}");
    assert_eq!(*thor[0], ["thor", "Thor", "dog", id, "True", "Thor"]);
    assert_eq!(*thor[1], ["thor", "Thorbert", "dog", id, "True", "Thorbert"]);
    assert_eq!(*thor[2], ["thor", "Thorbert", "dog", id, "gone", "-"]);
    assert_eq!(rows("tron")[1][1..3], ["Tron", "cat"]);
}

#[tokio::test]
async fn a_program_gets_one_document() {
    let ended = Demo::piped(&["-o", "json"]).end().await;
    assert!(ended.status.success(), "{ended:?}");
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    let steps = told["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 9);
    assert!(steps.iter().all(|step| step["milliseconds"].is_number()), "{told:#}");
    assert_eq!(told["pets"][0]["petName"], "Thorbert");
    assert_eq!(told["pets"][1]["gone"], true);
}

/// Whatever it is doing, a demo that is interrupted ends at once and leaves nothing.
#[tokio::test]
async fn a_demo_ends_when_it_is_interrupted_at_any_moment() {
    for moment in ["windlass demo", "cluster ready", "pet store open", "operator running", "applied", "both have ids"] {
        for (signal, code) in [(Signal::INT, 130), (Signal::QUIT, 131), (Signal::TERM, 143)] {
            let mut demo = Demo::piped(&["--keep"]);
            let mut lines = demo.lines();
            line_with(&mut lines, moment).await;
            demo.signal(signal);
            let ended = demo.end().await;
            assert_eq!((ended.status.code(), ended.err.as_str()), (Some(code), ""), "{signal:?} after {moment}");
        }
    }
}

#[tokio::test]
async fn a_kept_demo_serves_until_it_is_interrupted() {
    let mut demo = Demo::piped(&["--keep"]);
    let mut lines = demo.lines();
    let ready = line_with(&mut lines, "cluster ready").await;
    let hint = line_with(&mut lines, "kubectl --kubeconfig").await;
    line_with(&mut lines, "Ctrl-C").await;
    assert!(is_served(&ready).await);

    let path = Path::new(hint.split_whitespace().nth(2).unwrap());
    assert_eq!(files(demo.home.path()), [path]);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let file = Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let pets: kube::Api<petstore_api::v1beta1::Pet> = kube::Api::default_namespaced(client);
    let names: Vec<String> =
        pets.list(&kube::api::ListParams::default()).await.unwrap().into_iter().map(|pet| pet.spec.name).collect();
    assert_eq!(names, ["Thorbert", "Tron"]);

    demo.signal(Signal::INT);
    assert_eq!(demo.end().await.status.code(), Some(130));
    assert!(!is_served(&ready).await);
}

#[tokio::test]
async fn a_reader_that_has_read_enough_stops_nothing() {
    let mut demo = Demo::piped(&[]);
    drop(demo.child.stdout.take());
    let ended = demo.end().await;
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.err, "");
}

#[tokio::test]
async fn logs_go_to_standard_error_when_asked_for() {
    let ended = Demo::start(&[], &[("RUST_LOG", "info")], Stdio::piped()).end().await;
    assert!(ended.status.success());
    assert!(ended.err.contains("controller started"), "{}", ended.err);
    assert!(!ended.out.contains("controller started"), "{}", ended.out);
    assert!(!ended.err.contains('\x1b'), "{}", ended.err);
}

/// A terminal to write to, and everything that is written there until it is closed.
fn terminal(columns: u16) -> (File, tokio::task::JoinHandle<String>) {
    let controller = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&controller).unwrap();
    rustix::pty::unlockpt(&controller).unwrap();
    let name = rustix::pty::ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let size = Winsize { ws_row: 30, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let written = tokio::task::spawn_blocking(move || {
        let mut written = Vec::new();
        // On Linux, reading what cannot be written to any more is an error, not an end.
        let _ = File::from(controller).read_to_end(&mut written);
        String::from_utf8(written).unwrap()
    });
    (terminal, written)
}

/// What a terminal shows: it understands what the demo writes, and nothing else.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// What could be seen each time that something was drawn.
    frames: Vec<Vec<String>>,
}

impl Screen {
    fn of(written: &str, columns: usize) -> Self {
        let mut screen = Self::default();
        let mut characters = written.chars();
        while let Some(c) = characters.next() {
            match c {
                '\r' => screen.column = 0,
                '\n' => screen.row += 1,
                '\x1b' => {
                    assert_eq!(characters.next(), Some('['));
                    let mut parameters = String::new();
                    let command = characters.find(|c| {
                        let last = c.is_ascii_alphabetic();
                        parameters.extend((!last).then_some(*c));
                        last
                    });
                    screen.control(command.unwrap(), &parameters);
                }
                c => screen.put(c),
            }
            assert!(screen.column <= columns, "a line is wider than the terminal: {:?}", screen.text());
        }
        screen
    }

    fn put(&mut self, c: char) {
        let (row, column) = (self.row, self.column);
        self.lines.resize_with(self.lines.len().max(row + 1), Vec::new);
        let line = &mut self.lines[row];
        line.resize(line.len().max(column + 1), ' ');
        line[column] = c;
        self.column += 1;
    }

    fn control(&mut self, command: char, parameters: &str) {
        match command {
            'A' => self.row = self.row.checked_sub(parameters.parse().unwrap()).expect("not above the first line"),
            'K' => {
                let column = self.column;
                self.lines.get_mut(self.row).into_iter().for_each(|line| line.truncate(column));
            }
            'J' => {
                self.lines.truncate(self.row);
                self.frames.push(self.text());
            }
            'm' => {}
            _ => panic!("the terminal does not know {parameters}{command}"),
        }
    }

    fn text(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
    }
}

#[tokio::test]
async fn on_a_terminal_one_table_is_drawn_again_and_again() {
    let demos = [40, 64, 80, 120].map(|columns| tokio::spawn(fits_a_terminal(columns)));
    for demo in demos {
        demo.await.unwrap();
    }
}

async fn fits_a_terminal(columns: u16) {
    let (stdout, written) = terminal(columns);
    let ended = Demo::start(&[], &[("TERM", "xterm")], stdout.into()).end().await;
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.err, "");
    let written = written.await.unwrap();
    assert!(written.contains("\x1b[32m"), "there are colours");
    assert!(written.matches("NAME").count() > 10, "the table is drawn more than once");

    let screen = Screen::of(&written, columns.into());
    let text = screen.text();
    let count = |mark: &str| text.iter().filter(|line| line.trim_start().starts_with(mark)).count();
    assert_eq!((count("✓"), count("·"), count("NAME"), count("Done: ")), (9, 2, 1, 1), "{text:#?}");

    // No milestone is ahead of the table.
    for frame in screen.frames.iter().filter(|frame| frame.iter().any(|line| line.contains("both have ids"))) {
        let pets = frame.iter().filter(|line| line.contains(" dog ") || line.contains(" cat "));
        // mark, name, pet name, type, id
        let ids = pets.filter(|pet| pet.split_whitespace().nth(4).is_some_and(|id| id != "-"));
        assert_eq!(ids.count(), 2, "{frame:#?}");
    }
}

#[tokio::test]
async fn an_interrupted_terminal_is_given_back() {
    let (stdout, written) = terminal(80);
    let mut demo = Demo::start(&["--keep"], &[("TERM", "xterm"), ("NO_COLOR", "1")], stdout.into());
    // The kubeconfig is written when everything runs.
    let shown = async {
        while files(demo.home.path()).is_empty() {
            assert!(demo.child.try_wait().unwrap().is_none());
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEMO_TIMEOUT, shown).await.unwrap();
    demo.signal(Signal::INT);
    assert_eq!(demo.end().await.status.code(), Some(130));
    let written = written.await.unwrap();
    assert!(!written.contains("\x1b[32m"), "there are no colours");
    let screen = Screen::of(&written, usize::MAX);
    let text = screen.text();
    assert!(text[text.len() - 1].contains("cleaned up"), "{text:#?}");
}
