//! The tutorials of the book: their commands run as they are printed, and print what the pages say.
//!
//! A fenced block with the info string `LANGUAGE file=NAME` is a file of the reader. In one with `console run` a line
//! that begins with `$ ` is a command; every other line has to be in the output of the page, in order, where `…`
//! stands for any text. All commands of a page run in one shell, in one empty folder.

use crate::harness::{Ended, PROGRAM, Running, farm_turn};
use crate::program::{Kind, program};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files, commands and expected lines of one page.
#[derive(Debug, Default)]
struct Tutorial {
    files: Vec<(String, String)>,
    script: String,
    expected: Vec<String>,
}

impl Tutorial {
    /// Reads the files of `page` and its blocks `console run`.
    fn parse(page: &str) -> Self {
        Self::parse_blocks(page, "console run")
    }

    /// Reads the files of `page` and the blocks with the info string `run`.
    fn parse_blocks(page: &str, run: &str) -> Self {
        let mut tutorial = Self::default();
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            let Some(info) = line.strip_prefix("```") else {
                continue;
            };
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if let Some((_, name)) = info.split_once(" file=") {
                let text = block.join("\n") + "\n";
                tutorial.files.push((name.to_owned(), text));
            } else if info == run {
                tutorial.add(&block);
            }
        }
        tutorial
    }

    fn add(&mut self, block: &[&str]) {
        for line in block {
            match line.strip_prefix("$ ") {
                Some(command) => self.script += &format!("{command}\n"),
                None => self.expected.push((*line).to_owned()),
            }
        }
    }

    /// Returns the first expected line that `output` lacks.
    fn missing<'a>(&'a self, output: &[String]) -> Option<&'a str> {
        let mut output = output.iter();
        let mut found = |pattern: &str| output.any(|line| matches(pattern, line));
        let lacking = self.expected.iter().find(|pattern| !found(pattern));
        lacking.map(String::as_str)
    }
}

/// Whether `line` has the pieces of `pattern` between its `…`, in order.
fn matches(pattern: &str, line: &str) -> bool {
    let mut rest = line;
    pattern.split('…').all(|piece| {
        let piece = piece.trim();
        rest.find(piece).is_some_and(|at| {
            rest = &rest[at + piece.len()..];
            true
        })
    })
}

fn page(name: &str) -> PathBuf {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/tutorials");
    docs.join(name).with_extension("md")
}

/// Runs the tutorial `name` in an empty folder.
#[track_caller]
fn check(name: &str) {
    let text = std::fs::read_to_string(page(name)).expect("the page is there");
    check_blocks(name, &Tutorial::parse(&text), &[]);
}

/// Runs `tutorial` in an empty folder, with the programs in `first` found before all others.
#[track_caller]
fn check_blocks(name: &str, tutorial: &Tutorial, first: &[PathBuf]) {
    let _turn = farm_turn();
    assert!(!tutorial.script.is_empty(), "{name} has no commands");
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in &tutorial.files {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let ended = run(&tutorial.script, folder.path(), first);
    assert!(
        ended.status.success(),
        "{name}: {:#?}\n{}",
        ended.stdout,
        ended.stderr
    );
    if let Some(line) = tutorial.missing(&ended.stdout) {
        panic!(
            "{name}: no line {line:?} in {:#?}\n{}",
            ended.stdout, ended.stderr
        );
    }
}

/// Runs `script` with the program under test first in the path. A script that hangs is ended with all its processes.
fn run(script: &str, folder: &Path, first: &[PathBuf]) -> Ended {
    let programs = Path::new(PROGRAM).parent().expect("it lies in a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = first.iter().cloned().chain([programs.to_owned()]);
    let path = std::env::join_paths(paths.chain(std::env::split_paths(&path))).unwrap();
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        "120",
        "bash",
        "-euo",
        "pipefail",
        "-c",
        script,
    ]);
    command.current_dir(folder).env("PATH", path);
    Running::of(command).end()
}

