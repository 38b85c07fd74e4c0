//! The library, installed as a user has it, and programs that are compiled against it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Folder of this crate.
pub(crate) const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A language of programs.
#[derive(Clone, Copy)]
pub(crate) enum Language {
    C,
    Cpp,
}

impl Language {
    pub(crate) fn compilers(self) -> [&'static str; 2] {
        match self {
            Self::C => ["gcc", "clang"],
            Self::Cpp => ["g++", "clang++"],
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "c++",
        }
    }

    fn standard(self) -> &'static str {
        match self {
            Self::C => "-std=c99",
            Self::Cpp => "-std=c++17",
        }
    }
}

/// Runs `command`, and returns its standard output. Fails the test if it fails.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

/// Returns the folder into which the library is installed, once for all tests.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let me = std::env::current_exe().expect("this program");
        let built = me.parent().expect("the folder of dependencies");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
        // That of a build before is written over.
        run(Command::new(format!("{HERE}/../../scripts/c.sh"))
            .arg(built)
            .arg(&place));
        place
    })
}

/// Returns the shared library.
pub(crate) fn library() -> PathBuf {
    prefix().join("lib/libsheaf.so")
}

/// Returns the words of pkg-config for `what`.
fn flags(what: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let told = run(command.args(what).arg("sheaf"));
    told.split_whitespace().map(str::to_owned).collect()
}

/// Compiles the program `source`, and returns where it is.
#[track_caller]
pub(crate) fn compile(compiler: &str, language: Language, source: &Path, more: &[&str]) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = source
        .file_name()
        .expect("a file")
        .to_string_lossy()
        .replace('.', "_");
    let program = prefix().join(format!("{name}-{number}"));
    let mut command = Command::new(compiler);
    command
        .args([language.standard(), "-D_POSIX_C_SOURCE=200809L"])
        .args(more);
    command
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(flags(&["--cflags", "--libs"]));
    command.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
    run(&mut command);
    program
}

/// Looks at the functions in `source` without making a program.
#[track_caller]
pub(crate) fn look_at(compiler: &str, language: Language, source: &Path, more: &[&str]) {
    let mut command = Command::new(compiler);
    command.args([language.standard(), "-fsyntax-only", "-x", language.word()]);
    run(command.args(more).args(flags(&["--cflags"])).arg(source));
}

/// Compiles the program `source` in C with the static library, into `folder`.
pub(crate) fn link_static(source: &Path, folder: &Path) -> PathBuf {
    let program = folder.join("alone");
    let mut command = Command::new("gcc");
    command
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(flags(&["--cflags"]));
    command.arg(prefix().join("lib/libsheaf.a"));
    let needed = flags(&["--libs", "--static"]);
    command.args(needed.iter().filter(|word| *word != "-lsheaf"));
    run(&mut command);
    program
}
