//! Output of the tables of messages and records: test vectors and the layouts on the protocol page.
//!
//! `cargo run --profile ci -p sheaf-fuzz --example seeds` writes both; a test holds them against the tables.

use sheaf_protocol::{Control, Envelope, EpnId, Incarnation, Layout, NodeId, Record, RunId, Term};

/// The page with the layouts, from the root of the repository.
pub const PAGE: &str = "docs/reference/protocol.md";
/// Markers around the layouts on the page.
const BEGIN: &str = "<!-- layouts: written by the example `seeds` of tools/fuzz -->\n";
const END: &str = "<!-- layouts end -->\n";

/// The envelope of every sample.
#[must_use]
pub fn envelope() -> Envelope {
    Envelope {
        minor: 0,
        run: RunId(0x1122),
        sender: NodeId::from(EpnId(4)),
        incarnation: Incarnation(5),
        term: Term(6),
        sequence: 7,
    }
}

/// Files of test vectors, by path from the root of the repository.
#[must_use]
pub fn vectors() -> Vec<(&'static str, String)> {
    let control = Control::samples();
    let control = control
        .iter()
        .map(|control| line(control.name(), &control.encode(&envelope())));
    let records = Record::samples();
    let records = records.iter().map(|record| {
        let mut bytes = Vec::new();
        record.encode_into(&mut bytes);
        line(record.name(), &bytes)
    });
    vec![
        (
            "crates/base/protocol/vectors/control.txt",
            control.collect(),
        ),
        ("crates/base/protocol/vectors/record.txt", records.collect()),
    ]
}

fn line(name: &str, bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} {digits}\n")
}

/// Returns `page` with the layouts as the tables have them; `None` if it has no place for them.
#[must_use]
pub fn with_layouts(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, behind) = rest.split_once(END)?;
    let (control, records) = (layouts(&Control::layouts()), layouts(&Record::layouts()));
    Some(format!(
        "{before}{BEGIN}\nControl messages:\n\n{control}\nRecords of the verdict log:\n\n{records}\n{END}{behind}"
    ))
}

fn layouts(rows: &[Layout]) -> String {
    let mut table = "| code | name | bytes | fields |\n| --- | --- | --- | --- |\n".to_owned();
    for row in rows {
        let Layout {
            code,
            name,
            bytes_min,
            is_fixed,
            fields,
        } = row;
        let at_least = if *is_fixed { "" } else { "≥ " };
        let fields = if fields.is_empty() { "–" } else { fields };
        table.push_str(&format!(
            "| {code} | `{name}` | {at_least}{bytes_min} | {fields} |\n"
        ));
    }
    table
}
