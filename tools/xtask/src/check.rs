//! The stages of `cargo xtask check`: what they run, how long they took, what failed.

use crate::background::Job;
use crate::command::{cargo, host, root, succeed, succeed_or_repeat, target_dir};
use crate::nightly::has_nightly;
use crate::tally::Tally;
use crate::{book, fuzz, miri, pages, tidy};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time that a cold run on two cores may take.
const BUDGET: Duration = Duration::from_secs(35 * 60);

/// Arguments that build everything that runs: once, with the switches of the mutants, which are off by default.
const TESTS: [&str; 7] = [
    "test",
    "--profile",
    "ci",
    "--locked",
    "--workspace",
    "--features",
    "sheaf-sim/mutants,sheaf-verdict-log/mutants",
];

/// Targets whose tests can be asked for by name: all but benches, which take other arguments.
const TARGETS_WITH_NAMES: [&str; 5] = ["--lib", "--bins", "--examples", "--test", "*"];
/// Tests that may fail beside others and are run once more, alone.
const ALONE_MAX: usize = 5;
/// Seeds of the collector of monitoring: about 40 s of one core.
const MONITOR_SEEDS: &str = "300";
/// Seeds of writers of files: lives and deaths on a simulated disk, more than 10,000 deaths.
const WRITER_SEEDS: &str = "5000";

/// One step of the check. They run in the order of [`Stage::ALL`]: cheap ones first, and what only
/// reads the sources before what builds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Downloads the dependencies, so that the other stages need no network.
    Fetch,
    /// Format.
    Fmt,
    /// Statements of the repository about itself: arrows, layers, links, words.
    Tidy,
    /// The book of `docs/`, built by mdBook, warnings denied.
    Book,
    /// Unit tests and build of the pages of `web/`, before what embeds them is built.
    Pages,
    /// Lints, warnings denied.
    Clippy,
    /// Documentation, warnings denied.
    Doc,
    /// All tests, the examples in the docs, and the benches on tiny input.
    Test,
    /// Pages of the collector in headless Chromium.
    Browser,
    /// Simulated farms under faults: past failures, then 20,000 seeds from the commit id, 1,000 of farms with a
    /// ZooKeeper or with disks, and 1,000 of farms whose STFs are fetched; then the collector of monitoring, writers
    /// of files, and EPNs that hand TFs to writer nodes.
    Torture,
    /// Every protection taken out once, with the feature `mutants`: the simulator must notice.
    Mutants,
    /// Memory that is shared out by hand, under Miri; skipped by name without a nightly toolchain that has it.
    Miri,
    /// Every fuzz target for some seconds; without a nightly toolchain the corpus alone.
    Fuzz,
    /// Faults injected into farms of real processes, and a soak of 45 s. Last: what they measure wants a quiet machine.
    Faults,
}

