//! The four scenarios: how servers are set up for each, and whether the stored samples are what it should make of
//! those that were sent.
//!
//! The check computes from what the generator sent, value by value, what each series has to have: a scenario that
//! passes, changes or loses something else is found, however fast it was.

use super::super::monitor::server::{Kind, Series, Setup};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Treatment of a point before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Nothing.
    PassThrough,
    /// A label gets another name, and the value another unit.
    Edit,
    /// Values that have not changed are suppressed, with a heartbeat.
    Suppress,
    /// The points are stored, and the average of each series over each second as well.
    Average,
}

/// Values of edited points are multiplied by this.
const FACTOR: f64 = 0.001;
/// Unchanged values pass after this time.
const HEARTBEAT_MS: u32 = 60_000;
/// Length of a window of the averages, in s.
const WINDOW_S: f64 = 1.0;
/// Differences below this share are those of the last bits of sums in another order.
const EXACT: f64 = 1e-9;

impl Scenario {
    /// All of them, in the order of the paper.
    pub const ALL: [Self; 4] = [Self::PassThrough, Self::Edit, Self::Suppress, Self::Average];

    /// Returns the name on command lines and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PassThrough => "pass-through",
            Self::Edit => "edit",
            Self::Suppress => "suppress",
            Self::Average => "average",
        }
    }

    /// Returns how `kind` is set up for it; `None` if it cannot do this.
    pub(crate) fn setup(self, kind: Kind) -> Option<Setup> {
        let relabel =
            "- source_labels: [host]\n  target_label: node\n- action: labeldrop\n  regex: host\n";
        match (kind, self) {
            (Kind::Sheaf, _) => Some(Setup {
                farm: self.farm(),
                ..Setup::default()
            }),
            (Kind::VictoriaMetrics | Kind::InfluxDb, Self::PassThrough) => Some(Setup::default()),
            (Kind::VictoriaMetrics, Self::Edit) => Some(Setup {
                relabel: relabel.to_owned(),
                ..Setup::default()
            }),
            _ => None,
        }
    }

    /// Returns the operators of Sheaf, as tables of a farm file.
    fn farm(self) -> String {
        match self {
            Self::PassThrough => String::new(),
            Self::Edit => format!(
                "[[monitor.processing.operator]]\nkind = \"rename\"\nlabel = \"host\"\nto = \"node\"\n\
                 [[monitor.processing.operator]]\nkind = \"scale\"\nfactor = {FACTOR:?}\n"
            ),
            Self::Suppress => format!(
                "[[monitor.processing.operator]]\nkind = \"on_change\"\nrefresh_ms = {HEARTBEAT_MS}\n"
            ),
            Self::Average => average(&["avg"]),
        }
    }

    /// Compares what was stored with what was sent, by name and host, and returns what is wrong.
    pub(crate) fn problems(
        self,
        sent: &BTreeMap<(String, String), Vec<f64>>,
        stored: &[Series],
    ) -> Vec<String> {
        let found = Stored::of(stored, self.host_label());
        let mut problems: Vec<String> = found.strange.clone();
        for (key, values) in sent {
            let name = format!("{}{{{}}}", key.0, key.1);
            let Some(samples) = found.raw.get(key) else {
                problems.push(format!("{name}: is not stored"));
                continue;
            };
            let of_series = match self {
                Self::PassThrough => same(&values_of(samples), values),
                Self::Edit => {
                    let expected: Vec<f64> = values.iter().map(|value| value * FACTOR).collect();
                    same(&values_of(samples), &expected)
                }
                Self::Suppress => same(&values_of(samples), &changes(values)),
                Self::Average => {
                    let empty = Vec::new();
                    let averages = found.averages.get(key).unwrap_or(&empty);
                    same(&values_of(samples), values).and_then(|()| is_average(samples, averages))
                }
            };
            problems.extend(of_series.err().map(|what| format!("{name}: {what}")));
        }
        if self != Self::Average {
            let made = found.averages.keys().map(|(name, host)| {
                format!("{name}_avg{{{host}}}: is stored, expected no average")
            });
            problems.extend(made);
        }
        for key in found.raw.keys().filter(|key| !sent.contains_key(key)) {
            problems.push(format!("{}{{{}}}: was not sent", key.0, key.1));
        }
        problems
    }

    fn host_label(self) -> &'static str {
        if self == Self::Edit { "node" } else { "host" }
    }
}

/// Returns the operator that makes `functions` of each series over each second.
pub(crate) fn average(functions: &[&str]) -> String {
    format!(
        "[[monitor.processing.operator]]\nkind = \"window\"\nselect = \"{{__name__=~'m[0-9]+'}}\"\n\
         functions = {functions:?}\nlength_ms = 1000\n"
    )
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        let names = Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("found `{text}`, expected one of: {names}"))
    }
}

type Samples = Vec<(f64, f64)>;

/// Stored series of the generator, by name and host.
#[derive(Debug, Default)]
struct Stored {
    raw: BTreeMap<(String, String), Samples>,
    averages: BTreeMap<(String, String), Samples>,
    strange: Vec<String>,
}

impl Stored {
    fn of(stored: &[Series], host_label: &str) -> Self {
        let mut found = Self::default();
        for series in stored {
            let mut labels = series.labels.clone();
            let name = labels.remove("__name__").unwrap_or_default();
            let host = labels.remove(host_label);
            let Some(host) = host.filter(|_| labels.is_empty()) else {
                let what = format!(
                    "{name}: has {:?}, expected {host_label} alone",
                    series.labels
                );
                found.strange.push(what);
                continue;
            };
            let (into, name) = match name.strip_suffix("_avg") {
                Some(name) => (&mut found.averages, name.to_owned()),
                None => (&mut found.raw, name),
            };
            into.insert((name, host), series.samples.clone());
        }
        found
    }
}

