//! Reading of rule files.

use super::keys::{read_action, read_band, read_nodata};
use super::templates::add_template;
use super::{AlertRule, Condition, Group, RecordRule, Rule, RuleFile};
use crate::condition::Test;
use crate::expression;
use crate::fields::Fields;
use crate::finding::{Collector, Findings};
use crate::online::{Band, Plan};
use crate::template::Template;
use crate::yaml::{self, Node};
use promql_parser::parser::Expr;
use std::collections::BTreeSet;

/// Form of an expression for `online: true`; the rest of the sentence stands in docs/reference/alarms.md.
const ONLINE: &str =
    "what can be evaluated online: value OP number, an aggregate, a ratio of them, or absent()";

impl RuleFile {
    /// Reads a rule file; `file` is its name in findings.
    ///
    /// # Errors
    ///
    /// All that is wrong in the file, with lines.
    pub fn parse(file: &str, text: &str) -> Result<Self, Findings> {
        let mut out = Collector::new(file);
        let groups =
            yaml::parse(text, &mut out).map_or(Vec::new(), |root| read_groups(&root, &mut out));
        let file = out.file().to_owned();
        out.finish(Self { file, groups })
    }
}

fn read_groups(root: &Node, out: &mut Collector<'_>) -> Vec<Group> {
    if root.is_null() {
        return Vec::new();
    }
    let Some(mut fields) = Fields::of(root, "a table with \"groups\"", out) else {
        return Vec::new();
    };
    let mut names = BTreeSet::new();
    let mut groups = Vec::new();
    for node in fields.list("groups", out) {
        let Some(group) = read_group(node, out) else {
            continue;
        };
        if !names.insert(group.name.clone()) {
            out.add(
                node.line,
                format!("group {:?} twice", group.name),
                "each name once a file",
            );
        }
        groups.push(group);
    }
    fields.finish(out);
    groups
}

fn read_group(node: &Node, out: &mut Collector<'_>) -> Option<Group> {
    let mut fields = Fields::of(node, "a group with \"name\" and \"rules\"", out)?;
    let name = fields.required("name", out);
    let interval_ms = fields.duration("interval", out).filter(|ms| *ms > 0);
    let limit = fields
        .count("limit", (0, u32::MAX), out)
        .filter(|limit| *limit > 0);
    let rules = fields.list("rules", out);
    let rules = rules
        .iter()
        .filter_map(|node| read_rule(node, out))
        .collect();
    fields.finish(out);
    Some(Group {
        name: name?,
        interval_ms,
        limit,
        rules,
    })
}

fn read_rule(node: &Node, out: &mut Collector<'_>) -> Option<Rule> {
    let mut fields = Fields::of(node, "a rule with \"alert\" or \"record\"", out)?;
    let alert = fields.text("alert", out);
    let record = fields.text("record", out);
    match (alert, record) {
        (Some(name), None) => read_alert(name, fields, out).map(|rule| Rule::Alert(Box::new(rule))),
        (None, Some(name)) => read_record(name, fields, out).map(Rule::Record),
        (alert, _) => {
            let found = if alert.is_some() {
                "both \"alert\" and \"record\""
            } else {
                "neither \"alert\" nor \"record\""
            };
            out.add(node.line, found, "one of them");
            None
        }
    }
}

fn read_expr(fields: &mut Fields<'_>, out: &mut Collector<'_>) -> Option<(usize, String, Expr)> {
    let line = fields.take("expr").map_or(fields.line, |node| node.line);
    let text = fields.required("expr", out)?;
    match expression::parse(&text) {
        Ok(expr) => Some((line, text, expr)),
        Err(found) => {
            out.add(line, found, "PromQL");
            None
        }
    }
}

fn read_record(
    name: String,
    mut fields: Fields<'_>,
    out: &mut Collector<'_>,
) -> Option<RecordRule> {
    let line = fields.line;
    if !expression::is_metric_name(&name) {
        out.add(line, format!("record {name:?}"), "the name of a metric");
    }
    let expr = read_expr(&mut fields, out);
    let mut labels = Vec::new();
    for (name, line, value) in fields.table("labels", out) {
        check_label(name, line, out);
        labels.push((name.to_owned(), value));
    }
    fields.finish(out);
    let (_, expr, _) = expr?;
    Some(RecordRule {
        name,
        expr,
        labels,
        line,
    })
}

fn check_label(name: &str, line: usize, out: &mut Collector<'_>) {
    if !expression::is_label_name(name) || name.starts_with("__") || name == "alertname" {
        out.add(
            line,
            format!("label {name:?}"),
            "a label that a rule may set: letters, digits and _",
        );
    }
}

