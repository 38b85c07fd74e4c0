//! The registry as text, in the Prometheus exposition format.

use crate::name::{Kind, is_time};
use crate::registry::{Family, Registry, Scale, Series};
use crate::reporting::Verbosity;
use crate::snapshot::Snapshot;
use std::fmt::{self, Write};

/// The `Content-Type` under which [`Registry::encode`]'s text is served.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Registry {
    /// Appends all metrics to `text`, sorted by name and labels.
    ///
    /// The format is version 0.0.4 of "Exposition formats: Text-based format" in the Prometheus
    /// documentation. Histograms are written as cumulative buckets whose `le` is 2^k - 1, the largest
    /// integer below a power of two, so that no count is an estimate. Times are recorded in ns and written in seconds,
    /// digit by digit, so that they are exact as well.
    pub fn encode(&self, text: &mut String) {
        self.encode_for(Verbosity::Debug, text);
    }

    /// Appends the metrics up to `verbosity` to `text`.
    pub(crate) fn encode_for(&self, verbosity: Verbosity, text: &mut String) {
        for (name, family) in &self.lock().families {
            if family.kind != Kind::Event && family.verbosity <= verbosity {
                write_family(text, name, family).expect("writing to a String does not fail");
            }
        }
    }
}

fn write_family(text: &mut String, name: &str, family: &Family) -> fmt::Result {
    writeln!(text, "# HELP {name} {}", escaped(&family.help, false))?;
    writeln!(text, "# TYPE {name} {}", family.kind.word())?;
    for entry in family.series.values() {
        let pairs = entry
            .labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value, true)));
        let labels = pairs.collect::<Vec<_>>().join(",");
        let number = |value: i128| Number {
            value,
            is_time: is_time(name),
        };
        match &entry.series {
            Series::Counter(counter) => {
                let value = number(counter.value().into());
                writeln!(text, "{name}{} {value}", braced(&labels))?;
            }
            Series::Gauge(gauge) => {
                let value = number(gauge.value().into());
                writeln!(text, "{name}{} {value}", braced(&labels))?;
            }
            Series::Real(gauge) => {
                let value = Real(gauge.value());
                writeln!(text, "{name}{} {value}", braced(&labels))?;
            }
            Series::Histogram(histogram, scale) => {
                write_histogram(text, name, &labels, &histogram.snapshot(), *scale)?;
            }
            Series::Event(_) => {}
        }
    }
    Ok(())
}

fn write_histogram(
    text: &mut String,
    name: &str,
    labels: &str,
    snapshot: &Snapshot,
    scale: Scale,
) -> fmt::Result {
    let is_time = is_time(name);
    let number = |value: u64| Number {
        value: value.into(),
        is_time,
    };
    let comma = if labels.is_empty() { "" } else { "," };
    for power in scale.first_power..=scale.last_power {
        let le = number((1_u64 << power) - 1);
        let count = snapshot.count_below_power_of_two(power);
        writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{le}\"}} {count}")?;
    }
    let count = snapshot.count();
    writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}")?;
    let sum = number(snapshot.sum());
    writeln!(text, "{name}_sum{} {sum}", braced(labels))?;
    writeln!(text, "{name}_count{} {count}", braced(labels))
}

/// Value as the text has it: an integer, or ns as a decimal fraction of seconds without zeros at its end.
struct Number {
    value: i128,
    is_time: bool,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u128 = 1_000_000_000;
        if !self.is_time {
            return write!(f, "{}", self.value);
        }
        let ns = self.value.unsigned_abs();
        let sign = if self.value < 0 { "-" } else { "" };
        write!(f, "{sign}{}", ns / SECOND)?;
        let fraction = format!("{:09}", ns % SECOND);
        match fraction.trim_end_matches('0') {
            "" => Ok(()),
            digits => write!(f, ".{digits}"),
        }
    }
}

