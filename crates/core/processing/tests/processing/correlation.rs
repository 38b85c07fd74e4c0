//! Expressions over the live head.

use crate::site::{Site, config};
use sheaf_processing::{Fate, Output, Pipeline, Role};
use sheaf_query::Memory;
use sheaf_samples::{Labels, Sample};
use std::sync::Arc;

const RATIO: &str = r#"
    [[operator]]
    kind = "correlate"
    id = "ratio"
    expr = "received / on (link) sent < 1"
    output = "received_ratio"
    interval_ms = 100
    lookback_ms = 1000
"#;

/// A live head with a counter of sender and receiver for each link.
fn head(at_ms: i64, links: &[(&str, f64, f64)]) -> Memory {
    let mut head = Memory::new();
    for (link, sent, received) in links {
        for (name, value) in [("sent", sent), ("received", received)] {
            let labels = Labels::new([("__name__", name), ("link", link)]).unwrap();
            head.insert(
                &Arc::new(labels),
                Sample {
                    at_ms,
                    value: *value,
                },
            );
        }
    }
    head
}

fn correlate(site: &mut Site, now_ms: i64, head: &Memory) {
    let mut output = Output::default();
    site.pipelines[0].poll_correlations(now_ms, head, &mut output);
    site.absorb(0, output);
}

#[test]
fn results_become_series_and_end() {
    let behind = format!(
        "{RATIO}[[operator]]\nkind = 'on_change'\nselect = 'received_ratio'\nrefresh_ms = 250\n"
    );
    let mut site = Site::of(&behind);
    assert!(
        site.pipeline().next_correlation_ms().unwrap() < 0,
        "at once"
    );
    let lossy = head(900, &[("a", 100.0, 50.0), ("b", 100.0, 100.0)]);
    for now_ms in [1000, 1050, 1110, 1120, 1250, 1390] {
        correlate(&mut site, now_ms, &lossy);
    }
    let name = r#"received_ratio{link="a"}"#;
    assert_eq!(
        site.lines(),
        [format!("{name}@1000=0.5"), format!("{name}@1300=0.5")]
    );
    assert_eq!(site.ended(Fate::Suppressed), 2);
    assert_eq!(site.pipeline().next_correlation_ms(), Some(1400));
    assert_eq!(site.series(), [name]);

    // With an equal configuration the suppression goes on; without the operator its series end.
    site.reconfigure(1395, &config(&behind));
    correlate(&mut site, 1400, &lossy);
    assert_eq!((site.seen.len(), site.ended(Fate::Suppressed)), (2, 3));
    site.reconfigure(1450, &config(""));
    assert!(sheaf_samples::is_stale(site.seen[2].value()));
    assert_eq!(site.seen[2].at_ms, 1450);
    assert!(site.series().is_empty());
    assert_eq!(site.pipeline().next_correlation_ms(), None);
    site.assert_balanced();
}

#[test]
fn a_result_that_is_gone_is_stale() {
    let mut site = Site::of(RATIO);
    correlate(&mut site, 1000, &head(1000, &[("a", 4.0, 1.0)]));
    correlate(&mut site, 1100, &head(1100, &[("a", 4.0, 4.0)]));
    assert!(sheaf_samples::is_stale(site.seen[1].value()));
    assert!(site.series().is_empty() && site.pipeline().groups() == 0);
    correlate(&mut site, 1200, &head(1200, &[("a", 4.0, 2.0)]));
    assert_eq!(site.seen[2].value(), 0.5);
    site.assert_balanced();
}

#[test]
fn results_are_aggregated_and_bounded() {
    let text = format!(
        "limits.groups_max = 3\n{RATIO}[[operator]]\nkind = 'window'\nselect = 'received_ratio'\nfunctions = ['min']\nlength_ms = 1000\nby = []\n"
    );
    let mut site = Site::of(&text);
    let links = [("a", 4.0, 1.0), ("b", 4.0, 2.0), ("c", 4.0, 3.0)];
    correlate(&mut site, 1000, &head(1000, &links));
    site.poll(1500);
    assert_eq!(site.lines().last().unwrap(), "received_ratio_min@1000=0.25");
    let over = &site.pipeline().stats().over[&("groups_max", "ratio".to_owned())];
    assert_eq!(
        (over.times, &*over.first),
        (1, r#"received_ratio{link="c"}"#)
    );
    site.assert_balanced();
}

#[test]
fn failures_are_counted_with_their_reason() {
    let text =
        "[[operator]]\nkind = 'correlate'\nexpr = \"{__name__=~'sent|received'}\"\noutput = 'y'\n";
    let mut site = Site::of(text);
    correlate(&mut site, 1000, &head(1000, &[("a", 4.0, 1.0)]));
    let stats = &site.pipeline().stats().operators[0];
    assert_eq!(
        (stats.failed, &*stats.last_failure),
        (1, r#"two results for y{link="a"}"#)
    );
    assert_eq!(site.seen.len(), 1);
}

#[test]
fn shards_leave_expressions_to_the_merger() {
    let next = |role| {
        Pipeline::new(&config(RATIO), role)
            .unwrap()
            .next_correlation_ms()
    };
    assert_eq!(next(Role::Shard), None);
    assert!(next(Role::Merger { shards: 2 }).is_some());
}
