//! Tests of whole queries that need no Prometheus: limits, buckets, what later versions of the language have.

use crate::{
    Data, Error, Memory, Options, Query, Range, Selection, Series, Source, SourceError, Value,
};
use proptest::prelude::*;
use sheaf_samples::{Labels, Matcher, Sample};
use std::sync::Arc;

fn labels(pairs: &[(&str, &str)]) -> Arc<Labels> {
    Arc::new(Labels::new(pairs.iter().copied()).unwrap())
}

/// Returns two counters `x` and one `y`, a value every 10 s from 0 to 600 s.
fn memory() -> Memory {
    let mut memory = Memory::new();
    for (name, job, factor) in [("x", "a", 1.0), ("x", "b", 2.0), ("y", "a", 10.0)] {
        let labels = labels(&[("__name__", name), ("job", job)]);
        for second in (0..=600).step_by(10) {
            let value = f64::from(second) * factor;
            let at_ms = i64::from(second) * 1000;
            memory.insert(&labels, Sample { at_ms, value });
        }
    }
    memory
}

fn run(text: &str, options: &Options) -> Result<Value, Error> {
    let answer = Query::parse(text, options)?.instant(&memory(), 300_000, options)?;
    Ok(answer.value)
}

/// Checks the value of `text` at 300 s: `labels value` of each element.
fn check(text: &str, expected: &[&str]) {
    let found: Vec<String> = match run(text, &Options::default()).unwrap() {
        Value::Scalar(sample) => vec![sample.value.to_string()],
        Value::Vector(points) => points
            .iter()
            .map(|point| format!("{} {}", point.labels, point.sample.value))
            .collect(),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(found, expected, "{text}");
}

#[test]
fn later_functions_have_their_values() {
    check(
        "first_over_time(x[1m])",
        &[r#"x{job="a"} 240"#, r#"x{job="b"} 480"#],
    );
    check("ts_of_max_over_time(y[1m])", &[r#"{job="a"} 300"#]);
    check("ts_of_min_over_time(y[1m])", &[r#"{job="a"} 240"#]);
    check("ts_of_first_over_time(y[1m])", &[r#"{job="a"} 240"#]);
    check(
        "ts_of_last_over_time(y[1m] offset 5s)",
        &[r#"{job="a"} 290"#],
    );
    check("mad_over_time(y[1m])", &[r#"{job="a"} 200"#]);
    check("max_of(1, time()) + min_of(1, 2)", &["301"]);
    check("start() + end() + range() + step()", &["600"]);
    check(
        "sort_by_label_desc(x, \"job\")",
        &[r#"x{job="b"} 600"#, r#"x{job="a"} 300"#],
    );
    check(
        "sort_by_label({__name__=~\"x|y\"}, \"job\")",
        &[
            r#"x{job="a"} 300"#,
            r#"y{job="a"} 3000"#,
            r#"x{job="b"} 600"#,
        ],
    );
    check(
        "double_exponential_smoothing(y[1m], 0.5, 0.5) - holt_winters(y[1m], 0.5, 0.5)",
        &[r#"{job="a"} 0"#],
    );
    check("limitk(1, x)", &[r#"x{job="a"} 300"#]);
    check("limit_ratio(1, x) unless limit_ratio(-1, x)", &[]);
    check(
        "count(limit_ratio(0.3, x) or limit_ratio(-0.7, x))",
        &["{} 2"],
    );
    check("{job=\"b\" or job=\"c\"}", &[r#"x{job="b"} 600"#]);
    check("{\"y\"}", &[r#"y{job="a"} 3000"#]);
    check("y offset 60", &[r#"y{job="a"} 2400"#]);
}

#[test]
fn several_quantiles_have_a_label_each() {
    let options = Options::default();
    let mut memory = Memory::new();
    for (bound, value) in [("1", 5.0), ("2", 10.0), ("+Inf", 10.0)] {
        let labels = labels(&[("__name__", "h"), ("le", bound)]);
        memory.insert(&labels, Sample { at_ms: 0, value });
    }
    let query = Query::parse("histogram_quantiles(h, \"q\", 0.5, 0.9)", &options).unwrap();
    let Value::Vector(points) = query.instant(&memory, 0, &options).unwrap().value else {
        panic!("a vector")
    };
    let found: Vec<_> = points
        .iter()
        .map(|point| (point.labels.to_string(), point.sample.value))
        .collect();
    assert_eq!(
        found,
        [
            ("{q=\"0.5\"}".to_owned(), 1.0),
            ("{q=\"0.9\"}".to_owned(), 1.8)
        ]
    );
}

#[test]
fn a_fill_value_stands_for_what_has_no_match() {
    check(
        "x - fill (0) y",
        &[r#"{job="a"} -2700"#, r#"{job="b"} 600"#],
    );
    check("x - y", &[r#"{job="a"} -2700"#]);
    check(
        "y - fill_left (1) x",
        &[r#"{job="a"} 2700"#, r#"{job="b"} -599"#],
    );
    check("y - fill_right (1) x", &[r#"{job="a"} 2700"#]);
    check(
        "x + on (job) group_left fill (5) y",
        &[r#"{job="a"} 3300"#, r#"{job="b"} 605"#],
    );
    check("nosuch + fill (1) y", &[r#"{job="a"} 3001"#]);
}

#[test]
fn warnings_name_what_the_value_hides() {
    let options = Options::default();
    let warnings = |text: &str| {
        let query = Query::parse(text, &options).unwrap();
        query
            .instant(&memory(), 300_000, &options)
            .unwrap()
            .warnings
    };
    assert_eq!(
        warnings("quantile(1.5, x)"),
        ["quantile value should be between 0 and 1, got 1.5"]
    );
    assert_eq!(
        warnings("histogram_quantile(0.5, x)"),
        ["bucket label \"le\" is missing or has a malformed value of \"\" for metric \"x\""]
    );
    assert!(warnings("quantile(0.5, x)").is_empty());
}

#[test]
fn each_limit_has_its_error() {
    let options = Options::default();
    let of = |options: Options, text: &str| run(text, &options).unwrap_err();
    let samples_max = 10;
    let few = Options {
        samples_max,
        ..options
    };
    assert_eq!(of(few, "rate(x[5m])"), Error::TooManySamples { limit: 10 });
    assert_eq!(
        of(few, "count_over_time(vector(1)[100y:1ms])"),
        Error::TooManySamples { limit: 10 }
    );
    let visits_max = 100;
    let few = Options {
        visits_max,
        ..options
    };
    assert_eq!(
        of(few, "rate(x[5m]) + rate(x[4m])"),
        Error::TooManyVisits { limit: 100 }
    );
    let few = Options {
        series_max: 1,
        ..options
    };
    assert_eq!(of(few, "x"), Error::TooManySeries { found: 2, limit: 1 });
    assert!(run("sum(x)", &few).is_ok());
    let query = Query::parse("x", &options).unwrap();
    let range = |from_ms: i64, to_ms: i64, step_ms: i64| {
        let range = Range {
            from_ms,
            to_ms,
            step_ms,
        };
        query.range(&memory(), range, &options)
    };
    assert!(range(0, 10_999, 1).is_ok());
    let error = range(0, 11_000, 1).unwrap_err();
    assert_eq!(
        error,
        Error::TooManySteps {
            found: 11_001,
            limit: 11_000
        }
    );
    let error = range(i64::MIN, i64::MAX, 1).unwrap_err();
    assert!(matches!(error, Error::TooManySteps { .. }));
    assert!(matches!(range(0, 10, 0), Err(Error::Range(_))));
    assert!(matches!(range(10, 0, 1), Err(Error::Range(_))));
}

#[test]
fn a_matrix_or_a_string_has_no_range() {
    let options = Options::default();
    let range = Range {
        from_ms: 0,
        to_ms: 10,
        step_ms: 1,
    };
    for text in ["x[5m]", "\"a\"", "x[5m:1m]"] {
        let query = Query::parse(text, &options).unwrap();
        let error = query.range(&memory(), range, &options).unwrap_err();
        assert_eq!(error.kind(), "bad_data", "{text}");
    }
}

#[test]
fn the_deepest_expression_is_evaluated_on_a_small_stack() {
    let options = Options::default();
    let wide = vec!["x"; options.depth_max].join(" + ");
    assert!(run(&wide, &options).is_ok());
    let depth = options.depth_max - 2;
    let deep = format!("{}x{}", "abs(".repeat(depth), ")".repeat(depth));
    assert!(run(&deep, &options).is_ok());
    let deep = format!("{}x{}", "sum(".repeat(depth), ")".repeat(depth));
    assert!(run(&deep, &options).is_ok());
}

/// A store that answers wrongly.
struct Broken(fn() -> Result<Vec<Series>, SourceError>);

impl Source for Broken {
    fn select(&self, _: &Selection<'_>) -> Result<Vec<Series>, SourceError> {
        (self.0)()
    }
    fn label_names(&self, _: &[Matcher], _: i64, _: i64) -> Result<Vec<String>, SourceError> {
        Ok(Vec::new())
    }
    fn label_values(
        &self,
        _: &str,
        _: &[Matcher],
        _: i64,
        _: i64,
    ) -> Result<Vec<String>, SourceError> {
        Ok(Vec::new())
    }
    fn series(&self, _: &[Matcher], _: i64, _: i64) -> Result<Vec<Arc<Labels>>, SourceError> {
        Ok(Vec::new())
    }
}

#[test]
fn errors_of_the_store_and_inexact_buckets_are_errors() {
    let options = Options::default();
    let error = |select, text: &str| {
        let query = Query::parse(text, &options).unwrap();
        query
            .instant(&Broken(select), 60_000, &options)
            .unwrap_err()
    };
    let failed = error(|| Err(SourceError::Failed("disk".into())), "x");
    assert_eq!(
        (failed.kind(), failed.to_string().as_str()),
        ("internal", "the store failed: disk")
    );
    let many = error(|| Err(SourceError::TooMany { found: 3, limit: 2 }), "x");
    assert_eq!(many.kind(), "execution");
    let buckets = || {
        let data = Data::Buckets {
            level_ms: 7,
            buckets: vec![sheaf_samples::Bucket::of(
                0,
                Sample {
                    at_ms: 0,
                    value: 1.0,
                },
            )],
        };
        Ok(vec![Series {
            labels: Arc::default(),
            data,
        }])
    };
    for text in ["x", "rate(x[1m])", "sum_over_time(x[1m])"] {
        assert_eq!(error(buckets, text).kind(), "internal", "{text}");
    }
}

/// A pair of stores with the same samples: one answers with samples, one with buckets.
fn both(samples: &[(i64, f64)], level_ms: i64) -> (Memory, Memory) {
    let (mut plain, mut buckets) = (Memory::new(), Memory::with_buckets(level_ms));
    let labels = labels(&[("__name__", "x")]);
    for &(at_ms, value) in samples {
        plain.insert(&labels, Sample { at_ms, value });
        buckets.insert(&labels, Sample { at_ms, value });
    }
    (plain, buckets)
}

proptest! {
    #[test]
    fn buckets_give_the_same_as_samples(
        samples in proptest::collection::vec((0_i64..200, -50_i32..50), 0..80),
        scale in 1_i64..4,
        window in 1_i64..12,
        from in 0_i64..20,
        step in 1_i64..8,
        offset in 0_i64..5,
    ) {
        // Whole numbers, so that sums are exact in any order.
        let level_ms = 10 * scale;
        let samples: Vec<_> = samples.into_iter().map(|(at, value)| (at * 5, f64::from(value))).collect();
        let (plain, buckets) = both(&samples, level_ms);
        let options = Options::default();
        let range = Range { from_ms: from * level_ms, to_ms: from * level_ms + 700, step_ms: step * level_ms };
        for function in ["sum", "count", "avg", "min", "max", "last", "present"] {
            let text = format!("{function}_over_time(x[{}ms] offset {}ms)", window * level_ms, (offset * level_ms).max(1));
            let query = Query::parse(&text, &options).unwrap();
            let of = |memory: &Memory| query.range(memory, range, &options).unwrap().value;
            let (left, right) = (of(&plain), of(&buckets));
            let (Value::Matrix(left), Value::Matrix(right)) = (&left, &right) else { panic!("two matrices") };
            prop_assert_eq!(left.len(), right.len(), "{}", text);
            for (left, right) in left.iter().zip(right) {
                prop_assert_eq!(left.samples.len(), right.samples.len(), "{}", &text);
                for (left, right) in left.samples.iter().zip(&right.samples) {
                    prop_assert_eq!(left.at_ms, right.at_ms);
                    let distance = (left.value - right.value).abs();
                    prop_assert!(distance <= 1e-12 * left.value.abs().max(1.0), "{}: {} {}", text, left.value, right.value);
                }
            }
        }
    }

    #[test]
    fn no_text_panics(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..24),
        at_ms in proptest::sample::select(&[i64::MIN, -1, 0, 300_000, i64::MAX][..]),
    ) {
        let text = words.join(" ");
        let options = Options { samples_max: 100_000, visits_max: 1_000_000, ..Options::default() };
        if let Ok(query) = Query::parse(&text, &options) {
            let memory = memory();
            let _ = query.instant(&memory, at_ms, &options);
            let range = Range { from_ms: at_ms, to_ms: at_ms.saturating_add(100_000), step_ms: 7_000 };
            let _ = query.range(&memory, range, &options);
        }
    }

    #[test]
    fn no_characters_panic(text in "[-a-z0-9 ()\\[\\]{}<>=!~+*/%^@:,.\"'`\\\\#\n\u{e9}]{0,40}") {
        let _ = Query::parse(&text, &Options::default());
    }
}

/// Words that make valid expressions often enough.
const WORDS: &[&str] = &[
    "x",
    "y",
    "x",
    "{job=\"a\"}",
    "(",
    ")",
    "(",
    ")",
    "[5m]",
    "[1h:1m]",
    "[5m:]",
    "[100y:1ms]",
    "[1e99]",
    "[0]",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "==",
    ">",
    "bool",
    "and",
    "or",
    "unless",
    "atan2",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "(job)",
    "()",
    "by (job)",
    "without (job)",
    "sum",
    "topk",
    "quantile",
    "count_values",
    "stddev",
    "rate",
    "avg_over_time",
    "histogram_quantile",
    "absent",
    "label_replace",
    "predict_linear",
    "day_of_month",
    "abs",
    "timestamp",
    "time()",
    "offset",
    "5m",
    "-5m",
    "300y",
    "1e300",
    "@",
    "start()",
    "end()",
    "1e18",
    "-1e17",
    "1",
    "0",
    "-1",
    "NaN",
    "Inf",
    "0.5",
    ",",
    ",",
    "\"a\"",
    "'b'",
    "#",
    "fill(0)",
    "0x",
    "1h2",
    "99999999999s",
];
