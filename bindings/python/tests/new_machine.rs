//! The first day of a new machine: packages for Debian and a wheel are installed in a new root of Debian, the tutorial
//! is done as written, and a farm over three networks loses an EPN and no TF (`new_machine/run.sh`).

use crate::machine::missing;
use crate::{HERE, built, cached, environment, program, stage, turn};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `command`, and returns its standard output. Fails the test if it fails.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    let status = output.status;
    assert!(
        status.success(),
        "{command:?}: {status}\n{stdout}\n{stderr}"
    );
    stdout.into_owned()
}

/// Makes the packages for Debian: of the program, and of the library for C and C++.
fn debian_packages(folder: &Path) -> Vec<PathBuf> {
    let script = |name: &str, built: &Path| {
        let mut command = Command::new(format!("{HERE}/../../scripts/{name}"));
        // Half a minute less for each package.
        command.env("SHEAF_DEB_COMPRESSION", "none");
        run(command.arg(built).arg(folder))
    };
    let told = script("deb.sh", &program()) + &script("deb-c.sh", &built());
    told.lines().map(PathBuf::from).collect()
}

/// Makes the wheel that `make wheel` makes, of what the tests of the workspace have built.
fn wheel(programs: &Path, folder: &Path) -> PathBuf {
    let place = folder.join("wheel");
    stage(&place);
    // Where `make wheel` puts the program. maturin looks for it here, and git does not.
    fs::create_dir_all(Path::new(HERE).join("sheaf.data/scripts")).expect("a folder");
    let mut metadata = Command::new(programs.join("maturin"));
    metadata
        .current_dir(HERE)
        .args(["pep517", "write-dist-info", "--metadata-directory"])
        .arg(&place)
        .arg("--interpreter")
        .arg(programs.join("python3"));
    let told = run(&mut metadata);
    let info = told.lines().last().expect("the folder of metadata");
    let data = place.join(info.replace(".dist-info", ".data/scripts"));
    fs::create_dir_all(&data).expect("a folder");
    fs::copy(program(), data.join("sheaf")).expect("a copy");
    let mut pack = Command::new(programs.join("wheel"));
    run(pack.arg("pack").arg("--dest-dir").arg(folder).arg(&place));
    let mut files = fs::read_dir(folder).expect("the folder");
    let wheel = files.find_map(|file| {
        let path = file.expect("a file").path();
        (path.extension()? == "whl").then_some(path)
    });
    wheel.expect("a wheel")
}

#[test]
fn a_new_machine_does_the_tutorial_and_runs_a_farm_that_loses_an_epn_and_no_tf() {
    let test = "a_new_machine_does_the_tutorial_and_runs_a_farm_that_loses_an_epn_and_no_tf";
    let debian = cached("debian", "srv/requirements-test.txt").zip(environment());
    let needed = match missing() {
        Some(why) => Err(why),
        None => debian.ok_or("needs a root of Debian: run scripts/setup.sh debian"),
    };
    let (debian, programs) = match needed {
        Ok(needed) => needed,
        Err(why) => {
            eprintln!("{test} skipped: {why}");
            return;
        }
    };
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let mut packages = debian_packages(folder.path());
    packages.push(wheel(&programs, folder.path()));
    let place = folder.path().join("machine");
    fs::create_dir(&place).expect("a folder");
    let here = Path::new(HERE).join("tests");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(here.join("new_machine/run.sh"))
        .arg(debian)
        .arg(&place)
        .arg(folder.path())
        .arg(Path::new(HERE).join("../../docs/tutorials/python.md"))
        .args(packages)
        .arg(here.join("page.py"))
        .args(
            ["farm.py", "readout.py", "analysis.cpp"]
                .map(|name| here.join("new_machine").join(name)),
        );
    let told = run(&mut command);
    println!("{told}");
    let held = told.lines().filter(|line| line.starts_with("held: "));
    assert_eq!(held.count(), 5, "{told}");

    let found = fs::read_to_string(folder.path().join("farm.json")).expect("what was found");
    let found: Value = serde_json::from_str(&found).expect("JSON");
    println!("{found:#}");
    assert_eq!(found["lost"], 0, "{found:#}");
    assert_eq!(found["books"]["complete"], 400, "{found:#}");
    let by_epn = found["by_epn"].as_array().expect("three EPNs");
    // The one that was killed had begun, and both others went on.
    assert!(
        by_epn.iter().all(|tfs| tfs.as_u64() >= Some(50)),
        "{found:#}"
    );
    let figure = fs::read(folder.path().join("farm.png")).expect("a figure");
    assert!(figure.starts_with(b"\x89PNG") && figure.len() > 10_000);
    if let Some(kept) = std::env::var_os("SHEAF_FIGURE") {
        fs::write(kept, figure).expect("a copy of the figure");
    }
}
