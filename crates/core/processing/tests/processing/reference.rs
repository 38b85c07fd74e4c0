//! The reference page has every operator, with its keys and an example that is valid.

use sheaf_processing::operator::{COMMON, TABLE};
use sheaf_processing::{Key, ProcessingConfig};

#[expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but the page that its table is compared with is a file"
)]
fn page() -> String {
    let path = format!(
        "{}/../../../docs/reference/processing.md",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn rows(keys: &[Key]) -> String {
    let row = |key: &Key| {
        let default = match key.default {
            "" => "–".to_owned(),
            "required" => "required".to_owned(),
            other => format!("`{other}`"),
        };
        format!(
            "| `{}` | {} | {default} | {} |\n",
            key.name, key.form, key.help
        )
    };
    let head = "| key | form | default | meaning |\n| --- | --- | --- | --- |\n";
    head.to_owned() + &keys.iter().map(row).collect::<String>()
}

#[test]
fn every_operator_has_its_section() {
    let page = page();
    assert!(page.contains(&rows(COMMON)), "expected:\n{}", rows(COMMON));
    for one in TABLE {
        let title = format!("\n### {}\n", one.name);
        let (_, section) = page
            .split_once(&title)
            .unwrap_or_else(|| panic!("no section {title}"));
        let section = section.split("\n### ").next().unwrap();
        let keys = if one.keys.is_empty() {
            String::new()
        } else {
            rows(one.keys)
        };
        for expected in [one.help, &*keys] {
            assert!(
                section.contains(expected),
                "{}: expected:\n{expected}",
                one.name
            );
        }
        assert!(
            section.contains(&format!("kind = \"{}\"", one.name)),
            "{}: no example",
            one.name
        );
    }
}

#[test]
fn every_example_is_valid() {
    let page = page();
    let examples: Vec<_> = page
        .split("```toml\n")
        .skip(1)
        .map(|part| part.split("```").next().unwrap())
        .collect();
    assert!(examples.len() >= TABLE.len());
    for example in examples {
        let config: ProcessingConfig =
            toml::from_str(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        config
            .check()
            .unwrap_or_else(|errors| panic!("{errors}\n{example}"));
    }
}
