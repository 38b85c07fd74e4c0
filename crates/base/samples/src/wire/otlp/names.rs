//! Names of metrics by the rules of compatibility.

use crate::wire::names::metric_name;

/// Returns the name of a metric: made legal, with its unit and `_total` or `_ratio` behind it.
pub(super) fn name(raw: &str, unit: &str, is_total: bool, is_gauge: bool) -> String {
    let legal = metric_name(raw);
    // Runs of `_` are one.
    let mut words: Vec<&str> = legal.split('_').filter(|word| !word.is_empty()).collect();
    let unit = unit_name(unit);
    let suffix: Vec<&str> = unit.split('_').filter(|word| !word.is_empty()).collect();
    if is_total && words.last() == Some(&"total") {
        words.pop();
    }
    if !words.ends_with(&suffix) {
        words.extend(suffix);
    }
    if is_total {
        words.push("total");
    } else if is_gauge && unit == "1" && words.last() != Some(&"ratio") {
        words.retain(|word| *word != "1");
        words.push("ratio");
    }
    let name = words.join("_");
    if legal.starts_with('_') {
        format!("_{name}")
    } else {
        name
    }
}

/// Returns the words of a unit (UCUM) joined by `_`; `1` stays, annotations in braces go.
fn unit_name(unit: &str) -> String {
    let unit = unit.split('{').next().unwrap_or_default().trim();
    let (top, below) = unit.split_once('/').unwrap_or((unit, ""));
    let top = match top {
        "d" => "days",
        "h" => "hours",
        "min" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        "By" => "bytes",
        "KiBy" => "kibibytes",
        "MiBy" => "mebibytes",
        "GiBy" => "gibibytes",
        "TiBy" => "tibibytes",
        "KBy" => "kilobytes",
        "MBy" => "megabytes",
        "GBy" => "gigabytes",
        "TBy" => "terabytes",
        "m" => "meters",
        "V" => "volts",
        "A" => "amperes",
        "J" => "joules",
        "W" => "watts",
        "g" => "grams",
        "Cel" => "celsius",
        "Hz" => "hertz",
        "%" => "percent",
        other => other,
    };
    let below = match below {
        "s" => "second",
        "m" | "min" => "minute",
        "h" => "hour",
        "d" => "day",
        "w" => "week",
        "mo" => "month",
        "y" => "year",
        other => other,
    };
    match (top, below) {
        ("1", "") => "1".to_owned(),
        (top, "") => legal(top),
        (top, below) => format!("{}_per_{}", legal(top), legal(below)),
    }
}

fn legal(text: &str) -> String {
    let fits = |char: char| {
        if char.is_ascii_alphanumeric() {
            char
        } else {
            '_'
        }
    };
    text.chars().map(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_kinds_are_suffixes() {
        let total = |raw, unit| name(raw, unit, true, false);
        let gauge = |raw, unit| name(raw, unit, false, true);
        assert_eq!(
            total("http.server.requests", "{request}"),
            "http_server_requests_total"
        );
        assert_eq!(total("io", "By"), "io_bytes_total");
        assert_eq!(total("io_bytes_total", "By"), "io_bytes_total");
        assert_eq!(gauge("cpu.utilization", "1"), "cpu_utilization_ratio");
        assert_eq!(gauge("cpu.utilization", "%"), "cpu_utilization_percent");
        assert_eq!(gauge("speed", "m/s"), "speed_meters_per_second");
        assert_eq!(gauge("speed", ""), "speed");
        assert_eq!(
            name("latency.seconds", "s", false, false),
            "latency_seconds"
        );
        assert_eq!(gauge("a..b--c", ""), "a_b_c");
        assert_eq!(gauge("0x", ""), "_0x");
    }
}
