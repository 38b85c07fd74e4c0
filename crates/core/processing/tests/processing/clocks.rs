//! Clocks of sources that are wrong, and a collector that was kept from running.

use crate::site::Site;
use sheaf_processing::Fate;

const SECOND: &str = r#"
    [[operator]]
    kind = "window"
    functions = ["count"]
    length_ms = 1000
    by = []
    output = "samples"
    consume = true
    late_ms = 500
    ahead_ms = 10_000
"#;

fn site() -> Site {
    let mut site = Site::of(SECOND);
    for (handle, host) in [(0, "good"), (1, "wrong")] {
        site.register(0, handle, &[("__name__", "x"), ("host", host)]);
    }
    site
}

#[test]
fn a_clock_far_ahead_closes_no_window_of_others() {
    let mut site = site();
    site.samples(300, &[(0, 300, 1.0), (1, 3_600_300, 1.0), (1, 10_300, 1.0)]);
    site.poll(400);
    site.samples(900, &[(0, 800, 1.0), (0, 200, 1.0)]);
    site.poll(1500);
    assert_eq!(site.lines(), ["samples@1000=3"]);
    assert_eq!((site.ended(Fate::Ahead), site.ended(Fate::Late)), (1, 0));
    site.poll(11_500);
    assert_eq!(
        site.lines()[1..],
        ["samples@11000=1"],
        "10 s ahead is within the bound"
    );
}

#[test]
fn a_clock_that_steps_back_is_late_and_alone() {
    let mut site = site();
    site.poll(10_000);
    site.samples(10_100, &[(0, 10_050, 1.0), (1, 10_050, 1.0)]);
    site.samples(
        10_200,
        &[(0, 10_150, 1.0), (1, 5_150, 1.0), (1, 5_250, 1.0)],
    );
    site.poll(12_000);
    assert_eq!(site.lines(), ["samples@11000=3"]);
    assert_eq!(site.ended(Fate::Late), 2);
}

#[test]
fn nothing_is_late_because_the_collector_stood_still() {
    let mut site = site();
    site.samples(100, &[(0, 100, 1.0)]);
    site.poll(200);
    // 30 s later the driver passes what waited in its sockets, then polls.
    site.samples(30_000, &[(0, 900, 1.0), (0, 1900, 1.0), (0, 29_900, 1.0)]);
    site.poll(30_000);
    assert_eq!(site.lines(), ["samples@1000=2", "samples@2000=1"]);
    assert_eq!(site.ended(Fate::Late), 0);
    // The clock of the collector steps back: what is closed stays closed, and time goes on from there.
    site.poll(20_000);
    site.samples(20_100, &[(0, 20_100, 1.0)]);
    assert_eq!(site.ended(Fate::Late), 1);
}

#[test]
fn disorder_and_repetition_within_the_lateness_are_counted() {
    let mut site = site();
    site.samples(900, &[(0, 900, 1.0), (0, 100, 1.0), (0, 900, 1.0)]);
    site.poll(1499);
    site.samples(1499, &[(0, 1000, 1.0), (0, 1001, 1.0)]);
    site.poll(1500);
    assert_eq!(site.lines(), ["samples@1000=4"]);
    assert_eq!(site.pipeline().next_poll_ms(), Some(2500));
}
