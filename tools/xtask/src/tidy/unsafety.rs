//! Where `unsafe` may stand: in the files named here, and nowhere else.

use super::Finding;
use super::tree::Tree;

/// The files, each with what it is needed for. A new one is a decision: name it here and say why in its commit.
const ALLOWED: [(&str, &str); 16] = [
    (
        "tools/peers/plain_tcp/src/pool.rs",
        "memory mapping, as the peer of the arena",
    ),
    (
        "crates/io/transport/src/arena.rs",
        "blocks of mapped memory that many owners share",
    ),
    ("crates/io/transport/src/mapping.rs", "memory mapping"),
    (
        "crates/io/transport/src/memory_nodes.rs",
        "the memory policy of a thread, which has no safe interface",
    ),
    (
        "crates/io/transport/src/shm/lent.rs",
        "bodies of a peer, read where they lie",
    ),
    (
        "crates/io/stream-files/src/ring.rs",
        "writes by io_uring, which has no safe interface",
    ),
    (
        "crates/io/transport/src/tcp/kernel_tls.rs",
        "keys of a socket and types of records, which have no safe interface",
    ),
    (
        "crates/io/transport/src/tcp/zero_copy.rs",
        "the error queue of a socket, which has no safe interface",
    ),
    (
        "bindings/c/src/border.rs",
        "pointers of C, and the mask of signals, which have no safe interface",
    ),
    ("bindings/c/src/abi.rs", "names of functions that C finds"),
    (
        "bindings/c/src/consumer.rs",
        "names of functions that C finds",
    ),
    ("bindings/c/src/file.rs", "names of functions that C finds"),
    (
        "bindings/c/src/source.rs",
        "names of functions that C finds",
    ),
    ("bindings/c/src/tf.rs", "names of functions that C finds"),
    (
        "bindings/python/src/part.rs",
        "the buffer protocol of Python, which has no safe interface",
    ),
    (
        "crates/io/transport/tests/transport/steady.rs",
        "an allocator that counts",
    ),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lints = "unsafe_code = \"deny\"";
    if !tree
        .text("Cargo.toml")
        .lines()
        .any(|line| line.trim() == lints)
    {
        findings.push(Finding::of_file(
            "Cargo.toml",
            format!("lacks the lint {lints}"),
        ));
    }
    for (path, text) in tree.with_extension("toml") {
        let is_crate = path.ends_with("Cargo.toml") && text.contains("[package]");
        // One with a workspace of its own has lints of its own; its code is looked at all the same.
        let is_ours = is_crate && !text.contains("[workspace]");
        if is_ours && !text.contains("[lints]\nworkspace = true") {
            findings.push(Finding::of_file(
                path,
                "does not take the lints of the workspace",
            ));
        }
    }
    for (path, text) in tree.with_extension("rs") {
        let is_allowed = ALLOWED.iter().any(|(allowed, _)| *allowed == path);
        let uses = text.lines().enumerate().filter(|(_, line)| is_unsafe(line));
        let uses: Vec<usize> = uses.map(|(index, _)| index).collect();
        match (is_allowed, uses.first()) {
            (false, Some(index)) => {
                let message =
                    "unsafe code, in a file that may have none (tools/xtask/src/tidy/unsafety.rs)";
                findings.push(Finding::of_line(path, *index, message));
            }
            (true, None) => {
                findings.push(Finding::of_file(
                    path,
                    "has no unsafe code, and is allowed to have some",
                ));
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    findings
}

/// Whether the line has the keyword in front of what it makes unsafe, outside of comments and texts, or switches the
/// lint off.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or("");
    // What stands in quotes is text. Odd parts of the line, counted from 0.
    let code: String = code.split('"').step_by(2).collect();
    let words: Vec<&str> = code
        .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '{')
        .collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let forms = ["{", "fn", "impl", "extern", "trait", "no_mangle"];
    words.contains(&"unsafe_code")
        || words
            .windows(2)
            .any(|pair| pair[0] == "unsafe" && forms.contains(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINT: &str = "[workspace.lints.rust]\nunsafe_code = \"deny\"\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let used = ALLOWED.map(|(path, _)| (path, "let x = unsafe { y() };"));
        let all: Vec<(&str, &str)> = used.iter().chain(files).copied().collect();
        check(&Tree::of(&all))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn unsafe_code_stands_where_it_is_named_and_nowhere_else() {
        let say = "crates/a/src/lib.rs:1: unsafe code, in a file that may have none (tools/xtask/src/tidy/unsafety.rs)";
        for bad in [
            "let x = unsafe { y() };",
            "unsafe impl Send for A {}",
            "pub unsafe fn f() {}",
            "unsafe extern {",
            "#[unsafe(no_mangle)]",
            "#![allow(unsafe_code)]",
            "    unsafe_code,",
        ] {
            assert_eq!(
                found(&[("Cargo.toml", LINT), ("crates/a/src/lib.rs", bad)]),
                [say],
                "{bad}"
            );
        }
        for good in [
            "// unsafe { }",
            &format!("let text = {:?};", "unsafe fn"),
            "/// An unsafe idea",
            "let unsafe_code_count = 1;",
        ] {
            let good = [("Cargo.toml", LINT), ("crates/a/src/lib.rs", good)];
            assert_eq!(found(&good), [""; 0], "{good:?}");
        }
    }

    #[test]
    fn a_file_that_needs_no_exception_has_none() {
        let mut tree = Tree::of(&[("Cargo.toml", LINT)]);
        ALLOWED
            .iter()
            .for_each(|(path, _)| tree.add(path, "fn f() {}"));
        let found = check(&tree);
        assert_eq!(found.len(), ALLOWED.len());
    }

    #[test]
    fn the_lint_is_on_in_every_crate() {
        let crate_file = "[package]\nname = \"a\"\n";
        let found = found(&[
            ("Cargo.toml", "[workspace]"),
            ("crates/a/Cargo.toml", crate_file),
        ]);
        let expected = [
            "Cargo.toml: lacks the lint unsafe_code = \"deny\"",
            "crates/a/Cargo.toml: does not take the lints of the workspace",
        ];
        assert_eq!(found, expected);
    }
}
