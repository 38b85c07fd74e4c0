//! Texts of alerts with values in them: the templates of Prometheus, as far as they need no query.
//!
//! A template is parsed once, with its rule, so that an unknown function is an error of the file and not of the alert.

mod function;

use function::Function;
use sheaf_samples::Labels;

/// Longest text of a template, and of what it gives, in bytes.
const BYTES_MAX: usize = 4096;

/// A parsed template, such as `EPN {{ $labels.epn }} is full`.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Value(Pipe),
}

/// A value and the functions that it passes through.
#[derive(Clone, Debug, PartialEq)]
struct Pipe {
    start: Term,
    functions: Vec<(Function, Vec<Term>)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Label(String),
    Value,
    Literal(Datum),
}

/// A value while a template is evaluated.
#[derive(Clone, Debug, PartialEq)]
enum Datum {
    Text(String),
    Number(f64),
}

/// Reason why a template is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A `{{` without its end.
    #[error("\"{{{{\" without \"}}}}\", expected both")]
    Open,
    /// A function that this crate does not have.
    #[error("template function {found:?}, expected one of {}", Function::names())]
    Function {
        /// Name in the template.
        found: String,
    },
    /// A function with too few or too many arguments.
    #[error("{found} arguments of template function {name:?}, expected {expected}")]
    Arguments {
        /// The function.
        name: &'static str,
        /// Arguments in the template, the value from before `|` included.
        found: usize,
        /// Arguments that are needed.
        expected: &'static str,
    },
    /// Text between braces that is no value.
    #[error("{found:?} in a template, expected $labels.NAME, $value, a number or a quoted text")]
    Term {
        /// The text.
        found: String,
    },
    /// A construct of Go's templates beyond values and functions.
    #[error("template keyword {found:?}, expected a value: conditions and loops are not supported")]
    Keyword {
        /// The keyword.
        found: String,
    },
    /// A template beyond the bound.
    #[error("a template of {found} bytes, expected {BYTES_MAX} at most")]
    TooLong {
        /// Bytes of the template.
        found: usize,
    },
}

impl Template {
    /// Returns the template of `text`.
    ///
    /// # Errors
    ///
    /// For unknown functions, keywords, and texts that are too long.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.len() > BYTES_MAX {
            return Err(TemplateError::TooLong { found: text.len() });
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        // Set by a `-}}`: white space after it is left out.
        let mut is_trimmed = false;
        while let Some((before, after)) = rest.split_once("{{") {
            let (inside, next) = split_close(after).ok_or(TemplateError::Open)?;
            let is_left_trimmed = inside.starts_with('-');
            let inside = inside.strip_prefix('-').unwrap_or(inside);
            push_text(&mut parts, before, is_trimmed, is_left_trimmed);
            is_trimmed = inside.ends_with('-');
            let inside = inside.strip_suffix('-').unwrap_or(inside).trim();
            if !inside.starts_with("/*") {
                parts.push(Part::Value(pipe(inside)?));
            }
            rest = next;
        }
        push_text(&mut parts, rest, is_trimmed, false);
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// Text that the template was parsed from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text for an alert with `labels` and `value`; at most 4096 bytes, the rest is cut off.
    ///
    /// A label that is absent is empty, as in Prometheus.
    #[must_use]
    pub fn render(&self, labels: &Labels, value: f64) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(one) => text.push_str(one),
                Part::Value(pipe) => text.push_str(&pipe.render(labels, value)),
            }
        }
        if text.len() > BYTES_MAX {
            text.truncate(text.floor_char_boundary(BYTES_MAX));
        }
        text
    }
}

impl Pipe {
    fn render(&self, labels: &Labels, value: f64) -> String {
        let datum = |term: &Term| match term {
            Term::Label(name) => Datum::Text(labels.get(name).unwrap_or_default().to_owned()),
            Term::Value => Datum::Number(value),
            Term::Literal(datum) => datum.clone(),
        };
        let mut found = datum(&self.start);
        for (function, arguments) in &self.functions {
            let mut all: Vec<Datum> = arguments.iter().map(datum).collect();
            all.push(found);
            found = function.apply(&all);
        }
        found.text()
    }
}