/// Real number as the text has it: the shortest digits that read back as the same number.
struct Real(f64);

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

fn braced(labels: &str) -> String {
    if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    }
}

/// `raw` with backslashes and line ends escaped, and quotes too if it stands in quotes.
fn escaped(raw: &str, quoted: bool) -> String {
    let mut text = String::with_capacity(raw.len());
    for char in raw.chars() {
        match char {
            '\\' => text.push_str(r"\\"),
            '\n' => text.push_str(r"\n"),
            '"' if quoted => text.push_str(r#"\""#),
            _ => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn text_of(registry: &Registry) -> String {
        let mut text = String::new();
        registry.encode(&mut text);
        text
    }

    #[test]
    fn the_text_is_what_a_scraper_expects() {
        let registry = Registry::default();
        registry
            .gauge("acquire_hold_bytes", "Bytes held.", &[])
            .set(-3);
        let reasons = [("shed-overload", 2), ("oversize", 1)];
        for (reason, count) in reasons {
            let labels = [("reason", reason), ("epn", "0")];
            registry
                .counter("build_tf_dropped_total", "TFs not built.", &labels)
                .add(count);
        }
        let batch =
            registry.histogram("frame_batch_items", "Items.", &[("flp", "1")], Scale::COUNT);
        [1, 2, 3, 100_000]
            .iter()
            .for_each(|value| batch.record(*value));
        let expected = "\
# HELP acquire_hold_bytes Bytes held.
# TYPE acquire_hold_bytes gauge
acquire_hold_bytes -3
# HELP build_tf_dropped_total TFs not built.
# TYPE build_tf_dropped_total counter
build_tf_dropped_total{epn=\"0\",reason=\"oversize\"} 1
build_tf_dropped_total{epn=\"0\",reason=\"shed-overload\"} 2
# HELP frame_batch_items Items.
# TYPE frame_batch_items histogram
frame_batch_items_bucket{flp=\"1\",le=\"1\"} 1
frame_batch_items_bucket{flp=\"1\",le=\"3\"} 3
frame_batch_items_bucket{flp=\"1\",le=\"7\"} 3
";
        let text = text_of(&registry);
        assert_eq!(&text[..expected.len()], expected);
        assert!(text.ends_with(
            "frame_batch_items_bucket{flp=\"1\",le=\"65535\"} 3
frame_batch_items_bucket{flp=\"1\",le=\"+Inf\"} 4
frame_batch_items_sum{flp=\"1\"} 100006
frame_batch_items_count{flp=\"1\"} 4
"
        ));
    }

    #[test]
    fn real_numbers_read_back_as_they_were() {
        for (value, expected) in [
            (1_234_567.8, "1234567.8"),
            (-0.1, "-0.1"),
            (3.0, "3"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            let registry = Registry::default();
            let gauge = registry.real_gauge("a_celsius", "Help.", &[("core", "0")]);
            gauge.set(value);
            let expected = format!("\na_celsius{{core=\"0\"}} {expected}\n");
            let text = text_of(&registry);
            assert!(text.ends_with(&expected), "{text}");
        }
    }

    #[test]
    fn times_are_written_in_seconds() {
        let registry = Registry::default();
        for (ns, expected) in [
            (0, "0"),
            (1, "0.000000001"),
            (-2_500_000_000, "-2.5"),
            (3_000_000_000, "3"),
            (i64::MAX, "9223372036.854775807"),
        ] {
            registry.gauge("a_late_seconds_max", "Help.", &[]).set(ns);
            let text = text_of(&registry);
            assert!(
                text.ends_with(&format!("\na_late_seconds_max {expected}\n")),
                "{text}"
            );
        }
        let registry = Registry::default();
        registry
            .counter("a_seconds_total", "Help.", &[])
            .add(1_250_000_000);
        assert!(text_of(&registry).ends_with("\na_seconds_total 1.25\n"));
        let registry = Registry::default();
        let histogram = registry.histogram("a_seconds", "Help.", &[], Scale::DURATION_NS);
        histogram.record(1_500_000_000);
        let text = text_of(&registry);
        for line in [
            "a_seconds_bucket{le=\"0.000001023\"} 0",
            "a_seconds_bucket{le=\"1.073741823\"} 0",
            "a_seconds_bucket{le=\"2.147483647\"} 1",
            "a_seconds_sum 1.5",
            "a_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    /// One sample line: name, labels, value.
    type Sample = (String, BTreeMap<String, String>, f64);

    /// Reads the text by the grammar of the format; panics where it is broken.
    fn parse(text: &str) -> Vec<Sample> {
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "the last line ends with a line feed"
        );
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(parse_sample).collect()
    }

    fn parse_sample(line: &str) -> Sample {
        let name_end = line
            .find(['{', ' '])
            .expect("a name ends with a brace or a space");
        let (name, mut rest) = line.split_at(name_end);
        let mut labels = BTreeMap::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (label, after) = rest.split_once("=\"").expect("a label has a quoted value");
                let (value, after) = parse_quoted(after);
                assert!(
                    labels.insert(label.to_owned(), value).is_none(),
                    "label {label} is there twice"
                );
                rest = after.strip_prefix(',').unwrap_or(after);
            }
            rest = &rest[1..];
        }
        let value = rest.strip_prefix(' ').expect("one space before the value");
        (
            name.to_owned(),
            labels,
            value.parse().expect("the value is a number"),
        )
    }

    /// Returns the text up to the closing quote, without its escapes, and what follows the quote.
    fn parse_quoted(text: &str) -> (String, &str) {
        let mut value = String::new();
        let mut chars = text.char_indices();
        while let Some((at, char)) = chars.next() {
            match char {
                '"' => return (value, &text[at + 1..]),
                '\\' => match chars.next().expect("an escape has a second character").1 {
                    'n' => value.push('\n'),
                    plain @ ('\\' | '"') => value.push(plain),
                    other => panic!("unknown escape \\{other}"),
                },
                plain => value.push(plain),
            }
        }
        panic!("the quote is not closed in {text:?}");
    }

    proptest! {
        #[test]
        fn any_label_value_comes_back_as_it_was(value: String, help: String, total: u32) {
            let registry = Registry::default();
            let help = format!("Help: {help}");
            registry.counter("a_total", &help, &[("b", &value), ("c", "")]).add(total.into());
            let labels = BTreeMap::from([("b".to_owned(), value), ("c".to_owned(), String::new())]);
            let text = text_of(&registry);
            prop_assert_eq!(parse(&text), vec![("a_total".to_owned(), labels, f64::from(total))]);
            prop_assert_eq!(text.matches('\n').count(), 3);
        }

        #[test]
        fn buckets_are_cumulative_and_end_at_the_count(
            values in prop::collection::vec(0_u64..1 << 40, 0..100)
        ) {
            let registry = Registry::default();
            let histogram = registry.histogram("a_seconds", "Help.", &[], Scale::DURATION_NS);
            values.iter().for_each(|value| histogram.record(*value));
            let samples = parse(&text_of(&registry));
            let buckets: Vec<_> =
                samples.iter().filter(|(name, ..)| name == "a_seconds_bucket").collect();
            for (_, labels, count) in &buckets {
                let le: f64 = labels["le"].parse().unwrap();
                let below = values.iter().filter(|value| **value as f64 / 1e9 <= le).count();
                prop_assert_eq!(*count, below as f64);
            }
            prop_assert_eq!(&buckets.last().unwrap().1["le"], "+Inf");
            let [.., (_, _, sum), (_, _, count)] = &samples[..] else { panic!("no sum and count") };
            prop_assert_eq!(*sum, values.iter().sum::<u64>() as f64 / 1e9);
            prop_assert_eq!(*count, values.len() as f64);
        }
    }
}
