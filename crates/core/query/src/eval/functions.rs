//! Table of all functions: one row each with name, types of arguments and implementation.
//!
//! The implementations stand beside this file, by family. What the parser knows and no row has, is refused by name.

mod calendar;
mod histogram;
mod labels;
mod math;
mod order;
mod over_time;
mod rate;
mod vectors;

pub(crate) use labels::is_label;
pub(crate) use over_time::quantile;

use crate::error::Error;
use crate::eval::{Evaluator, Out};
use crate::plan::{Call, FunctionId, Kind, Steps};
use crate::window::{Summary, Window};
use Kind::{Matrix, Scalar, Text, Vector};
use Run::{Custom, Fold, Map, MapWith, NamedWindow, Refused, Scalars};

/// How a function is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// Of each value by itself, without name.
    Map(fn(f64) -> f64),
    /// Of each value and the scalar arguments of its step, without name.
    MapWith(fn(f64, &[f64]) -> Option<f64>),
    /// Of each window of a series, without name.
    Window(fn(&Window<'_>) -> Option<f64>),
    /// Of each window of a series, whose name stays.
    NamedWindow(fn(&Window<'_>) -> Option<f64>),
    /// Of each window, and exactly of the buckets in it.
    Fold {
        samples: fn(&Window<'_>) -> Option<f64>,
        buckets: fn(&Summary) -> f64,
        keeps_name: bool,
    },
    /// A scalar of scalars.
    Scalars(fn(&[f64]) -> f64),
    /// In another way.
    Custom(fn(&mut Evaluator<'_>, &Call, &Steps) -> Result<Out, Error>),
    /// Not at all, for this reason.
    Refused(&'static str),
}

/// One function of the language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [Kind],
    /// 0: exactly `args`; n: the last one up to n times or left out; negative: the last one any number of times.
    /// The parser checks it; here for the reference and the test.
    pub(crate) variadic: i32,
    pub(crate) returns: Kind,
    pub(crate) run: Run,
    /// Whether Prometheus 2.42 has it.
    pub(crate) is_old: bool,
}

impl Function {
    /// Type of the argument `index`.
    pub(crate) fn arg(&self, index: usize) -> Kind {
        let last = self.args.len().saturating_sub(1);
        self.args.get(index.min(last)).copied().unwrap_or(Scalar)
    }

    /// # Errors
    ///
    /// [`Error::Unsupported`] if the function is known and refused.
    pub(crate) fn check_use(&self) -> Result<(), Error> {
        match self.run {
            Refused(reason) => Err(Error::Unsupported {
                name: format!("function {}", self.name),
                reason,
            }),
            _ => Ok(()),
        }
    }

    /// Returns whether the value depends on the time of the step even if `@` fixes all arguments.
    pub(crate) fn is_timed(&self) -> bool {
        matches!(self.name, "time" | "timestamp" | "predict_linear")
            || calendar::NAMES.contains(&self.name)
    }
}

/// Returns the function called `name`, and its place in the table.
pub(crate) fn by_name(name: &str) -> Option<(FunctionId, &'static Function)> {
    let at = TABLE.binary_search_by(|row| row.name.cmp(name)).ok()?;
    Some((FunctionId(at), &TABLE[at]))
}

const NATIVE: &str = "native histograms are no part of this store";
const EXPERIMENT: &str = "its definition in Prometheus is an experiment that may change";

const fn row(
    name: &'static str,
    args: &'static [Kind],
    variadic: i32,
    returns: Kind,
    run: Run,
) -> Function {
    Function {
        name,
        args,
        variadic,
        returns,
        run,
        is_old: true,
    }
}

/// A function of one vector.
const fn map(name: &'static str, run: fn(f64) -> f64) -> Function {
    row(name, &[Vector], 0, Vector, Map(run))
}

/// A function of one window.
const fn window(name: &'static str, run: fn(&Window<'_>) -> Option<f64>) -> Function {
    row(name, &[Matrix], 0, Vector, Run::Window(run))
}

/// A function of one window that buckets answer as well.
const fn fold(
    name: &'static str,
    samples: fn(&Window<'_>) -> Option<f64>,
    buckets: fn(&Summary) -> f64,
    keeps_name: bool,
) -> Function {
    let run = Fold {
        samples,
        buckets,
        keeps_name,
    };
    row(name, &[Matrix], 0, Vector, run)
}

/// A function of Prometheus after 2.42.
const fn later(function: Function) -> Function {
    Function {
        is_old: false,
        ..function
    }
}

/// A function of the calendar: of a vector of times, or of the time of the step.
const fn date(
    name: &'static str,
    run: fn(&mut Evaluator<'_>, &Call, &Steps) -> Result<Out, Error>,
) -> Function {
    row(name, &[Vector], 1, Vector, Custom(run))
}

/// All functions, sorted by name.
pub(crate) const TABLE: &[Function] = &[
    map("abs", f64::abs),
    row("absent", &[Vector], 0, Vector, Custom(vectors::absent)),
    row(
        "absent_over_time",
        &[Matrix],
        0,
        Vector,
        Custom(vectors::absent_over_time),
    ),
    map("acos", f64::acos),
    map("acosh", math::acosh),
    map("asin", f64::asin),
    map("asinh", math::asinh),
    map("atan", f64::atan),
    map("atanh", f64::atanh),
    fold("avg_over_time", over_time::avg, over_time::avg_of, false),
    map("ceil", f64::ceil),
    window("changes", over_time::changes),
    row(
        "clamp",
        &[Vector, Scalar, Scalar],
        0,
        Vector,
        MapWith(math::clamp),
    ),
    row(
        "clamp_max",
        &[Vector, Scalar],
        0,
        Vector,
        MapWith(math::clamp_max),
    ),
    row(
        "clamp_min",
        &[Vector, Scalar],
        0,
        Vector,
        MapWith(math::clamp_min),
    ),
    map("cos", f64::cos),
    map("cosh", f64::cosh),
    fold(
        "count_over_time",
        over_time::count,
        over_time::count_of,
        false,
    ),
    date("day_of_month", calendar::day_of_month),
    date("day_of_week", calendar::day_of_week),
    date("day_of_year", calendar::day_of_year),
    date("days_in_month", calendar::days_in_month),
    map("deg", math::deg),
    window("delta", rate::delta),
    window("deriv", rate::deriv),
    later(row(
        "double_exponential_smoothing",
        &[Matrix, Scalar, Scalar],
        0,
        Vector,
        Custom(rate::double_exponential_smoothing),
    )),
    later(row("end", &[], 0, Scalar, Custom(vectors::end))),
    map("exp", f64::exp),
    later(row(
        "first_over_time",
        &[Matrix],
        0,
        Vector,
        NamedWindow(over_time::first),
    )),
    map("floor", f64::floor),
    later(row("histogram_avg", &[Vector], 0, Vector, Refused(NATIVE))),
    row("histogram_count", &[Vector], 0, Vector, Refused(NATIVE)),
    row(
        "histogram_fraction",
        &[Scalar, Scalar, Vector],
        0,
        Vector,
        Refused(NATIVE),
    ),
    row(
        "histogram_quantile",
        &[Scalar, Vector],
        0,
        Vector,
        Custom(histogram::quantile),
    ),
    later(row(
        "histogram_quantiles",
        &[Vector, Text, Scalar, Scalar],
        9,
        Vector,
        Custom(histogram::quantiles),
    )),
    later(row(
        "histogram_stddev",
        &[Vector],
        0,
        Vector,
        Refused(NATIVE),
    )),
    later(row(
        "histogram_stdvar",
        &[Vector],
        0,
        Vector,
        Refused(NATIVE),
    )),
    row("histogram_sum", &[Vector], 0, Vector, Refused(NATIVE)),
    row(
        "holt_winters",
        &[Matrix, Scalar, Scalar],
        0,
        Vector,
        Custom(rate::double_exponential_smoothing),
    ),
    date("hour", calendar::hour),
    window("idelta", rate::idelta),
    window("increase", rate::increase),
    later(row(
        "info",
        &[Vector, Vector],
        1,
        Vector,
        Refused(EXPERIMENT),
    )),
    later(row(
        "integral",
        &[Matrix, Scalar],
        1,
        Vector,
        Refused(EXPERIMENT),
    )),
    window("irate", rate::irate),
    row(
        "label_join",
        &[Vector, Text, Text, Text],
        -1,
        Vector,
        Custom(labels::join),
    ),
    row(
        "label_replace",
        &[Vector, Text, Text, Text, Text],
        0,
        Vector,
        Custom(labels::replace),
    ),
    fold("last_over_time", over_time::last, over_time::last_of, true),
    map("ln", f64::ln),
    map("log10", f64::log10),
    map("log2", f64::log2),
    later(window("mad_over_time", over_time::mad)),
    later(row(
        "max_of",
        &[Scalar, Scalar],
        0,
        Scalar,
        Scalars(math::max_of),
    )),
    fold("max_over_time", over_time::max, over_time::max_of, false),
    later(row(
        "min_of",
        &[Scalar, Scalar],
        0,
        Scalar,
        Scalars(math::min_of),
    )),
    fold("min_over_time", over_time::min, over_time::min_of, false),
    date("minute", calendar::minute),
    date("month", calendar::month),
    row("pi", &[], 0, Scalar, Scalars(math::pi)),
    row(
        "predict_linear",
        &[Matrix, Scalar],
        0,
        Vector,
        Run::Window(rate::predict_linear),
    ),
    fold(
        "present_over_time",
        over_time::present,
        over_time::present_of,
        false,
    ),
    row(
        "quantile_over_time",
        &[Scalar, Matrix],
        0,
        Vector,
        Run::Window(over_time::quantile_over_time),
    ),
    map("rad", math::rad),
    later(row("range", &[], 0, Scalar, Custom(vectors::range))),
    window("rate", rate::rate),
    window("resets", over_time::resets),
    row("round", &[Vector, Scalar], 1, Vector, MapWith(math::round)),
    row("scalar", &[Vector], 0, Scalar, Custom(vectors::scalar)),
    map("sgn", math::sgn),
    map("sin", f64::sin),
    map("sinh", f64::sinh),
    row("sort", &[Vector], 0, Vector, Custom(order::sort)),
    later(row(
        "sort_by_label",
        &[Vector, Text],
        -1,
        Vector,
        Custom(order::sort_by_label),
    )),
    later(row(
        "sort_by_label_desc",
        &[Vector, Text],
        -1,
        Vector,
        Custom(order::sort_by_label_desc),
    )),
    row("sort_desc", &[Vector], 0, Vector, Custom(order::sort_desc)),
    map("sqrt", f64::sqrt),
    later(row("start", &[], 0, Scalar, Custom(vectors::start))),
    later(row(
        "start_timestamp",
        &[Vector],
        0,
        Vector,
        Refused("samples of this store have no start time"),
    )),
    window("stddev_over_time", over_time::stddev),
    window("stdvar_over_time", over_time::stdvar),
    later(row("step", &[], 0, Scalar, Custom(vectors::step))),
    fold("sum_over_time", over_time::sum, over_time::sum_of, false),
    map("tan", f64::tan),
    map("tanh", f64::tanh),
    row("time", &[], 0, Scalar, Custom(vectors::time)),
    row(
        "timestamp",
        &[Vector],
        0,
        Vector,
        Custom(vectors::timestamp),
    ),
    later(window("ts_of_first_over_time", over_time::ts_of_first)),
    later(window("ts_of_last_over_time", over_time::ts_of_last)),
    later(window("ts_of_max_over_time", over_time::ts_of_max)),
    later(window("ts_of_min_over_time", over_time::ts_of_min)),
    row("vector", &[Scalar], 0, Vector, Custom(vectors::vector)),
    date("year", calendar::year),
];

/// Rows of the reference page: name, type of the result, and how it is served.
#[must_use]
pub fn reference() -> Vec<(String, &'static str)> {
    let rows = TABLE.iter().map(|function| {
        let args: Vec<String> = function.args.iter().map(Kind::to_string).collect();
        let more = match function.variadic {
            0 => "",
            1 => ", the last may be left out",
            _ => ", the last may be repeated or left out",
        };
        let call = format!("{}({}{more})", function.name, args.join(", "));
        let state = match (function.run, function.is_old) {
            (Refused(reason), _) => reason,
            (_, true) => "as Prometheus 2.42",
            (_, false) => "as later versions of Prometheus",
        };
        (call, state)
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use promql_parser::parser::value::ValueType;
    use promql_parser::parser::{self, Expr};

    #[test]
    fn the_table_is_sorted_and_has_each_name_once() {
        assert!(TABLE.is_sorted_by(|left, right| left.name < right.name));
    }

    #[test]
    fn types_and_counts_of_arguments_are_those_of_the_parser() {
        crate::Query::parse("1", &crate::Options::default()).expect("registers the old names");
        for function in TABLE {
            let args: Vec<&str> = function
                .args
                .iter()
                .map(|kind| match kind {
                    Scalar => "1",
                    Vector => "x",
                    Matrix => "x[5m]",
                    Text => "\"a\"",
                })
                .collect();
            let text = format!("{}({})", function.name, args.join(","));
            let Ok(Expr::Call(call)) = parser::parse(&text) else {
                panic!("{text} does not parse")
            };
            let kind = |value: ValueType| match value {
                ValueType::Scalar => Scalar,
                ValueType::Vector => Vector,
                ValueType::Matrix => Matrix,
                ValueType::String => Text,
            };
            let found: Vec<Kind> = call.func.arg_types.iter().copied().map(kind).collect();
            assert_eq!(found, function.args, "{text}");
            assert_eq!(call.func.variadic, function.variadic, "{text}");
            assert_eq!(kind(call.func.return_type), function.returns, "{text}");
        }
    }
}
