//! Reading of scenario files.

use super::{
    ExpectedAlert, ExpectedAlerts, ExpectedOrder, ExpectedTransition, Scenario, ScenarioFile,
    SourceEvents, notation,
};
use crate::fields::Fields;
use crate::finding::{Collector, Findings};
use crate::state::State;
use crate::yaml::{self, Node};
use sheaf_samples::Sample;
use std::sync::Arc;

const STATES: [&str; 5] = ["inactive", "pending", "firing", "resolved", "nodata"];
const OUTCOMES: [&str; 5] = ["given", "dry-run", "refused", "done", "failed"];

impl ScenarioFile {
    /// Reads a scenario file; `file` is its name in findings.
    ///
    /// # Errors
    ///
    /// All that is wrong in the file, with lines.
    pub fn parse(file: &str, text: &str) -> Result<Self, Findings> {
        let mut out = Collector::new(file);
        let parsed = yaml::parse(text, &mut out).and_then(|root| read(file, &root, &mut out));
        let empty = Self {
            file: file.to_owned(),
            rule_files: Vec::new(),
            interval_ms: 60_000,
            scenarios: Vec::new(),
        };
        out.finish(parsed.unwrap_or(empty))
    }
}

fn read(file: &str, root: &Node, out: &mut Collector<'_>) -> Option<ScenarioFile> {
    let mut fields = Fields::of(root, "a table with \"rule_files\" and \"tests\"", out)?;
    let rule_files = fields
        .texts("rule_files", out)
        .into_iter()
        .map(|one| one.1)
        .collect();
    let interval_ms = fields
        .duration("evaluation_interval", out)
        .filter(|ms| *ms > 0)
        .unwrap_or(60_000);
    let tests = fields.list("tests", out).iter();
    let scenarios = tests
        .filter_map(|node| read_scenario(node, interval_ms, out))
        .collect();
    fields.finish(out);
    Some(ScenarioFile {
        file: file.to_owned(),
        rule_files,
        interval_ms,
        scenarios,
    })
}

fn read_scenario(node: &Node, default_ms: i64, out: &mut Collector<'_>) -> Option<Scenario> {
    let mut fields = Fields::of(node, "a test with \"input_series\"", out)?;
    let name = fields
        .text("name", out)
        .unwrap_or_else(|| format!("line {}", node.line));
    let interval_ms = fields
        .duration("interval", out)
        .filter(|ms| *ms > 0)
        .unwrap_or(default_ms);
    let mut series = Vec::new();
    for node in fields.list("input_series", out) {
        let Some(mut fields) = Fields::of(node, "a table with \"series\" and \"values\"", out)
        else {
            continue;
        };
        let labels = fields
            .required("series", out)
            .map(|text| notation::series(&text));
        let values = samples("values", &mut fields, interval_ms, out);
        fields.finish(out);
        match labels {
            Some(Ok(labels)) => series.push((Arc::new(labels), values)),
            Some(Err(found)) => out.add(node.line, found, "one series, such as load{epn=\"3\"}"),
            None => {}
        }
    }
    let sources = fields.list("sources", out).iter();
    let sources: Vec<SourceEvents> = sources
        .filter_map(|node| read_source(node, interval_ms, out))
        .collect();
    let until = fields.duration("until", out);
    let has_transitions = fields.take("transitions").is_some();
    let transitions = fields.list("transitions", out).iter();
    let transitions: Vec<_> = transitions
        .filter_map(|node| read_transition(node, out))
        .collect();
    let has_orders = fields.take("orders").is_some();
    let orders: Vec<_> = fields
        .list("orders", out)
        .iter()
        .filter_map(|node| read_order(node, out))
        .collect();
    let alerts = fields.list("alert_rule_test", out).iter();
    let alerts: Vec<ExpectedAlerts> = alerts.filter_map(|node| read_alerts(node, out)).collect();
    fields.finish(out);
    if !has_transitions && !has_orders && alerts.is_empty() {
        out.add(
            node.line,
            "a test that expects nothing",
            "\"transitions\", \"orders\" or \"alert_rule_test\"",
        );
    }
    let ends = series
        .iter()
        .map(|one| &one.1)
        .chain(sources.iter().map(|one| &one.seen));
    let ends = ends.filter_map(|samples| samples.last().map(|sample| sample.at_ms));
    let expected = transitions
        .iter()
        .map(|one| one.at_ms)
        .chain(alerts.iter().map(|one| one.at_ms));
    let last_ms = ends
        .chain(expected)
        .chain(orders.iter().map(|one| one.at_ms))
        .max()
        .unwrap_or(0);
    Some(Scenario {
        name,
        series,
        sources,
        until_ms: until.unwrap_or(last_ms),
        transitions: has_transitions.then_some(transitions),
        orders: has_orders.then_some(orders),
        alerts,
    })
}

