//! The user, groups and capabilities of a container's process.

use std::fs;
use std::path::Path;

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Failure, failed, seccomp};
use crate::spec::{ProcessConfig, User};
use crate::user_namespace::unshare;

/// Who a process runs as.
pub(super) struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    pub(super) home: String,
}

/// Finds the user, also by name in the image's own list.
pub(super) fn resolve(user: &User, root: &Path) -> Result<Identity, Failure> {
    let (name, group) = user.image.split_once(':').unwrap_or((&user.image, ""));
    let passwd = fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    let entry = |wanted: &dyn Fn(&[&str]) -> bool| {
        passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.len() >= 6 && wanted(fields))
    };
    let known = match user.uid {
        Some(uid) => entry(&|fields| fields[2].parse() == Ok(uid)),
        None if name.is_empty() => entry(&|fields| fields[2] == "0"),
        None => entry(&|fields| fields[0] == name || fields[2] == name),
    };
    let uid = match user.uid {
        Some(uid) => uid,
        None if name.is_empty() => 0,
        None => match (name.parse(), &known) {
            (Ok(uid), _) => uid,
            (Err(_), Some(fields)) => {
                if user.non_root {
                    let message = format!(
                        "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
                    );
                    return Err(Failure::Config(message));
                }
                fields[2].parse().unwrap_or(0)
            }
            (Err(_), None) => {
                return Err(Failure::Setup(format!("unable to find user {name}: no matching entries in passwd file")));
            }
        },
    };
    if user.non_root && uid == 0 {
        let why = if user.uid == Some(0) {
            "container's runAsUser breaks non-root policy"
        } else {
            "container has runAsNonRoot and image will run as root"
        };
        return Err(Failure::Config(why.to_owned()));
    }
    let named = |name: &str| {
        let list = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
        let mut entries = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
        entries.find(|fields| fields.len() >= 3 && fields[0] == name).and_then(|fields| fields[2].parse().ok())
    };
    let of_image = (user.uid.is_none() && !group.is_empty()).then(|| group.parse().ok().or_else(|| named(group)));
    let of_user = known.as_ref().and_then(|fields| fields[3].parse().ok());
    let gid = user.gid.or(of_image.flatten()).or(of_user).unwrap_or(0);
    let mut groups = user.groups.clone();
    if let Some(name) = known.as_ref().map(|fields| fields[0]).filter(|_| !user.only_groups) {
        groups.extend(groups_of(name, root));
    }
    groups.sort_unstable();
    groups.dedup();
    let home = known.map_or("/", |fields| fields[5]).to_owned();
    Ok(Identity { uid, gid, groups, home })
}

/// The groups that an image puts a user into.
fn groups_of(name: &str, root: &Path) -> Vec<u32> {
    let list = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    let entries = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let member = |fields: &Vec<&str>| fields.len() >= 4 && fields[3].split(',').any(|member| member == name);
    entries.filter(member).filter_map(|fields| fields[2].parse().ok()).collect()
}

/// Gives up everything that the process is not to have.
pub(super) fn apply(process: &ProcessConfig, user: &Identity) -> Result<(), Failure> {
    let allowed = process.capabilities.iter().filter_map(|name| capability(name));
    let allowed = allowed.fold(CapabilitySet::empty(), |all, one| all | one);
    if is_mapped(user.uid) {
        bound(allowed);
        become_user(user)?;
    } else {
        // A new user namespace begins with all capabilities.
        become_only_user(user)?;
        bound(allowed);
    }
    // What this process does not have itself, as in a container that it runs in, it cannot give.
    let own = rustix::thread::capabilities(None).map_err(failed("read its capabilities"))?.permitted;
    let granted = if user.uid == 0 { allowed & own } else { CapabilitySet::empty() };
    let sets = CapabilitySets { effective: granted, permitted: granted, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(failed("give capabilities up"))?;
    if process.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(failed("forbid new privileges"))?;
    }
    if process.seccomp {
        seccomp::apply().map_err(Failure::Setup)?;
    }
    Ok(())
}

/// Takes all other capabilities away for good.
fn bound(allowed: CapabilitySet) {
    for one in CapabilitySet::all().iter() {
        if !allowed.contains(one) && one.bits().is_power_of_two() {
            // Kernels know more or fewer of them.
            let _ = rustix::thread::remove_capability_from_bounding_set(one);
        }
    }
}

