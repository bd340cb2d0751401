//! Commands on a terminal: what they ask, and the keys that they heed.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize};

use crate::process::{OUTPUT_TIMEOUT, eventually};
use crate::windlass::Sandbox;

/// A program on a terminal of its own. Dropping it kills the program.
pub(crate) struct Terminal {
    child: Child,
    controller: File,
    written: Receiver<Vec<u8>>,
    /// What was written after the text that was looked for last.
    text: String,
}

impl Terminal {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let controller = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&controller).unwrap();
        rustix::pty::unlockpt(&controller).unwrap();
        let name = rustix::pty::ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let terminal = File::options().read(true).write(true).open(name).unwrap();
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&terminal, size).unwrap();
        command.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap()).stderr(terminal);
        let child = command.env("TERM", "xterm").spawn().expect("the program starts");
        let controller = File::from(controller);
        let mut reader = controller.try_clone().unwrap();
        let (send, written) = channel();
        // The thread ends with the terminal, or when it is not read any more.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes) {
                if send.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, controller, written, text: String::new() }
    }

    /// Waits until the terminal shows a text that is new.
    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) {
        let deadline = Instant::now() + OUTPUT_TIMEOUT;
        let end = loop {
            if let Some(at) = self.text.find(text) {
                break at + text.len();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.written.recv_timeout(left) else { panic!("no {text:?} in {:?}", self.text) };
            self.text.extend(bytes.utf8_chunks().map(|chunk| chunk.valid().to_owned()));
        };
        self.text.drain(..end);
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether the terminal passes on whole lines and shows what is typed, as it does unless a program says otherwise.
    pub(crate) fn is_usual(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.controller).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the program's end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the program ends", || self.child.try_wait().expect("the program can be waited for"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn no_color_turns_colours_off_on_a_terminal() {
    let sandbox = Sandbox::new();
    for (variable, label) in [("", "\x1b[31merror:\x1b[0m"), ("1", "error:")] {
        let mut terminal = Terminal::spawn(sandbox.command("edit").env("NO_COLOR", variable));
        terminal.shows(&format!("{label} there is no project here"));
        assert_eq!(terminal.wait().code(), Some(1));
    }
}

#[test]
fn create_api_asks_for_resource_and_controller() {
    let sandbox = Sandbox::new();
    sandbox.succeeds("init --name zoo --domain my.domain");
    let create =
        |args: &str| Terminal::spawn(&mut sandbox.command(&format!("create api --group a --version v1 {args}")));
    let (types, controller) = (sandbox.path("api/src/v1/cat.rs"), sandbox.path("src/controller/cat.rs"));

    let mut terminal = create("--kind Cat");
    terminal.shows("Create Resource [y/n] ");
    terminal.press("perhaps\n");
    terminal.shows("Create Resource [y/n] ");
    terminal.press("y\n");
    terminal.shows("Create Controller [y/n] ");
    terminal.press("n\n");
    terminal.shows("create api/src/v1/cat.rs");
    assert!(terminal.wait().success());
    assert!(types.exists() && !controller.exists());

    // A flag is an answer.
    let mut terminal = create("--kind Cat --resource=false");
    terminal.shows("Create Controller [y/n] ");
    assert!(!terminal.text.contains("Resource"), "{}", terminal.text);
    terminal.press("YES\n");
    terminal.shows("create src/controller/cat.rs");
    assert!(terminal.wait().success() && controller.exists());

    // Ctrl-D is none.
    let mut terminal = create("--kind Dog");
    terminal.shows("Create Resource [y/n] ");
    terminal.press("\x04");
    terminal.shows("error:");
    terminal.shows("no answer; use --resource and --controller, or answer y or n");
    assert_eq!(terminal.wait().code(), Some(1));
    assert!(!sandbox.path("api/src/v1/dog.rs").exists());
}
