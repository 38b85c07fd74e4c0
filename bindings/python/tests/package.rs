//! The Python package, staged as a wheel would have it: its tests by pytest with farms of real processes, and the first
//! day of a new machine.

#[path = "../../../tests/farm/machine.rs"]
mod machine;
mod new_machine;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Folder of this crate.
const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// List of the packages that the tests need, of which their environment has a copy.
const WANTED: &str = "requirements-test.txt";

/// Returns the folder in which scripts/setup.sh has put `name`, if that is of the packages in [`WANTED`].
fn cached(name: &str, list: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let place = cache.or_else(home)?.join("sheaf").join(name);
    let wanted = fs::read(Path::new(HERE).join(WANTED)).expect("a list of packages");
    let has = fs::read(place.join(list)).is_ok_and(|has| has == wanted);
    has.then_some(place)
}

/// Returns the folder of programs of the Python that has the packages of the tests.
fn environment() -> Option<PathBuf> {
    cached("python", WANTED).map(|place| place.join("bin"))
}

/// Returns the folder in which cargo has built the libraries.
fn built() -> PathBuf {
    let me = std::env::current_exe().expect("this program");
    me.parent().expect("the folder of dependencies").to_owned()
}

/// Returns the program `sheaf`, which the tests of the workspace build.
fn program() -> PathBuf {
    let program = built().with_file_name("sheaf");
    assert!(
        program.exists(),
        "{} is not there: cargo test --workspace builds it",
        program.display()
    );
    program
}

/// Puts the package and its library together in `place`.
fn stage(place: &Path) {
    let package = place.join("sheaf");
    fs::create_dir_all(&package).expect("a new folder");
    for entry in fs::read_dir(Path::new(HERE).join("python/sheaf")).expect("the package") {
        let entry = entry.expect("a file of the package");
        if entry.file_type().expect("its type").is_file() {
            fs::copy(entry.path(), package.join(entry.file_name())).expect("a copy");
        }
    }
    fs::copy(built().join("lib_sheaf.so"), package.join("_sheaf.abi3.so")).expect("the library");
}

/// Waits for the only farms of this machine, and has them until the result is dropped.
fn turn() -> MutexGuard<'static, ()> {
    static ONE_FARM: Mutex<()> = Mutex::new(());
    ONE_FARM.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_tests_of_the_package_pass() {
    let Some(programs) = environment() else {
        println!("skipped: the packages of {WANTED} are not there: run scripts/setup.sh python");
        return;
    };
    let _turn = turn();
    let place = tempfile::tempdir().expect("a folder");
    stage(place.path());
    let status = Command::new(programs.join("python3"))
        .current_dir(HERE)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
        .env("PYTHONPATH", place.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SHEAF_PROGRAM", program())
        .status()
        .expect("Python starts");
    assert!(status.success(), "pytest: {status}");
}