fn values_of(samples: &[(f64, f64)]) -> Vec<f64> {
    samples.iter().map(|(_, value)| *value).collect()
}

/// Returns the values that differ from the one before.
fn changes(values: &[f64]) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for value in values {
        if kept.last() != Some(value) {
            kept.push(*value);
        }
    }
    kept
}

fn same(found: &[f64], expected: &[f64]) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!(
            "found {} samples, expected {}",
            found.len(),
            expected.len()
        ));
    }
    let pairs = found.iter().zip(expected);
    let wrong = pairs.enumerate().find(|(_, (a, b))| !is_near(**a, **b));
    match wrong {
        Some((at, (a, b))) => Err(format!("sample {at} is {a}, expected {b}")),
        None => Ok(()),
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= EXACT * a.abs().max(b.abs())
}

/// Compares averages with the samples that they are made of: one for each window with samples.
fn is_average(samples: &[(f64, f64)], averages: &[(f64, f64)]) -> Result<(), String> {
    let mut windows: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (at_s, value) in samples {
        // A window excludes its begin and holds its end. Times have ms.
        let end = ((at_s * 1000.0).round() / (1000.0 * WINDOW_S)).ceil() as i64;
        windows.entry(end).or_default().push(*value);
    }
    let expected: Vec<(f64, f64)> = windows
        .iter()
        .map(|(end, values)| {
            let sum: f64 = values.iter().sum();
            (*end as f64 * WINDOW_S, sum / values.len() as f64)
        })
        .collect();
    if averages.len() != expected.len() {
        return Err(format!(
            "found {} averages, expected {}",
            averages.len(),
            expected.len()
        ));
    }
    for (found, expected) in averages.iter().zip(&expected) {
        if !is_near(found.0, expected.0) || !is_near(found.1, expected.1) {
            return Err(format!("an average is {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> (String, String) {
        ("m1".to_owned(), "h0".to_owned())
    }

    fn series(name: &str, label: &str, samples: &[(f64, f64)]) -> Series {
        let labels = [("__name__", name), (label, "h0")];
        Series {
            labels: labels
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            samples: samples.to_vec(),
        }
    }

    /// Checks the problems that a scenario finds in `stored`, while 1, 1, 0 and 3 were sent, one every 0.4 s.
    fn check(scenario: Scenario, stored: &[Series], expected: &str) {
        let sent = BTreeMap::from([(key(), vec![1.0, 1.0, 0.0, 3.0])]);
        assert_eq!(scenario.problems(&sent, stored).join("; "), expected);
    }

    const RAW: [(f64, f64); 4] = [(10.4, 1.0), (10.8, 1.0), (11.0, 0.0), (11.4, 3.0)];

    #[test]
    fn each_scenario_is_content_with_what_it_should_make() {
        check(Scenario::PassThrough, &[series("m1", "host", &RAW)], "");
        let edited = RAW.map(|(at_s, value)| (at_s, value * 0.001));
        check(Scenario::Edit, &[series("m1", "node", &edited)], "");
        let changed = [RAW[0], RAW[2], RAW[3]];
        check(Scenario::Suppress, &[series("m1", "host", &changed)], "");
        let averages = [(11.0, 2.0 / 3.0), (12.0, 3.0)];
        let both = [
            series("m1", "host", &RAW),
            series("m1_avg", "host", &averages),
        ];
        check(Scenario::Average, &both, "");
    }

    #[test]
    fn a_scenario_that_does_something_else_is_found() {
        let raw = || series("m1", "host", &RAW);
        check(
            Scenario::Suppress,
            &[raw()],
            "m1{h0}: found 4 samples, expected 3",
        );
        check(
            Scenario::PassThrough,
            &[series("m1", "host", &RAW[1..])],
            "m1{h0}: found 3 samples, expected 4",
        );
        check(
            Scenario::Edit,
            &[raw()],
            "m1: has {\"__name__\": \"m1\", \"host\": \"h0\"}, expected node alone; m1{h0}: is not stored",
        );
        check(
            Scenario::Edit,
            &[series("m1", "node", &RAW)],
            "m1{h0}: sample 0 is 1, expected 0.001",
        );
        check(
            Scenario::Average,
            &[raw()],
            "m1{h0}: found 0 averages, expected 2",
        );
        let wrong = series("m1_avg", "host", &[(11.0, 1.0), (12.0, 3.0)]);
        check(
            Scenario::Average,
            &[raw(), wrong],
            "m1{h0}: an average is (11.0, 1.0), expected (11.0, 0.6666666666666666)",
        );
        let average = series("m1_avg", "host", &[(11.0, 1.0)]);
        check(
            Scenario::PassThrough,
            &[raw(), average],
            "m1_avg{h0}: is stored, expected no average",
        );
        let other = series("m2", "host", &RAW);
        check(
            Scenario::PassThrough,
            &[raw(), other],
            "m2{h0}: was not sent",
        );
    }

    #[test]
    fn a_peer_is_asked_for_what_it_can_do_alone() {
        let able = |kind| Scenario::ALL.map(|scenario| scenario.setup(kind).is_some());
        assert_eq!(able(Kind::Sheaf), [true; 4]);
        assert_eq!(able(Kind::VictoriaMetrics), [true, true, false, false]);
        assert_eq!(able(Kind::InfluxDb), [true, false, false, false]);
        assert_eq!(able(Kind::Prometheus), [false; 4]);
    }
}
