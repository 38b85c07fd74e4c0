//! Expressions of online rules, compiled from PromQL.

use super::band::Band;
use super::node::{Aggregation, Grouping, Node, Operator};
use super::window::Function;
use crate::condition::Test;
use crate::expression::{self, inner};
use promql_parser::parser::{
    AggregateExpr, BinaryExpr, Call, Expr, LabelModifier, VectorMatchCardinality, VectorSelector,
    token,
};
use sheaf_samples::{Labels, Matcher, Matches, NAME};

/// How an online rule is evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) inputs: Vec<Input>,
    pub(crate) shape: Shape,
}

/// Series that a plan reads, and what it makes of each.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) matchers: Vec<Matcher>,
    /// `None`: the latest value.
    pub(crate) window: Option<Window>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) function: Function,
    pub(crate) range_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Every series by itself, as its samples arrive.
    Series(Test),
    /// Every series by itself, held against its own past.
    Band(Band),
    /// No series at all for this long (`None`: as long as a sample counts).
    Absent {
        window_ms: Option<i64>,
        labels: Labels,
    },
    /// Many series together; rows are alerts if there is no test.
    Across { node: Node, test: Option<Test> },
}

impl Plan {
    /// Returns the plan of `expr`, or what of it cannot be evaluated online.
    pub(crate) fn compile(
        expr: &Expr,
        clear: Option<f64>,
        band: Option<Band>,
    ) -> Result<Self, String> {
        let mut inputs = Vec::new();
        if let Some(band) = band {
            inputs.push(series_input(inner(expr))?.ok_or_else(|| format!("{expr} with a band"))?);
            return Ok(Self {
                inputs,
                shape: Shape::Band(band),
            });
        }
        if let Expr::Call(call) = inner(expr)
            && matches!(call.func.name, "absent" | "absent_over_time")
        {
            let (input, window_ms) = absent_input(call)?;
            let labels = absent_labels(&input.matchers);
            inputs.push(input);
            return Ok(Self {
                inputs,
                shape: Shape::Absent { window_ms, labels },
            });
        }
        let test = expression::split(expr).map(|(value, comparison, threshold)| {
            (
                value,
                Test {
                    comparison,
                    threshold,
                    clear,
                },
            )
        });
        if let Some((value, test)) = &test
            && let Some(input) = series_input(inner(value))?
        {
            inputs.push(input);
            return Ok(Self {
                inputs,
                shape: Shape::Series(*test),
            });
        }
        let (value, test) = match test {
            Some((value, test)) => (value, Some(test)),
            None if clear.is_some() => {
                return Err(format!(
                    "clear beside {expr}, which compares with no number"
                ));
            }
            None => (expr, None),
        };
        let node = node(value, &mut inputs)?;
        if inputs.is_empty() {
            return Err(format!("{expr}, which reads no series"));
        }
        Ok(Self {
            inputs,
            shape: Shape::Across { node, test },
        })
    }

    /// Longest time that the plan looks back, but for the time that a sample counts.
    pub(crate) fn range_ms(&self) -> i64 {
        self.inputs
            .iter()
            .filter_map(|input| input.window)
            .map(|window| window.range_ms)
            .max()
            .unwrap_or(0)
    }
}

/// Input of a selector, or of a function over a window of one; `None` for other expressions.
fn series_input(expr: &Expr) -> Result<Option<Input>, String> {
    match expr {
        Expr::VectorSelector(selector) => input(selector, None).map(Some),
        Expr::Call(call) => {
            let Some(function) = Function::named(call.func.name) else {
                return Ok(None);
            };
            let [argument] = call.args.args.as_slice() else {
                return Ok(None);
            };
            let Expr::MatrixSelector(matrix) = inner(argument) else {
                return Ok(None);
            };
            let range_ms = i64::try_from(matrix.range.as_millis())
                .map_err(|_| format!("the range of {expr}"))?;
            input(&matrix.vs, Some(Window { function, range_ms })).map(Some)
        }
        _ => Ok(None),
    }
}

fn input(selector: &VectorSelector, window: Option<Window>) -> Result<Input, String> {
    if selector.offset.is_some() || selector.at.is_some() {
        return Err(format!("{selector}, which looks at another time"));
    }
    let matchers = expression::matchers(selector)?;
    let is_name = |one: &&Matcher| one.name() == NAME && one.matches() == Matches::Equal;
    let name = matchers
        .iter()
        .find(is_name)
        .map(|one| one.value().to_owned());
    let name = name.ok_or_else(|| format!("{selector} without the name of a metric"))?;
    Ok(Input {
        name,
        matchers,
        window,
    })
}

fn absent_input(call: &Call) -> Result<(Input, Option<i64>), String> {
    match call.args.args.first().map(|one| inner(one)) {
        Some(Expr::VectorSelector(selector)) => Ok((input(selector, None)?, None)),
        Some(Expr::MatrixSelector(matrix)) => {
            let range_ms =
                i64::try_from(matrix.range.as_millis()).map_err(|_| "a range".to_owned())?;
            Ok((input(&matrix.vs, None)?, Some(range_ms)))
        }
        _ => Err(format!("{call}, which is of no selector")),
    }
}

/// Labels that an absent series would have for certain.
fn absent_labels(matchers: &[Matcher]) -> Labels {
    let sure = matchers
        .iter()
        .filter(|one| one.matches() == Matches::Equal && one.name() != NAME);
    let pairs: std::collections::BTreeMap<_, _> =
        sure.map(|one| (one.name(), one.value())).collect();
    Labels::new(pairs).unwrap_or_default()
}