impl Stage {
    const ALL: [Self; 14] = [
        Self::Fetch,
        Self::Fmt,
        Self::Tidy,
        Self::Book,
        Self::Pages,
        Self::Clippy,
        Self::Doc,
        Self::Test,
        Self::Browser,
        Self::Torture,
        Self::Mutants,
        Self::Miri,
        Self::Fuzz,
        Self::Faults,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Fmt => "fmt",
            Self::Tidy => "tidy",
            Self::Book => "book",
            Self::Pages => "pages",
            Self::Browser => "browser",
            Self::Clippy => "clippy",
            Self::Doc => "doc",
            Self::Test => "test",
            Self::Faults => "faults",
            Self::Fuzz => "fuzz",
            Self::Torture => "torture",
            Self::Mutants => "mutants",
            Self::Miri => "miri",
        }
    }

    fn named(name: &str) -> Result<Self> {
        let known = || Self::ALL.map(Self::name).join(" ");
        let found = Self::ALL.into_iter().find(|stage| stage.name() == name);
        found.with_context(|| {
            format!(
                "stage {name:?} does not exist, expected one of: {}",
                known()
            )
        })
    }

    /// Runs the stage; tests are counted in `tally`.
    ///
    /// Building stages name the profile, so that all of them together build every crate once.
    fn run(self, tally: &mut Tally) -> Result<()> {
        match self {
            Self::Fetch => {
                succeed(cargo().args(["fetch", "--locked", "--target", &host()?]))?;
                if has_nightly(&[]) {
                    fuzz::fetch()
                } else {
                    Ok(())
                }
            }
            Self::Fmt => succeed(cargo().args(["fmt", "--all", "--check"])),
            Self::Tidy => {
                ensure!(tidy::run(&root())?, "the repository is not as it says");
                Ok(())
            }
            Self::Book => book::build(),
            Self::Pages => pages::test(),
            Self::Browser => pages::browse(Path::new(built("sheaf")?.get_program())),
            Self::Clippy => succeed(
                cargo()
                    .args([
                        "clippy",
                        "--profile",
                        "ci",
                        "--locked",
                        "--workspace",
                        "--all-targets",
                    ])
                    .args(["--", "-D", "warnings"]),
            ),
            Self::Doc => succeed(
                cargo()
                    .args([
                        "doc",
                        "--profile",
                        "ci",
                        "--locked",
                        "--workspace",
                        "--no-deps",
                    ])
                    .env("RUSTDOCFLAGS", "-D warnings"),
            ),
            Self::Test => test(tally),
            Self::Faults => {
                let lab = |words: &[&str]| {
                    succeed_or_repeat(built("sheaf")?.arg("lab").args(words), |_| ())
                };
                // Both, also if the first one fails: they find different things.
                let cells = lab(&["faults", "--quick", "--slack", "3"]);
                cells.and(lab(&["soak", "--duration", "45s"]))
            }
            Self::Torture => {
                let torture = |words: &[&str]| {
                    let mut command = built("sheaf")?;
                    succeed_or_repeat(command.args(["sim", "torture"]).args(words), |_| ())
                };
                torture(&["--past", "crates/verify/sim/seeds/past-failures.txt"])?;
                // All, also if the first one fails: they find different things.
                let swarm = torture(&["--seeds", "20000"]);
                let outside = torture(&["--kind", "outside", "--seeds", "1000"]);
                let grants = torture(&["--kind", "grants", "--seeds", "1000"]);
                let redelivery = torture(&["--kind", "redelivery", "--seeds", "1000"]);
                let processed = torture(&["--kind", "processed", "--seeds", "500"]);
                let monitor = torture(&["--kind", "monitor", "--seeds", MONITOR_SEEDS]);
                let writers = torture(&["--kind", "writers", "--seeds", WRITER_SEEDS]);
                let handoff = torture(&["--kind", "handoff", "--seeds", WRITER_SEEDS]);
                let narrow = ["runs", "lives", "control-cut", "replays", "starved"]
                    .map(|kind| torture(&["--kind", kind, "--seeds", "300"]));
                let narrow = narrow.into_iter().fold(
                    redelivery
                        .and(processed)
                        .and(monitor)
                        .and(writers)
                        .and(handoff),
                    Result::and,
                );
                swarm.and(outside).and(grants).and(narrow)
            }
            Self::Mutants => succeed(built("mutants")?.arg("check")),
            Self::Miri => miri::run(),
            Self::Fuzz if has_nightly(&[]) => fuzz::run(),
            Self::Fuzz => {
                println!("fuzz: skipped: no nightly toolchain (rustup toolchain install nightly)");
                let args = ["test", "--profile", "ci", "--locked", "-p", "sheaf-fuzz"];
                succeed(cargo().args(args).args(["--test", "corpus"]))
            }
        }
    }
}

/// A program as the tests have built it: asked for alone it would have other features, and be built once more.
fn built(name: &str) -> Result<Command> {
    succeed(cargo().args(TESTS).args(["--no-run", "--quiet"]))?;
    let mut command = Command::new(target_dir().join("ci").join(name));
    command.current_dir(root());
    Ok(command)
}

/// Starts the stages that can run beside the tests; each is awaited when its turn comes. Everything is
/// built before, so that no test measures a compiler.
fn begin_early(stages: &[Stage]) -> Result<Vec<(Stage, Job)>> {
    let mut jobs = Vec::new();
    let wants = |stage| stages.contains(&Stage::Test) && stages.contains(&stage);
    if wants(Stage::Torture) {
        succeed(cargo().args(TESTS).arg("--no-run"))?;
        let args = ["check", "--only", "torture"];
        jobs.push((Stage::Torture, Job::of_xtask("torture", &args)?));
    }
    if wants(Stage::Fuzz) && has_nightly(&[]) {
        jobs.push((Stage::Fuzz, Job::of_xtask("fuzz", &["fuzz-build"])?));
    }
    Ok(jobs)
}

/// The stages that `--only` and `--skip` leave, in order; all if there is neither.
pub(crate) fn select(args: &[String]) -> Result<Vec<Stage>> {
    let (mut only, mut skip) = (Vec::new(), Vec::new());
    let mut list = None;
    for arg in args {
        match arg.as_str() {
            "--only" => list = Some(&mut only),
            "--skip" => list = Some(&mut skip),
            name => match &mut list {
                Some(list) => list.push(Stage::named(name)?),
                None => bail!("found {name:?}, expected --only or --skip before a stage"),
            },
        }
    }
    let stages = Stage::ALL
        .into_iter()
        .filter(|stage| only.is_empty() || only.contains(stage));
    let stages: Vec<_> = stages.filter(|stage| !skip.contains(stage)).collect();
    ensure!(!stages.is_empty(), "no stage is left to run");
    Ok(stages)
}

