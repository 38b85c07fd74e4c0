//! Tests that farm file and reference page name the policies of the table, no more and no fewer.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but the pages that its table is compared with are files"
)]

use sheaf_placement::policy::{NAMES, choices};

fn read(name: &str) -> String {
    let path = format!("{}/../../../{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_example_farm_file_lists_every_policy() {
    let words = read("config/example.toml").replace("\n# ", " ");
    let expected = format!("{};", choices());
    assert!(words.contains(&expected), "expected: {expected}");
}

#[test]
fn the_reference_page_has_a_row_for_every_policy() {
    let page = read("docs/explanation/policies.md");
    let (_, section) = page.split_once("\n## Policies\n").expect("a heading");
    let rows = section.lines().skip_while(|line| !line.starts_with("| `"));
    let names: Vec<&str> = rows
        .take_while(|line| line.starts_with('|'))
        .filter_map(|row| row.split('`').nth(1))
        .collect();
    assert_eq!(names, NAMES);
}
