//! Control groups: what a container may use of the machine, and what the kernel killed for want of memory.
//!
//! Both versions are used as they are mounted: version 2, or the hierarchies of version 1 for memory, CPU and processes.
//! A user who is not root has none; pods then run without limits, and the node says so.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many processes a container may have.
const PROCESSES: u64 = 4096;
/// How long processes that were killed may take to end: there may be thousands of them.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// The period of CPU quotas, in microseconds.
const PERIOD: u64 = 100_000;

/// What a container may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Thousandths of a CPU that it may use.
    pub cpu: Option<u64>,
    /// Thousandths of a CPU that it asks for.
    pub cpu_request: Option<u64>,
}

/// Where the groups of pods are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// One hierarchy.
    V2(PathBuf),
    /// One for each controller that there is.
    V1(Vec<(Controller, PathBuf)>),
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Memory,
    Cpu,
    /// Counts what is used of the CPU; often the same hierarchy as the one that limits it.
    CpuAccounts,
    Pids,
}

const V1: [(Controller, &str); 4] = [
    (Controller::Memory, "memory"),
    (Controller::Cpu, "cpu"),
    (Controller::CpuAccounts, "cpuacct"),
    (Controller::Pids, "pids"),
];

fn may_change(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

/// What the kernel has counted for a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Time on CPUs.
    pub(crate) cpu_nanoseconds: u64,
    /// Memory without what the kernel can take away at once: the working set.
    pub(crate) memory_bytes: u64,
}

impl Cgroups {
    /// The groups of the pods of one cluster, which `name` tells from others.
    pub fn find(name: &str) -> Self {
        Self::below(Path::new("/sys/fs/cgroup"), name)
    }

    /// Whether this user may make any: the machine's are root's, and containers are only shown them.
    pub fn are_allowed() -> bool {
        let root = Path::new("/sys/fs/cgroup");
        let v1 = V1.iter().map(|(_, controller)| root.join(controller));
        if root.join("cgroup.controllers").is_file() {
            may_change(root)
        } else {
            v1.into_iter().any(|dir| may_change(&dir))
        }
    }

    fn below(root: &Path, name: &str) -> Self {
        let none = Self { kind: Kind::None };
        if root.join("cgroup.controllers").is_file() {
            let dir = root.join("windlass");
            let usable =
                may_change(root) && fs::create_dir_all(&dir).is_ok() && enable(root).is_ok() && enable(&dir).is_ok();
            return if usable { Self { kind: Kind::V2(dir.join(name)) } } else { none };
        }
        let found: Vec<_> = V1
            .iter()
            .filter(|(_, controller)| root.join(controller).join("cgroup.procs").is_file())
            .filter(|(_, controller)| may_change(&root.join(controller)))
            .map(|(kind, controller)| (*kind, root.join(controller).join("windlass").join(name)))
            .collect();
        if found.is_empty() { none } else { Self { kind: Kind::V1(found) } }
    }

