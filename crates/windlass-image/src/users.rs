//! Which users exist for this process: all of the machine's, or those of a user namespace.

use std::fs;

/// How many numbers the kernel has for users.
const ALL: u64 = u32::MAX as u64;

/// The users that files and processes can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// All of the machine: the process is in no user namespace but the first.
    All,
    /// Several, in a user namespace.
    Several(u64),
    /// One, in a user namespace: everything belongs to it, by whatever number.
    One,
}

impl Users {
    /// Those of this process.
    pub fn current() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
    }

    /// From the kernel's table: the first number here, the first number outside, and how many there are.
    fn parse(map: &str) -> Self {
        let ranges: Vec<[u64; 3]> = map
            .lines()
            .filter_map(|line| {
                let mut numbers = line.split_whitespace().map(str::parse);
                Some([numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?])
            })
            .collect();
        match (ranges.as_slice(), ranges.iter().map(|[_, _, count]| count).sum()) {
            ([] | [[0, 0, ALL]], _) => Self::All,
            (_, 0 | 1) => Self::One,
            (_, count) => Self::Several(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_those_of_the_namespace() {
        let check = |map: &str, expected: Users| assert_eq!(Users::parse(map), expected, "{map}");
        check("         0          0 4294967295\n", Users::All);
        check("         0       1000          1\n", Users::One);
        check("0 1000 1\n1 100000 65536\n", Users::Several(65_537));
        // A system without namespaces.
        check("", Users::All);
    }
}