fn read_templates(
    key: &'static str,
    fields: &mut Fields<'_>,
    out: &mut Collector<'_>,
) -> Vec<(String, Template)> {
    let mut found = Vec::new();
    for (name, line, text) in fields.table(key, out) {
        if key == "labels" {
            check_label(name, line, out);
        } else if !expression::is_label_name(name) {
            out.add(
                line,
                format!("annotation {name:?}"),
                "letters, digits and _",
            );
        }
        match Template::parse(&text) {
            Ok(template) => found.push((name.to_owned(), template)),
            Err(error) => add_template(line, name, &error, out),
        }
    }
    found
}

fn read_alert(name: String, mut fields: Fields<'_>, out: &mut Collector<'_>) -> Option<AlertRule> {
    let line = fields.line;
    if name.is_empty() {
        out.add(line, "an alert without name", "a name");
    }
    let expr = read_expr(&mut fields, out);
    let for_ms = fields.duration("for", out).unwrap_or(0);
    let keep_firing_ms = fields.duration("keep_firing_for", out).unwrap_or(0);
    let labels = read_templates("labels", &mut fields, out);
    let annotations = read_templates("annotations", &mut fields, out);
    let is_online = fields.flag("online", out).unwrap_or(false);
    let nodata = fields
        .take("nodata")
        .and_then(|node| read_nodata(node, out));
    let clear_line = fields.take("clear").map(|node| node.line);
    let clear = fields.text("clear", out);
    let band_line = fields.take("band").map(|node| node.line);
    let band = fields.take("band").and_then(|node| read_band(node, out));
    let action = fields
        .take("action")
        .and_then(|node| read_action(node, out));
    fields.finish(out);
    let (expr_line, text, expr) = expr?;
    if let (Some(line), false) = (band_line, is_online) {
        out.add(line, "\"band\" in a late rule", "online: true beside it");
        return None;
    }
    let condition = if is_online {
        online(&expr, expr_line, clear.zip(clear_line), band, out)?
    } else {
        let needs_test = nodata.is_some();
        late(
            &text,
            &expr,
            expr_line,
            clear.zip(clear_line),
            needs_test,
            out,
        )?
    };
    Some(AlertRule {
        name,
        expr: text,
        for_ms,
        keep_firing_ms,
        labels,
        annotations,
        nodata,
        action,
        line,
        condition,
    })
}

fn online(
    expr: &Expr,
    line: usize,
    clear: Option<(String, usize)>,
    band: Option<Band>,
    out: &mut Collector<'_>,
) -> Option<Condition> {
    let mut threshold = None;
    if let Some((text, line)) = clear {
        let number: Option<f64> = text.parse().ok();
        if number.is_none() || band.is_some() {
            out.add(
                line,
                format!("clear {text:?}"),
                "a number, the threshold that ends the alert",
            );
            return None;
        }
        threshold = number;
    }
    match Plan::compile(expr, threshold, band) {
        Ok(plan) => Some(Condition::Online(plan)),
        Err(found) => {
            out.add(line, found, ONLINE);
            None
        }
    }
}

fn late(
    text: &str,
    expr: &Expr,
    line: usize,
    clear: Option<(String, usize)>,
    needs_test: bool,
    out: &mut Collector<'_>,
) -> Option<Condition> {
    let number = clear
        .as_ref()
        .and_then(|(text, _)| text.parse::<f64>().ok());
    let mut query = text.to_owned();
    let mut test = None;
    // Only where it matters: the query as written is the one that an operator can repeat.
    if needs_test || number.is_some() {
        let Some((value, comparison, threshold)) = expression::split(expr) else {
            out.add(
                line,
                format!("{expr} with \"nodata\" or a threshold in \"clear\""),
                "value OP number",
            );
            return None;
        };
        query = value.to_string();
        test = Some(Test {
            comparison,
            threshold,
            clear: number,
        });
    }
    let clear = match clear {
        Some((text, line)) if number.is_none() => {
            if let Err(found) = expression::parse(&text) {
                out.add(line, found, "a number or PromQL");
                return None;
            }
            Some(text)
        }
        _ => None,
    };
    Some(Condition::Late { query, test, clear })
}

#[cfg(test)]
mod tests {
    use super::super::{ActionOrder, NoData, NoDataState, OrderLimit};
    use super::*;

    const WHOLE: &str = r#"
groups:
- name: farm
  interval: 10s
  limit: 20
  rules:
  - record: farm:rate
    expr: sum(rate(frames_total[5m]))
    labels: {team: daq}
  - alert: Hot
    expr: temperature > 60
    for: 1m
    keep_firing_for: 30s
    online: true
    clear: 55
    nodata: {for: 20s, state: firing}
    labels: {severity: page}
    annotations:
      summary: "EPN {{ $labels.epn }}: {{ $value | humanize }} degrees"
    action: {order: set-weight, weight: 0.5, undo: 1, target: "epn {{ $labels.epn }}",
             dry_run: false, limit: {nodes: 2, in: 10m}, cooldown: 5m}
  - alert: Late
    expr: sum by (epn) (rate(x[5m])) > 1
    clear: sum by (epn) (rate(x[5m])) < 0.5
"#;

