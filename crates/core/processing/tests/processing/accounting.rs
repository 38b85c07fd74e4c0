//! Every sample of a seeded stream ends exactly once.

use crate::site::{Site, config};
use crate::stream::{CONFIGS, apply, events};
use proptest::prelude::*;
use sheaf_processing::Fate;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn received_samples_are_out_or_have_a_fate(seed: u64, shards in 0_u32..4) {
        for text in CONFIGS {
            let mut site = Site::new(&config(text), shards);
            let mut received = 0;
            let events = events(seed, 300);
            for (now_ms, event) in &events {
                apply(&mut site, *now_ms, event);
                if let crate::stream::Event::Samples(samples) = event {
                    received += samples.len() as u64;
                }
            }
            site.poll(events.last().unwrap().0 + 7_200_000);
            site.assert_balanced();
            let counted: u64 = site.pipelines.iter().map(|one| one.stats().received).sum();
            prop_assert_eq!(counted, received);
            for pipeline in &site.pipelines {
                prop_assert_eq!(pipeline.open_windows(), 0, "all windows are closed");
                prop_assert!(pipeline.stats().over.is_empty());
            }
        }
    }

    /// The count of aggregated samples is the sum of the results, in tumbling windows of two stages.
    #[test]
    fn aggregated_samples_are_in_one_window_each(seed: u64, shards in 0_u32..4) {
        let text = r#"
            [[operator]]
            kind = "window"
            functions = ["count"]
            length_ms = 700
            by = ["host"]
            output = "samples"
            consume = true
        "#;
        let mut site = Site::new(&config(text), shards);
        let events = events(seed, 400);
        for (now_ms, event) in &events {
            apply(&mut site, *now_ms, event);
        }
        site.poll(events.last().unwrap().0 + 7_200_000);
        let sum: f64 = site.seen.iter().map(crate::site::Seen::value).sum();
        prop_assert_eq!(sum, site.ended(Fate::Aggregated) as f64);
        let mut windows: Vec<_> = site.seen.iter().map(|one| (&one.series, one.at_ms)).collect();
        windows.sort();
        windows.dedup();
        prop_assert_eq!(windows.len(), site.seen.len(), "a window has one result");
    }
}

#[test]
fn fates_are_counted_by_operator() {
    let mut site = Site::of(
        r#"
        [[operator]]
        kind = "discard"
        id = "noise"
        select = "noise"
        [[operator]]
        kind = "on_change"
        id = "same"
        [[operator]]
        kind = "window"
        id = "second"
        functions = ["sum"]
        length_ms = 1000
        consume = true
        "#,
    );
    site.register(0, 0, &[("__name__", "noise")]);
    site.register(0, 1, &[("__name__", "x")]);
    let samples = [
        (0, 10, 1.0),
        (1, 10, 1.0),
        (1, 20, 1.0),
        (1, 1500, 2.0),
        (1, 99_000, 3.0),
        (7, 0, 0.0),
    ];
    site.samples(1000, &samples);
    site.poll(3000);
    site.samples(3000, &[(1, 1900, 4.0)]);
    let stats = site.pipeline().stats();
    let of = |id: &str, fate| {
        let operator = stats.operators.iter().find(|one| one.id == id).unwrap();
        operator.of(fate)
    };
    assert_eq!(of("noise", Fate::Discarded), 1);
    assert_eq!(of("same", Fate::Suppressed), 1);
    assert_eq!(of("second", Fate::Aggregated), 2);
    assert_eq!(
        (of("second", Fate::Late), of("second", Fate::Ahead)),
        (1, 1)
    );
    assert_eq!((stats.received, stats.unregistered), (7, 1));
    assert_eq!((stats.made, stats.out), (2, 2));
    assert_eq!(site.lines(), ["x_sum@1000=1", "x_sum@2000=2"]);
}
