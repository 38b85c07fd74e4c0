//! Expressions of rules: checked when their file is read, and taken apart where the threshold matters.

use crate::condition::Comparison;
use promql_parser::parser::{self, Expr, token};
use sheaf_samples::{Matcher, Matches, NAME};

/// Longest expression, in bytes.
const BYTES_MAX: usize = 8192;

/// Returns the syntax tree of `text`, or what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Expr, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("an expression of {} bytes", text.len()));
    }
    // The evaluator knows depth and functions; its messages are those of a query.
    if let Err(error) = sheaf_query::Query::parse(text, &sheaf_query::Options::default()) {
        let reason = error.to_string();
        return Err(format!(
            "expression {text:?} ({})",
            reason.lines().next().unwrap_or_default()
        ));
    }
    parser::parse(text).map_err(|error| {
        format!(
            "expression {text:?} ({})",
            error.lines().next().unwrap_or_default()
        )
    })
}

/// Expression without brackets around it.
pub(crate) fn inner(mut expr: &Expr) -> &Expr {
    while let Expr::Paren(paren) = expr {
        expr = &paren.expr;
    }
    expr
}

/// Value of an expression that is a number, with its sign.
pub(crate) fn number(expr: &Expr) -> Option<f64> {
    match inner(expr) {
        Expr::NumberLiteral(literal) => Some(literal.val),
        Expr::Unary(unary) => number(&unary.expr).map(|value| -value),
        _ => None,
    }
}

/// Sides of `value OP number`, turned so that the number stands right; `None` for other expressions.
pub(crate) fn split(expr: &Expr) -> Option<(&Expr, Comparison, f64)> {
    let Expr::Binary(binary) = inner(expr) else {
        return None;
    };
    let comparison = comparison(binary.op)?;
    if binary
        .modifier
        .as_ref()
        .is_some_and(|modifier| modifier.return_bool)
    {
        return None;
    }
    match (number(&binary.lhs), number(&binary.rhs)) {
        (None, Some(right)) => Some((&binary.lhs, comparison, right)),
        (Some(left), None) => Some((&binary.rhs, comparison.flipped(), left)),
        _ => None,
    }
}

pub(crate) fn comparison(op: token::TokenType) -> Option<Comparison> {
    Some(match op.id() {
        token::T_GTR => Comparison::Above,
        token::T_GTE => Comparison::AtLeast,
        token::T_LSS => Comparison::Below,
        token::T_LTE => Comparison::AtMost,
        token::T_EQLC => Comparison::Equal,
        token::T_NEQ => Comparison::NotEqual,
        _ => return None,
    })
}

/// Conditions of a selector, its name first.
pub(crate) fn matchers(selector: &parser::VectorSelector) -> Result<Vec<Matcher>, String> {
    use promql_parser::label::MatchOp;
    if !selector.matchers.or_matchers.is_empty() {
        return Err(format!("alternatives in {selector}"));
    }
    let mut found = Vec::new();
    if let Some(name) = &selector.name {
        found.push(Matcher::new(NAME, Matches::Equal, name).map_err(|error| error.to_string())?);
    }
    for one in &selector.matchers.matchers {
        let matches = match one.op {
            MatchOp::Equal => Matches::Equal,
            MatchOp::NotEqual => Matches::NotEqual,
            MatchOp::Re(_) => Matches::Regex,
            MatchOp::NotRe(_) => Matches::NotRegex,
        };
        let matcher = Matcher::new(one.name.as_str(), matches, one.value.as_str());
        found.push(matcher.map_err(|error| error.to_string())?);
    }
    Ok(found)
}

/// Returns the condition that `text` holds, such as `severity="page"`, `epn!="3"` or `host=~"a.*"`; quotes may be left
/// out, as in files of Alertmanager.
pub(crate) fn matcher(text: &str) -> Result<Matcher, String> {
    let error = || format!("matcher {text:?}");
    let at = text.find(['=', '!']).ok_or_else(error)?;
    let (name, rest) = (text[..at].trim(), &text[at..]);
    let signs = [
        ("=~", Matches::Regex),
        ("!~", Matches::NotRegex),
        ("!=", Matches::NotEqual),
        ("=", Matches::Equal),
    ];
    let (sign, matches) = signs
        .into_iter()
        .find(|pair| rest.starts_with(pair.0))
        .ok_or_else(error)?;
    let value = rest[sign.len()..].trim();
    let value = if value.starts_with('"') {
        serde_json::from_str(value).map_err(|_| error())?
    } else {
        value.to_owned()
    };
    if !is_label_name(name) {
        return Err(error());
    }
    Matcher::new(name, matches, value).map_err(|error| error.to_string())
}

/// Text that [`matcher`] reads back.
pub(crate) fn matcher_text(matcher: &Matcher) -> String {
    let sign = match matcher.matches() {
        Matches::Equal => "=",
        Matches::NotEqual => "!=",
        Matches::Regex => "=~",
        Matches::NotRegex => "!~",
    };
    // A text always has a JSON form.
    let value = serde_json::to_string(matcher.value()).unwrap_or_default();
    format!("{}{sign}{value}", matcher.name())
}

pub(crate) fn is_label_name(name: &str) -> bool {
    let is_word = name
        .bytes()
        .all(|one| one.is_ascii_alphanumeric() || one == b'_');
    is_word && !name.is_empty() && !name.starts_with(|one: char| one.is_ascii_digit())
}

pub(crate) fn is_metric_name(name: &str) -> bool {
    is_label_name(&name.replace(':', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_stands_right_whatever_the_order() {
        let check = |text: &str| {
            let expr = parse(text).unwrap();
            split(&expr).map(|(left, comparison, right)| (left.to_string(), comparison, right))
        };
        assert_eq!(
            check("a > 3"),
            Some(("a".to_owned(), Comparison::Above, 3.0))
        );
        assert_eq!(
            check("(-2 <= (rate(a[1m])))"),
            Some(("(rate(a[1m]))".to_owned(), Comparison::AtLeast, -2.0))
        );
        assert_eq!(check("a > bool 3"), None);
        assert_eq!(check("a > b"), None);
        assert_eq!(check("a and b > 3"), None);
    }

    #[test]
    fn matchers_are_read_with_and_without_quotes() {
        let text = |text: &str| matcher(text).map(|one| one.to_string());
        assert_eq!(
            text(r#"severity = "page""#),
            Ok(r#"severity="page""#.to_owned())
        );
        assert_eq!(text("epn!~1|2"), Ok(r#"epn!~"1|2""#.to_owned()));
        assert_eq!(text("a!=b"), Ok(r#"a!="b""#.to_owned()));
        assert!(text("severity").is_err());
        assert!(text("a b=c").is_err());
        assert!(text("a=~\"(\"").is_err());
    }

    #[test]
    fn expressions_are_bounded() {
        let nested = format!("{}a{}", "(".repeat(2000), ")".repeat(2000));
        assert!(parse(&nested).unwrap_err().contains("levels deep"));
        assert!(parse(&"a".repeat(9000)).unwrap_err().contains("9000 bytes"));
        assert!(parse("rate(a)").is_err());
    }
}
