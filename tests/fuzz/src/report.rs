//! What a run has seen.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::expected::Internal;
use crate::request::Act;

/// Something that is wrong.
pub(crate) struct Finding {
    /// How often it was seen.
    pub(crate) times: u64,
    /// The first time: where, and what.
    pub(crate) at: String,
    pub(crate) what: String,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) cases: u64,
    /// Odd requests, and all others: valid objects, reading back.
    pub(crate) odd: u64,
    pub(crate) all: u64,
    pub(crate) acts: BTreeMap<Act, [u64; 6]>,
    pub(crate) codes: BTreeMap<u16, u64>,
    pub(crate) read_back: u64,
    pub(crate) unchanged: u64,
    pub(crate) explained: BTreeMap<&'static str, (&'static Internal, u64)>,
    pub(crate) findings: BTreeMap<String, Finding>,
    pub(crate) slowest: (Duration, String),
}

impl Report {
    pub(crate) fn answered(&mut self, act: Act, code: u16, took: Duration, at: impl FnOnce() -> String) {
        self.odd += 1;
        *self.codes.entry(code).or_default() += 1;
        self.acts.entry(act).or_default()[usize::from(code / 100).min(5)] += 1;
        if took > self.slowest.0 {
            self.slowest = (took, at());
        }
    }

    pub(crate) fn explain(&mut self, row: &'static Internal) {
        self.explained.entry(row.words).or_insert((row, 0)).1 += 1;
    }

    /// Notes a finding; equal ones are counted.
    pub(crate) fn find(&mut self, kind: &str, at: &str, what: &str) {
        let key = format!("{kind}: {}", without_values(what));
        let finding = self.findings.entry(key).or_insert_with(|| Finding {
            times: 0,
            at: at.to_owned(),
            what: format!("{kind}: {what}"),
        });
        finding.times += 1;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.cases += other.cases;
        self.odd += other.odd;
        self.all += other.all;
        self.read_back += other.read_back;
        self.unchanged += other.unchanged;
        for (act, codes) in other.acts {
            let known = self.acts.entry(act).or_default();
            known.iter_mut().zip(codes).for_each(|(known, more)| *known += more);
        }
        for (code, times) in other.codes {
            *self.codes.entry(code).or_default() += times;
        }
        for (words, (row, times)) in other.explained {
            self.explained.entry(words).or_insert((row, 0)).1 += times;
        }
        for (key, finding) in other.findings {
            self.findings.entry(key).and_modify(|known| known.times += finding.times).or_insert(finding);
        }
        if other.slowest.0 > self.slowest.0 {
            self.slowest = other.slowest;
        }
    }

    pub(crate) fn print(&self, seed: u64, took: Duration) {
        println!(
            "seed {seed}: {} odd requests in {} cases, {} requests in all, {:.0} s",
            self.odd,
            self.cases,
            self.all,
            took.as_secs_f64()
        );
        println!("\n| request | 1xx | 2xx | 3xx | 4xx | 5xx |\n|---|---|---|---|---|---|");
        for (act, [_, codes @ ..]) in &self.acts {
            let codes: Vec<String> = codes.iter().map(ToString::to_string).collect();
            println!("| {act:?} | {} |", codes.join(" | "));
        }
        let codes: Vec<String> = self.codes.iter().map(|(code, times)| format!("{code}: {times}")).collect();
        println!("\nanswers: {}", codes.join(", "));
        println!(
            "{} writes were read back, {} refusals and dry runs were seen to change nothing",
            self.read_back, self.unchanged
        );
        println!("the slowest answer took {:.3} s: {}", self.slowest.0.as_secs_f64(), self.slowest.1);
        println!("\n| answers with 500, as upstream | times | when | file |\n|---|---:|---|---|");
        for (row, times) in self.explained.values() {
            println!("| {} | {times} | {} | {} |", row.words, row.condition, row.file);
        }
        if let Some(memory) = resident() {
            println!("resident memory: {memory} MB at the end");
        }
        println!("\n{} findings", self.findings.len());
        for finding in self.findings.values() {
            println!("\n{} ({} times)\n  {}", finding.at, finding.times, finding.what.replace('\n', "\n  "));
        }
    }
}

/// Text without what differs between requests: numbers, and what is quoted.
fn without_values(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut out = String::new();
    let (mut quoted, mut quotes) = (false, 0);
    for c in line.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                quotes += 1;
                out.push('"');
            }
            _ if quoted => {}
            '0'..='9' => {}
            c => out.push(c),
        }
        if out.len() > 160 || quotes > 20 {
            break;
        }
    }
    out
}

/// The memory of this process in megabytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes / 1024)
}