fn node(expr: &Expr, inputs: &mut Vec<Input>) -> Result<Node, String> {
    let expr = inner(expr);
    if let Some(number) = expression::number(expr) {
        return Ok(Node::Number(number));
    }
    if let Some(input) = series_input(expr)? {
        inputs.push(input);
        return Ok(Node::Input(inputs.len() - 1));
    }
    match expr {
        Expr::Aggregate(aggregate) => aggregate_node(aggregate, inputs),
        Expr::Binary(binary) => binary_node(binary, inputs),
        Expr::Unary(unary) => Ok(Node::Binary {
            operator: Operator::Multiply,
            left: Box::new(Node::Number(-1.0)),
            right: Box::new(node(&unary.expr, inputs)?),
            matching: Grouping::Without(Vec::new()),
        }),
        Expr::Call(call) => Err(format!("function {}", call.func.name)),
        other => Err(format!("{other}")),
    }
}

fn aggregate_node(aggregate: &AggregateExpr, inputs: &mut Vec<Input>) -> Result<Node, String> {
    let aggregation = match aggregate.op.id() {
        token::T_SUM => Aggregation::Sum,
        token::T_AVG => Aggregation::Average,
        token::T_MIN => Aggregation::Min,
        token::T_MAX => Aggregation::Max,
        token::T_COUNT => Aggregation::Count,
        _ => return Err(format!("aggregation {}", aggregate.op)),
    };
    let grouping = grouping(aggregate.modifier.as_ref(), Grouping::By(Vec::new()));
    let inner = Box::new(node(&aggregate.expr, inputs)?);
    Ok(Node::Aggregate {
        aggregation,
        grouping,
        inner,
    })
}

fn binary_node(binary: &BinaryExpr, inputs: &mut Vec<Input>) -> Result<Node, String> {
    let operator = match binary.op.id() {
        token::T_ADD => Operator::Add,
        token::T_SUB => Operator::Subtract,
        token::T_MUL => Operator::Multiply,
        token::T_DIV => Operator::Divide,
        token::T_LAND => Operator::And,
        token::T_LOR => Operator::Or,
        token::T_LUNLESS => Operator::Unless,
        _ => match expression::comparison(binary.op) {
            Some(comparison) => Operator::Compare(comparison),
            None => return Err(format!("operator {}", binary.op)),
        },
    };
    let modifier = binary.modifier.as_ref();
    let is_many = modifier.is_some_and(|one| {
        matches!(
            one.card,
            VectorMatchCardinality::ManyToOne(_) | VectorMatchCardinality::OneToMany(_)
        )
    });
    if is_many || modifier.is_some_and(|one| one.return_bool) {
        return Err(format!("{binary}: group_left, group_right or bool"));
    }
    let matching = grouping(
        modifier.and_then(|one| one.matching.as_ref()),
        Grouping::Without(Vec::new()),
    );
    Ok(Node::Binary {
        operator,
        left: Box::new(node(&binary.lhs, inputs)?),
        right: Box::new(node(&binary.rhs, inputs)?),
        matching,
    })
}

fn grouping(modifier: Option<&LabelModifier>, default: Grouping) -> Grouping {
    match modifier {
        None => default,
        Some(LabelModifier::Include(labels)) => Grouping::By(labels.labels.clone()),
        Some(LabelModifier::Exclude(labels)) => Grouping::Without(labels.labels.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(text: &str) -> Result<Plan, String> {
        Plan::compile(&expression::parse(text).unwrap(), None, None)
    }

    #[test]
    fn simple_conditions_are_evaluated_by_series() {
        for text in [
            "temperature > 60",
            "3 < rate(frames_total{epn=\"1\"}[5s])",
            "(changes(x[1m])) == 0",
        ] {
            assert!(
                matches!(compiled(text).unwrap().shape, Shape::Series(_)),
                "{text}"
            );
        }
    }

    #[test]
    fn aggregates_ratios_and_filters_are_evaluated_together() {
        let texts = [
            "sum by (epn) (rate(x[5s])) > 3",
            "max(load) / avg(load) > 1.5",
            "sum(a) - sum(b) != 0 and sum(c) == 1",
            "a / on (epn) b > 0.9",
            "a > 3 unless b == 1",
        ];
        for text in texts {
            assert!(
                matches!(compiled(text).unwrap().shape, Shape::Across { .. }),
                "{text}"
            );
        }
        assert_eq!(
            compiled("sum(rate(a[5s])) / sum(rate(b[10s])) > 1")
                .unwrap()
                .range_ms(),
            10_000
        );
    }

    #[test]
    fn absence_has_the_labels_that_are_sure() {
        let plan = compiled(r#"absent_over_time(up{role="icn", epn=~"1|2"}[10s])"#).unwrap();
        let Shape::Absent { window_ms, labels } = plan.shape else {
            panic!("absence")
        };
        assert_eq!(
            (window_ms, labels.to_string()),
            (Some(10_000), r#"{role="icn"}"#.to_owned())
        );
    }

    #[test]
    fn what_cannot_be_evaluated_online_is_named() {
        let error = |text: &str| compiled(text).unwrap_err();
        assert_eq!(error("topk(3, x) > 1"), "aggregation topk");
        assert_eq!(
            error("sum(x offset 5m) > 1"),
            "x offset 5m, which looks at another time"
        );
        assert_eq!(
            error("{epn=\"1\"} > 1"),
            "{epn=\"1\"} without the name of a metric"
        );
        assert_eq!(
            error("histogram_quantile(0.9, x) > 1"),
            "function histogram_quantile"
        );
        assert_eq!(
            error("a + on (epn) group_left b > 1"),
            "a + on (epn) group_left () b: group_left, group_right or bool"
        );
        assert_eq!(error("1 + 1"), "1 + 1, which reads no series");
    }
}
