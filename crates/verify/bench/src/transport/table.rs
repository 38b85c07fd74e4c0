//! The report for people.

use super::report::{Report, Row};
use sheaf_figures::stat::Spread;
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        writeln!(
            f,
            "path     shape       bytes queue transport     MB/s (min to max)      msgs/s  CPU s/GB  RSS MB   Jain    \
             p50 µs    p99 µs |  of plain (min to max)    n  trusted"
        )?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        for row in self
            .rows
            .iter()
            .filter(|row| !row.doubts.is_empty() && row.skipped.is_none())
        {
            let Row {
                path,
                shape,
                bytes,
                transport,
                ..
            } = row;
            writeln!(
                f,
                "not to be trusted: {path} {shape} {bytes} {transport}: {}",
                row.doubts.join("; ")
            )?;
        }
        for one in &self.skipped {
            writeln!(f, "skipped: {one}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            shape,
            bytes,
            queue,
            transport,
            ..
        } = self;
        write!(
            f,
            "{path:<8} {shape:<6} {bytes:>10} {queue:>5} {transport:<10} "
        )?;
        if let Some(why) = &self.skipped {
            return write!(f, "skipped: {why}");
        }
        let (p50, p99) = self
            .latency_us
            .map_or(("-".to_owned(), "-".to_owned()), |latency| {
                (format!("{:.0}", latency.p50), format!("{:.0}", latency.p99))
            });
        write!(
            f,
            "{:>21} {:>11.0} {:>9.3} {:>7.0} {:>6.4} {p50:>9} {p99:>9} | {:>23} {:>4}  {}",
            spread(&self.mb_per_s, 0),
            self.msgs_per_s,
            self.cpu_s_per_gb,
            self.rss_bytes_max as f64 / 1e6,
            self.jain,
            spread(&self.ratio, 3),
            self.ratio.n,
            if self.trusted { "yes" } else { "no" }
        )
    }
}

/// A median with the least and the most behind it.
pub(crate) fn spread(spread: &Spread, digits: usize) -> String {
    match (spread.median, spread.min, spread.max) {
        (Some(median), Some(min), Some(max)) => {
            format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, row, runs};

    #[test]
    fn a_row_has_its_columns_under_their_names_and_doubts_follow() {
        let rows = vec![
            row(&runs(7), "cubic", None),
            row(&runs(2), "reno", None),
            row(&[], "cubic", Some("it refuses")),
        ];
        let text = report(rows).to_string();
        let lines: Vec<&str> = text.lines().collect();
        let good = "loopback 240-1     1000000     1 sheaf        4300 (4000 to 4600)        4300     0.250       0 \
                    0.9995        10        20 |  0.860 (0.800 to 0.920)    7  yes";
        assert_eq!(lines[2], good);
        assert!(
            lines[4].ends_with("sheaf      skipped: it refuses"),
            "{}",
            lines[4]
        );
        assert_eq!(
            lines[5],
            "not to be trusted: loopback 240-1 1000000 sheaf: 2 undisturbed pairs, expected 7 (0 dropped); \
             congestion control cubic, expected reno"
        );
        assert_eq!(lines[6], "skipped: nng: not there");
    }
}
