//! Tables of `docs/reference/monitoring-protocols.md` against the code.

use sheaf_intake::{IntakeConfig, Reason};
use sheaf_samples::wire::Code;

#[expect(
    clippy::disallowed_methods,
    reason = "the test reads a page of the repository"
)]
fn page() -> String {
    // Asked when the test runs: a build folder may be shared between checkouts.
    let ours = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the variable");
    let path = format!("{ours}/../../../docs/reference/monitoring-protocols.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn row(name: &str, found: &str, advice: &str) -> String {
    format!("| `{name}` | {found} | {advice} |\n")
}

#[test]
fn the_page_has_every_code_and_reason_as_the_code_has_it() {
    let codes = Code::ALL.map(|code| row(code.name(), code.found(), code.advice()));
    let reasons = Reason::ALL.map(|reason| row(reason.name(), reason.found(), reason.advice()));
    let page = page();
    for table in [codes.concat(), reasons.concat()] {
        assert!(page.contains(&table), "the page needs this table:\n{table}");
    }
}

#[test]
fn the_page_has_the_default_of_every_bound() {
    let config = serde_json::to_value(IntakeConfig::default()).expect("plain numbers");
    let page = page();
    for (key, value) in config.as_object().expect("a table") {
        let row = format!("| `{key}` | {value} | ");
        assert!(
            page.contains(&row),
            "the page needs a row that begins with {row}"
        );
    }
}
