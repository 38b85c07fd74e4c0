//! Decision records are named by their date, so that two authors never take the same number.

use super::Finding;
use super::tree::Tree;

const FOLDER: &str = "docs/adr/";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let records = tree.with_extension("md").filter_map(|(path, text)| {
        let name = path.strip_prefix(FOLDER)?;
        (name != "README.md").then_some((path, name, text))
    });
    let mut findings = Vec::new();
    for (path, name, text) in records {
        if !is_dated(name) {
            findings.push(Finding::of_file(path, "is not called YYYY-MM-DD-title.md"));
        }
        if !text.starts_with("# ") {
            findings.push(Finding::of_file(path, "does not start with its title"));
        }
    }
    findings
}

fn is_dated(name: &str) -> bool {
    let Some((date, title)) = name
        .strip_suffix(".md")
        .and_then(|name| name.split_at_checked(10))
    else {
        return false;
    };
    let digits = date.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let word = |word: &str| {
        let mut bytes = word.bytes();
        !word.is_empty() && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    digits
        && ("01"..="12").contains(&&date[5..7])
        && ("01"..="31").contains(&&date[8..])
        && title
            .strip_prefix('-')
            .is_some_and(|title| title.split('-').all(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_named_by_date_and_title() {
        let check = |name, expected| assert_eq!(is_dated(name), expected, "{name}");
        check("2026-11-21-own-raw-data-walker.md", true);
        check("2026-11-21-tcp2.md", true);
        check("0001-own-walker.md", false);
        check("2026-13-21-own-walker.md", false);
        check("2026-11-32-own-walker.md", false);
        check("2026-11-21.md", false);
        check("2026-11-21-.md", false);
        check("2026-11-21-Own Walker.md", false);
        check("ä.md", false);
    }

    #[test]
    fn a_record_without_title_is_found() {
        let tree = Tree::of(&[
            ("docs/adr/README.md", "Anything."),
            ("docs/adr/2026-11-21-a.md", "Words."),
            ("docs/adr/old.md", "# Old"),
        ]);
        assert_eq!(
            check(&tree)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            [
                "docs/adr/2026-11-21-a.md: does not start with its title",
                "docs/adr/old.md: is not called YYYY-MM-DD-title.md",
            ]
        );
    }
}
