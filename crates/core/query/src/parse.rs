//! From text to a plan: the parser's result checked, resolved and freed of its types.

use crate::error::Error;
use crate::eval::functions;
use crate::options::Options;
use crate::plan::{
    Aggregate, Aggregator, At, Binary, Call, Cardinality, Grouping, Kind, Matching, Node, Operator,
    Selector, Shift, Subquery,
};
use crate::scan::Scan;
use promql_parser::label;
use promql_parser::parser::{self, Expr, token};
use sheaf_samples::{Labels, Matcher, Matches, NAME};
use std::sync::Once;
use std::time::Duration;

/// Returns the plan of the expression `text`.
pub(crate) fn parse(text: &str, options: &Options) -> Result<Node, Error> {
    let (found, limit) = (text.len(), options.text_bytes_max);
    if found > limit {
        return Err(Error::TooLong { found, limit });
    }
    let scan = Scan::new(text);
    let (found, limit) = (scan.depth(), options.depth_max);
    if found > limit {
        return Err(Error::TooDeep { found, limit });
    }
    scan.check_durations()?;
    register_old_names();
    let expr = parser::parse(text).map_err(|message| scan.locate(&message))?;
    node(&expr)
}

/// Returns the conditions of a selector such as `up{job="a"}`, as the HTTP API takes them in `match[]`.
///
/// # Errors
///
/// [`Error::Parse`] if `text` is anything but a selector without modifiers, or has several alternatives.
pub fn matchers(text: &str, options: &Options) -> Result<Vec<Matcher>, Error> {
    match parse(text, options)? {
        Node::Vector(mut selector) if selector.shift == UNSHIFTED => {
            if selector.alternatives.len() > 1 {
                return Err(Error::parse(
                    "expected one list of label matchers, found `or`",
                ));
            }
            Ok(selector.alternatives.remove(0))
        }
        _ => Err(Error::parse(
            "expected a metric selector such as up{job=\"a\"}",
        )),
    }
}

const UNSHIFTED: Shift = Shift {
    at: None,
    offset_ms: 0,
};

/// Adds `holt_winters`, the name of a function in Prometheus 2, to the table of the parser, which knows the new one.
fn register_old_names() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        use promql_parser::parser::value::ValueType::{Matrix, Scalar, Vector};
        let args = vec![Matrix, Scalar, Scalar];
        let function = parser::Function::new("holt_winters", args, 0, Vector, false);
        // An error would mean that the parser knows the name by now, which serves as well.
        let _ = parser::register_extra_functions(vec![function]);
    });
}

fn node(expr: &Expr) -> Result<Node, Error> {
    Ok(match expr {
        Expr::NumberLiteral(number) => Node::Number(number.val),
        Expr::StringLiteral(text) => Node::Text(text.val.clone()),
        Expr::Paren(paren) => node(&paren.expr)?,
        Expr::VectorSelector(selector) => Node::Vector(self::selector(selector)?),
        Expr::MatrixSelector(matrix) => Node::Matrix(selector(&matrix.vs)?, ms(matrix.range)),
        Expr::Subquery(subquery) => {
            let inner = typed(node(&subquery.expr)?, Kind::Vector, "subquery")?;
            Node::Subquery(Box::new(Subquery {
                node: inner,
                range_ms: ms(subquery.range),
                step_ms: subquery.step.map(ms),
                shift: shift(subquery.at.as_ref(), subquery.offset.as_ref())?,
            }))
        }
        Expr::Unary(unary) => {
            let inner = node(&unary.expr)?;
            match inner.kind() {
                Kind::Scalar | Kind::Vector => Node::Negate(Box::new(inner)),
                kind => {
                    return Err(Error::parse(format!(
                        "unary expression only allowed on expressions of type scalar or instant vector, got {kind}"
                    )));
                }
            }
        }
        Expr::Call(call) => self::call(call)?,
        Expr::Aggregate(aggregate) => self::aggregate(aggregate)?,
        Expr::Binary(binary) => self::binary(binary)?,
        Expr::Extension(_) => {
            return Err(Error::Unsupported {
                name: "an extension of the parser".to_owned(),
                reason: "no text makes one",
            });
        }
    })
}

