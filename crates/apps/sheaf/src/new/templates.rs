//! Packages that `sheaf new` writes: those of examples/new, which are built and tested with everything else.

use super::{Kind, Language};

/// Package of one kind in one language.
pub(super) struct Template {
    pub(super) kind: Kind,
    pub(super) language: Language,
    /// Files with their texts, which have the name of the template.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Commands that come next, in the folder.
    pub(super) next: &'static [&'static str],
}

/// Takes files of a folder of examples/new as they are.
macro_rules! files {
    ($folder:literal: $($file:literal)*) => {
        &[$((
            $file,
            include_str!(concat!("../../../../../examples/new/", $folder, "/", $file)),
        )),*]
    };
}

/// All templates.
pub(super) const TEMPLATES: &[Template] = &[
    Template {
        kind: Kind::Policy,
        language: Language::Python,
        files: files!("policy-python":
            "README.md" "my_policy.py" "pyproject.toml" "tests/test_my_policy.py"),
        next: &[
            "pip install -e .[test]",
            "pytest",
            "my-policy demo --policy my-policy",
        ],
    },
    Template {
        kind: Kind::Policy,
        language: Language::Rust,
        files: files!("policy-rust":
            "Cargo.toml" "README.md" "src/lib.rs" "src/main.rs" "tests/my_policy.rs"),
        next: &[
            "cargo test",
            "cargo run --release -- demo --policy my-policy",
        ],
    },
    Template {
        kind: Kind::Source,
        language: Language::Python,
        files: files!("source-python":
            "README.md" "my_source.py" "pyproject.toml" "tests/test_my_source.py"),
        next: &[
            "pip install -e .[test]",
            "pytest",
            "my-source farm.toml --index 0",
        ],
    },
    Template {
        kind: Kind::Sink,
        language: Language::Python,
        files: files!("sink-python":
            "README.md" "my_sink.py" "pyproject.toml" "tests/test_my_sink.py"),
        next: &[
            "pip install -e .[test]",
            "pytest",
            "my-sink shm:/run/sheaf/epn-0 /data",
        ],
    },
];
