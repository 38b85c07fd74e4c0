//! Findings in a file: all that is wrong at once, each with its line.

use std::fmt;

/// Most findings that one file gets; the rest is left out.
pub(crate) const FINDINGS_MAX: usize = 100;

/// One thing in a file that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File, as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Text found there.
    pub found: String,
    /// Text of what was expected.
    pub expected: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            found,
            expected,
        } = self;
        write!(f, "{file}:{line}: {found}, expected {expected}")
    }
}

/// Reasons why a file is refused: every finding, in the order of lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Lines(.0))]
pub struct Findings(pub Vec<Finding>);

struct Lines<'a>(&'a [Finding]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.0.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{finding}")?;
        }
        Ok(())
    }
}

/// Collects the findings of one file.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    file: &'a str,
    findings: Vec<Finding>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(file: &'a str) -> Self {
        Self {
            file,
            findings: Vec::new(),
        }
    }

    pub(crate) fn file(&self) -> &'a str {
        self.file
    }

    pub(crate) fn add(
        &mut self,
        line: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding {
                file: self.file.to_owned(),
                line,
                found: found.into(),
                expected: expected.into(),
            });
        }
    }

    /// Returns `value` if nothing was found.
    pub(crate) fn finish<T>(mut self, value: T) -> Result<T, Findings> {
        if self.findings.is_empty() {
            return Ok(value);
        }
        self.findings.sort_by_key(|finding| finding.line);
        Err(Findings(self.findings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_findings_come_by_line() {
        let mut collector = Collector::new("farm.yml");
        collector.add(7, "key \"fro\"", "one of \"for\"");
        collector.add(2, "no name", "a name");
        let error = collector.finish(()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "farm.yml:2: no name, expected a name\nfarm.yml:7: key \"fro\", expected one of \"for\""
        );
        assert_eq!(Collector::new("x").finish(3), Ok(3));
    }
}