fn typed(node: Node, expected: Kind, place: &str) -> Result<Node, Error> {
    let found = node.kind();
    if found == expected {
        Ok(node)
    } else {
        let message = format!("expected type {expected} in {place}, got {found}");
        Err(Error::parse(message))
    }
}

fn ms(duration: Duration) -> i64 {
    // The scan bounds durations.
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn shift(at: Option<&parser::AtModifier>, offset: Option<&parser::Offset>) -> Result<Shift, Error> {
    let at = match at {
        None => None,
        Some(parser::AtModifier::Start) => Some(At::Start),
        Some(parser::AtModifier::End) => Some(At::End),
        Some(parser::AtModifier::At(time)) => {
            let at_ms = match time.duration_since(std::time::UNIX_EPOCH) {
                Ok(after) => i64::try_from(after.as_millis()).ok(),
                Err(before) => i64::try_from(before.duration().as_millis())
                    .ok()
                    .map(|ms| -ms),
            };
            let at_ms =
                at_ms.ok_or_else(|| Error::parse("timestamp out of bounds for @ modifier"))?;
            Some(At::Time(at_ms))
        }
    };
    let offset_ms = match offset {
        None => 0,
        Some(parser::Offset::Pos(duration)) => ms(*duration),
        Some(parser::Offset::Neg(duration)) => -ms(*duration),
    };
    Ok(Shift { at, offset_ms })
}

fn selector(selector: &parser::VectorSelector) -> Result<Selector, Error> {
    let all = &selector.matchers;
    let mut alternatives = Vec::new();
    let written: Vec<&[label::Matcher]> = if all.or_matchers.is_empty() {
        vec![&all.matchers]
    } else {
        all.or_matchers.iter().map(Vec::as_slice).collect()
    };
    let mut absent = Vec::new();
    for list in written {
        let mut matchers = list.iter().map(matcher).collect::<Result<Vec<_>, _>>()?;
        if let Some(name) = &selector.name {
            let name = Matcher::new(NAME, Matches::Equal, name.as_str());
            matchers.push(name.expect("an equality has no pattern"));
        }
        if matchers.iter().all(|one| one.accepts("")) {
            return Err(Error::parse(
                "vector selector must contain at least one non-empty matcher",
            ));
        }
        absent = absent_labels(&matchers);
        alternatives.push(matchers);
    }
    if alternatives.len() > 1 {
        absent.clear();
    }
    Ok(Selector {
        alternatives,
        absent: Labels::new(absent).map_err(|error| Error::parse(error.to_string()))?,
        shift: shift(selector.at.as_ref(), selector.offset.as_ref())?,
    })
}

/// Returns the labels that conditions fix: a second condition on a label takes it out again, as in Prometheus.
fn absent_labels(matchers: &[Matcher]) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for matcher in matchers.iter().filter(|one| one.name() != NAME) {
        let is_first = !seen.contains(&matcher.name());
        if matcher.matches() == Matches::Equal && is_first {
            seen.push(matcher.name());
            labels.push((matcher.name().to_owned(), matcher.value().to_owned()));
        } else {
            labels.retain(|label| label.0 != matcher.name());
        }
    }
    labels
}

fn matcher(matcher: &label::Matcher) -> Result<Matcher, Error> {
    let matches = match matcher.op {
        label::MatchOp::Equal => Matches::Equal,
        label::MatchOp::NotEqual => Matches::NotEqual,
        label::MatchOp::Re(_) => Matches::Regex,
        label::MatchOp::NotRe(_) => Matches::NotRegex,
    };
    Matcher::new(matcher.name.as_str(), matches, matcher.value.as_str())
        .map_err(|error| Error::parse(error.to_string()))
}

