//! The users of a user namespace: the one that runs `windlass` is root, and `/etc/subuid` may give it others.
//!
//! Only `newuidmap` and `newgidmap` may map others, which are programs of the system with the rights to do so.

use std::fs;
use std::process::{Command, Stdio};

/// Gives a process in a new user namespace all users that this user has. Whether it has got any: without the programs, or
/// without an entry for this user, nothing is changed.
pub(super) fn map(process: u32) -> bool {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (users, groups) = others(uid);
    if users.is_empty() || groups.is_empty() {
        return false;
    }
    // The kernel takes each map but once.
    run("newgidmap", process, gid, &groups) && run("newuidmap", process, uid, &users)
}

/// Whether this user is given others, and there is what maps them.
pub(super) fn can_map() -> bool {
    let (users, groups) = others(rustix::process::getuid().as_raw());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    !users.is_empty() && !groups.is_empty() && is_there("newuidmap") && is_there("newgidmap")
}

/// The users and groups that a user is given.
fn others(uid: u32) -> (Vec<Numbers>, Vec<Numbers>) {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = name_of(&passwd, uid);
    let granted = |file: &str| granted(&fs::read_to_string(file).unwrap_or_default(), uid, name);
    (granted("/etc/subuid"), granted("/etc/subgid"))
}

/// Some numbers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    first: u32,
    count: u32,
}

/// The name of a user.
fn name_of(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid)).then_some(name)
    })
}

/// What a file such as `/etc/subuid` gives to a user, by name or by number.
fn granted(file: &str, uid: u32, name: Option<&str>) -> Vec<Numbers> {
    let number = uid.to_string();
    let entries = file.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (owner == number || Some(owner) == name).then_some(Numbers { first, count })
    });
    entries.filter(|numbers| numbers.count > 0).collect()
}

/// The arguments by which `own` becomes root, and the others follow from number 1 on.
fn arguments(own: u32, others: &[Numbers]) -> Vec<String> {
    let mut arguments = vec!["0".to_owned(), own.to_string(), "1".to_owned()];
    let mut next = 1_u32;
    for Numbers { first, count } in others {
        arguments.extend([next, *first, *count].map(|number| number.to_string()));
        next = next.saturating_add(*count);
    }
    arguments
}

fn run(program: &str, process: u32, own: u32, others: &[Numbers]) -> bool {
    let mut command = Command::new(program);
    command.arg(process.to_string()).args(arguments(own, others));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_user_are_found_by_name_and_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!((name_of(passwd, 1000), name_of(passwd, 7)), (Some("me"), None));
        let file = "# comment\nyou:100000:65536\nme:165536:65536\n1000:300000:10\nme:x:1\nme:5:0\n";
        let found = granted(file, 1000, Some("me"));
        assert_eq!(found, [Numbers { first: 165_536, count: 65_536 }, Numbers { first: 300_000, count: 10 }]);
        assert_eq!(granted(file, 7, None), []);
        assert_eq!(arguments(1000, &found).join(" "), "0 1000 1 1 165536 65536 65537 300000 10");
    }
}
