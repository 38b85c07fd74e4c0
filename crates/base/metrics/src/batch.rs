//! Batches, sent at one time each: points of series, with the labels that the whole process has.

use crate::derive::Field;
use crate::reporting::Verbosity;
use std::ops::Range;
use std::sync::Arc;

/// Labels of a process: host, role, run. Sorted by name.
pub(crate) type Tags = Vec<(String, String)>;

/// Name of a series and all of its labels, sorted by name, those of the process included.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
}

/// Label of the node that a sample is about: the process itself, unless the metric is about another one.
const SUBJECT: &str = "node";

impl Identity {
    /// Joins the labels of a metric and of its process. One that both have stays that of the process, since a collector
    /// tells sources by it; the other one is called `exported_…`, as Prometheus does. Only [`SUBJECT`] is that of the
    /// metric.
    pub(crate) fn new(name: &str, labels: &[(String, String)], tags: &Tags) -> Self {
        let is_taken = |label: &str| label != SUBJECT && tags.iter().any(|(tag, _)| tag == label);
        let own = labels.iter().map(|(label, value)| {
            let prefix = if is_taken(label) { "exported_" } else { "" };
            (format!("{prefix}{label}"), value.clone())
        });
        let mut labels: Vec<_> = own.chain(tags.iter().cloned()).collect();
        // Stable: the label of the metric stays in front of that of the process.
        labels.sort_by(|one, two| one.0.cmp(&two.0));
        labels.dedup_by(|one, two| one.0 == two.0);
        Self {
            name: name.to_owned(),
            labels,
        }
    }

    /// Labels in the form that encoders take.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let labels = self.labels.iter();
        labels.map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Values of a series at one time.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) series: Arc<Identity>,
    pub(crate) verbosity: Verbosity,
    pub(crate) at_ms: i64,
    /// Where its fields are in the batch.
    fields: Range<usize>,
}

/// Points that are sent together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) tags: Arc<Tags>,
    /// Time of the batch, in ms since 1970.
    pub(crate) at_ms: i64,
    points: Vec<Point>,
    fields: Vec<Field>,
    /// Samples by the verbosity of their metric.
    samples: [usize; Verbosity::ALL.len()],
}

impl Batch {
    pub(crate) fn new(tags: Arc<Tags>, at_ms: i64) -> Self {
        Self {
            tags,
            at_ms,
            ..Self::default()
        }
    }

    /// Adds a point with the fields that `write` appends; none if it returns `false`.
    pub(crate) fn push(
        &mut self,
        series: &Arc<Identity>,
        verbosity: Verbosity,
        at_ms: i64,
        write: impl FnOnce(&mut Vec<Field>) -> bool,
    ) -> bool {
        let start = self.fields.len();
        let is_sent = write(&mut self.fields);
        let fields = start..self.fields.len();
        if is_sent && !fields.is_empty() {
            self.samples[verbosity as usize] += fields.len();
            self.points.push(Point {
                series: series.clone(),
                verbosity,
                at_ms,
                fields,
            });
        }
        is_sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Number of samples for a back end of `verbosity`. Each field is one.
    pub(crate) fn samples(&self, verbosity: Verbosity) -> usize {
        self.samples[..=verbosity as usize].iter().sum()
    }

    /// Points for a back end of `verbosity`, with their fields.
    pub(crate) fn points(&self, verbosity: Verbosity) -> impl Iterator<Item = (&Point, &[Field])> {
        let points = self.points.iter();
        points
            .filter(move |point| point.verbosity <= verbosity)
            .map(|point| (point, &self.fields[point.fields.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::Number;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_label_of_the_process_is_never_replaced() {
        let tags = pairs(&[("host", "h1"), ("run", "7")]);
        let found = Identity::new("a", &pairs(&[("run", "x"), ("epn", "3")]), &tags);
        let expected = [
            ("epn", "3"),
            ("exported_run", "x"),
            ("host", "h1"),
            ("run", "7"),
        ];
        assert!(found.labels().eq(expected), "{found:?}");
    }

    #[test]
    fn a_metric_about_another_node_keeps_the_name_of_that_node() {
        let tags = pairs(&[("node", "icn:0"), ("role", "icn")]);
        let about = |labels: &[(&str, &str)]| Identity::new("a", &pairs(labels), &tags);
        let of_other = about(&[("node", "epn:3")]);
        assert!(of_other.labels().eq([("node", "epn:3"), ("role", "icn")]));
        assert!(about(&[]).labels().eq([("node", "icn:0"), ("role", "icn")]));
    }

    #[test]
    fn a_back_end_gets_what_its_verbosity_allows() {
        let series = Arc::new(Identity::new("a", &[], &Tags::new()));
        let mut batch = Batch::default();
        for (verbosity, count) in Verbosity::ALL.into_iter().zip(1..) {
            batch.push(&series, verbosity, 5, |fields| {
                fields.extend(std::iter::repeat_n(
                    ("value", Number::Int(count)),
                    count as usize,
                ));
                true
            });
        }
        batch.push(&series, Verbosity::Prod, 5, |_| false);
        for (verbosity, expected) in Verbosity::ALL.into_iter().zip([1, 3, 6]) {
            assert_eq!(batch.samples(verbosity), expected);
            let fields = batch.points(verbosity).map(|(_, fields)| fields.len());
            assert_eq!(fields.sum::<usize>(), expected);
        }
    }
}
