//! Expressions as the evaluator takes them: matchers compiled, functions resolved, times in ms.

use sheaf_samples::{Labels, Matcher};
use std::fmt;

/// Type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Scalar,
    Vector,
    Matrix,
    Text,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
            Self::Text => "string",
        })
    }
}

/// Times at which an expression is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) first_ms: i64,
    /// At least 1.
    pub(crate) step_ms: i64,
    /// At least 1.
    pub(crate) count: usize,
}

impl Steps {
    pub(crate) fn once(at_ms: i64) -> Self {
        Self {
            first_ms: at_ms,
            step_ms: 1,
            count: 1,
        }
    }

    pub(crate) fn time(&self, index: usize) -> i64 {
        // An index is below `count`, whose last time was checked to be one.
        self.first_ms
            .saturating_add(self.step_ms.saturating_mul(index as i64))
    }

    pub(crate) fn last_ms(&self) -> i64 {
        self.time(self.count - 1)
    }

    pub(crate) fn times(&self) -> impl Iterator<Item = i64> {
        let steps = *self;
        (0..steps.count).map(move |index| steps.time(index))
    }
}

/// Times of a query, which subqueries do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) start_ms: i64,
    /// End as asked for, which need not be a step.
    pub(crate) end_ms: i64,
    /// 0 of an instant query.
    pub(crate) step_ms: i64,
}

/// Time of a modifier `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Start,
    End,
    Time(i64),
}

/// Modifiers `@` and `offset` of a selector or subquery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shift {
    pub(crate) at: Option<At>,
    pub(crate) offset_ms: i64,
}

impl Shift {
    /// Returns the time that is meant at the step `at_ms` of the query `whole`.
    pub(crate) fn apply(&self, at_ms: i64, whole: &Whole) -> i64 {
        let at_ms = match self.at {
            None => at_ms,
            Some(At::Start) => whole.start_ms,
            Some(At::End) => whole.end_ms,
            Some(At::Time(fixed_ms)) => fixed_ms,
        };
        at_ms.saturating_sub(self.offset_ms)
    }

    /// Returns the times meant at `steps`: one time if `@` fixes it.
    pub(crate) fn steps(&self, steps: &Steps, whole: &Whole) -> Steps {
        Steps {
            first_ms: self.apply(steps.first_ms, whole),
            step_ms: steps.step_ms,
            count: if self.at.is_some() { 1 } else { steps.count },
        }
    }
}

#[derive(Debug)]
pub(crate) struct Selector {
    /// Series are selected that satisfy all conditions of one alternative; there is one but for `{a="1" or b="2"}`.
    pub(crate) alternatives: Vec<Vec<Matcher>>,
    /// Labels that `absent` gives to its element.
    pub(crate) absent: Labels,
    pub(crate) shift: Shift,
}

#[derive(Debug)]
pub(crate) struct Subquery {
    pub(crate) node: Node,
    pub(crate) range_ms: i64,
    pub(crate) step_ms: Option<i64>,
    pub(crate) shift: Shift,
}

/// Row of the table of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionId(pub(crate) usize);

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: FunctionId,
    pub(crate) returns: Kind,
    /// Whether the value depends on the time of the step even if `@` fixes all arguments.
    pub(crate) is_timed: bool,
    pub(crate) args: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregator {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    Quantile,
    CountValues,
    Limitk,
    LimitRatio,
}

/// Modifier `by` or `without`; `by ()` if there is none.
#[derive(Debug, Default)]
pub(crate) struct Grouping {
    pub(crate) names: Vec<String>,
    pub(crate) is_without: bool,
}

#[derive(Debug)]
pub(crate) struct Aggregate {
    pub(crate) aggregator: Aggregator,
    pub(crate) param: Option<Node>,
    pub(crate) node: Node,
    pub(crate) grouping: Grouping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Unless,
}

impl Operator {
    pub(crate) fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }

    /// Returns whether the result has no name; without `bool` a comparison is a filter.
    pub(crate) fn drops_name(self, is_bool: bool) -> bool {
        // Prometheus forgot `atan2`.
        if self.is_comparison() {
            is_bool
        } else {
            self != Self::Atan2
        }
    }

    pub(crate) fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal
                | Self::NotEqual
                | Self::Less
                | Self::LessEqual
                | Self::Greater
                | Self::GreaterEqual
        )
    }
}

/// How many elements of one side may match one of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cardinality {
    OneToOne,
    ManyToOne,
    OneToMany,
}

/// How elements of two vectors find each other.
#[derive(Debug)]
pub(crate) struct Matching {
    pub(crate) cardinality: Cardinality,
    /// `on`, else `ignoring`.
    pub(crate) is_on: bool,
    pub(crate) names: Vec<String>,
    /// Labels taken from the "one" side.
    pub(crate) include: Vec<String>,
    pub(crate) fill_left: Option<f64>,
    pub(crate) fill_right: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) left: Node,
    pub(crate) right: Node,
    pub(crate) is_bool: bool,
    pub(crate) matching: Matching,
}

#[derive(Debug)]
pub(crate) enum Node {
    Number(f64),
    Text(String),
    Vector(Selector),
    Matrix(Selector, i64),
    Subquery(Box<Subquery>),
    Call(Call),
    Aggregate(Box<Aggregate>),
    Binary(Box<Binary>),
    Negate(Box<Node>),
}

impl Node {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Number(_) => Kind::Scalar,
            Self::Text(_) => Kind::Text,
            Self::Vector(_) | Self::Aggregate(_) => Kind::Vector,
            Self::Matrix(..) | Self::Subquery(_) => Kind::Matrix,
            Self::Call(call) => call.returns,
            Self::Negate(node) => node.kind(),
            Self::Binary(binary) => match (binary.left.kind(), binary.right.kind()) {
                (Kind::Scalar, Kind::Scalar) => Kind::Scalar,
                _ => Kind::Vector,
            },
        }
    }

    /// Returns whether every step of a query has the same value, because `@` fixes all times in it.
    pub(crate) fn is_fixed(&self) -> bool {
        match self {
            Self::Number(_) | Self::Text(_) => true,
            Self::Vector(selector) | Self::Matrix(selector, _) => selector.shift.at.is_some(),
            Self::Subquery(subquery) => subquery.shift.at.is_some(),
            Self::Call(call) => !call.is_timed && call.args.iter().all(Self::is_fixed),
            Self::Aggregate(aggregate) => {
                aggregate.node.is_fixed() && aggregate.param.as_ref().is_none_or(Self::is_fixed)
            }
            Self::Binary(binary) => binary.left.is_fixed() && binary.right.is_fixed(),
            Self::Negate(node) => node.is_fixed(),
        }
    }
}