#[test]
fn first_farm() {
    check("first-farm");
}

#[test]
fn feed_your_readout() {
    check("feed-your-readout");
}

#[test]
fn consume_in_your_program() {
    check("consume-in-your-program");
}

#[test]
fn two_machines_with_tls() {
    check("two-machines-with-tls");
}

#[test]
fn first_experiment() {
    check("first-experiment");
}

#[test]
fn first_policy() {
    check("first-policy");
}

/// The page of ZeroMQ, which is no tutorial, but has commands as well.
fn zmq_page(run: &str) -> Tutorial {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/how-to/zmq.md");
    Tutorial::parse_blocks(&std::fs::read_to_string(page).unwrap(), run)
}

#[test]
fn the_python_of_the_zmq_page() {
    if program(Kind::Pyzmq, "any").is_none() {
        return;
    }
    // Debian's package belongs to Debian's Python, which need not be the first on the path.
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", folder.path().join("python3")).unwrap();
    let first = [folder.path().to_owned()];
    check_blocks("zmq.md", &zmq_page("console run"), &first);
}

#[test]
fn the_fairmq_of_the_zmq_page() {
    let Some(prefix) = std::env::var_os("SHEAF_FAIRMQ_PREFIX").map(PathBuf::from) else {
        println!("skipped: SHEAF_FAIRMQ_PREFIX is not set; tools/fairmq.sh builds FairMQ");
        return;
    };
    let programs = prefix.join("bin");
    for program in ["fairmq-bsampler", "fairmq-sink"] {
        let found = programs.join(program);
        assert!(
            found.exists(),
            "{} is not there, expected {program} of FairMQ",
            found.display()
        );
    }
    check_blocks("zmq.md", &zmq_page("console run fairmq"), &[programs]);
}

#[test]
fn every_command_of_the_zmq_page_is_run() {
    let (python, fairmq) = (zmq_page("console run"), zmq_page("console run fairmq"));
    for (tutorial, words) in [
        (&python, ["producer.py", "consumer.py"]),
        (&fairmq, ["fairmq-sink --id", "fairmq-bsampler --id"]),
    ] {
        for word in words {
            assert!(tutorial.script.contains(word), "{word} is in no block");
        }
        assert!(
            tutorial
                .files
                .iter()
                .any(|(name, _)| tutorial.script.contains(name))
        );
    }
    for line in fairmq
        .script
        .lines()
        .filter(|line| line.starts_with("fairmq-"))
    {
        assert!(line.contains(" --control static "), "{line}");
    }
}

#[test]
fn every_tutorial_has_a_test() {
    let this = include_str!("tutorials.rs");
    // It needs the package, which is tested there.
    let of_python = include_str!("../../bindings/python/tests/test_docs.py");
    let folder = page("any");
    let folder = folder.parent().expect("it lies in a folder");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy();
        let is_here = this.contains(&format!("check(\"{name}\")"));
        let is_there = of_python.contains(&format!("follow(DOCS / \"tutorials/{name}.md\""));
        assert!(is_here || is_there, "{name}");
    }
}

#[test]
fn a_page_whose_output_differs_is_noticed() {
    let text = "```toml file=a.toml\nx = 1\n```\n```console run\n$ cat a.toml\nx = …\n$ echo b\nb\n```\n```\n$ false\n```\n";
    let tutorial = Tutorial::parse(text);
    assert_eq!(
        tutorial.files,
        [("a.toml".to_owned(), "x = 1\n".to_owned())]
    );
    assert_eq!(tutorial.script, "cat a.toml\necho b\n");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(tutorial.missing(&lines("x = 1\nb")), None);
    assert_eq!(tutorial.missing(&lines("b\nx = 1")), Some("b"));
    assert_eq!(tutorial.missing(&lines("y = 1\nb")), Some("x = …"));
}
