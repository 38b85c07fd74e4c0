//! Adds up the results of all test binaries of one run.

use std::fmt;

/// Tests that passed, failed and were ignored, over all test binaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    names: Vec<String>,
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
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
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

    /// Names of the tests that failed, in the order of their runs.
    pub(crate) fn failed_names(&self) -> &[String] {
        &self.names
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
        assert_eq!(tally.failed_names(), ["lab::a_cell"]);
    }

    #[test]
    fn a_run_that_died_without_a_result_counts_as_a_failure() {
        let mut tally = Tally::default();
        tally.ensure_failed();
        assert_eq!(tally.to_string(), "0 passed, 1 failed");
    }
}
