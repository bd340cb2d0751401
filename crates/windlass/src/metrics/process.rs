//! The process itself, under the names that Prometheus' own exporters use. Read from `/proc`; where
//! there is none, nothing is shown.

use std::path::Path;

use super::{Registry, Scrape};

/// Ticks per second in what the kernel tells of time: the same wherever Linux runs today, whatever
/// its own clock does.
const TICKS: f64 = 100.0;

/// Has a registry show the process.
pub(crate) fn register(registry: &Registry) {
    if cfg!(target_os = "linux") {
        registry.replace_collector("process", |scrape| collect(scrape, Path::new("/proc")));
    }
}

/// Shows what can be read.
fn collect(scrape: &mut Scrape, proc: &Path) {
    let read = |name: &str| std::fs::read_to_string(proc.join(name)).unwrap_or_default();
    if let Some(stat) = Stat::parse(&read("self/stat")) {
        let help = "Time that processors spent on the process, in seconds";
        scrape.counter("process_cpu_seconds_total", help, &[], stat.cpu_seconds);
        let help = "Size of the process's virtual memory, in bytes";
        scrape.gauge("process_virtual_memory_bytes", help, &[], stat.virtual_bytes);
        if let Some(boot) = number(&read("stat"), "btime") {
            let help = "When the process started, in seconds since 1970";
            scrape.gauge("process_start_time_seconds", help, &[], boot + stat.started_seconds);
        }
    }
    if let Some(kilobytes) = number(&read("self/status"), "VmRSS:") {
        let help = "Memory of the process that is in RAM, in bytes";
        scrape.gauge("process_resident_memory_bytes", help, &[], kilobytes * 1024.0);
    }
    if let Ok(files) = std::fs::read_dir(proc.join("self/fd")) {
        // The directory itself is open while it is looked at.
        let open = files.count().saturating_sub(1);
        scrape.gauge("process_open_fds", "Files that the process has open", &[], open as f64);
    }
    if let Some(most) = number(&read("self/limits"), "Max open files") {
        scrape.gauge("process_max_fds", "Files that the process may have open", &[], most);
    }
}

/// The first number of the line that begins with a word; without a limit it is the greatest of all.
fn number(text: &str, word: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

/// What `/proc/self/stat` says.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    /// After the system.
    started_seconds: f64,
    virtual_bytes: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name, in parentheses, may contain anything. What follows it is the third field.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS,
            started_seconds: field(22)? / TICKS,
            virtual_bytes: field(23)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let text = "4242 (a) b (c) S 1 4242 4242 0 -1 4194304 500 0 2 0 150 25 0 0 20 0 3 0 90000 268435456 1000 rest";
        let stat = Stat { cpu_seconds: 1.75, started_seconds: 900.0, virtual_bytes: 268_435_456.0 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("4242 (short) S 1"), None);
    }

    #[test]
    fn what_the_kernel_tells_is_shown() {
        let proc = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(proc.path().join(name), text).unwrap();
        std::fs::create_dir_all(proc.path().join("self/fd")).unwrap();
        write("stat", "cpu  1 2 3\nbtime 1700000000\nprocesses 9\n");
        write("self/stat", "1 (x) S 1 1 1 0 -1 0 0 0 0 0 150 25 0 0 20 0 3 0 90000 4096 1 0");
        write("self/status", "Name:\tx\nVmSize:\t    4 kB\nVmRSS:\t    2 kB\n");
        write("self/limits", "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n");
        for fd in ["0", "1", "2"] {
            write(&format!("self/fd/{fd}"), "");
        }
        let mut scrape = Scrape::default();
        collect(&mut scrape, proc.path());
        let text = scrape.encode();
        let shown: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "process_cpu_seconds_total 1.75",
            "process_max_fds 1024",
            "process_open_fds 2",
            "process_resident_memory_bytes 2048",
            "process_start_time_seconds 1.7000009e+09",
            "process_virtual_memory_bytes 4096",
        ];
        assert_eq!(shown, expected);
        assert_eq!(number("Max open files  unlimited  unlimited  files", "Max open files"), Some(u64::MAX as f64));
    }

    #[test]
    fn where_nothing_can_be_read_nothing_is_shown() {
        let mut scrape = Scrape::default();
        collect(&mut scrape, Path::new("/nowhere"));
        assert_eq!(scrape.encode(), "");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_shown() {
        let registry = Registry::default();
        register(&registry);
        let text = registry.encode();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds ");
        assert!((-5.0..86_400.0).contains(&age), "{age}");
        assert!(value("process_resident_memory_bytes ") > 1e5);
        assert!(value("process_virtual_memory_bytes ") >= value("process_resident_memory_bytes "));
        assert!((3.0..=value("process_max_fds ")).contains(&value("process_open_fds ")));
        assert!(value("process_cpu_seconds_total ") >= 0.0);
    }
}