fn call(call: &parser::Call) -> Result<Node, Error> {
    let name = call.func.name;
    let Some((id, function)) = functions::by_name(name) else {
        return Err(Error::Unsupported {
            name: format!("function {name}"),
            reason: "this evaluator has no definition of it",
        });
    };
    function.check_use()?;
    let mut args = Vec::with_capacity(call.args.args.len());
    for (index, arg) in call.args.args.iter().enumerate() {
        let place = format!("call to function {name:?}");
        args.push(typed(node(arg)?, function.arg(index), &place)?);
    }
    Ok(Node::Call(Call {
        function: id,
        returns: function.returns,
        is_timed: function.is_timed(),
        args,
    }))
}

fn aggregate(aggregate: &parser::AggregateExpr) -> Result<Node, Error> {
    let aggregator = match aggregate.op.id() {
        token::T_SUM => Aggregator::Sum,
        token::T_AVG => Aggregator::Avg,
        token::T_MIN => Aggregator::Min,
        token::T_MAX => Aggregator::Max,
        token::T_COUNT => Aggregator::Count,
        token::T_GROUP => Aggregator::Group,
        token::T_STDDEV => Aggregator::Stddev,
        token::T_STDVAR => Aggregator::Stdvar,
        token::T_TOPK => Aggregator::Topk,
        token::T_BOTTOMK => Aggregator::Bottomk,
        token::T_QUANTILE => Aggregator::Quantile,
        token::T_COUNT_VALUES => Aggregator::CountValues,
        token::T_LIMITK => Aggregator::Limitk,
        token::T_LIMIT_RATIO => Aggregator::LimitRatio,
        _ => {
            return Err(Error::Unsupported {
                name: format!("aggregation {}", aggregate.op),
                reason: "this evaluator has no definition of it",
            });
        }
    };
    let place = "aggregation expression";
    let param_kind = match aggregator {
        Aggregator::CountValues => Kind::Text,
        _ => Kind::Scalar,
    };
    let param = match &aggregate.param {
        Some(param) => Some(typed(node(param)?, param_kind, "aggregation parameter")?),
        None => None,
    };
    let grouping = match &aggregate.modifier {
        None => Grouping::default(),
        Some(modifier) => Grouping {
            names: modifier.labels().labels.clone(),
            is_without: !modifier.is_include(),
        },
    };
    Ok(Node::Aggregate(Box::new(Aggregate {
        aggregator,
        param,
        node: typed(node(&aggregate.expr)?, Kind::Vector, place)?,
        grouping,
    })))
}

fn operator(op: &token::TokenType) -> Result<Operator, Error> {
    Ok(match op.id() {
        token::T_ADD => Operator::Add,
        token::T_SUB => Operator::Sub,
        token::T_MUL => Operator::Mul,
        token::T_DIV => Operator::Div,
        token::T_MOD => Operator::Mod,
        token::T_POW => Operator::Pow,
        token::T_ATAN2 => Operator::Atan2,
        token::T_EQLC => Operator::Equal,
        token::T_NEQ => Operator::NotEqual,
        token::T_LSS => Operator::Less,
        token::T_LTE => Operator::LessEqual,
        token::T_GTR => Operator::Greater,
        token::T_GTE => Operator::GreaterEqual,
        token::T_LAND => Operator::And,
        token::T_LOR => Operator::Or,
        token::T_LUNLESS => Operator::Unless,
        _ => {
            return Err(Error::Unsupported {
                name: format!("operator {op}"),
                reason: "this evaluator has no definition of it",
            });
        }
    })
}

