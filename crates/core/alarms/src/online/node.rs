//! Expressions over many series: aggregates, ratios and filters.

use crate::condition::Comparison;
use sheaf_samples::{Labels, NAME};
use std::collections::BTreeMap;

/// One step of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Number(f64),
    /// Values of the series of an input.
    Input(usize),
    Aggregate {
        aggregation: Aggregation,
        grouping: Grouping,
        inner: Box<Node>,
    },
    Binary {
        operator: Operator,
        left: Box<Node>,
        right: Box<Node>,
        matching: Grouping,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregation {
    Sum,
    Average,
    Min,
    Max,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Compare(Comparison),
    And,
    Or,
    Unless,
}

/// Labels that rows differ by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    By(Vec<String>),
    Without(Vec<String>),
}

impl Grouping {
    fn of(&self, labels: &Labels) -> Labels {
        match self {
            Self::By(names) => labels.filter(|name| names.iter().any(|one| one == name)),
            Self::Without(names) => {
                labels.filter(|name| name != NAME && !names.iter().any(|one| one == name))
            }
        }
    }
}

/// Value of a series, or of a group of them.
pub(crate) type Row = (Labels, f64);

/// Value of a step.
#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    Rows(Vec<Row>),
}

impl Node {
    /// Rows of the expression, given the rows of each input. A number alone is one row without labels.
    pub(crate) fn rows(
        &self,
        inputs: &mut impl FnMut(usize) -> Vec<Row>,
    ) -> Result<Vec<Row>, String> {
        Ok(match self.value(inputs)? {
            Value::Number(number) => vec![(Labels::default(), number)],
            Value::Rows(rows) => rows,
        })
    }

    fn value(&self, inputs: &mut impl FnMut(usize) -> Vec<Row>) -> Result<Value, String> {
        match self {
            Self::Number(number) => Ok(Value::Number(*number)),
            Self::Input(index) => Ok(Value::Rows(inputs(*index))),
            Self::Aggregate {
                aggregation,
                grouping,
                inner,
            } => match inner.value(inputs)? {
                Value::Rows(rows) => Ok(Value::Rows(aggregate(*aggregation, grouping, rows))),
                Value::Number(_) => Err("an aggregate of a number, expected series".to_owned()),
            },
            Self::Binary {
                operator,
                left,
                right,
                matching,
            } => match (left.value(inputs)?, right.value(inputs)?) {
                (Value::Number(left), Value::Number(right)) => {
                    Ok(Value::Number(operator.number(left, right)))
                }
                (Value::Rows(rows), Value::Number(number)) => {
                    Ok(Value::Rows(with_number(*operator, rows, number, false)))
                }
                (Value::Number(number), Value::Rows(rows)) => {
                    Ok(Value::Rows(with_number(*operator, rows, number, true)))
                }
                (Value::Rows(left), Value::Rows(right)) => {
                    join(*operator, matching, left, right).map(Value::Rows)
                }
            },
        }
    }
}

impl Operator {
    fn number(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Compare(comparison) => f64::from(u8::from(comparison.holds(left, right))),
            // The parser lets these stand between series alone.
            Self::And | Self::Or | Self::Unless => f64::NAN,
        }
    }
}

fn aggregate(aggregation: Aggregation, grouping: &Grouping, rows: Vec<Row>) -> Vec<Row> {
    let mut groups: BTreeMap<Labels, (f64, u64)> = BTreeMap::new();
    for (labels, value) in rows {
        let group = groups.entry(grouping.of(&labels)).or_insert((f64::NAN, 0));
        group.0 = match aggregation {
            _ if group.1 == 0 => value,
            Aggregation::Sum | Aggregation::Average => group.0 + value,
            Aggregation::Min => group.0.min(value),
            Aggregation::Max => group.0.max(value),
            Aggregation::Count => 0.0,
        };
        group.1 += 1;
    }
    let value = |(total, count): (f64, u64)| match aggregation {
        Aggregation::Average => total / count as f64,
        Aggregation::Count => count as f64,
        _ => total,
    };
    groups
        .into_iter()
        .map(|(labels, group)| (labels, value(group)))
        .collect()
}

fn with_number(operator: Operator, rows: Vec<Row>, number: f64, is_left: bool) -> Vec<Row> {
    let apply = |(labels, value): Row| {
        let (left, right) = if is_left {
            (number, value)
        } else {
            (value, number)
        };
        match operator {
            Operator::Compare(comparison) => {
                comparison.holds(left, right).then_some((labels, value))
            }
            _ => Some((
                labels.filter(|name| name != NAME),
                operator.number(left, right),
            )),
        }
    };
    rows.into_iter().filter_map(apply).collect()
}

