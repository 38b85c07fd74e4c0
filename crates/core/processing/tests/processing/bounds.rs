//! Bounds: what is over one of them is counted and named.

use crate::site::Site;
use sheaf_processing::{Fate, SeriesHandle};

/// Bounds that were reached, as `bound operator times first`.
fn over(site: &Site) -> Vec<String> {
    let over = site.pipeline().stats().over.iter();
    over.map(|((bound, operator), over)| {
        format!("{bound} {operator} {} {}", over.times, over.first)
    })
    .collect()
}

fn register(site: &mut Site, count: u32) {
    for handle in 0..count {
        let host = handle.to_string();
        site.register(0, handle, &[("__name__", "x"), ("host", &host)]);
    }
}

#[test]
fn series() {
    let mut site = Site::of("limits.series_max = 2");
    register(&mut site, 4);
    site.samples(1, &[(0, 1, 1.0), (2, 1, 1.0), (3, 1, 1.0)]);
    assert_eq!(over(&site), [r#"series_max  2 x{host="2"}"#]);
    assert_eq!(
        (site.pipeline().stats().unregistered, site.seen.len()),
        (2, 1)
    );
    site.end(2, 0);
    assert!(
        site.register(2, 3, &[("__name__", "x"), ("host", "3")]),
        "there is room again"
    );
    let labels = sheaf_samples::Labels::default();
    let mut refused = |handle| {
        site.pipelines[0]
            .handle_new_series(2, SeriesHandle(handle), &labels)
            .is_err()
    };
    assert!(refused(3), "in use");
    assert!(refused(SeriesHandle::END));
    site.assert_balanced();
}

#[test]
fn outputs() {
    let mut site = Site::of("limits.outputs_max = 1");
    register(&mut site, 2);
    site.samples(1, &[(0, 1, 1.0), (1, 1, 1.0)]);
    assert_eq!(over(&site), [r#"outputs_max  1 x{host="1"}"#]);
    assert_eq!(site.seen.len(), 1);
    site.assert_balanced();
}

fn window(limits: &str, keys: &str) -> Site {
    Site::of(&format!(
        "limits = {{ {limits} }}\n[[operator]]\nkind = 'window'\nid = 'w'\nlength_ms = 1000\nfunctions = ['max', 'quantile(0.5)']\n{keys}"
    ))
}

#[test]
fn groups() {
    for (consume, out) in [(true, 0), (false, 3)] {
        let mut site = window("groups_max = 1", &format!("consume = {consume}"));
        register(&mut site, 3);
        site.samples(1, &[(0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.0)]);
        assert_eq!(over(&site), [r#"groups_max w 2 x{host="1"}"#]);
        assert_eq!(
            (site.ended(Fate::Aggregated), site.ended(Fate::Refused)),
            (1, 2)
        );
        assert_eq!(site.seen.len(), out);
        site.end(1, 0);
        site.poll(2000);
        assert_eq!(site.pipeline().groups(), 0);
        site.assert_balanced();
    }
}

#[test]
fn open_windows() {
    let mut site = window("open_windows_max = 2", "consume = true");
    register(&mut site, 1);
    site.samples(
        1,
        &[(0, 1, 1.0), (0, 1001, 1.0), (0, 2001, 1.0), (0, 1002, 1.0)],
    );
    assert_eq!(over(&site), [r#"open_windows_max w 1 x{host="0"}"#]);
    assert_eq!(site.pipeline().open_windows(), 2);
    site.poll(3000);
    assert_eq!(site.pipeline().open_windows(), 0);
    assert_eq!(site.ended(Fate::Aggregated), 3);
}

#[test]
fn sketches() {
    let mut site = window("sketch_bins_max = 16", "consume = true");
    register(&mut site, 1);
    let samples: Vec<_> = (1..=1000).map(|n| (0, n, n as f64)).collect();
    site.samples(1000, &samples);
    site.poll(2000);
    let median = site
        .seen
        .iter()
        .find(|one| one.series.contains("quantile"))
        .unwrap();
    // 10 octaves in 16 buckets: an error of at most one half.
    assert!(
        (250.0..750.0).contains(&median.value()),
        "{}",
        median.value()
    );
}

#[test]
fn labels_that_cannot_be_are_refused_by_name() {
    let name = "x".repeat(40_000);
    let text = "[[operator]]\nkind = 'rename'\nid = 'long'\nmetric = '(x+)'\nto = '$1$1'";
    let mut long = Site::of(text);
    long.register(0, 0, &[("__name__", &name)]);
    long.samples(1, &[(0, 1, 1.0)]);
    assert_eq!(long.ended(Fate::Refused), 1);
    assert!(
        over(&long)[0].contains("65535 at most"),
        "{:?}",
        over(&long)
    );
}

#[test]
fn series_that_end_leave_nothing_behind() {
    let mut site = Site::of(
        "[[operator]]\nkind = 'window'\nfunctions = ['sum', 'count']\nlength_ms = 1000\nwithout = ['host']\n\
         [[operator]]\nkind = 'window'\nselect = 'x_sum'\nfunctions = ['max']\nlength_ms = 5000\n",
    );
    for round in 0..50_i64 {
        let now_ms = round * 10_000;
        for handle in 0..20 {
            let host = (u64::from(handle) + round as u64 * 100).to_string();
            site.register(now_ms, handle, &[("__name__", "x"), ("host", &host)]);
            site.samples(now_ms, &[(handle, now_ms, 1.0)]);
        }
        for handle in 0..20 {
            site.end(now_ms + 1, handle);
        }
        site.poll(now_ms + 9_000);
        site.poll(now_ms + 9_000);
        assert_eq!((site.pipeline().series(), site.pipeline().groups()), (0, 0));
        assert_eq!(site.series().len(), 0, "{:?}", site.series());
    }
    site.assert_balanced();
}