    #[test]
    fn a_rule_file_with_every_key_is_read() {
        let file = RuleFile::parse("farm.yml", WHOLE).unwrap();
        let group = &file.groups[0];
        assert_eq!(
            (group.name.as_str(), group.interval_ms, group.limit),
            ("farm", Some(10_000), Some(20))
        );
        let Rule::Record(record) = &group.rules[0] else {
            panic!("a record")
        };
        assert_eq!((record.name.as_str(), record.line), ("farm:rate", 7));
        let Rule::Alert(hot) = &group.rules[1] else {
            panic!("an alert")
        };
        assert_eq!(
            (hot.for_ms, hot.keep_firing_ms, hot.is_online()),
            (60_000, 30_000, true)
        );
        assert_eq!(
            hot.nodata,
            Some(NoData {
                for_ms: 20_000,
                state: NoDataState::Firing
            })
        );
        let action = hot.action.as_ref().unwrap();
        assert_eq!(
            action.order,
            ActionOrder::SetWeight {
                weight_milli: 500,
                undo_milli: Some(1000)
            }
        );
        assert_eq!(
            (action.limit, action.cooldown_ms, action.is_dry_run),
            (
                OrderLimit {
                    nodes: 2,
                    in_ms: 600_000
                },
                300_000,
                false
            )
        );
        let Rule::Alert(late) = &group.rules[2] else {
            panic!("an alert")
        };
        assert!(matches!(
            &late.condition,
            Condition::Late {
                test: None,
                clear: Some(_),
                ..
            }
        ));
    }

    #[test]
    fn an_action_is_a_dry_run_unless_told_otherwise() {
        let text = "groups: [{name: a, rules: [{alert: A, expr: up == 0, action: {order: stop}}]}]";
        let file = RuleFile::parse("a.yml", text).unwrap();
        let Rule::Alert(rule) = &file.groups[0].rules[0] else {
            panic!("an alert")
        };
        assert!(rule.action.as_ref().unwrap().is_dry_run);
    }

    fn findings(rules: &str) -> Vec<String> {
        let text = format!("groups:\n- name: g\n  rules:\n{rules}");
        let findings = RuleFile::parse("f.yml", &text).unwrap_err();
        findings.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let found = findings(
            "  - alert: A\n    expr: sum(\n    fro: 5m\n  - alert: B\n    expr: up\n    for: soon\n    annotations: {a: \"{{ $value | shout }}\"}\n  - expr: up\n",
        );
        assert_eq!(found.len(), 5, "{found:#?}");
        assert!(
            found[0].starts_with("f.yml:5: expression \"sum(\""),
            "{found:#?}"
        );
        assert!(
            found[1].starts_with("f.yml:6: key \"fro\", expected one of alert, record, expr"),
            "{found:#?}"
        );
        assert!(
            found[2].starts_with("f.yml:9: \"soon\" under \"for\", expected a duration"),
            "{found:#?}"
        );
        assert!(
            found[3].starts_with(
                "f.yml:10: \"a\": template function \"shout\", expected one of humanize"
            ),
            "{found:#?}"
        );
        assert_eq!(
            found[4],
            "f.yml:11: neither \"alert\" nor \"record\", expected one of them"
        );
    }

    #[test]
    fn keys_that_do_not_fit_together_are_refused() {
        let check = |rule: &str, expected: &str| {
            let found = findings(&format!("  - {{alert: A, {rule}}}\n"));
            assert!(
                found.len() == 1 && found[0].contains(expected),
                "{found:#?}"
            );
        };
        check(
            "expr: \"topk(3, x) > 1\", online: true",
            "aggregation topk, expected what can be evaluated online",
        );
        check(
            "expr: up and x, nodata: {for: 5m}",
            "expected value OP number",
        );
        check(
            "expr: x, band: {sigma: 3}",
            "\"band\" in a late rule, expected online: true",
        );
        check(
            "expr: x > 1, nodata: {state: firing}",
            "\"nodata\" without time",
        );
        check(
            "expr: x > 1, nodata: {for: 1m, state: red}",
            "\"red\" under \"state\", expected one of nodata, firing, ok, keep",
        );
        check(
            "expr: x > 1, action: {order: drain}",
            "an order without target",
        );
        check(
            "expr: x > 1, action: {order: set-weight, target: a}",
            "set-weight without weight",
        );
        check(
            "expr: x > 1, action: {order: reboot}",
            "expected one of drain, set-weight, stop",
        );
        check(
            "expr: x > 1, clear: often, online: true",
            "clear \"often\", expected a number",
        );
        check("expr: x > 1, labels: {alertname: x}", "label \"alertname\"");
    }
}
