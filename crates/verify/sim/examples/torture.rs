//! Runs seeds and prints their outcomes: `torture KIND FIRST COUNT`.
use sheaf_sim::SeedFamily;
use sheaf_sim::torture::{Amount, Config, describe, replay, run};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let kind = SeedFamily::named(&args[1]).expect("a kind");
    let first: u64 = args[2].parse().expect("a seed");
    let count: u64 = args[3].parse().expect("a count");
    let began = std::time::Instant::now();
    if count == 0 {
        let (result, trace) = replay(kind, first);
        println!("{}", describe(kind, first));
        let all = args.get(4).is_some_and(|tf| tf == "all");
        let tf = if all {
            None
        } else {
            result.as_ref().err().and_then(|v| v.tf)
        };
        for line in trace.last_of(tf, if all { usize::MAX } else { 400 }) {
            println!("{line}");
        }
        match result {
            Ok(outcome) => println!("{outcome:?}"),
            Err(violation) => println!("{violation}"),
        }
        return;
    }
    let config = Config {
        kind,
        first,
        amount: Amount::Seeds(count),
        threads: 1,
        until_first: false,
    };
    let report = run(&config, &mut |_| std::ops::ControlFlow::Continue(()));
    for failure in report.failures.iter().take(12) {
        println!("{} {}", failure.seed, failure.violation);
    }
    let took = began.elapsed().as_secs_f64();
    let mut report = report;
    report.failures.clear();
    println!("{report:?} {:.1} seeds/s", count as f64 / took);
}
