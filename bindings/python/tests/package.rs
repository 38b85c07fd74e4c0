//! The Python package, staged as a wheel would have it, and its tests by pytest: farms of real processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of this crate.
const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// List of the packages that the tests need, of which their environment has a copy.
const WANTED: &str = "requirements-test.txt";

/// Returns the Python that has the packages of the tests, as scripts/setup.sh makes it.
fn environment() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let place = cache.or_else(home)?.join("sheaf/python");
    let wanted = fs::read(Path::new(HERE).join(WANTED)).expect("a list of packages");
    let has = fs::read(place.join(WANTED)).is_ok_and(|has| has == wanted);
    has.then(|| place.join("bin/python3"))
}

/// Puts the package and the library in `built` together in `place`.
fn stage(built: &Path, place: &Path) {
    let package = place.join("sheaf");
    fs::create_dir(&package).expect("a new folder");
    for entry in fs::read_dir(Path::new(HERE).join("python/sheaf")).expect("the package") {
        let entry = entry.expect("a file of the package");
        if entry.file_type().expect("its type").is_file() {
            fs::copy(entry.path(), package.join(entry.file_name())).expect("a copy");
        }
    }
    fs::copy(built.join("lib_sheaf.so"), package.join("_sheaf.abi3.so")).expect("the library");
}

#[test]
fn the_tests_of_the_package_pass() {
    let Some(python) = environment() else {
        println!("skipped: the packages of {WANTED} are not there: run scripts/setup.sh python");
        return;
    };
    let me = std::env::current_exe().expect("this program");
    let built = me.parent().expect("the folder of dependencies");
    let program = built.with_file_name("sheaf");
    assert!(
        program.exists(),
        "{} is not there: cargo test --workspace builds it",
        program.display()
    );
    let place = tempfile::tempdir().expect("a folder");
    stage(built, place.path());
    let status = Command::new(python)
        .current_dir(HERE)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
        .env("PYTHONPATH", place.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SHEAF_PROGRAM", program)
        .status()
        .expect("Python starts");
    assert!(status.success(), "pytest: {status}");
}
