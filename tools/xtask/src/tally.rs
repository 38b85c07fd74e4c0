//! Adds up the results of all test binaries of one run.

use std::collections::BTreeMap;
use std::fmt;

/// Lines of the reason of a failure that are repeated at the end of a run.
const REASON_LINES: usize = 6;
/// Characters of each of them.
const REASON_WIDTH: usize = 300;

/// Tests that passed, failed and were ignored, over all test binaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    names: Vec<String>,
    /// First lines of the panic of each test that failed.
    reasons: BTreeMap<String, Vec<String>>,
    /// Test whose output is being read.
    shown: Option<String>,
    /// Test binaries that have begun, and that have told their result.
    binaries: (u64, u64),
    /// Tests that failed beside others and passed alone.
    alone: Vec<String>,
}

impl Tally {
    /// Adds `line` if it is the closing line of a test binary, such as
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s`, or names a test
    /// that failed: `test icn::a_leader_dies ... FAILED`.
    pub(crate) fn read(&mut self, line: &str) {
        let test = line.strip_prefix("test ");
        if let Some(name) = test.and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.names.push(name.to_owned());
        }
        self.read_reason(line);
        let begins = line.strip_prefix("running ");
        if begins.is_some_and(|rest| rest.ends_with(" tests") || rest.ends_with(" test")) {
            self.binaries.0 += 1;
        }
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        self.binaries.1 += 1;
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else {
                continue;
            };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Adds `line` if it is of the panic of a test that failed, as in the list of failures after the tests:
    /// `---- icn::a_leader_dies stdout ----`, then what the test printed.
    fn read_reason(&mut self, line: &str) {
        let head = line.strip_prefix("---- ");
        if let Some(name) = head.and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.shown = Some(name.to_owned());
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.shown = None;
        } else if let Some(name) = &self.shown {
            let is_panic = line.starts_with("thread '") && line.contains(" panicked at ");
            let is_known = self.reasons.contains_key(name);
            if line.is_empty() || !is_panic && !is_known {
                return;
            }
            let lines = self.reasons.entry(name.clone()).or_default();
            if lines.len() < REASON_LINES {
                lines.push(line.chars().take(REASON_WIDTH).collect());
            }
        }
    }

    /// Returns the tests that failed, if nothing else has and they are `most` at most. A test binary that was killed
    /// names none.
    pub(crate) fn only_failures(&self, most: usize) -> Option<&[String]> {
        let (begun, ended) = self.binaries;
        // An example of the documentation is named by its file and line.
        let have_names = self.names.iter().all(|name| !name.contains(' '));
        let are_all = have_names && begun == ended && self.failed == self.names.len() as u64;
        (are_all && (1..=most).contains(&self.names.len())).then_some(&self.names)
    }

    /// Takes the results of the tests that failed from a second run, alone: those that passed in it are no failures.
    /// Returns whether none is left.
    pub(crate) fn settle(&mut self, alone: &Self) -> bool {
        let have_all_run = alone.passed + alone.failed >= self.names.len() as u64;
        let has_failed = |name: &String| !have_all_run || alone.names.contains(name);
        let (failed, passed) = std::mem::take(&mut self.names)
            .into_iter()
            .partition(has_failed);
        (self.names, self.alone) = (failed, passed);
        self.failed -= self.alone.len() as u64;
        self.passed += self.alone.len() as u64;
        self.failed == 0
    }

    /// Returns a line for each test that failed, in the order of their runs, with its panic below; tests that passed
    /// alone last.
    pub(crate) fn failures(&self) -> String {
        let mut text = String::new();
        let failed = self.names.iter().map(|name| ("failed", name));
        let alone = self.alone.iter();
        let alone = alone.map(|name| ("failed beside other tests and passed alone", name));
        for (what, name) in failed.chain(alone) {
            text += &format!("{what}: {name}\n");
            for line in self.reasons.get(name).into_iter().flatten() {
                text += &format!("    {line}\n");
            }
        }
        text
    }

    /// Counts one failure if the run failed and yet none was counted: a test binary was killed, or
    /// did not build.
    pub(crate) fn ensure_failed(&mut self) {
        self.failed = self.failed.max(1);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.ignored > 0 {
            write!(f, ", {} ignored", self.ignored)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_binaries_add_up() {
        let output = "\
running 2 tests
test a ... ok
test lab::a_cell ... FAILED
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.17s
test result: FAILED. 40 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 9.00s
a test printed: test result: 7 passed
";
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        assert_eq!(tally.to_string(), "42 passed, 1 failed, 3 ignored");
        assert_eq!(tally.failures(), "failed: lab::a_cell\n");
    }

    #[test]
    fn a_failure_is_repeated_with_the_first_lines_of_its_panic() {
        let output = "test lab::a_cell ... FAILED
test lab::a_row ... FAILED

failures:

---- lab::a_cell stdout ----
seed 7

thread 'lab::a_cell' (12) panicked at lab.rs:7:5:
assertion `left == right` failed
  left: 1
 right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
one
two

---- lab::a_row stdout ----
Error: \"no such file\"


failures:
    lab::a_cell
    lab::a_row

test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.00s
";
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        let expected = "failed: lab::a_cell
    thread 'lab::a_cell' (12) panicked at lab.rs:7:5:
    assertion `left == right` failed
      left: 1
     right: 2
    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
    one
failed: lab::a_row
";
        assert_eq!(tally.failures(), expected);
    }

    #[test]
    fn tests_that_pass_alone_are_named_and_are_no_failures() {
        let read = |output: &str| {
            let mut tally = Tally::default();
            output.lines().for_each(|line| tally.read(line));
            tally
        };
        let first = "\
running 3 tests
test a ... FAILED
test b ... FAILED
test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.17s
";
        let mut tally = read(first);
        assert_eq!(tally.only_failures(2).map(<[String]>::len), Some(2));
        assert_eq!(tally.only_failures(1), None);
        let mut of_docs = read(first);
        of_docs.names[1] = "src/lib.rs - Tally (line 7)".to_owned();
        assert_eq!(of_docs.only_failures(2), None, "it has no name");
        let alone = "\
running 2 tests
test a ... ok
test b ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.17s
";
        assert!(!tally.settle(&read(alone)));
        assert_eq!(tally.to_string(), "2 passed, 1 failed");
        let expected = "failed: b\nfailed beside other tests and passed alone: a\n";
        assert_eq!(tally.failures(), expected);

        let mut tally = read(first);
        assert!(tally.settle(&read(
            "running 2 tests\ntest result: ok. 2 passed; 0 failed; \n"
        )));
        assert_eq!(tally.to_string(), "3 passed, 0 failed");
        let mut tally = read(first);
        assert!(!tally.settle(&read(
            "running 0 tests\ntest result: ok. 0 passed; 0 failed; \n"
        )));
        assert_eq!(tally.to_string(), "1 passed, 2 failed");
    }

    #[test]
    fn a_binary_that_was_killed_is_a_failure_whatever_else_passes_alone() {
        let mut tally = Tally::default();
        let output = "\
running 1 test
test a ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.17s
running 7 tests
test b ... ok
";
        output.lines().for_each(|line| tally.read(line));
        assert_eq!(tally.only_failures(5), None);
    }

    #[test]
    fn a_run_that_died_without_a_result_counts_as_a_failure() {
        let mut tally = Tally::default();
        tally.ensure_failed();
        assert_eq!(tally.to_string(), "0 passed, 1 failed");
    }
}
