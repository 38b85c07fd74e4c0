//! Seeded random expressions.

use crate::data::Random;

const SELECTORS: [&str; 16] = [
    "requests_total",
    "requests_total{job=\"api\"}",
    "requests_total{instance!=\"1\",group=~\"prod|x\"}",
    "temperature",
    "temperature{host=~\"a|b\"}",
    "memory_bytes{kind=\"used\"}",
    "balance",
    "wild",
    "ending",
    "sparse",
    "uneven",
    "flat",
    "up",
    "limit",
    "special{kind!~\"huge|least|tiny\"}",
    "nosuch",
];

fn modifiers(random: &mut Random) -> &'static str {
    random.pick(&[
        "",
        "",
        "",
        "",
        " offset 5m",
        " offset -90s",
        " @ 1600001000",
        " @ end()",
        " @ start() offset 1m",
    ])
}

/// Returns an expression of the type instant vector, without functions that jump: the last digit of a sum would decide.
pub(crate) fn vector(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return format!("{}{}", random.pick(&SELECTORS), modifiers(random));
    }
    let deeper = depth - 1;
    match random.below(12) {
        0 => format!("{}{}", random.pick(&SELECTORS), modifiers(random)),
        1 => {
            let function = random.pick(&["abs", "sgn", "sqrt", "exp", "ln", "deg", "absent"]);
            format!("{function}({})", vector(random, deeper))
        }
        2 | 3 => {
            let function = random.pick(&[
                "rate",
                "increase",
                "delta",
                "irate",
                "idelta",
                "deriv",
                "changes",
                "resets",
                "avg_over_time",
                "min_over_time",
                "max_over_time",
                "sum_over_time",
                "count_over_time",
                "last_over_time",
                "present_over_time",
                "stdvar_over_time",
                "absent_over_time",
            ]);
            format!("{function}({})", matrix(random, deeper))
        }
        4 => format!(
            "quantile_over_time({}, {})",
            constant(random),
            matrix(random, deeper)
        ),
        5 | 6 => {
            let aggregation = random.pick(&[
                "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar",
            ]);
            let grouping = random.pick(&[
                "",
                " by (job)",
                " by (host, job)",
                " without (instance)",
                " without (host, group)",
                " by ()",
            ]);
            format!("{aggregation}{grouping} ({})", vector(random, deeper))
        }
        7 => {
            let grouping = random.pick(&["", " by (job)", " without (instance)"]);
            format!(
                "quantile{grouping} ({}, {})",
                scalar(random, 0),
                vector(random, deeper)
            )
        }
        8 => {
            let operator = random.pick(&[
                "+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">=", "<=", "> bool", "== bool",
            ]);
            if random.below(2) == 0 {
                format!(
                    "({}) {operator} {}",
                    vector(random, deeper),
                    scalar(random, 0)
                )
            } else {
                format!(
                    "{} {operator} ({})",
                    scalar(random, 0),
                    vector(random, deeper)
                )
            }
        }
        9 => {
            let operator = random.pick(&["+", "-", "*", "/", "==", ">", "> bool"]);
            let matching = random.pick(&[
                "",
                " on (job, instance)",
                " ignoring (group)",
                " on (job) group_left ()",
                " on (host)",
                " ignoring (instance, group) group_left ()",
                " on (job) group_right ()",
            ]);
            format!(
                "({}) {operator}{matching} ({})",
                vector(random, deeper),
                vector(random, deeper)
            )
        }
        10 => {
            let operator = random.pick(&["and", "or", "unless"]);
            let matching = random.pick(&["", " on (job)", " ignoring (instance)", " on ()"]);
            format!(
                "({}) {operator}{matching} ({})",
                vector(random, deeper),
                vector(random, deeper)
            )
        }
        _ => format!("-({})", vector(random, deeper)),
    }
}

fn matrix(random: &mut Random, depth: usize) -> String {
    let range = random.pick(&["30s", "1m", "5m", "17m", "1h"]);
    if depth == 0 || random.below(3) > 0 {
        let selector = random.pick(&SELECTORS);
        format!("{selector}[{range}]{}", modifiers(random))
    } else {
        let step = random.pick(&["", "10s", "45s", "2m"]);
        format!(
            "({})[{range}:{step}]{}",
            vector(random, depth - 1),
            modifiers(random)
        )
    }
}

fn constant(random: &mut Random) -> String {
    random
        .pick(&["0.25", "0.9", "1", "2", "NaN", "0", "-0.5"])
        .to_owned()
}

fn scalar(random: &mut Random, depth: usize) -> String {
    match random.below(6) {
        0 => "time()".to_owned(),
        1 if depth > 0 => format!("scalar({})", vector(random, depth - 1)),
        2 => "-0.5".to_owned(),
        3 => "1e3".to_owned(),
        _ => random
            .pick(&["0.25", "0.9", "1", "2", "NaN", "Inf", "0", "1.5"])
            .to_owned(),
    }
}
