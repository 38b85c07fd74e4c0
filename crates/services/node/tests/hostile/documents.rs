//! The reference page of the codes.

use sheaf_protocol::reject::Code;
use std::path::Path;

#[test]
fn the_documents_have_every_code_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/codes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let [_, number, name, input, sent_by, ends, ..] = cells.as_slice()
            && let Ok(number) = number.parse::<u8>()
        {
            rows.push((number, name.trim_matches('`'), *input, *sent_by, *ends));
        }
    }
    let row = |code: Code| {
        let (input, sent_by) = (code.input(), code.sent_by());
        (code.number(), code.name(), input, sent_by, code.ends())
    };
    let expected: Vec<_> = Code::ALL.into_iter().map(row).collect();
    assert_eq!(rows, expected);
}
