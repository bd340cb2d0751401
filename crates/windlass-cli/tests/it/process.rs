//! Programs that are run to their end, and programs that are watched while they run.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to print a line or to end, on a machine that is busy with other tests.
pub(crate) const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);

/// What a program that ran to its end said.
#[derive(Debug)]
pub(crate) struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            status: output.status,
            stdout: String::from_utf8(output.stdout).expect("output is text"),
            stderr: String::from_utf8(output.stderr).expect("output is text"),
        }
    }
}

/// A program that runs, and the lines it writes. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("the output is piped");
        let (send, lines) = channel();
        // The thread ends with the program's output, or when it is not read any more.
        std::thread::spawn(move || BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|l| send.send(l)));
        Self { child, lines }
    }

    /// The next line; `None` once the output has ended.
    pub(crate) fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(OUTPUT_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program says nothing"),
        }
    }

    /// The next line with `text` in it.
    pub(crate) fn line_with(&self, text: &str) -> String {
        let mut seen = Vec::new();
        while let Some(line) = self.line() {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line has {text:?}; seen: {seen:#?}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).expect("the program runs");
    }

    /// Waits until a signal does not simply end it.
    pub(crate) fn catches(&self, signal: Signal) {
        eventually("the signal is caught", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
            let mask = u64::from_str_radix(caught, 16).unwrap();
            (mask & (1 << (signal.as_raw() - 1)) != 0).then_some(())
        });
    }

    /// Whether it has ended; it has not been waited for yet.
    pub(crate) fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it is there until waited for");
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
    }

    /// Waits for the program's end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        eventually("the program ends", || self.child.try_wait().expect("the program can be waited for"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether processes heed a signal. Under `nohup`, as tests may run, they do not heed hangups, on purpose.
pub(crate) fn is_heeded(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    signal != Signal::HUP || u64::from_str_radix(ignored, 16).unwrap() & 1 == 0
}

/// Asks until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + OUTPUT_TIMEOUT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        // Leaves the processor to what is waited for; how long this takes does not matter.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