fn join(
    operator: Operator,
    matching: &Grouping,
    left: Vec<Row>,
    right: Vec<Row>,
) -> Result<Vec<Row>, String> {
    if matches!(operator, Operator::And | Operator::Or | Operator::Unless) {
        let keys = |rows: &[Row]| {
            rows.iter()
                .map(|row| matching.of(&row.0))
                .collect::<std::collections::BTreeSet<_>>()
        };
        let (left_keys, right_keys) = (keys(&left), keys(&right));
        let kept =
            |is_kept: bool| move |row: &Row| right_keys.contains(&matching.of(&row.0)) == is_kept;
        return Ok(match operator {
            Operator::And => left.into_iter().filter(kept(true)).collect(),
            Operator::Unless => left.into_iter().filter(kept(false)).collect(),
            _ => {
                let others = right
                    .into_iter()
                    .filter(|row| !left_keys.contains(&matching.of(&row.0)));
                left.iter().cloned().chain(others).collect()
            }
        });
    }
    let mut by_key: BTreeMap<Labels, f64> = BTreeMap::new();
    for (labels, value) in &right {
        if by_key.insert(matching.of(labels), *value).is_some() {
            return Err(format!(
                "several series for {} on the right side, expected one",
                matching.of(labels)
            ));
        }
    }
    let mut found: BTreeMap<Labels, f64> = BTreeMap::new();
    for (labels, value) in left {
        let key = matching.of(&labels);
        let Some(other) = by_key.get(&key) else {
            continue;
        };
        let value = match operator {
            Operator::Compare(comparison) if !comparison.holds(value, *other) => continue,
            Operator::Compare(_) => value,
            _ => operator.number(value, *other),
        };
        if found.insert(key.clone(), value).is_some() {
            return Err(format!(
                "several series for {key} on the left side, expected one"
            ));
        }
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression;
    use crate::online::Plan;
    use crate::online::plan::Shape;

    /// Rows of `text`, as `{labels} value`, over two EPNs with loads 1 and 3, and rates 10 and 20.
    fn rows(text: &str) -> Result<String, String> {
        let plan = Plan::compile(&expression::parse(text).unwrap(), None, None)?;
        let Shape::Across { node, .. } = &plan.shape else {
            return Err("not across".to_owned());
        };
        let mut inputs = |index: usize| {
            let name = plan.inputs[index].name.as_str();
            let values = if name == "load" {
                [1.0, 3.0]
            } else {
                [10.0, 20.0]
            };
            let labels = |epn| Labels::new([(NAME, name), ("epn", epn), ("rack", "a")]).unwrap();
            vec![(labels("1"), values[0]), (labels("2"), values[1])]
        };
        let rows = node.rows(&mut inputs)?;
        Ok(rows
            .iter()
            .map(|row| format!("{} {}", row.0, row.1))
            .collect::<Vec<_>>()
            .join("; "))
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(rows(text).as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn aggregates_ratios_and_sets_are_those_of_promql() {
        check(
            "sum(load) or load",
            "{} 4; load{epn=\"1\", rack=\"a\"} 1; load{epn=\"2\", rack=\"a\"} 3",
        );
        check("max(load) / avg(load)", "{} 1.5");
        check(
            "count by (rack) (load) + min without (epn) (load)",
            "{rack=\"a\"} 3",
        );
        check(
            "rate / on (epn) load",
            "{epn=\"1\"} 10; {epn=\"2\"} 6.666666666666667",
        );
        check(
            "rate / load",
            "{epn=\"1\", rack=\"a\"} 10; {epn=\"2\", rack=\"a\"} 6.666666666666667",
        );
        check(
            "rate and on (epn) load > 2",
            "rate{epn=\"2\", rack=\"a\"} 20",
        );
        check(
            "rate unless on (epn) load > 2",
            "rate{epn=\"1\", rack=\"a\"} 10",
        );
        check("-sum(load) * 2", "{} -8");
        check(
            "load > on (epn) rate or load == 3",
            "load{epn=\"2\", rack=\"a\"} 3",
        );
    }

    #[test]
    fn many_to_one_is_an_error_of_the_evaluation() {
        assert_eq!(
            rows("load / on (rack) rate").unwrap_err(),
            "several series for {rack=\"a\"} on the right side, expected one"
        );
        let left = rows("load / on (rack) sum by (rack) (rate)").unwrap_err();
        assert_eq!(
            left,
            "several series for {rack=\"a\"} on the left side, expected one"
        );
    }
}