impl Datum {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number_text(*number),
        }
    }

    fn number(&self) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(text) => text.parse().unwrap_or(f64::NAN),
        }
    }
}

/// Number as Go prints it by `%v`: shortest digits, an exponent below 1e-4 and from 1e6.
fn number_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let size = number.abs();
    if number == 0.0 || number.is_nan() || (1e-4..1e6).contains(&size) {
        return format!("{number}");
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').expect("the form asked for");
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

fn push_text(parts: &mut Vec<Part>, text: &str, is_left_cut: bool, is_right_cut: bool) {
    let text = if is_left_cut { text.trim_start() } else { text };
    let text = if is_right_cut { text.trim_end() } else { text };
    if !text.is_empty() {
        parts.push(Part::Text(text.to_owned()));
    }
}

/// Splits at the `}}` that is in no quotes.
fn split_close(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut is_escaped = false;
    for (at, one) in text.char_indices() {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some('"') if one == '\\' => is_escaped = true,
            Some(end) if one == end => quote = None,
            Some(_) => {}
            None if one == '"' || one == '`' => quote = Some(one),
            None if text[at..].starts_with("}}") => return Some((&text[..at], &text[at + 2..])),
            None => {}
        }
    }
    None
}

/// Words of one action; quoted texts are one word, `|` is a word.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_escaped) = (Vec::new(), String::new(), None, false);
    for one in text.chars() {
        match quote {
            Some(end) => {
                word.push(one);
                let is_end = one == end && !is_escaped;
                is_escaped = one == '\\' && !is_escaped && end == '"';
                if is_end {
                    quote = None;
                }
            }
            None if one.is_whitespace() || matches!(one, '|' | '(' | ')') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                if !one.is_whitespace() {
                    words.push(one.to_string());
                }
            }
            None => {
                if one == '"' || one == '`' {
                    quote = Some(one);
                }
                word.push(one);
            }
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn pipe(text: &str) -> Result<Pipe, TemplateError> {
    let words = words(text);
    let mut stages = words.split(|word| word == "|");
    let first = stages.next().unwrap_or_default();
    let mut pipe = match first {
        [] => {
            return Err(TemplateError::Term {
                found: text.to_owned(),
            });
        }
        [one] if is_term(one) => Pipe {
            start: term(one)?,
            functions: Vec::new(),
        },
        [name, arguments @ ..] => {
            let function = function(name)?;
            let mut terms = arguments
                .iter()
                .map(|one| term(one))
                .collect::<Result<Vec<_>, _>>()?;
            function.check(terms.len())?;
            let start = terms.pop().expect("every function takes an argument");
            Pipe {
                start,
                functions: vec![(function, terms)],
            }
        }
    };
    for stage in stages {
        let [name, arguments @ ..] = stage else {
            return Err(TemplateError::Term {
                found: text.to_owned(),
            });
        };
        let function = function(name)?;
        function.check(arguments.len() + 1)?;
        let terms = arguments
            .iter()
            .map(|one| term(one))
            .collect::<Result<_, _>>()?;
        pipe.functions.push((function, terms));
    }
    Ok(pipe)
}

fn is_term(word: &str) -> bool {
    word.starts_with(['$', '.', '"', '`', '-', '+', '('])
        || word.starts_with(|one: char| one.is_ascii_digit())
}

fn function(name: &str) -> Result<Function, TemplateError> {
    const KEYWORDS: [&str; 8] = [
        "if", "else", "end", "range", "with", "define", "template", "block",
    ];
    let found = name.to_owned();
    if KEYWORDS.contains(&name) {
        return Err(TemplateError::Keyword { found });
    }
    Function::named(name).ok_or(TemplateError::Function { found })
}

fn term(word: &str) -> Result<Term, TemplateError> {
    let error = || TemplateError::Term {
        found: word.to_owned(),
    };
    if word == "$value" || word == ".Value" {
        return Ok(Term::Value);
    }
    let label = word
        .strip_prefix("$labels.")
        .or_else(|| word.strip_prefix(".Labels."));
    if let Some(name) = label {
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|one| one.is_ascii_alphanumeric() || one == b'_');
        return if is_name {
            Ok(Term::Label(name.to_owned()))
        } else {
            Err(error())
        };
    }
    if let Some(text) = word
        .strip_prefix('`')
        .and_then(|rest| rest.strip_suffix('`'))
    {
        return Ok(Term::Literal(Datum::Text(text.to_owned())));
    }
    if word.starts_with('"') {
        // Quoted texts of Go and of JSON agree in what labels and formats need.
        return serde_json::from_str(word)
            .map(|text| Term::Literal(Datum::Text(text)))
            .map_err(|_| error());
    }
    word.parse()
        .map(|number| Term::Literal(Datum::Number(number)))
        .map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, value: f64, expected: &str) {
        let labels = Labels::new([("epn", "3"), ("instance", "[::1]:9100")]).unwrap();
        let template = Template::parse(template).unwrap();
        assert_eq!(template.render(&labels, value), expected);
    }

    #[test]
    fn labels_and_values_are_filled_in() {
        check("EPN {{ $labels.epn }} at {{$value}}", 2.5, "EPN 3 at 2.5");
        check(
            "{{ .Labels.epn }}{{ .Value }}{{ $labels.none }}",
            1e21,
            "31e+21",
        );
        check("no braces }} here", 0.0, "no braces }} here");
        check("a {{- $value -}} b{{/* note */}}", 7.0, "a7b");
        check(r#"{{ "}}" }}{{ `x|y` }}"#, 0.0, "}}x|y");
    }

    #[test]
    fn functions_are_those_of_prometheus() {
        // As `promtool test rules` of Prometheus 2.42 renders them.
        check("{{ $value | humanize }}", 1_234_567.0, "1.235M");
        check("{{ humanize $value }}", 0.00012, "120u");
        check("{{ $value | humanize1024 }}", 1_048_576.0, "1Mi");
        check("{{ $value | humanizePercentage }}", 0.12345, "12.35%");
        check("{{ $value | humanizeDuration }}", 90_061.0, "1d 1h 1m 1s");
        check("{{ $value | humanizeDuration }}", 0.0125, "12.5ms");
        check(r#"{{ $value | printf "%.2f s" }}"#, 1.005, "1.00 s");
        check(r#"{{ printf "%s=%g" $labels.epn $value }}"#, 0.5, "3=0.5");
        check("{{ $labels.instance | stripPort | toUpper }}", 0.0, "::1");
        check(
            r#"{{ $labels.epn | reReplaceAll "(.)" "<$1>" }}"#,
            0.0,
            "<3>",
        );
        check(
            "{{ $value | humanizeTimestamp }}",
            1_795_574_871.0,
            "2026-11-25 02:47:51 +0000 UTC",
        );
    }

    #[test]
    fn what_is_unknown_is_named() {
        let error = |text: &str| Template::parse(text).unwrap_err().to_string();
        assert!(
            error("{{ $value | humanise }}")
                .starts_with("template function \"humanise\", expected one of ")
        );
        assert!(error("{{ if $value }}x{{ end }}").contains("keyword \"if\""));
        assert_eq!(error("{{ $value"), "\"{{\" without \"}}\", expected both");
        assert!(error("{{ $x }}").contains("\"$x\" in a template"));
        assert_eq!(
            error("{{ $value | printf }}"),
            "1 arguments of template function \"printf\", expected 2 or more"
        );
        assert!(matches!(
            Template::parse(&"x".repeat(5000)),
            Err(TemplateError::TooLong { found: 5000 })
        ));
    }

    #[test]
    fn results_are_bounded() {
        let text = "{{ $labels.x }}".repeat(10);
        let labels = Labels::new([("x", "é".repeat(1000))]).unwrap();
        let found = Template::parse(&text).unwrap().render(&labels, 0.0);
        assert_eq!(found.len(), 4096);
    }
}
