//! First look at the text of an expression: how deep, with sound numbers, and where an error may be.
//!
//! The parser recurses over its result and knows no limit, panics at durations that a `Duration` cannot hold, drops
//! parts of durations above 32 bits, and names no position. This scan answers all of that from the tokens alone. It
//! leaves to the parser what is PromQL and what is not.

use crate::error::{Error, Position};

/// Longest duration, in seconds: what Prometheus holds, 2^63 ns.
const DURATION_S_MAX: f64 = 9.2e9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Word,
    Number,
    Text,
    Sign,
    Open,
    Close,
    Comma,
    /// All from `{` to `}`.
    Braces,
    /// All from `[` to `]`.
    Brackets,
    At,
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    class: Class,
    text: &'a str,
    start: usize,
}

/// Tokens of an expression.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(first) = text[at..].chars().next() {
            let rest = &text[at..];
            let (class, length) = match first {
                _ if first.is_ascii_whitespace() => (None, first.len_utf8()),
                '#' => (None, rest.find(['\n', '\r']).unwrap_or(rest.len())),
                '"' | '\'' | '`' => (Some(Class::Text), quoted(rest)),
                '{' => (Some(Class::Braces), enclosed(rest, '}')),
                '[' => (Some(Class::Brackets), enclosed(rest, ']')),
                '(' => (Some(Class::Open), 1),
                ')' => (Some(Class::Close), 1),
                ',' => (Some(Class::Comma), 1),
                '@' => (Some(Class::At), 1),
                '=' | '!' | '<' | '>' => {
                    let is_long = rest[1..].starts_with(['=', '~']);
                    (Some(Class::Sign), 1 + usize::from(is_long))
                }
                '+' | '-' | '*' | '/' | '%' | '^' => (Some(Class::Sign), 1),
                '.' | '0'..='9' => (Some(Class::Number), number(rest)),
                _ if is_word(first) => {
                    let end = rest.find(|one| !is_word(one)).unwrap_or(rest.len());
                    (Some(Class::Word), end)
                }
                _ => (Some(Class::Unknown), first.len_utf8()),
            };
            if let Some(class) = class {
                tokens.push(Token {
                    class,
                    text: &rest[..length],
                    start: at,
                });
            }
            at += length;
        }
        Self { text, tokens }
    }

    /// Returns an upper bound of the depth of the tree that the parser makes: operators of one pair of brackets can all
    /// nest in each other.
    pub(crate) fn depth(&self) -> usize {
        #[derive(Default)]
        struct Frame {
            levels: usize,
            deepest: usize,
            finished: usize,
        }
        impl Frame {
            fn all(&self) -> usize {
                self.finished.max(self.levels + self.deepest)
            }
        }
        let mut frames = vec![Frame::default()];
        for token in &self.tokens {
            let word = token.text.to_ascii_lowercase();
            let frame = frames.last_mut().expect("the outermost frame stays");
            match token.class {
                Class::Open => frames.push(Frame::default()),
                Class::Close => {
                    let inner = frame.all() + 1;
                    if frames.len() > 1 {
                        frames.pop();
                        let frame = frames.last_mut().expect("the outermost frame stays");
                        frame.deepest = frame.deepest.max(inner);
                    }
                }
                Class::Comma => {
                    *frame = Frame {
                        finished: frame.all(),
                        ..Frame::default()
                    };
                }
                Class::Sign | Class::Brackets => frame.levels += 1,
                Class::Word if is_operator(&word) => frame.levels += 1,
                _ => {}
            }
        }
        frames.iter().map(|frame| frame.all() + 1).sum()
    }

    /// Checks that every duration is one that the parser reads as it stands.
    pub(crate) fn check_durations(&self) -> Result<(), Error> {
        for (index, token) in self.tokens.iter().enumerate() {
            match token.class {
                // `NaN` and `Inf` are numbers to the parser, and no durations.
                Class::Number | Class::Word => {
                    let mut before = self.tokens[..index].iter().rev();
                    let is_offset = |one: Option<&Token<'_>>| {
                        one.is_some_and(|one| one.text.eq_ignore_ascii_case("offset"))
                    };
                    let previous = before.next();
                    let is_signed = previous.is_some_and(|one| matches!(one.text, "+" | "-"));
                    let is_duration = is_offset(previous) || is_signed && is_offset(before.next());
                    self.check_duration(token.text, token.start, is_duration)?;
                }
                Class::Brackets => {
                    let inner = token.text.trim_start_matches('[').trim_end_matches(']');
                    for part in inner.split(':') {
                        let start = part.as_ptr() as usize - self.text.as_ptr() as usize;
                        let skipped = part.len() - part.trim_start().len();
                        self.check_duration(part.trim(), start + skipped, true)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_duration(&self, text: &str, start: usize, is_duration: bool) -> Result<(), Error> {
        let is_out = match seconds(text) {
            Some(Length::Units(seconds)) => seconds.is_none_or(|one| one > DURATION_S_MAX),
            Some(Length::Plain(seconds)) => {
                is_duration && (seconds.is_nan() || seconds > DURATION_S_MAX)
            }
            None => false,
        };
        if is_out {
            return Err(self.error(start, "duration out of range"));
        }
        Ok(())
    }

    fn error(&self, at: usize, message: impl Into<String>) -> Error {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Error::Parse {
            position: Some(Position {
                line: 1 + before.matches('\n').count(),
                column: 1 + at - line_start,
            }),
            message: message.into(),
        }
    }

    /// Returns the error of the parser with its place, and in the words of Prometheus where the parser has none.
    pub(crate) fn locate(&self, message: &str) -> Error {
        if let Some(name) = message.strip_prefix("unknown function with name '") {
            let name = name.trim_end_matches('\'');
            let place = self.tokens.iter().find(|one| one.text == name);
            let message = format!("unknown function with name {name:?}");
            return self.error(place.map_or(0, |one| one.start), message);
        }
        if let Some(unknown) = self.tokens.iter().find(|one| one.class == Class::Unknown) {
            let message = format!("unexpected character: '{}'", unknown.text);
            return self.error(unknown.start, message);
        }
        if let Some((at, what)) = self.misplaced() {
            return self.error(at, format!("unexpected {what}"));
        }
        match message {
            "invalid promql query" => Error::parse("unexpected input, expected an expression"),
            message => Error::parse(message.replace('\'', "\"")),
        }
    }

    /// Finds the first token that stands where it cannot, by the alternation of operands and operators.
    fn misplaced(&self) -> Option<(usize, String)> {
        let mut wants_operand = true;
        let mut opens = 0_usize;
        let mut may_open = true;
        let mut index = 0;
        while let Some(token) = self.tokens.get(index) {
            let here = Some((token.start, describe(token)));
            let lower = token.text.to_ascii_lowercase();
            index += 1;
            match token.class {
                Class::Word if !wants_operand && is_operator(&lower) => wants_operand = true,
                Class::Word if is_modifier(&lower) && index > 1 => {
                    index = self.after_modifier(index);
                    may_open = true;
                    continue;
                }
                Class::Word | Class::Number | Class::Text => {
                    if !wants_operand {
                        return here;
                    }
                    wants_operand = false;
                    may_open = token.class == Class::Word;
                    continue;
                }
                Class::Braces => {
                    if !wants_operand && !may_open {
                        return here;
                    }
                    wants_operand = false;
                }
                Class::Brackets if wants_operand => return here,
                Class::At => {
                    if wants_operand {
                        return here;
                    }
                    index = self.after_modifier(index);
                }
                Class::Sign if wants_operand && !matches!(token.text, "+" | "-") => return here,
                Class::Sign => wants_operand = true,
                Class::Open => {
                    if !wants_operand && !may_open {
                        return here;
                    }
                    opens += 1;
                    wants_operand = true;
                }
                Class::Close => {
                    let is_empty = self.tokens[..index - 1]
                        .last()
                        .is_some_and(|one| one.class == Class::Open);
                    if opens == 0 || wants_operand && !is_empty {
                        return here;
                    }
                    opens -= 1;
                    wants_operand = false;
                    may_open = false;
                    continue;
                }
                Class::Comma => {
                    if wants_operand || opens == 0 {
                        return here;
                    }
                    wants_operand = true;
                }
                _ => {}
            }
            may_open = wants_operand;
        }
        if opens > 0 {
            return Some((self.text.len(), "end of input, expected ')'".to_owned()));
        }
        wants_operand.then(|| (self.text.len(), "end of input".to_owned()))
    }

    /// Returns the index behind what belongs to a modifier: a sign and a number, or names in parentheses.
    fn after_modifier(&self, mut index: usize) -> usize {
        while self
            .tokens
            .get(index)
            .is_some_and(|one| matches!(one.text, "+" | "-") || one.class == Class::Number)
        {
            index += 1;
        }
        let is_call = |at: usize| {
            let class = |at: usize| self.tokens.get(at).map(|one| one.class);
            let is_start = self
                .tokens
                .get(at)
                .is_some_and(|one| matches!(one.text, "start" | "end"));
            (is_start && class(at + 1) == Some(Class::Open)).then_some(at + 1)
        };
        let open = is_call(index).unwrap_or(index);
        if self.tokens.get(open).map(|one| one.class) != Some(Class::Open) {
            return index;
        }
        let close = self.tokens[open..]
            .iter()
            .position(|one| one.class == Class::Close);
        close.map_or(self.tokens.len(), |close| open + close + 1)
    }
}

fn describe(token: &Token<'_>) -> String {
    let text = token.text;
    match token.class {
        Class::Word => format!("identifier {text:?}"),
        Class::Number => format!("number {text:?}"),
        Class::Text => format!("string {text}"),
        Class::Close => "right parenthesis ')'".to_owned(),
        Class::Open => "left parenthesis '('".to_owned(),
        Class::Sign => format!("<op:{text}>"),
        _ => format!("{text:?}"),
    }
}

fn is_word(one: char) -> bool {
    one == '_' || one == ':' || one.is_ascii_alphanumeric()
}

fn is_operator(lower: &str) -> bool {
    matches!(lower, "and" | "or" | "unless" | "atan2")
}

fn is_modifier(lower: &str) -> bool {
    matches!(
        lower,
        "by" | "without"
            | "on"
            | "ignoring"
            | "group_left"
            | "group_right"
            | "bool"
            | "offset"
            | "fill"
            | "fill_left"
            | "fill_right"
    )
}

/// Length of the text in quotes at the start of `rest`, to its end if the quote is not closed.
fn quoted(rest: &str) -> usize {
    let quote = rest.as_bytes()[0];
    let mut bytes = rest.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        if byte == quote {
            return at + 1;
        }
        if byte == b'\\' && quote != b'`' {
            bytes.next();
        }
    }
    rest.len()
}

/// Length of the text up to `close`, quotes passed over.
fn enclosed(rest: &str, close: char) -> usize {
    let mut at = 1;
    while let Some(one) = rest[at..].chars().next() {
        if matches!(one, '"' | '\'' | '`') {
            at += quoted(&rest[at..]);
            continue;
        }
        at += one.len_utf8();
        if one == close {
            return at;
        }
    }
    rest.len()
}

/// Length of the number or duration at the start of `rest`.
fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let is_hex = rest.len() > 1 && matches!(bytes[1], b'x' | b'X');
    let mut at = 0;
    while at < bytes.len() {
        let one = bytes[at];
        let is_exponent = !is_hex && at > 0 && matches!(bytes[at - 1], b'e' | b'E');
        let is_sign = matches!(one, b'+' | b'-') && is_exponent;
        if !one.is_ascii_alphanumeric() && !matches!(one, b'.' | b'_') && !is_sign {
            break;
        }
        at += 1;
    }
    at
}

enum Length {
    /// A number with units; `None`: a count that the parser would drop.
    Units(Option<f64>),
    Plain(f64),
}

fn seconds(text: &str) -> Option<Length> {
    if let Ok(value) = text.parse::<f64>() {
        return Some(Length::Plain(value));
    }
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let value = u64::from_str_radix(digits, 16).ok()?;
        return Some(Length::Plain(value as f64));
    }
    let mut rest = text;
    let mut sum = Some(0.0);
    while !rest.is_empty() {
        let digits = rest.find(|one: char| !one.is_ascii_digit())?;
        if digits == 0 {
            return None;
        }
        let count = rest[..digits].parse::<u32>().ok();
        rest = &rest[digits..];
        let letters = rest
            .find(|one: char| one.is_ascii_digit())
            .unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "y" => 365.0 * 86_400.0,
            "w" => 7.0 * 86_400.0,
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        rest = &rest[letters..];
        sum = sum
            .zip(count)
            .map(|(sum, count)| sum + f64::from(count) * unit);
    }
    Some(Length::Units(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(text: &str) -> usize {
        Scan::new(text).depth()
    }

    #[test]
    fn depth_counts_what_can_nest() {
        assert_eq!(depth("x"), 1);
        assert_eq!(depth("a + b * c"), 3);
        assert_eq!(depth("((x))"), 3);
        assert_eq!(depth("f(a, g(b), c + 1)"), 3);
        assert_eq!(depth(r#"x{a="((((", b!="+"}[5m]"#), 2);
        assert_eq!(depth(&"-".repeat(50)), 51);
        assert_eq!(depth(&"(".repeat(50)), 51);
    }

    #[test]
    fn durations_out_of_range_are_found_with_their_place() {
        for text in [
            "x[1e300]",
            "x[99999999999s]",
            "x[300y]",
            "x offset - 1e99",
            "x offset NaN",
            "x offset inf",
            "sum(x[5m:9999999999y])",
            "1h99999999999s",
        ] {
            let error = Scan::new(text).check_durations().unwrap_err();
            assert!(
                error.to_string().contains("duration out of range"),
                "{text}: {error}"
            );
        }
        for text in [
            "x[5m] + 1e300",
            "x[1h30m:15s] offset 1w",
            "x[5m:]",
            "x['",
            "x[",
            "0x1f",
        ] {
            assert_eq!(Scan::new(text).check_durations(), Ok(()), "{text}");
        }
    }

    #[test]
    fn an_error_has_the_place_of_the_misplaced_token() {
        let cases = [
            ("", "1:1: parse error: unexpected end of input"),
            ("1 +", "1:4: parse error: unexpected end of input"),
            ("1 2", "1:3: parse error: unexpected number \"2\""),
            ("a b", "1:3: parse error: unexpected identifier \"b\""),
            ("a\n+ * b", "2:3: parse error: unexpected <op:*>"),
            (
                "(a",
                "1:3: parse error: unexpected end of input, expected ')'",
            ),
            ("a)", "1:2: parse error: unexpected right parenthesis ')'"),
            ("a $ b", "1:3: parse error: unexpected character: '$'"),
            (
                "sum(a,)",
                "1:7: parse error: unexpected right parenthesis ')'",
            ),
        ];
        for (text, expected) in cases {
            let error = Scan::new(text).locate("invalid promql query");
            assert_eq!(error.to_string(), expected, "{text:?}");
        }
    }
}
