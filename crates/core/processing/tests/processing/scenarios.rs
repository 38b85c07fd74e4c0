//! The four scenarios of the founding paper: pass-through, edit, suppress, 1 s average.

use crate::site::Site;

/// Values of 3 FLPs at 10 Hz for 3 s, each its number above a common step at 1.5 s.
fn feed(site: &mut Site) {
    for (handle, host) in [(0, "flp1"), (1, "flp2"), (2, "flp3")] {
        let labels = [
            ("__name__", "readout_rate_khz"),
            ("host", host),
            ("detector", "TPC"),
        ];
        assert!(site.register(0, handle, &labels));
    }
    for tick in 1..=30 {
        let at_ms = tick * 100;
        let step = if at_ms > 1500 { 10.0 } else { 0.0 };
        let samples = [0, 1, 2].map(|handle| (handle, at_ms, f64::from(handle) + step));
        site.samples(at_ms + 20, &samples);
        site.poll(at_ms + 30);
    }
    site.poll(4000);
    site.assert_balanced();
}

#[test]
fn pass_through() {
    let mut site = Site::of("");
    feed(&mut site);
    assert_eq!(site.seen.len(), 90);
    let first = &site.lines()[0];
    assert_eq!(
        first,
        r#"readout_rate_khz{detector="TPC", host="flp1"}@100=0"#
    );
    assert!(site.seen.iter().all(|one| one.destinations == u32::MAX));
}

#[test]
fn edit_a_field() {
    let mut site = Site::of(
        r#"
        [[operator]]
        kind = "set"
        labels = { run = "529418" }
        [[operator]]
        kind = "scale"
        from = "khz"
        to = "hz"
        "#,
    );
    feed(&mut site);
    assert_eq!(site.seen.len(), 90);
    let last = site.lines().pop().unwrap();
    assert_eq!(
        last,
        r#"readout_rate_hz{detector="TPC", host="flp3", run="529418"}@3000=12000"#
    );
}

#[test]
fn suppress() {
    let mut site = Site::of(
        "[[operator]]\nkind = 'on_change'\nselect = \"{host=~'flp[12]'}\"\nrefresh_ms = 1000\n",
    );
    feed(&mut site);
    let times = |host: &str| {
        let of = site.seen.iter().filter(|one| one.series.contains(host));
        of.map(|one| one.at_ms).collect::<Vec<_>>()
    };
    assert_eq!(times("flp1"), [100, 1100, 1600, 2600]);
    assert_eq!((times("flp2").len(), times("flp3").len()), (4, 30));
}

#[test]
fn average_of_a_second_over_a_detector() {
    let text = "[[operator]]\nkind = 'window'\nfunctions = ['avg']\nlength_ms = 1000\nby = ['detector']\nconsume = true\n";
    let mut site = Site::of(text);
    feed(&mut site);
    let name = r#"readout_rate_khz_avg{detector="TPC"}"#;
    let expected = [(1000, 1.0), (2000, 6.0), (3000, 11.0)];
    assert_eq!(
        site.lines(),
        expected.map(|(at_ms, value)| format!("{name}@{at_ms}={value}"))
    );
}

#[test]
fn routes_name_the_destinations() {
    let mut site = Site::of(
        r#"
        destinations = ["raw", "live", "kafka"]
        [[operator]]
        kind = "route"
        to = ["raw", "kafka"]
        [[operator]]
        kind = "route"
        select = "{host='flp2'}"
        to = ["live"]
        "#,
    );
    feed(&mut site);
    for one in &site.seen {
        let expected = if one.series.contains("flp2") {
            0b010
        } else {
            0b101
        };
        assert_eq!(one.destinations, expected, "{one:?}");
    }
}
