//! Functions of templates.

use super::{Datum, TemplateError, number_text};
use crate::duration::rfc3339;

/// A function by the name that it has in templates; the last argument is the value from before `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function(&'static Entry);

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Humanize,
    Humanize1024,
    HumanizeDuration,
    HumanizePercentage,
    HumanizeTimestamp,
    Printf,
    Title,
    ToUpper,
    ToLower,
    ReReplaceAll,
    StripPort,
    StripDomain,
    SafeHtml,
}

const fn entry(name: &'static str, kind: Kind) -> Entry {
    Entry { name, kind }
}

static TABLE: [Entry; 13] = [
    entry("humanize", Kind::Humanize),
    entry("humanize1024", Kind::Humanize1024),
    entry("humanizeDuration", Kind::HumanizeDuration),
    entry("humanizePercentage", Kind::HumanizePercentage),
    entry("humanizeTimestamp", Kind::HumanizeTimestamp),
    entry("printf", Kind::Printf),
    entry("title", Kind::Title),
    entry("toUpper", Kind::ToUpper),
    entry("toLower", Kind::ToLower),
    entry("reReplaceAll", Kind::ReReplaceAll),
    entry("stripPort", Kind::StripPort),
    entry("stripDomain", Kind::StripDomain),
    entry("safeHtml", Kind::SafeHtml),
];

impl Function {
    pub(super) fn named(name: &str) -> Option<Self> {
        TABLE.iter().find(|one| one.name == name).map(Self)
    }

