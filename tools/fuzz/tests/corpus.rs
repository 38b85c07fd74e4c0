//! The corpus, replayed as it is and mutated, on any compiler: what a fuzzer found once stays found.

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_fuzz::{TARGETS, Target, seeds, tables};
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Mutants of each target: a second or two for all of them.
const MUTANTS: u64 = 20_000;
/// Mutants grow to this size at most, in bytes.
const BYTES_MAX: usize = 4096;

/// The corpus of a target: names and inputs, by name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = seeds::folder().join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry
                .expect("a folder of the checkout can be listed")
                .path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            (
                name,
                fs::read(&path).expect("a file of the checkout can be read"),
            )
        })
        .collect();
    inputs.sort();
    inputs
}

/// Runs `target` on `input`; a panic leaves the input in `fuzz/artifacts` and names it.
fn run((name, function): Target, what: &str, input: &[u8]) {
    let Err(cause) = catch_unwind(AssertUnwindSafe(|| function(input))) else {
        return;
    };
    let folder = seeds::folder().join("artifacts");
    let path = folder.join(format!("{name}-{}", what.replace(' ', "-")));
    let kept = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, input));
    let message = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    match kept {
        Ok(()) => panic!(
            "{name}: {what}: {message}; the input is in {}",
            path.display()
        ),
        Err(error) => panic!("{name}: {what}: {message}; the input cannot be kept: {error}"),
    }
}

#[test]
fn every_input_of_the_corpus_is_survived() {
    for &target in TARGETS {
        for (name, input) in corpus(target.0) {
            run(target, &name, &input);
        }
        run(target, "nothing", &[]);
    }
}

#[test]
fn the_corpus_holds_every_seed_as_it_is_made_now() {
    // The example farm file changes often, and an old one is as good an input as a new one.
    let seeds = seeds::all().expect("the data of the repository can be read");
    for seed in seeds.iter().filter(|seed| seed.target != "farm_file") {
        let path = seeds::folder()
            .join("corpus")
            .join(seed.target)
            .join(&seed.name);
        let held = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            held == seed.bytes,
            "{} is old: run the example `seeds`",
            path.display()
        );
    }
}

#[test]
fn vectors_and_the_protocol_page_have_what_the_tables_say() {
    let read = |path: &str| {
        let path = seeds::folder().join("../..").join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    for (path, text) in tables::vectors() {
        assert!(
            read(path) == text,
            "{path} is old: run the example `seeds`, if peers may see other bytes"
        );
    }
    let page = read(tables::PAGE);
    let is_new = tables::with_layouts(&page).is_some_and(|new| new == page);
    assert!(is_new, "{} is old: run the example `seeds`", tables::PAGE);
}

#[test]
fn every_target_has_a_corpus_and_a_binary() {
    let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let listed = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(seeds::folder().join(folder)).expect("it is in the checkout");
        let name = |entry: fs::DirEntry| {
            entry
                .path()
                .file_stem()
                .map(|s| s.to_string_lossy().into_owned())
        };
        entries.filter_map(|entry| name(entry.ok()?)).collect()
    };
    assert_eq!(listed("corpus"), names);
    assert_eq!(listed("libfuzzer/fuzz_targets"), names);
}

/// `FUZZ_SEED=7` starts another sequence of mutants; a panic says which mutant of which seed it was.
#[test]
fn mutants_of_the_corpus_are_survived() {
    let seed = std::env::var("FUZZ_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for &target in TARGETS {
        let corpus = corpus(target.0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for mutant in 0..MUTANTS {
            let (_, input) = &corpus[rng.random_range(0..corpus.len())];
            let (_, other) = &corpus[rng.random_range(0..corpus.len())];
            let input = mutate(input.clone(), other, &mut rng);
            run(target, &format!("mutant {mutant} of seed {seed}"), &input);
        }
    }
}

/// One to six changes of `input`, with pieces out of `other`.
fn mutate(mut input: Vec<u8>, other: &[u8], rng: &mut impl Rng) -> Vec<u8> {
    for _ in 0..rng.random_range(1..=6) {
        let at = rng.random_range(0..=input.len());
        let end = rng.random_range(at..=input.len().min(at + 64));
        match rng.random_range(0..6) {
            0 => drop(input.drain(at..end)),
            1 => input.truncate(at),
            2 => {
                let piece = input[at..end].to_vec();
                let to = rng.random_range(0..=input.len());
                input.splice(to..to, piece);
            }
            3 => {
                let from = rng.random_range(0..=other.len());
                let piece = &other[from..other.len().min(from + (end - at))];
                input.splice(at..at, piece.iter().copied());
            }
            // Values at the edge of what a field holds.
            4 => input[at..end.min(at + 8)].fill([0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)]),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = rng.random();
                } else {
                    input.push(rng.random());
                }
            }
        }
    }
    input.truncate(BYTES_MAX);
    input
}
