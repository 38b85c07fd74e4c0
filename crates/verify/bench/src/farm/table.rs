//! The report for people.

use super::report::{Report, Row};
use crate::report::PAIRS_TRUSTED_MIN;
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, warm_up_s) = (&self.head, self.head.warm_up_seconds);
        writeln!(f, "{head} after {warm_up_s} s")?;
        writeln!(
            f,
            "shape   security      STF bytes         TF/s   GB/s  CPU s/GB    p50 ms    p99 ms  RSS MB | \
             plain GB/s  CPU s/GB |  ratio (min to max)       n"
        )?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        for row in self.rows.iter().filter(|row| !row.trusted) {
            writeln!(f, "not to be trusted: {}", row.doubts())?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (farm, plain, ratio) = (&self.farm, &self.plain, &self.ratio.kept);
        write!(
            f,
            "{:<7} {:<8} {:>14} {:>12.1} {:>6.2} {:>9.3} {:>9.2} {:>9.2} {:>7.0} | {:>10.2} {:>9.3} | ",
            self.shape,
            self.security,
            self.stf_bytes,
            farm.tf_per_s,
            farm.gb_per_s,
            farm.cpu_s_per_gb,
            farm.latency_us.p50 / 1e3,
            farm.latency_us.p99 / 1e3,
            farm.rss_bytes_max as f64 / 1e6,
            plain.gb_per_s,
            plain.cpu_s_per_gb,
        )?;
        match (ratio.median, ratio.min, ratio.max) {
            (Some(median), Some(min), Some(max)) => {
                write!(f, "{median:>6.3} ({min:.3} to {max:.3}) {:>7}", ratio.n)
            }
            _ => write!(f, "{:>6} {:>24}", "-", ratio.n),
        }
    }
}

impl Row {
    /// Why this row is not trusted.
    fn doubts(&self) -> String {
        let mut doubts = Vec::new();
        let (n, dropped) = (self.ratio.kept.n, self.ratio.dropped);
        if n < PAIRS_TRUSTED_MIN {
            doubts.push(format!(
                "{n} undisturbed pairs, expected {PAIRS_TRUSTED_MIN}"
            ));
        }
        if dropped > 0 {
            doubts.push(format!(
                "{dropped} pairs dropped, the machine was busy with others"
            ));
        }
        let (farm, plain) = (&self.congestion.farm, &self.congestion.plain);
        if farm != plain {
            doubts.push(format!("congestion control {farm} beside {plain}"));
        }
        format!(
            "{} ({}) with STFs of {} bytes: {}",
            self.shape,
            self.security,
            self.stf_bytes,
            doubts.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{pairs, report, row};

    fn lines(pairs_taken: usize, congestion: &str) -> Vec<String> {
        let text = report(vec![row(&pairs(pairs_taken), congestion)]).to_string();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_row_has_its_columns_under_their_names() {
        let lines = lines(7, "cubic");
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1],
            "shape   security      STF bytes         TF/s   GB/s  CPU s/GB    p50 ms    p99 ms  RSS MB | plain GB/s  CPU s/GB |  ratio (min to max)       n"
        );
        assert_eq!(
            lines[2],
            "1x1     tls             1000000       4300.0   4.30     0.300      1.00      2.00       0 |       5.00     0.250 |  0.860 (0.800 to 0.920)       7"
        );
    }

    #[test]
    fn a_row_that_is_not_to_be_trusted_says_why() {
        let lines = lines(2, "bbr");
        assert_eq!(
            lines[3],
            "not to be trusted: 1x1 (tls) with STFs of 1000000 bytes: 2 undisturbed pairs, expected 7; congestion \
             control cubic beside bbr"
        );
    }
}