fn become_user(user: &Identity) -> Result<(), Failure> {
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    // A user namespace of one user has no groups to choose from.
    if may_set_groups() {
        rustix::thread::set_thread_groups(&groups).map_err(failed("set groups"))?;
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(if is_mapped(user.gid) { user.gid } else { 0 }));
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed("set the group"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed("set the user"))
}

/// Where only one user exists, it gets the number that the container wants in a user namespace of its own.
fn become_only_user(user: &Identity) -> Result<(), Failure> {
    unshare(rustix::thread::UnshareFlags::NEWUSER).map_err(failed("make a user namespace"))?;
    let dumpable = rustix::process::DumpableBehavior::Dumpable;
    rustix::process::set_dumpable_behavior(dumpable).map_err(failed("map users"))?;
    let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text);
    write("setgroups", "deny".to_owned()).map_err(failed("map users"))?;
    write("uid_map", format!("{} 0 1", user.uid)).map_err(failed("map the user"))?;
    write("gid_map", format!("{} 0 1", user.gid)).map_err(failed("map the group"))?;
    let undumpable = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(undumpable).map_err(failed("keep others out"))
}

/// Whether a user exists in this user namespace.
fn is_mapped(uid: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
        let (first, count) = (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(0));
        (first..first.saturating_add(count)).contains(&u64::from(uid))
    })
}

fn may_set_groups() -> bool {
    fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.trim() == "allow")
}

/// A capability by its name, with or without `CAP_`.
fn capability(name: &str) -> Option<CapabilitySet> {
    CapabilitySet::from_name(name.trim_start_matches("CAP_"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn check(user: &User, expected: Result<(u32, u32, &str), &str>) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/var/www:/bin/false\n")
            .unwrap();
        fs::write(dir.path().join("etc/group"), "staff:x:50:\nshared:x:60:a,web\n").unwrap();
        match (resolve(user, dir.path()), expected) {
            (Ok(found), Ok(expected)) => assert_eq!((found.uid, found.gid, found.home.as_str()), expected),
            (Err(Failure::Setup(message) | Failure::Config(message)), Err(expected)) => {
                assert!(message.contains(expected), "{message}");
            }
            (found, expected) => panic!("{:?} instead of {expected:?}", found.map(|found| found.uid).is_ok()),
        }
    }

    #[test]
    fn users_are_found_as_the_image_names_them() {
        let image = |text: &str| User { image: text.to_owned(), ..User::default() };
        check(&image(""), Ok((0, 0, "/root")));
        check(&image("web"), Ok((33, 34, "/var/www")));
        check(&image("33:staff"), Ok((33, 50, "/var/www")));
        check(&image("65532:65532"), Ok((65532, 65532, "/")));
        check(&image("nobody"), Err("unable to find user nobody"));
        check(&User { uid: Some(7), gid: Some(8), ..image("web:staff") }, Ok((7, 8, "/")));
        check(&User { non_root: true, ..image("") }, Err("image will run as root"));
        check(&User { non_root: true, ..image("web") }, Err("non-numeric user (web)"));
        check(&User { non_root: true, ..image("33") }, Ok((33, 34, "/var/www")));
    }

    #[test]
    fn groups_of_the_image_count_unless_they_must_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/passwd"), "web:x:33:34::/:/bin/false\n").unwrap();
        fs::write(dir.path().join("etc/group"), "web:x:34:\nshared:x:60:a,web\nother:x:61:a\n").unwrap();
        let user = User { uid: Some(33), groups: vec![7], ..User::default() };
        let groups = |user: &User| resolve(user, dir.path()).ok().unwrap().groups;
        assert_eq!(groups(&user), [7, 60]);
        assert_eq!(groups(&User { only_groups: true, ..user }), [7]);
    }

    #[test]
    fn capabilities_are_known_by_name() {
        assert_eq!(capability("NET_ADMIN"), Some(CapabilitySet::NET_ADMIN));
        assert_eq!(capability("CAP_CHOWN"), Some(CapabilitySet::CHOWN));
        assert_eq!(capability("FLY"), None);
    }
}