    /// What is not limited, in a few words; empty if everything is.
    pub fn missing(&self) -> Vec<&'static str> {
        let has = |wanted: Controller| match &self.kind {
            Kind::V2(_) => true,
            Kind::V1(all) => all.iter().any(|(controller, _)| *controller == wanted),
            Kind::None => false,
        };
        let names =
            [(Controller::Memory, "memory"), (Controller::Cpu, "CPU"), (Controller::Pids, "the number of processes")];
        names.iter().filter(|(controller, _)| !has(*controller)).map(|(_, name)| *name).collect()
    }

    fn dirs(&self, pod: &str, container: &str) -> Vec<(Option<Controller>, PathBuf)> {
        match &self.kind {
            Kind::V2(dir) => vec![(None, dir.join(pod).join(container))],
            Kind::V1(all) => {
                all.iter().map(|(controller, dir)| (Some(*controller), dir.join(pod).join(container))).collect()
            }
            Kind::None => Vec::new(),
        }
    }

    /// Makes the group of a container. Returns the files by which processes join it.
    pub fn create(&self, pod: &str, container: &str, limits: Limits) -> io::Result<Vec<PathBuf>> {
        let mut joined = Vec::new();
        for (controller, dir) in self.dirs(pod, container) {
            fs::create_dir_all(&dir)?;
            if controller.is_none()
                && let Some(above) = dir.parent()
            {
                above.parent().map_or(Ok(()), enable)?;
                enable(above)?;
            }
            apply(&dir, controller, limits)?;
            joined.push(dir.join("cgroup.procs"));
        }
        Ok(joined)
    }

    /// The file that counts what the kernel killed for want of memory.
    pub(crate) fn oom_file(&self, pod: &str, container: &str) -> Option<PathBuf> {
        self.dirs(pod, container).into_iter().find_map(|(controller, dir)| match controller {
            None => Some(dir.join("memory.events")),
            Some(Controller::Memory) => Some(dir.join("memory.oom_control")),
            Some(_) => None,
        })
    }

    /// What a container uses; `None` where that is not counted.
    pub(crate) fn counters(&self, pod: &str, container: &str) -> Option<Counters> {
        let dirs = self.dirs(pod, container);
        let of = |wanted: Controller| {
            dirs.iter()
                .find(|(kind, _)| kind.is_none_or(|kind| kind == wanted))
                .map(|(kind, dir)| (kind.is_none(), dir))
        };
        let (is_v2, cpu) = of(Controller::CpuAccounts)?;
        let cpu_nanoseconds = if is_v2 {
            field(&cpu.join("cpu.stat"), "usage_usec")? * 1000
        } else {
            number(&cpu.join("cpuacct.usage"))?
        };
        let (is_v2, memory) = of(Controller::Memory)?;
        let (used, cached) =
            if is_v2 { ("memory.current", "inactive_file") } else { ("memory.usage_in_bytes", "total_inactive_file") };
        let cached = field(&memory.join("memory.stat"), cached).unwrap_or(0);
        Some(Counters { cpu_nanoseconds, memory_bytes: number(&memory.join(used))?.saturating_sub(cached) })
    }

    /// Kills all processes of a container.
    pub fn kill(&self, pod: &str, container: &str) {
        let dirs = self.dirs(pod, container);
        for (_, dir) in &dirs {
            hasten(dir);
        }
        for (_, dir) in &dirs {
            kill(dir);
        }
    }

    /// Kills all processes of a pod, and removes its groups.
    pub fn remove(&self, pod: &str) {
        let dirs = self.pod_dirs(pod);
        for dir in &dirs {
            for container in children(dir) {
                hasten(&dir.join(container));
            }
        }
        for dir in &dirs {
            remove(dir);
        }
    }

    fn pod_dirs(&self, pod: &str) -> Vec<PathBuf> {
        match &self.kind {
            Kind::V2(dir) => vec![dir.join(pod)],
            Kind::V1(all) => all.iter().map(|(_, dir)| dir.join(pod)).collect(),
            Kind::None => Vec::new(),
        }
    }

    /// The pods that have groups.
    pub fn pods(&self) -> Vec<String> {
        let dirs = match &self.kind {
            Kind::V2(dir) => vec![dir.clone()],
            Kind::V1(all) => all.iter().map(|(_, dir)| dir.clone()).collect(),
            Kind::None => Vec::new(),
        };
        let mut found: Vec<String> = dirs.iter().flat_map(|dir| children(dir)).collect();
        found.sort();
        found.dedup();
        found
    }

    /// Removes everything of the cluster; processes that are left are killed.
    pub fn remove_all(&self) {
        for pod in self.pods() {
            self.remove(&pod);
        }
        // And what clusters have in common, if this was the last: a group with others below it cannot be removed.
        let remove = |dir: &PathBuf| dir.ancestors().take(2).for_each(|dir| _ = fs::remove_dir(dir));
        match &self.kind {
            Kind::V2(dir) => remove(dir),
            Kind::V1(all) => all.iter().for_each(|(_, dir)| remove(dir)),
            Kind::None => {}
        }
    }
}

/// How often the kernel killed something for want of memory.
pub(crate) fn oom_kills(file: &Path) -> u64 {
    field(file, "oom_kill").unwrap_or(0)
}

