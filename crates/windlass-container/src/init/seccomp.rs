//! The default filter of system calls: what no ordinary program needs, and what has led out of containers before, fails.
//!
//! Everything else is allowed: new system calls of libraries do not break programs. `clone3` is said not to exist, because
//! its flags cannot be looked at; libraries then use `clone`, whose flags for new namespaces fail.

use std::collections::BTreeMap;

use libc::{EPERM, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// System calls that fail with `EPERM`.
const DENIED: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    // What they ask the kernel to do is not seen by filters.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[c_long] = &[];

/// Applies the filter to this process, which gets no new privileges from then on.
pub(super) fn apply() -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot filter system calls: {error}");
    for filter in [denied().map_err(|error| failed(&error))?, absent().map_err(|error| failed(&error))?] {
        apply_filter(&filter).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn target() -> Result<TargetArch, seccompiler::BackendError> {
    std::env::consts::ARCH.try_into()
}

fn denied() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.iter().chain(DENIED_HERE).map(|call| (*call, Vec::new())).collect();
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let mut clones = Vec::new();
    for flag in namespaces {
        let flag = u64::from(flag.cast_unsigned());
        let has = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        clones.push(SeccompRule::new(vec![has])?);
    }
    rules.insert(libc::SYS_clone, clones);
    let deny = SeccompAction::Errno(EPERM.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, deny, target()?)?.try_into()
}

fn absent() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, absent, target()?)?.try_into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn filters_are_made_for_this_machine() {
        assert!(super::denied().is_ok_and(|filter| !filter.is_empty()));
        assert!(super::absent().is_ok_and(|filter| !filter.is_empty()));
    }

    #[test]
    #[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
    fn filtered_programs_cannot_use_what_has_led_out_before() {
        const CALLS: &str = "import ctypes, sys\nc = ctypes.CDLL(None, use_errno=True)\nfor n in sys.argv[1:]:\n  \
                             print(n, c.syscall(int(n), 0, 0, 0, 0, 0), ctypes.get_errno())";
        let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_keyctl];
        // A filter is that of one thread and of the programs that it starts.
        let filtered = std::thread::spawn(move || {
            super::apply().expect("the filter is applied");
            let numbers = calls.map(|call| call.to_string());
            std::process::Command::new("python3").arg("-c").arg(CALLS).args(numbers).output()
        });
        let Ok(output) = filtered.join().expect("no panic") else {
            eprintln!("SKIPPED: there is no python3");
            return;
        };
        let expected = calls.map(|call| format!("{call} -1 {}", libc::EPERM));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.lines().eq(expected.iter()), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}
