//! Comparison with Prometheus 2.42: the same samples and the same queries in both, and the same answers.
//!
//! A private Prometheus is started on loopback and filled by remote write. Every line of `corpus.txt` and a few hundred
//! seeded random expressions run as instant queries at three times and over two ranges. Labels, times and
//! values are equal (values of another library of mathematics up to 1e-12 of their
//! size), errors stand on both sides. What differs on purpose is in [`DIFFERENCES`] and in `docs/reference/promql.md`,
//! section "Differences".

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test that starts a server and talks to it"
)]

mod compare;
mod data;
mod expressions;
mod server;

use compare::{difference, ours, theirs, times};
use data::Random;
use server::Oracle;
use sheaf_query::Memory;

const CORPUS: &str = include_str!("corpus.txt");
const PAGE: &str = include_str!("../../../../../docs/reference/promql.md");

/// Queries whose answers differ on purpose, with the words of the reference page that say why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("(\"nested\")", "A string in parentheses"),
    ("+\"a\"", "A plus sign before a string"),
    ("ln(special)", "Logarithms of the smallest numbers"),
    ("log10(special)", "Logarithms of the smallest numbers"),
    (
        "label_replace(odd_labels, \"x\", \"$1\", \"text\", \"(.).*\")",
        "matches the end of a line",
    ),
    (
        "odd_labels{text=~\"two.lines\"}",
        "matches the end of a line",
    ),
    (
        "predict_linear(temperature[10m] @ 1600001000, 600)",
        "stays where it is at every step",
    ),
    (
        "timestamp(temperature @ 1600001000 offset 10m)",
        "`timestamp` of a selector with `@` and `offset`",
    ),
    (
        "quantile_over_time(time() % 1, temperature[5m] @ 1600001000)",
        "stays where it is at every step",
    ),
];

struct Check<'a> {
    oracle: &'a Oracle,
    memory: Memory,
    evaluations: usize,
    failures: Vec<String>,
}

impl Check<'_> {
    fn query(&mut self, query: &str, is_random: bool) {
        for when in times() {
            self.evaluations += 1;
            let (ours, theirs) = (
                ours(&self.memory, query, when),
                theirs(self.oracle, query, when),
            );
            if let Some(what) = difference(query, is_random, &ours, &theirs) {
                let cut = |text: &str| text.chars().take(300).collect::<String>();
                let (ours, theirs) = (cut(&ours), cut(&theirs));
                self.failures.push(format!(
                    "{query}\n  {when:?}\n  {what}\n  ours:   {ours}\n  theirs: {theirs}"
                ));
                return;
            }
        }
    }
}

fn corpus() -> Vec<&'static str> {
    CORPUS
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn the_corpus_has_each_query_once_and_every_function() {
    let queries = corpus();
    assert!(queries.len() >= 500, "{} queries", queries.len());
    let mut sorted = queries.clone();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
    for (call, state) in sheaf_query::reference() {
        let name = format!("{}(", call.split('(').next().expect("a name"));
        let is_used = queries.iter().any(|query| query.contains(&name));
        assert!(
            is_used || state != "as Prometheus 2.42",
            "{name} is in no query"
        );
    }
}

#[test]
fn differences_are_on_the_reference_page() {
    for (query, reason) in DIFFERENCES {
        assert!(
            PAGE.contains(reason),
            "{query}: {reason:?} is not on the page"
        );
    }
    for (call, state) in sheaf_query::reference() {
        let row = format!("| `{call}` | {state} |");
        assert!(PAGE.contains(&row), "the page has no row {row}");
    }
}

#[test]
fn answers_are_those_of_prometheus() {
    let Some(oracle) = Oracle::start() else {
        println!("skipped: prometheus is not installed (Debian: apt-get install prometheus)");
        return;
    };
    let store = data::data();
    oracle.fill(&store);
    let mut memory = Memory::new();
    for (labels, samples) in &store {
        for sample in samples {
            memory.insert(labels, *sample);
        }
    }
    let mut check = Check {
        oracle: &oracle,
        memory,
        evaluations: 0,
        failures: Vec::new(),
    };
    for query in corpus() {
        check.query(query, false);
    }
    let (queries, evaluations) = (corpus().len(), check.evaluations);
    let seed = std::env::var("SHEAF_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_042);
    println!("random expressions: SHEAF_SEED={seed}");
    let mut random = Random(seed);
    for _ in 0..300 {
        check.query(&expressions::vector(&mut random, 3), true);
    }
    println!(
        "{queries} queries in {evaluations} evaluations, 300 random ones in {}",
        check.evaluations - evaluations
    );
    let known: Vec<&String> = check
        .failures
        .iter()
        .filter(|text| {
            DIFFERENCES
                .iter()
                .any(|one| text.lines().next() == Some(one.0))
        })
        .collect();
    let unknown = check.failures.len() - known.len();
    for failure in check.failures.iter().filter(|one| !known.contains(one)) {
        println!("{failure}");
    }
    assert_eq!(unknown, 0, "differences, seed {seed}");
    let is_there = |query: &&str| known.iter().any(|one| one.lines().next() == Some(query));
    let queries = DIFFERENCES.iter().map(|one| one.0);
    let gone: Vec<&str> = queries.filter(|query| !is_there(query)).collect();
    assert_eq!(
        gone,
        Vec::<&str>::new(),
        "differences that are none any more"
    );
}
