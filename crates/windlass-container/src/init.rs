//! The process that becomes a container's program: it sets itself up, and then executes the program.
//!
//! Its arguments are two files of its parent: what it is to become, and where it reports to. The report is closed by the
//! program's execution, so silence means success.

mod mounts;
mod privileges;
mod seccomp;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::parent::{EXEC_FAILED, MISCONFIGURED, READY};
use crate::spec::{InitConfig, Isolation, ProcessConfig, below};
use crate::user_namespace::unshare;

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let [config, report] = arguments else { return ExitCode::FAILURE };
    // Processes of the container see this one before it has become the program, and must not reach the host through it.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let (Ok(config), Ok(mut report)) = (File::open(config), File::options().write(true).open(report)) else {
        return ExitCode::FAILURE;
    };
    if report.write_all(READY.as_bytes()).is_err() {
        return ExitCode::FAILURE;
    }
    let result = crate::wire::read_content::<InitConfig>(config.into())
        .map_err(|error| Failure::Setup(format!("the container's configuration cannot be read: {error}")))
        .and_then(|config| become_container(&config));
    let message = match result {
        Ok(never) => match never {},
        Err(Failure::Setup(message)) => message,
        Err(Failure::Config(message)) => format!("{MISCONFIGURED}{message}"),
        Err(Failure::Exec(message)) => format!("{EXEC_FAILED}{message}"),
    };
    let _ = report.write_all(message.as_bytes());
    ExitCode::FAILURE
}

/// Why a container's program does not run.
enum Failure {
    Setup(String),
    /// The pod asks for what cannot be.
    Config(String),
    Exec(String),
}

/// An error of the system, with what was tried.
fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Failure {
    let what = what.into();
    move |error| Failure::Setup(format!("cannot {what}: {}", error.into()))
}

fn become_container(config: &InitConfig) -> Result<std::convert::Infallible, Failure> {
    let (InitConfig::Container { process, .. } | InitConfig::Exec { process, .. }) = config;
    // If the pod's parent is killed, so is everything of the pod.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    for group in &process.cgroups {
        fs::write(group, "0").map_err(failed(format!("join {}", group.display())))?;
    }
    let _ = rustix::process::setsid();
    if process.terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()).map_err(failed("take the terminal"))?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    match config {
        InitConfig::Container { isolation: Isolation::Namespaces, root, process } => {
            unshare(UnshareFlags::NEWNS).map_err(failed("make a mount namespace"))?;
            mounts::enter(root)?;
            enter_working_dir(&process.working_dir)?;
            execute(process, Path::new("/"), true)
        }
        InitConfig::Container { isolation: Isolation::None, root, process } => {
            mounts::copy(&root.lower, &root.upper)?;
            link_volumes(root)?;
            execute_in(&root.upper, process)
        }
        InitConfig::Exec { isolation: Isolation::Namespaces, container, process, .. } => {
            let open = |kind: &str| File::open(format!("/proc/{container}/ns/{kind}"));
            let namespace = open("mnt").map_err(failed("find the container"))?;
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
                .map_err(failed("enter the container"))?;
            enter_working_dir(&process.working_dir)?;
            execute(process, Path::new("/"), true)
        }
        InitConfig::Exec { isolation: Isolation::None, root, process, .. } => execute_in(root, process),
    }
}

fn enter_working_dir(dir: &str) -> Result<(), Failure> {
    let dir = if dir.is_empty() { "/" } else { dir };
    // As container engines do: a directory that the image lacks is made.
    let _ = fs::create_dir_all(dir);
    rustix::process::chdir(dir).map_err(failed(format!("enter the working directory {dir}")))
}

/// A process of the host, whose image is a directory.
fn execute_in(root: &Path, process: &ProcessConfig) -> Result<std::convert::Infallible, Failure> {
    let dir = below(root, &process.working_dir);
    let _ = fs::create_dir_all(&dir);
    rustix::process::chdir(&dir).map_err(failed(format!("enter {}", dir.display())))?;
    let mut process = process.clone();
    if let Some(program) = process.arguments.first_mut() {
        let inside = below(root, program);
        // A name that the image lacks is one of the host.
        if program.contains('/') && inside.exists() {
            *program = inside.display().to_string();
        } else if let Some(found) = in_path(root, &process.environment, program) {
            *program = found;
        }
    }
    execute(&process, root, false)
}

/// A program of the image by its name.
fn in_path(root: &Path, environment: &[(String, String)], program: &str) -> Option<String> {
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str())?;
    let found = path.split(':').map(|dir| below(root, dir).join(program)).find(|file| file.is_file())?;
    Some(found.display().to_string())
}

/// Volumes of processes of the host: links in their image's directory, as far as nothing else is there.
fn link_volumes(root: &crate::spec::RootConfig) -> Result<(), Failure> {
    for mount in &root.mounts {
        let target = below(&root.upper, &mount.target);
        if let Some(above) = target.parent() {
            fs::create_dir_all(above).map_err(failed(format!("create {}", above.display())))?;
        }
        let source = mount.sub_path.as_ref().map_or_else(|| mount.source.clone(), |path| below(&mount.source, path));
        let _ = fs::remove_file(&target);
        let _ = fs::remove_dir(&target);
        let _ = std::os::unix::fs::symlink(&source, &target);
    }
    Ok(())
}

fn execute(process: &ProcessConfig, root: &Path, isolated: bool) -> Result<std::convert::Infallible, Failure> {
    let Some((program, arguments)) = process.arguments.split_first() else {
        return Err(Failure::Setup("no command specified".to_owned()));
    };
    let user = privileges::resolve(&process.user, root)?;
    let mut environment = process.environment.clone();
    if !environment.iter().any(|(name, _)| name == "HOME") {
        environment.push(("HOME".to_owned(), user.home.clone()));
    }
    if isolated {
        privileges::apply(process, &user)?;
    }
    // Taken away by a change of the user.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let mut command = Command::new(program);
    let error = command.args(arguments).env_clear().envs(environment).exec();
    Err(Failure::Exec(match error.kind() {
        io::ErrorKind::NotFound if !program.contains('/') => {
            format!("exec: {program:?}: executable file not found in $PATH")
        }
        io::ErrorKind::NotFound => format!("exec: {program:?}: stat {program}: no such file or directory"),
        _ => format!("exec: {program:?}: {error}"),
    }))
}
