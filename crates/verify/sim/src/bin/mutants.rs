//! Takes protections out, one at a time, and checks whether the invariants notice.
//!
//! `mutants search [SEEDS] [KIND] [NAME…]` looks for killing seeds and writes the register; `mutants check [FRESH]
//! [FIRST]`
//! replays the recorded ones and runs as many fresh ones, and ends with status 1 if a mutant survives that is not
//! written down as noticed elsewhere or redundant.

use sheaf_protocol::mutant::Mutant;
use sheaf_sim::SeedFamily;
use sheaf_sim::mutants::{Entry, Register, run, search};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fresh seeds of each mutant in a check.
const FRESH: u64 = 200;
/// Seeds in which a mutant must be noticed.
const SEEDS_MAX: u64 = 10_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| args.get(index).and_then(|text| text.parse::<u64>().ok());
    match args.first().map(String::as_str) {
        Some("search") => {
            let kind = args
                .iter()
                .find_map(|arg| SeedFamily::named(arg))
                .unwrap_or(SeedFamily::Swarm);
            let is_name =
                |arg: &&String| arg.parse::<u64>().is_err() && SeedFamily::named(arg).is_none();
            let names: Vec<String> = args.iter().skip(1).filter(is_name).cloned().collect();
            write(number(1).unwrap_or(SEEDS_MAX), kind, &names)
        }
        Some("check") => check(number(1).unwrap_or(FRESH), number(2).unwrap_or(1_000_000)),
        _ => {
            eprintln!(
                "expected: mutants search [SEEDS] [KIND] [NAME...], or mutants check [FRESH] [FIRST]"
            );
            ExitCode::from(2)
        }
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds/mutants.toml")
}

fn read() -> Register {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    toml::from_str(&text).unwrap_or_default()
}

/// Does `work` for every mutant, on all processors; answers come in the order of the mutants.
fn for_all<T: Send>(mutants: &[Mutant], work: impl Fn(Mutant) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mutant) = mutants.get(index) else {
                        break;
                    };
                    let result = work(*mutant);
                    results
                        .lock()
                        .expect("no thread panics")
                        .push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread panics");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn write(seeds_max: u64, kind: SeedFamily, names: &[String]) -> ExitCode {
    let known = read();
    let is_wanted = |mutant: &Mutant| {
        let name = format!("{mutant:?}");
        let is_elsewhere = known
            .of(*mutant)
            .is_some_and(|entry| !entry.elsewhere.is_empty());
        names.contains(&name) || (names.is_empty() && !is_elsewhere)
    };
    let wanted: Vec<Mutant> = Mutant::ALL.into_iter().filter(is_wanted).collect();
    let found = for_all(&wanted, |mutant| {
        let entry = search(mutant, kind, seeds_max);
        println!(
            "{:<28}{:>8} seeds  {:?} {}",
            entry.name, entry.searched, entry.killed_by, entry.invariant
        );
        entry
    });
    let mut register = Register {
        options_version: sheaf_sim::OPTIONS_VERSION,
        mutant: Vec::new(),
    };
    for mutant in Mutant::ALL {
        let name = format!("{mutant:?}");
        let former = known.of(mutant).cloned().unwrap_or_default();
        let new = found.iter().find(|entry| entry.name == name).cloned();
        // A search in another family that finds nothing takes nothing away.
        let new = new.filter(|new| !new.killed_by.is_empty() || former.killed_by.is_empty());
        let new = new.unwrap_or_else(|| former.clone());
        let is_newly_noticed = former.killed_by.is_empty() && !new.killed_by.is_empty();
        let redundant = if is_newly_noticed {
            String::new()
        } else {
            former.redundant
        };
        register.mutant.push(Entry {
            name,
            elsewhere: former.elsewhere,
            redundant,
            ..new
        });
    }
    let text = toml::to_string(&register).expect("plain data");
    let head = "# Written by `mutants search`; `elsewhere` and `redundant` by people; docs/explanation/mutants.md.\n";
    if let Err(error) = std::fs::write(path(), format!("{head}{text}")) {
        eprintln!("cannot write {}: {error}", path().display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn check(fresh: u64, first: u64) -> ExitCode {
    let register = read();
    if !register.is_current() {
        println!(
            "the seeds are of options version {}, this is {}: run `mutants search`",
            register.options_version,
            sheaf_sim::OPTIONS_VERSION
        );
        return ExitCode::FAILURE;
    }
    let survivors = for_all(&Mutant::ALL, |mutant| {
        let Some(entry) = register.of(mutant) else {
            return Some(format!("{mutant:?} is not in the register"));
        };
        if !entry.elsewhere.is_empty() || !entry.redundant.is_empty() {
            return None;
        }
        let recorded = entry
            .killed_by
            .iter()
            .filter(|seed| run(mutant, entry.kind(), **seed).is_err())
            .count();
        // A collector with its files takes ten times as long as a farm.
        let fresh = match entry.kind() {
            SeedFamily::Monitor => fresh / 10,
            _ => fresh,
        };
        let is_fresh_killed =
            (first..first + fresh).any(|seed| run(mutant, entry.kind(), seed).is_err());
        println!(
            "{mutant:?}: {recorded} of {} recorded seeds notice it, fresh ones {}",
            entry.killed_by.len(),
            if is_fresh_killed { "too" } else { "do not" }
        );
        (recorded == 0 && !is_fresh_killed).then(|| format!("{mutant:?} survives"))
    });
    let survivors: Vec<String> = survivors.into_iter().flatten().collect();
    survivors.iter().for_each(|text| println!("{text}"));
    println!("{} mutants, {} survive", Mutant::ALL.len(), survivors.len());
    ExitCode::from(u8::from(!survivors.is_empty()))
}
