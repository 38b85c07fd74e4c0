//! Shards with a merger give what one pipeline gives.

use crate::site::{Site, config};
use crate::stream::{CONFIGS, apply, events};
use proptest::prelude::*;
use sheaf_processing::{Fate, Output, PartialsError, Pipeline, Role};

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn windows_across_shards_are_exact(seed: u64, shards in 1_u32..5) {
        for text in CONFIGS {
            let mut whole = Site::new(&config(text), 0);
            let mut parts = Site::new(&config(text), shards);
            let events = events(seed, 300);
            let last = (events.last().unwrap().0 + 7_200_000, crate::stream::Event::Poll);
            for (now_ms, event) in events.iter().chain([&last]) {
                apply(&mut whole, *now_ms, event);
                apply(&mut parts, *now_ms, event);
            }
            prop_assert_eq!(whole.sorted(), parts.sorted());
            for fate in Fate::ALL {
                prop_assert_eq!(whole.ended(fate), parts.ended(fate), "{}", fate.name());
            }
        }
    }
}

const SUM: &str = r#"
    limits = { shard_wait_ms = 3000 }
    [[operator]]
    kind = "window"
    functions = ["sum"]
    length_ms = 1000
    late_ms = 100
    by = []
    output = "total"
    consume = true
"#;

/// Shards with one series each, their partials, and the merger.
fn two_shards() -> ([Pipeline; 2], Pipeline) {
    let shard = || {
        let mut shard = Pipeline::new(&config(SUM), Role::Shard).unwrap();
        let labels = sheaf_samples::Labels::new([("__name__", "x")]).unwrap();
        shard
            .handle_new_series(0, sheaf_processing::SeriesHandle(0), &labels)
            .unwrap();
        shard
    };
    let merger = Pipeline::new(&config(SUM), Role::Merger { shards: 2 }).unwrap();
    ([shard(), shard()], merger)
}

fn partials(shard: &mut Pipeline, at_ms: i64, poll_ms: i64) -> Vec<sheaf_processing::Partial> {
    let mut output = Output::default();
    let sample = sheaf_samples::Sample { at_ms, value: 1.0 };
    shard.handle_samples(
        at_ms,
        &[(sheaf_processing::SeriesHandle(0), sample)],
        &mut output,
    );
    shard.poll(poll_ms, &mut output);
    output.partials
}

#[test]
fn the_merger_waits_for_every_shard_and_not_for_ever() {
    let ([mut fast, mut slow], mut merger) = two_shards();
    let mut output = Output::default();
    merger
        .handle_partials(0, &partials(&mut fast, 500, 1100))
        .unwrap();
    merger.poll(1200, &mut output);
    assert!(
        output.samples.is_empty(),
        "the other shard may have samples"
    );
    assert_eq!(merger.next_poll_ms(), Some(4100));
    merger
        .handle_partials(1, &partials(&mut slow, 600, 1300))
        .unwrap();
    assert_eq!(merger.next_poll_ms(), Some(1000));
    merger.poll(1301, &mut output);
    assert_eq!(output.samples[0].sample.value, 2.0);

    // From here on the second shard is stuck.
    merger
        .handle_partials(0, &partials(&mut fast, 1500, 2100))
        .unwrap();
    merger.poll(5099, &mut output);
    assert_eq!(output.samples.len(), 1);
    merger.poll(5100, &mut output);
    assert_eq!(output.samples[1].sample.value, 1.0);
    merger
        .handle_partials(1, &partials(&mut slow, 1600, 2100))
        .unwrap();
    let stats = &merger.stats().operators[0];
    assert_eq!((stats.closed_without_shard, stats.lost_in_merger), (1, 1));
}

#[test]
fn a_shard_without_samples_sends_its_watermark() {
    let ([_, mut idle], _) = two_shards();
    let mut output = Output::default();
    assert!(idle.next_poll_ms().unwrap() < 0, "at once");
    idle.poll(1100, &mut output);
    output.clear();
    assert_eq!(idle.next_poll_ms(), Some(2100));
    idle.poll(2099, &mut output);
    assert!(output.partials.is_empty());
    idle.poll(2100, &mut output);
    assert_eq!(output.partials.len(), 1);
}

#[test]
fn partials_of_another_configuration_wait() {
    let ([mut shard, _], mut merger) = two_shards();
    let mut output = Output::default();
    let first = partials(&mut shard, 500, 500);
    shard.reconfigure(600, &config(SUM), &mut output).unwrap();
    let then = partials(&mut shard, 700, 1200);
    merger.handle_partials(0, &first).unwrap();
    let error = merger.handle_partials(0, &then).unwrap_err();
    let expected = PartialsError::Generation {
        found: 1,
        expected: 0,
        taken: 0,
    };
    assert_eq!(error, expected);
    merger.reconfigure(600, &config(SUM), &mut output).unwrap();
    merger.handle_partials(0, &then).unwrap();
    let error = merger.handle_partials(2, &[]).unwrap_err();
    assert_eq!(
        error,
        PartialsError::Shard {
            found: 2,
            expected: 2
        }
    );
}
