//! Rules that come with Sheaf: those of `config/rules/sheaf.yml`, for a monitor without rules of its own.

use crate::finding::Findings;
use crate::rule::RuleFile;

/// Name of the file, for findings and pages.
const FILE: &str = "config/rules/sheaf.yml";

/// Text of the file.
pub const SHEAF_RULES: &str = include_str!("../../../../config/rules/sheaf.yml");

/// Returns the rules for a Sheaf farm.
///
/// # Errors
///
/// Never for the file as it ships, which the tests read.
pub fn sheaf_rules() -> Result<RuleFile, Findings> {
    RuleFile::parse(FILE, SHEAF_RULES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarms::AlarmsConfig;
    use crate::rule::{AlertRule, Rule};
    use crate::scenario::{ScenarioFile, run_scenario};
    use crate::source::{SourceConfig, Watch};
    use crate::{expression, template::Template};
    use promql_parser::parser::Expr;
    use sheaf_samples::Labels;
    use std::collections::BTreeSet;

    const SCENARIOS: &str = include_str!("../../../../config/rules/scenarios/sheaf.yml");
    const METRICS: &str = include_str!("../../../../docs/reference/metrics.md");
    const OPERATE: &str = include_str!("../../../../docs/how-to/operate.md");
    const WRITE: &str = include_str!("../../../../docs/how-to/write.md");

    fn rules() -> Vec<AlertRule> {
        let file = sheaf_rules().unwrap_or_else(|error| panic!("{error}"));
        let rules = file.groups.into_iter().flat_map(|group| group.rules);
        let alert = |rule| match rule {
            Rule::Alert(rule) => Some(*rule),
            Rule::Record(_) => None,
        };
        rules.filter_map(alert).collect()
    }

    /// Names of the metrics that `expr` reads.
    fn names(expr: &Expr, found: &mut BTreeSet<String>) {
        match expr {
            Expr::Aggregate(one) => names(&one.expr, found),
            Expr::Unary(one) => names(&one.expr, found),
            Expr::Binary(one) => {
                names(&one.lhs, found);
                names(&one.rhs, found);
            }
            Expr::Paren(one) => names(&one.expr, found),
            Expr::Subquery(one) => names(&one.expr, found),
            Expr::VectorSelector(one) => found.extend(one.name.clone()),
            Expr::MatrixSelector(one) => found.extend(one.vs.name.clone()),
            Expr::Call(one) => one.args.args.iter().for_each(|one| names(one, found)),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
        }
    }

    #[test]
    fn every_metric_of_the_rules_is_one_of_the_reference() {
        let mut found = BTreeSet::new();
        for rule in rules() {
            names(&expression::parse(&rule.expr).unwrap(), &mut found);
        }
        assert!(found.len() > 10, "{found:?}");
        for name in found {
            let is_known = |name: &str| METRICS.contains(&format!("| `{name}` |"));
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            assert!(
                is_known(&name) || base.is_some_and(is_known),
                "{name} is not in docs/reference/metrics.md"
            );
        }
    }

    #[test]
    fn every_rule_says_what_happened_what_to_do_and_where_to_read() {
        let pages = [
            ("docs/how-to/operate.md", OPERATE),
            ("docs/how-to/write.md", WRITE),
        ];
        let anchors: BTreeSet<String> = pages
            .iter()
            .flat_map(|(page, text)| text.lines().map(move |line| (page, line)))
            .filter_map(|(page, line)| {
                let title = line
                    .strip_prefix("## ")
                    .or_else(|| line.strip_prefix("### "))?;
                let anchor = title
                    .to_lowercase()
                    .replace(' ', "-")
                    .replace(|one: char| !one.is_alphanumeric() && one != '-', "");
                Some(format!("{page}#{anchor}"))
            })
            .collect();
        for rule in rules() {
            let text = |list: &[(String, Template)], name: &str| {
                let found = list.iter().find(|one| one.0 == name);
                found
                    .unwrap_or_else(|| panic!("{} has no {name}", rule.name))
                    .1
                    .as_str()
                    .to_owned()
            };
            assert!(
                ["page", "ticket"].contains(&text(&rule.labels, "severity").as_str()),
                "{}",
                rule.name
            );
            assert!(
                !text(&rule.annotations, "summary").is_empty()
                    && !text(&rule.annotations, "action").is_empty()
            );
            let page = text(&rule.annotations, "page");
            assert!(
                anchors.contains(&page) || page == "docs/reference/codes.md",
                "{page} of {} is no section",
                rule.name
            );
            assert!(
                rule.action.is_none_or(|action| action.is_dry_run),
                "orders of rules that ship are dry runs"
            );
        }
    }

    #[test]
    fn the_rules_do_what_their_scenarios_say_and_each_has_one() {
        let files = [sheaf_rules().unwrap()];
        let scenarios = ScenarioFile::parse("config/rules/scenarios/sheaf.yml", SCENARIOS)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenarios.rule_files, ["../sheaf.yml"]);
        let (mut failures, mut fired) = (Vec::new(), BTreeSet::new());
        for scenario in &scenarios.scenarios {
            let outcome = run_scenario(
                scenario,
                &files,
                scenarios.interval_ms,
                &AlarmsConfig::default(),
            );
            failures.extend(
                outcome
                    .failures
                    .iter()
                    .map(|one| format!("{}: {one}", scenario.name)),
            );
            fired.extend(outcome.transitions.into_iter().map(|one| one.alert));
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        let builtin = Watch::ALL.map(|watch| watch.rule(&SourceConfig::default()).name);
        let all: BTreeSet<String> = rules()
            .into_iter()
            .map(|rule| rule.name)
            .chain(builtin)
            .collect();
        assert_eq!(fired, all);
    }

    #[test]
    fn a_scenario_that_is_not_met_says_what_was_found() {
        let text = SCENARIOS.replace(
            "{at: 10s, alert: TfAbandoned, to: firing}",
            "{at: 11s, alert: TfAbandoned, to: firing}",
        );
        let scenarios = ScenarioFile::parse("s.yml", &text).unwrap();
        let scenario = scenarios
            .scenarios
            .iter()
            .find(|one| one.name == "abandoned TFs")
            .unwrap();
        let outcome = run_scenario(
            scenario,
            &[sheaf_rules().unwrap()],
            scenarios.interval_ms,
            &AlarmsConfig::default(),
        );
        let found: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("10000 ms: TfAbandoned")
                && found[0].contains("expected 11000 ms: TfAbandoned"),
            "{found:?}"
        );
    }

    #[test]
    fn the_target_of_an_order_is_the_label_of_the_node() {
        let rule = rules()
            .into_iter()
            .find(|rule| rule.action.is_some())
            .unwrap();
        let target = rule.action.unwrap().target.unwrap();
        let labels = Labels::new([("node", "epn:3")]).unwrap();
        assert_eq!(target.render(&labels, 1.0), "epn:3");
    }
}