fn samples(
    key: &'static str,
    fields: &mut Fields<'_>,
    interval_ms: i64,
    out: &mut Collector<'_>,
) -> Vec<Sample> {
    let line = fields.take(key).map_or(fields.line, |node| node.line);
    let Some(text) = fields.text(key, out) else {
        return Vec::new();
    };
    notation::values(&text, interval_ms).unwrap_or_else(|found| {
        out.add(line, found, "values such as 1+1x10, _x3 or stale");
        Vec::new()
    })
}

fn read_source(node: &Node, interval_ms: i64, out: &mut Collector<'_>) -> Option<SourceEvents> {
    let mut fields = Fields::of(node, "a table with \"source\" and \"seen\"", out)?;
    let source = fields.required("source", out);
    let seen = samples("seen", &mut fields, interval_ms, out);
    let sent = samples("sent", &mut fields, interval_ms, out);
    let received = samples("received", &mut fields, interval_ms, out);
    let clock_offset_ms = samples("clock_offset_ms", &mut fields, interval_ms, out);
    fields.finish(out);
    let pairs = sent.iter().filter_map(|one| {
        let other = received.iter().find(|other| other.at_ms == one.at_ms)?;
        Some((one.at_ms, one.value as u64, other.value as u64))
    });
    let counts = pairs.collect();
    Some(SourceEvents {
        source: source?,
        seen,
        counts,
        clock_offset_ms,
    })
}

fn labels(
    key: &'static str,
    fields: &mut Fields<'_>,
    out: &mut Collector<'_>,
) -> Vec<(String, String)> {
    let pairs = fields.table(key, out).into_iter();
    pairs
        .map(|(name, _, value)| (name.to_owned(), value))
        .collect()
}

fn read_transition(node: &Node, out: &mut Collector<'_>) -> Option<ExpectedTransition> {
    let mut fields = Fields::of(node, "a table with \"at\", \"alert\" and \"to\"", out)?;
    let at_ms = fields.duration("at", out);
    let alert = fields.required("alert", out);
    let labels = labels("labels", &mut fields, out);
    let to = fields
        .choice("to", &STATES, out)
        .and_then(|at| State::named(STATES[at]));
    fields.finish(out);
    if at_ms.is_none() || to.is_none() {
        out.add(node.line, "a transition without \"at\" or \"to\"", "both");
    }
    Some(ExpectedTransition {
        line: node.line,
        at_ms: at_ms?,
        alert: alert?,
        labels,
        to: to?,
    })
}

fn read_order(node: &Node, out: &mut Collector<'_>) -> Option<ExpectedOrder> {
    let mut fields = Fields::of(node, "a table with \"at\", \"order\" and \"outcome\"", out)?;
    let at_ms = fields.duration("at", out);
    let order = fields.required("order", out);
    let outcome = fields
        .choice("outcome", &OUTCOMES, out)
        .map(|at| OUTCOMES[at].to_owned());
    fields.finish(out);
    if at_ms.is_none() || outcome.is_none() {
        out.add(node.line, "an order without \"at\" or \"outcome\"", "both");
    }
    Some(ExpectedOrder {
        line: node.line,
        at_ms: at_ms?,
        order: order?,
        outcome: outcome?,
    })
}

fn read_alerts(node: &Node, out: &mut Collector<'_>) -> Option<ExpectedAlerts> {
    let mut fields = Fields::of(node, "a table with \"eval_time\" and \"alertname\"", out)?;
    let at_ms = fields.duration("eval_time", out);
    let alert = fields.required("alertname", out);
    let mut alerts = Vec::new();
    for node in fields.list("exp_alerts", out) {
        let Some(mut fields) = Fields::of(node, "a table with \"exp_labels\"", out) else {
            continue;
        };
        let exp_labels = labels("exp_labels", &mut fields, out);
        let has_annotations = fields.take("exp_annotations").is_some();
        let annotations = labels("exp_annotations", &mut fields, out);
        fields.finish(out);
        alerts.push(ExpectedAlert {
            labels: exp_labels,
            annotations: has_annotations.then_some(annotations),
        });
    }
    fields.finish(out);
    if at_ms.is_none() {
        out.add(node.line, "no key \"eval_time\"", "a duration");
    }
    Some(ExpectedAlerts {
        line: node.line,
        at_ms: at_ms?,
        alert: alert?,
        alerts,
    })
}