fn binary(binary: &parser::BinaryExpr) -> Result<Node, Error> {
    let operator = operator(&binary.op)?;
    let (left, right) = (node(&binary.lhs)?, node(&binary.rhs)?);
    for side in [&left, &right] {
        if !matches!(side.kind(), Kind::Scalar | Kind::Vector) {
            return Err(Error::parse(
                "binary expression must contain only scalar and instant vector types",
            ));
        }
    }
    let mut matching = Matching {
        cardinality: Cardinality::OneToOne,
        is_on: false,
        names: Vec::new(),
        include: Vec::new(),
        fill_left: None,
        fill_right: None,
    };
    if let Some(modifier) = &binary.modifier {
        use parser::VectorMatchCardinality as Written;
        matching.cardinality = match &modifier.card {
            Written::ManyToOne(_) => Cardinality::ManyToOne,
            Written::OneToMany(_) => Cardinality::OneToMany,
            Written::OneToOne | Written::ManyToMany => Cardinality::OneToOne,
        };
        if let Some(include) = modifier.card.labels() {
            matching.include.clone_from(&include.labels);
        }
        if let Some(labels) = &modifier.matching {
            matching.is_on = labels.is_include();
            matching.names.clone_from(&labels.labels().labels);
        }
        matching.fill_left = modifier.fill_values.lhs;
        matching.fill_right = modifier.fill_values.rhs;
    }
    if matching.fill_left.is_some() || matching.fill_right.is_some() {
        let are_vectors = left.kind() == Kind::Vector && right.kind() == Kind::Vector;
        if operator.is_set() || !are_vectors {
            return Err(Error::parse(
                "fill modifiers are only allowed between vectors, and not with set operators",
            ));
        }
    }
    Ok(Node::Binary(Box::new(Binary {
        operator,
        left,
        right,
        is_bool: binary.return_bool(),
        matching,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text, &Options::default()).unwrap_err().to_string()
    }

    #[test]
    fn errors_of_type_and_place_are_those_of_prometheus() {
        let cases = [
            (
                "rate(x)",
                "parse error: expected type range vector in call to function \"rate\", got instant vector",
            ),
            (
                "exp(NaN)",
                "parse error: expected type instant vector in call to function \"exp\", got scalar",
            ),
            (
                "nosuch(x)",
                "1:1: parse error: unknown function with name \"nosuch\"",
            ),
            (
                "x[5m",
                "parse error: unexpected end of input inside brackets",
            ),
            ("x[1e99]", "1:3: parse error: duration out of range"),
            (
                "{a=~\".*\"}",
                "parse error: vector selector must contain at least one non-empty matcher",
            ),
            (
                "1 > 2",
                "parse error: comparisons between scalars must use BOOL modifier",
            ),
            ("x + [5m]", "1:5: parse error: unexpected \"[5m]\""),
        ];
        for (text, expected) in cases {
            let found = error(text);
            // Types are worded by the parser where it checks them first.
            let words = ["instant ", "range "];
            let plain = |text: &str| {
                words
                    .iter()
                    .fold(text.to_owned(), |text, word| text.replace(word, ""))
            };
            assert_eq!(
                plain(&found).replace("matrix", "vector"),
                plain(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn limits_of_text_and_depth_come_before_the_parser() {
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        assert_eq!(
            error(&deep),
            "the expression is nested 501 levels deep, expected 400 at most"
        );
        let wide = vec!["1"; 401].join("+");
        assert_eq!(
            error(&wide),
            "the expression is nested 401 levels deep, expected 400 at most"
        );
        let long = " ".repeat(70_000);
        assert_eq!(
            error(&long),
            "the expression has 70000 bytes, expected 65536 at most"
        );
    }

    #[test]
    fn native_histograms_are_refused_by_name() {
        assert_eq!(
            error("histogram_count(x)"),
            "function histogram_count is not supported: native histograms are no part of this store"
        );
    }

    #[test]
    fn a_selector_alone_gives_its_matchers() {
        let options = Options::default();
        let found = matchers("up{job=~\"a|b\"}", &options).unwrap();
        assert_eq!(found.len(), 2);
        assert!(matchers("up offset 5m", &options).is_err());
        assert!(matchers("sum(up)", &options).is_err());
    }

    #[test]
    fn the_deepest_allowed_expression_fits_the_stack_of_a_thread() {
        let limit = Options::default().depth_max;
        let deep = format!(
            "{}1{}",
            "-(".repeat(limit / 2 - 1),
            ")".repeat(limit / 2 - 1)
        );
        assert!(parse(&deep, &Options::default()).is_ok());
    }
}
