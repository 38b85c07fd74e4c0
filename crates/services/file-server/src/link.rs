//! Headers `Link` (RFC 8288), by which servers name copies of a file (`rel=duplicate`, RFC 6249).

use std::fmt::Write as _;

/// Relation of a copy that is equal byte by byte.
const DUPLICATE: &str = "duplicate";

/// Reads the addresses of copies in the value of `Link`, in their order.
pub(crate) fn duplicates(value: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = value;
    while let Some((_, behind)) = rest.split_once('<') {
        let Some((address, behind)) = behind.split_once('>') else {
            break;
        };
        let end = end_of_parameters(behind);
        if has_relation(&behind[..end]) {
            found.push(address.trim().to_owned());
        }
        rest = &behind[end..];
    }
    found
}

/// Returns where the parameters of a link end: at a comma that is in no quotes.
fn end_of_parameters(text: &str) -> usize {
    outside_quotes(text, ',').unwrap_or(text.len())
}

/// Returns the place of the first `wanted` that is in no quotes.
fn outside_quotes(text: &str, wanted: char) -> Option<usize> {
    let mut is_quoted = false;
    text.find(|c| {
        is_quoted ^= c == '"';
        c == wanted && !is_quoted
    })
}

fn has_relation(parameters: &str) -> bool {
    let mut rest = parameters;
    loop {
        let end = outside_quotes(rest, ';').unwrap_or(rest.len());
        if is_relation(&rest[..end]) {
            return true;
        }
        let Some(next) = rest.get(end + 1..) else {
            return false;
        };
        rest = next;
    }
}

fn is_relation(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return false;
    };
    let value = value.trim().trim_matches('"');
    let mut relations = value.split_ascii_whitespace();
    name.trim().eq_ignore_ascii_case("rel")
        && relations.any(|is| is.eq_ignore_ascii_case(DUPLICATE))
}

/// Writes a link to a copy, the best one first.
pub(crate) fn of_duplicates<'a>(addresses: impl Iterator<Item = &'a str>) -> String {
    let mut value = String::new();
    for (at, address) in addresses.enumerate() {
        let gap = if at == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(
            value,
            "{gap}<{address}>; rel={DUPLICATE}; pri={}",
            at.min(98) + 1
        );
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn copies_are_those_with_the_relation() {
        let value = r#"<http://a/x,y>; rel=duplicate; pri=1, <http://b/x>; title="a, <c>; rel=duplicate"; rel="next", <http://d/x>;REL="next Duplicate",<http://e/x>, <f"#;
        assert_eq!(duplicates(value), ["http://a/x,y", "http://d/x"]);
        assert_eq!(duplicates(""), Vec::<String>::new());
        let written = of_duplicates(["http://a/1", "http://b/2"].into_iter());
        assert_eq!(
            written,
            "<http://a/1>; rel=duplicate; pri=1, <http://b/2>; rel=duplicate; pri=2"
        );
        assert_eq!(duplicates(&written), ["http://a/1", "http://b/2"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"[<>;,="a-z é]{0,80}"#) {
            let _ = duplicates(&text);
        }
    }
}
