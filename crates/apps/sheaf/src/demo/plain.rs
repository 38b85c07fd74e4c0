//! The demo as plain lines: one a second, and one for everything that happens.

use super::watch::Watch;
use std::io::{self, Write};

/// Seconds between two lines about the whole farm.
const EVERY_S: f64 = 1.0;

/// Writes to a standard stream that is no terminal.
pub(crate) struct Plain<W> {
    out: W,
    shown: usize,
    /// When the next line is due, in seconds since the first announce.
    due_s: f64,
}

impl<W: Write> Plain<W> {
    /// Begins with a line that says what is shown.
    ///
    /// # Errors
    ///
    /// What writing gives.
    pub(crate) fn new(mut out: W, title: &str) -> io::Result<Self> {
        writeln!(out, "{title}")?;
        out.flush()?;
        Ok(Self {
            out,
            shown: 0,
            due_s: EVERY_S,
        })
    }

    /// Writes what is new.
    ///
    /// # Errors
    ///
    /// What writing gives.
    pub(crate) fn show(&mut self, watch: &Watch) -> io::Result<()> {
        for happening in watch.happenings_from(self.shown) {
            writeln!(self.out, "{:7.1} s  {}", happening.at_s, happening.text)?;
        }
        self.shown = watch.happened();
        let status = watch.status();
        if status.duration_s >= self.due_s {
            self.due_s = (status.duration_s / EVERY_S).floor() * EVERY_S + EVERY_S;
            let p99_ms = status
                .latency_us
                .get("total")
                .map_or(0.0, |total| total.p99 / 1000.0);
            writeln!(
                self.out,
                "{:7.1} s  {}  {:.1} TF/s  {:.1} MB/s  p99 {p99_ms:.1} ms{}{}",
                status.duration_s,
                watch.ledger(),
                watch.tfs_per_s(),
                watch.mb_per_s(),
                (watch.offices()).map_or_else(String::new, |offices| format!("  {offices}")),
                watch.security(),
            )?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::watch::tests::{status_at, watch};
    use super::*;

    #[test]
    fn there_is_one_line_a_second_and_one_for_each_happening() {
        let mut out = Vec::new();
        let mut plain = Plain::new(&mut out, "what this is").unwrap();
        let mut watch = watch();
        plain.show(&watch).unwrap();
        plain.show(&watch).unwrap();
        let mut soon = status_at(3);
        soon.duration_s += 0.5;
        watch.add(soon);
        plain.show(&watch).unwrap();
        watch.tell(3.6, "epn:0 killed");
        plain.show(&watch).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "what this is");
        assert_eq!(lines[1], "    2.0 s  the run begins");
        assert_eq!(
            lines[2],
            "    3.0 s  announced 302 = complete 300 + incomplete 0 + dropped 0 + in flight 2 ✔  \
             100.0 TF/s  100.0 MB/s  p99 0.0 ms"
        );
        assert_eq!(lines[3..], ["    3.6 s  epn:0 killed"]);
    }
}
