//! The Python package in `bindings/python`: staged from what the tests have built, and tested there. Skipped by name
//! without the packages that its tests need.

use crate::command::{root, succeed, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "bindings/python/python/sheaf";
/// List of the packages that the tests need, of which the place of the environment has a copy.
const WANTED: &str = "bindings/python/requirements-test.txt";

/// Runs the tests of the package against its library in `built` and the program `sheaf` at `program`.
pub(crate) fn test(built: &Path, program: &Path) -> Result<()> {
    let Some(python) = environment()? else {
        println!("python: skipped: no packages of the tests: run scripts/setup.sh test");
        return Ok(());
    };
    let place = stage(built)?;
    let mut command = Command::new(python);
    command
        .current_dir(root().join("bindings/python"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
        .env("PYTHONPATH", place)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SHEAF_PROGRAM", program);
    succeed(&mut command)
}

/// Puts the package and its library together as a wheel would, and returns the folder for `PYTHONPATH`.
fn stage(built: &Path) -> Result<PathBuf> {
    let place = target_dir().join("python");
    let package = place.join("sheaf");
    if package.exists() {
        fs::remove_dir_all(&package).context("cannot clear the staged package")?;
    }
    fs::create_dir_all(&package)?;
    for entry in fs::read_dir(root().join(PACKAGE))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), package.join(entry.file_name()))?;
        }
    }
    let library = built.join("lib_sheaf.so");
    fs::copy(&library, package.join("_sheaf.abi3.so"))
        .with_context(|| format!("cannot copy {}", library.display()))?;
    Ok(place)
}

/// Returns the Python that has the packages of the tests; `None` if they are not there, or are those of another list.
fn environment() -> Result<Option<PathBuf>> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let Some(cache) = cache.or_else(home) else {
        return Ok(None);
    };
    let place = cache.join("sheaf/python");
    let wanted = fs::read(root().join(WANTED)).context("cannot read the list of packages")?;
    let has = fs::read(place.join("requirements-test.txt")).is_ok_and(|has| has == wanted);
    Ok(has.then(|| place.join("bin/python3")))
}