/// A number in a file of lines with names.
fn field(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The number in a file.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Lets groups below a directory be limited.
fn enable(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.subtree_control"), "+memory +cpu +pids")
}

fn apply(dir: &Path, controller: Option<Controller>, limits: Limits) -> io::Result<()> {
    let write = |file: &str, value: String| fs::write(dir.join(file), value);
    let is = |wanted: Controller| controller.is_none_or(|controller| controller == wanted);
    let v2 = controller.is_none();
    if is(Controller::Memory)
        && let Some(memory) = limits.memory
    {
        write(if v2 { "memory.max" } else { "memory.limit_in_bytes" }, memory.to_string())?;
        // Not every kernel accounts swap.
        let _ = if v2 {
            write("memory.swap.max", "0".into())
        } else {
            write("memory.memsw.limit_in_bytes", memory.to_string())
        };
    }
    if is(Controller::Cpu) {
        if let Some(cpu) = limits.cpu {
            let quota = (cpu * PERIOD / 1000).max(1000);
            if v2 {
                write("cpu.max", format!("{quota} {PERIOD}"))?;
            } else {
                write("cpu.cfs_period_us", PERIOD.to_string())?;
                write("cpu.cfs_quota_us", quota.to_string())?;
            }
        }
        let shares = (limits.cpu_request.unwrap_or(0) * 1024 / 1000).clamp(2, 262_144);
        if v2 {
            // As Kubernetes turns shares into weights.
            write("cpu.weight", (1 + (shares - 2) * 9999 / 262_142).to_string())?;
        } else {
            write("cpu.shares", shares.to_string())?;
        }
    }
    if is(Controller::Pids) {
        write("pids.max", PROCESSES.to_string())?;
    }
    Ok(())
}

fn children(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn processes(dir: &Path) -> Vec<rustix::process::Pid> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| rustix::process::Pid::from_raw(line.trim().parse().ok()?)).collect()
}

/// Lets the processes of a group end soon: they start no others, and get the time that it takes to end.
fn hasten(dir: &Path) {
    for (file, value) in [("pids.max", "0"), ("cpu.cfs_quota_us", "-1"), ("cpu.max", "max")] {
        // Of a version or hierarchy that has it.
        if let Ok(mut file) = fs::File::options().write(true).open(dir.join(file)) {
            let _ = file.write_all(value.as_bytes());
        }
    }
}

fn kill(dir: &Path) {
    if fs::write(dir.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    // What is started meanwhile is killed in the next round.
    let deadline = Instant::now() + END_TIMEOUT;
    while Instant::now() < deadline {
        let left = processes(dir);
        if left.is_empty() {
            return;
        }
        for process in left {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes a group with all below it. A group stays busy for a moment after its last process.
fn remove(dir: &Path) {
    for child in children(dir) {
        remove(&dir.join(child));
    }
    kill(dir);
    let deadline = Instant::now() + END_TIMEOUT;
    while Instant::now() < deadline {
        match fs::remove_dir(dir) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ => return,
        }
    }
    tracing::warn!(dir = %dir.display(), "a control group cannot be removed");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn limits_are_written_as_each_version_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { memory: Some(1 << 20), cpu: Some(500), cpu_request: Some(250) };
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        apply(dir.path(), None, limits).unwrap();
        assert_eq!((read("memory.max"), read("cpu.max")), ("1048576".into(), "50000 100000".into()));
        assert_eq!((read("cpu.weight"), read("pids.max")), ("10".into(), "4096".into()));
        for controller in [Controller::Memory, Controller::Cpu, Controller::Pids] {
            apply(dir.path(), Some(controller), limits).unwrap();
        }
        assert_eq!(read("memory.limit_in_bytes"), "1048576");
        assert_eq!((read("cpu.cfs_quota_us"), read("cpu.shares")), ("50000".into(), "256".into()));
    }

    #[test]
    fn use_is_counted_as_each_version_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let expected = Some(Counters { cpu_nanoseconds: 7000, memory_bytes: 30 });
        write("v2/p/c/cpu.stat", "usage_usec 7\nuser_usec 3\n");
        write("v2/p/c/memory.current", "40\n");
        write("v2/p/c/memory.stat", "anon 1\ninactive_file 10\n");
        let v2 = Cgroups { kind: Kind::V2(dir.path().join("v2")) };
        assert_eq!(v2.counters("p", "c"), expected);
        assert_eq!(v2.counters("p", "other"), None);
        write("memory/p/c/memory.usage_in_bytes", "40\n");
        write("memory/p/c/memory.stat", "inactive_file 1\ntotal_inactive_file 10\n");
        write("cpuacct/p/c/cpuacct.usage", "7000\n");
        let v1 = [(Controller::Memory, "memory"), (Controller::CpuAccounts, "cpuacct")];
        let v1 = Cgroups { kind: Kind::V1(v1.iter().map(|(kind, name)| (*kind, dir.path().join(name))).collect()) };
        assert_eq!(v1.counters("p", "c"), expected);
    }

    #[test]
    fn kills_for_want_of_memory_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.oom_control");
        assert_eq!(oom_kills(&file), 0);
        fs::write(&file, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").unwrap();
        assert_eq!(oom_kills(&file), 3);
    }
}