/// Runs `stages`, each even if one before it failed, and prints the table; `false` if one failed.
pub(crate) fn run(stages: &[Stage]) -> Result<bool> {
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut rows = Vec::new();
    let mut failures = String::new();
    let mut early: Vec<(Stage, Job)> = Vec::new();
    for &stage in stages {
        println!("\n== {} ==", stage.name());
        let stage_start = Instant::now();
        let job = early.iter().position(|(other, _)| *other == stage);
        let outcome = match job.map(|at| early.swap_remove(at)) {
            // That was all of it.
            Some((Stage::Torture, job)) => job.finish(),
            Some((_, job)) => job.finish().and_then(|()| stage.run(&mut tally)),
            None if stage == Stage::Test => begin_early(stages).and_then(|jobs| {
                early = jobs;
                stage.run(&mut tally)
            }),
            None => stage.run(&mut tally),
        };
        if let Err(error) = &outcome {
            println!("{} failed: {error:#}", stage.name());
            // That of the tests names each of them.
            if stage != Stage::Test {
                failures += &format!("{} failed: {error:#}\n", stage.name());
            }
        }
        rows.push((stage.name(), stage_start.elapsed(), outcome.is_ok()));
    }
    print!("\n{failures}{}", table(&rows, start.elapsed()));
    if stages.contains(&Stage::Test) {
        print!("{}", tally.failures());
        println!("{tally}");
    }
    Ok(rows.iter().all(|(.., ok)| *ok))
}

/// Returns the table of stages: seconds and result.
fn table(rows: &[(&str, Duration, bool)], total: Duration) -> String {
    let mut text = format!("{:<8}{:>9}  result\n", "stage", "seconds");
    for (name, took, ok) in rows {
        let result = if *ok { "ok" } else { "FAILED" };
        text += &format!("{name:<8}{:>9.1}  {result}\n", took.as_secs_f64());
    }
    let over = if total > BUDGET {
        "over the 35 minutes of a cold run"
    } else {
        ""
    };
    let line = format!("{:<8}{:>9.1}  {over}", "total", total.as_secs_f64());
    text + line.trim_end() + "\n"
}

/// Runs all tests, passing their output on line by line while the results are added up. Few that fail run once more,
/// alone: `docs/adr/2026-11-30-a-test-that-fails-runs-once-more-alone.md`.
fn test(tally: &mut Tally) -> Result<()> {
    let all = || {
        let mut command = cargo();
        command.args(TESTS).arg("--no-fail-fast");
        command
    };
    let outcome = succeed_or_repeat(&mut all(), |line| tally.read(line));
    if outcome.is_ok() {
        return outcome;
    }
    let Some(failed) = tally.only_failures(ALONE_MAX) else {
        tally.ensure_failed();
        return outcome;
    };
    println!(
        "\n{} of the tests failed, and run once more, alone",
        failed.len()
    );
    let (mut again, mut alone) = (all(), Tally::default());
    // By the environment: not every program of tests knows an option for it.
    again.args(TARGETS_WITH_NAMES).env("RUST_TEST_THREADS", "1");
    again.args(["--", "--exact"]).args(failed);
    let repeated = succeed_or_repeat(&mut again, |line| alone.read(line));
    if !tally.settle(&alone) {
        return outcome;
    }
    if repeated.is_err() {
        tally.ensure_failed();
    }
    repeated
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares what is selected by `args`, or the message of the refusal.
    #[track_caller]
    fn check(args: &str, expected: &str) {
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        let found = match select(&args) {
            Ok(stages) => stages
                .into_iter()
                .map(Stage::name)
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn stages_run_in_order_whatever_the_order_of_their_names() {
        check(
            "",
            "fetch fmt tidy book pages clippy doc test browser torture mutants miri fuzz faults",
        );
        check("--only mutants torture", "torture mutants");
        check("--only torture", "torture");
        check("--only test fmt", "fmt test");
        check(
            "--skip test doc",
            "fetch fmt tidy book pages clippy browser torture mutants miri fuzz faults",
        );
        check("--only fmt tidy --skip fmt", "tidy");
    }

    #[test]
    fn a_stage_that_does_not_exist_is_refused() {
        check(
            "--only lint",
            r#"stage "lint" does not exist, expected one of: fetch fmt tidy book pages clippy doc test browser torture mutants miri fuzz faults"#,
        );
        check(
            "fmt",
            r#"found "fmt", expected --only or --skip before a stage"#,
        );
        check("--only fmt --skip fmt", "no stage is left to run");
    }

    #[test]
    fn the_table_names_what_failed_and_a_run_over_budget() {
        let rows = [
            ("fmt", Duration::from_millis(400), true),
            ("test", Duration::from_secs(2200), false),
        ];
        let expected = "\
stage     seconds  result
fmt           0.4  ok
test       2200.0  FAILED
total      2200.4  over the 35 minutes of a cold run
";
        assert_eq!(table(&rows, Duration::from_millis(2_200_400)), expected);
    }
}