    pub(super) fn names() -> String {
        TABLE
            .iter()
            .map(|one| one.name)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Checks the number of arguments.
    pub(super) fn check(self, found: usize) -> Result<(), TemplateError> {
        let (is_right, expected) = match self.0.kind {
            Kind::Printf => (found >= 2, "2 or more"),
            Kind::ReReplaceAll => (found == 3, "3"),
            _ => (found == 1, "1"),
        };
        let name = self.0.name;
        is_right.then_some(()).ok_or(TemplateError::Arguments {
            name,
            found,
            expected,
        })
    }

    /// Returns the value for `arguments`, whose number was checked.
    pub(super) fn apply(self, arguments: &[Datum]) -> Datum {
        let last = arguments
            .last()
            .expect("checked when the template was parsed");
        Datum::Text(match self.0.kind {
            Kind::Humanize => scaled(
                last.number(),
                1000.0,
                &["", "k", "M", "G", "T", "P", "E", "Z", "Y"],
            ),
            Kind::Humanize1024 => scaled(
                last.number(),
                1024.0,
                &["", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"],
            ),
            Kind::HumanizeDuration => duration(last.number()),
            Kind::HumanizePercentage => format!("{}%", general(last.number() * 100.0, 4)),
            Kind::HumanizeTimestamp => timestamp(last.number()),
            Kind::Printf => printf(&arguments[0].text(), &arguments[1..]),
            Kind::Title => title(&last.text()),
            Kind::ToUpper => last.text().to_uppercase(),
            Kind::ToLower => last.text().to_lowercase(),
            Kind::ReReplaceAll => {
                replaced(&arguments[0].text(), &arguments[1].text(), &last.text())
            }
            Kind::StripPort => strip_port(&last.text()).to_owned(),
            Kind::StripDomain => strip_domain(&last.text()),
            Kind::SafeHtml => return last.clone(),
        })
    }
}

/// `number` with a prefix of its power of `base`; small numbers by thousandths, but for binary prefixes.
fn scaled(number: f64, base: f64, above: &[&str]) -> String {
    const BELOW: [&str; 9] = ["", "m", "u", "n", "p", "f", "a", "z", "y"];
    let is_binary = base > 1000.0;
    if number == 0.0 || !number.is_finite() || (is_binary && number.abs() <= 1.0) {
        return general(number, 4);
    }
    let (mut value, mut steps) = (number, 0);
    if number.abs() >= 1.0 {
        while value.abs() >= base && steps + 1 < above.len() {
            value /= base;
            steps += 1;
        }
        return general(value, 4) + above[steps];
    }
    while value.abs() < 1.0 && steps + 1 < BELOW.len() {
        value *= base;
        steps += 1;
    }
    general(value, 4) + BELOW[steps]
}

/// `number` with `digits` significant digits, as C's `%.4g`.
fn general(number: f64, digits: usize) -> String {
    if !number.is_finite() || number == 0.0 {
        return number_text(number);
    }
    let text = format!("{number:.*e}", digits - 1);
    let exponent: i32 = text
        .rsplit('e')
        .next()
        .and_then(|one| one.parse().ok())
        .unwrap_or(0);
    if exponent < -4 || exponent >= i32::try_from(digits).unwrap_or(i32::MAX) {
        let rounded: f64 = text.parse().unwrap_or(number);
        let short = format!("{rounded:e}");
        let (mantissa, _) = short.split_once('e').unwrap_or((&short, ""));
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    // Rounded by the exponent form first: 9.9996 has the exponent of 10.
    text.parse::<f64>()
        .map_or(text, |rounded| format!("{rounded}"))
}

fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds == 0.0 {
        return if seconds == 0.0 {
            "0s".to_owned()
        } else {
            general(seconds, 4)
        };
    }
    if seconds.abs() < 1.0 {
        return scaled(seconds, 1000.0, &[""]) + "s";
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    let size = seconds.abs();
    let whole = size as u64;
    let (days, hours, minutes, rest) = (
        whole / 86_400,
        whole / 3_600 % 24,
        whole / 60 % 60,
        whole % 60,
    );
    if days != 0 {
        format!("{sign}{days}d {hours}h {minutes}m {rest}s")
    } else if hours != 0 {
        format!("{sign}{hours}h {minutes}m {rest}s")
    } else if minutes != 0 {
        format!("{sign}{minutes}m {rest}s")
    } else {
        format!("{sign}{}s", general(size, 4))
    }
}

/// Time as Go prints it, in UTC.
fn timestamp(seconds: f64) -> String {
    let ns = seconds * 1e9;
    if !ns.is_finite() || ns.abs() >= i64::MAX as f64 {
        return general(seconds, 4);
    }
    // By way of whole ns and cut at ms, as Prometheus does it.
    let text = rfc3339(ns as i64 / 1_000_000);
    let (day, clock) = text
        .trim_end_matches('Z')
        .split_once('T')
        .expect("RFC 3339");
    let clock = clock.trim_end_matches('0').trim_end_matches('.');
    // The zeros of the seconds were part of what was trimmed.
    let clock = if clock.len() < 8 {
        &text[11..19]
    } else {
        clock
    };
    format!("{day} {clock} +0000 UTC")
}

/// Format of C with the verbs `%s %v %q %d %f %e %g %x %%`, width and precision.
fn printf(format: &str, arguments: &[Datum]) -> String {
    let (mut text, mut rest, mut arguments) = (String::new(), format, arguments.iter());
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let length = after
            .bytes()
            .take_while(|one| matches!(one, b'0'..=b'9' | b'.' | b'-' | b'+' | b' ' | b'#'))
            .count();
        let (flags, tail) = after.split_at(length);
        let Some(verb) = tail.chars().next() else {
            text.push_str("%!(NOVERB)");
            return text;
        };
        rest = &tail[verb.len_utf8()..];
        if verb == '%' {
            text.push('%');
            continue;
        }
        let Some(argument) = arguments.next() else {
            text.push_str(&format!("%!{verb}(MISSING)"));
            continue;
        };
        text.push_str(&verb_text(verb, flags, argument));
    }
    text.push_str(rest);
    text
}

fn verb_text(verb: char, flags: &str, argument: &Datum) -> String {
    let (width, precision) = flags
        .split_once('.')
        .map_or((flags, None), |(width, precision)| (width, Some(precision)));
    let digits: Option<usize> = precision.map(|one| one.parse().unwrap_or(0).min(100));
    let plain = match (verb, argument) {
        ('f' | 'F', Datum::Number(number)) if number.is_finite() => {
            format!("{number:.*}", digits.unwrap_or(6))
        }
        ('e', Datum::Number(number)) if number.is_finite() => {
            let text = format!("{number:.*e}", digits.unwrap_or(6));
            let (mantissa, exponent) = text.split_once('e').expect("the form asked for");
            let exponent: i32 = exponent.parse().unwrap_or(0);
            format!(
                "{mantissa}e{}{:02}",
                if exponent < 0 { '-' } else { '+' },
                exponent.abs()
            )
        }
        ('g', Datum::Number(number)) => digits.map_or_else(
            || number_text(*number),
            |digits| general(*number, digits.max(1)),
        ),
        ('v' | 'f' | 'F' | 'e', Datum::Number(number)) => number_text(*number),
        ('q', Datum::Text(text)) => format!("{text:?}"),
        ('s' | 'v', Datum::Text(text)) => text.chars().take(digits.unwrap_or(usize::MAX)).collect(),
        (_, Datum::Number(number)) => format!("%!{verb}(float64={})", number_text(*number)),
        (_, Datum::Text(text)) => format!("%!{verb}(string={text})"),
    };
    let size: usize = width
        .trim_matches(|one: char| !one.is_ascii_digit())
        .parse()
        .unwrap_or(0)
        .min(200);
    if width.starts_with('-') {
        format!("{plain:<size$}")
    } else {
        format!("{plain:>size$}")
    }
}

fn title(text: &str) -> String {
    let mut is_start = true;
    text.chars()
        .map(|one| {
            let upper = if is_start {
                one.to_uppercase().next().unwrap_or(one)
            } else {
                one
            };
            is_start = !one.is_alphanumeric() && one != '_';
            upper
        })
        .collect()
}

fn replaced(pattern: &str, by: &str, text: &str) -> String {
    match regex::RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .build()
    {
        Ok(regex) => regex.replace_all(text, by).into_owned(),
        // A pattern may come from a label: the text stays as it is.
        Err(_) => text.to_owned(),
    }
}

fn strip_port(text: &str) -> &str {
    if let Some(rest) = text.strip_prefix('[') {
        return rest.split_once(']').map_or(text, |pair| pair.0);
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => text,
    }
}

fn strip_domain(text: &str) -> String {
    let host = strip_port(text);
    if host.parse::<core::net::IpAddr>().is_ok() {
        return text.to_owned();
    }
    let port = text
        .rsplit_once(':')
        .map_or(String::new(), |pair| format!(":{}", pair.1));
    format!("{}{port}", host.split('.').next().unwrap_or(host))
}
