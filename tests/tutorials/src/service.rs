//! The pet store, which knows no Kubernetes: a program that runs beside an operator, on a port and in a directory that stay
//! the same when it is killed and started again.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// A pet store; dropping it kills it.
pub(crate) struct Service {
    pub address: String,
    directory: PathBuf,
    process: Child,
}

impl Service {
    /// Starts a new pet store on a free port.
    pub(crate) fn start(place: &Path) -> Result<Self> {
        let directory = place.join("pets");
        let (process, address) = spawn("127.0.0.1:0", &directory)?;
        Ok(Self { address, directory, process })
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Starts it again where it was.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.process = spawn(&self.address, &self.directory)?.0;
        Ok(())
    }

    /// Its pets, in the words of the cluster.
    pub(crate) fn list(&self) -> Result<Vec<Value>> {
        let mut client = Command::new(program("petstore-client")?);
        let output = client.args(["--petstore-addr", &self.address]).output()?;
        ensure!(output.status.success(), "petstore-client: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout)?.lines().map(entry).collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.kill();
    }
}

fn program(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    ensure!(program.exists(), "{} is not built", program.display());
    Ok(program)
}

/// Starts the program, and waits until it says where it serves.
fn spawn(address: &str, directory: &Path) -> Result<(Child, String)> {
    let mut command = Command::new(program("petstore-server")?);
    command.args(["--addr", address, "--data-dir"]).arg(directory).env("RUST_LOG", "info").stdin(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut log = BufReader::new(child.stderr.take().context("the log is piped")?);
    let mut line = String::new();
    log.read_line(&mut line)?;
    let (_, address) = line.trim_end().rsplit_once("addr=").with_context(|| format!("it does not serve: {line}"))?;
    let address = address.to_owned();
    // The pipe stays open, and is read, for as long as the process lives: it must not wait for a reader.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Ok((child, address))
}

/// A line of `petstore-client`.
fn entry(line: &str) -> Result<Value> {
    let mut words = line.splitn(2, ' ');
    let (id, rest) = words.next().zip(words.next()).with_context(|| format!("no entry: {line}"))?;
    let (species, rest) = rest.split_once(' ').with_context(|| format!("no entry: {line}"))?;
    let (birthday, name) = rest.trim_start().split_once(' ').with_context(|| format!("no entry: {line}"))?;
    let species = match species {
        "canine" => "dog",
        "feline" => "cat",
        other => other,
    };
    Ok(json!({ "id": id, "species": species, "birthday": birthday, "name": name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_from_a_line() {
        let read = entry("1234 canine   2021-04-01 Thor the Great").expect("an entry");
        let expected = json!({ "id": "1234", "species": "dog", "birthday": "2021-04-01", "name": "Thor the Great" });
        assert_eq!(read, expected);
        assert!(entry("1234").is_err());
    }
}
