//! Seeded streams of samples: series that come and go, disorder, repetitions, steps of clocks.

use crate::site::Site;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_samples::STALE;

/// Time at which streams begin.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

const METRICS: [&str; 3] = ["rate", "bytes_total", "latency_ms"];
const HOSTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Register { handle: u32 },
    End { handle: u32 },
    Samples(Vec<(u32, i64, f64)>),
    Poll,
}

/// Labels of the series of `handle`: metric, host, detector, process.
pub(crate) fn labels(handle: u32) -> [(&'static str, &'static str); 4] {
    let at = handle as usize;
    [
        ("__name__", METRICS[at % 3]),
        ("host", HOSTS[at / 3 % 6]),
        ("detector", ["TPC", "ITS"][at / 3 % 2]),
        ("pid", ["1", "2", "3"][at / 18 % 3]),
    ]
}

/// Number of series that [`labels`] tells apart.
pub(crate) const SERIES: u32 = 54;

/// Events, with the collector's time. Values are whole numbers, so sums do not depend on their order.
pub(crate) fn events(seed: u64, count: usize) -> Vec<(i64, Event)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut now_ms = START_MS;
    // Offset of the clock of each host.
    let mut offsets_ms = [0_i64; HOSTS.len()];
    let mut counters = [0_i64; SERIES as usize];
    let mut registered = [false; SERIES as usize];
    let mut sent: Vec<(u32, i64, f64)> = Vec::new();
    let mut events = Vec::new();
    for _ in 0..count {
        now_ms += rng.random_range(0..400);
        let handle = rng.random_range(0..SERIES);
        let at = handle as usize;
        let event = match rng.random_range(0..20) {
            0..3 if !registered[at] => {
                registered[at] = true;
                Event::Register { handle }
            }
            3 if registered[at] => {
                registered[at] = false;
                Event::End { handle }
            }
            4 => {
                let host = rng.random_range(0..HOSTS.len());
                offsets_ms[host] =
                    [0, 0, -300, -5_000, -3_600_000, 2_000, 3_600_000][rng.random_range(0..7)];
                continue;
            }
            5..8 => Event::Poll,
            _ => {
                let mut samples = Vec::new();
                for _ in 0..rng.random_range(1..8) {
                    let handle = rng.random_range(0..SERIES);
                    let at = handle as usize;
                    let again = sent.len() > 3 && rng.random_range(0..8) == 0;
                    if again {
                        samples.push(sent[rng.random_range(sent.len() - 3..sent.len())]);
                        continue;
                    }
                    counters[at] += rng.random_range(0..5);
                    if rng.random_range(0..40) == 0 {
                        counters[at] = 0;
                    }
                    let value = match rng.random_range(0..60) {
                        0 => STALE,
                        1 => f64::NAN,
                        _ if at % 3 == 1 => counters[at] as f64,
                        _ => f64::from(rng.random_range(-3..4_i32)),
                    };
                    let disorder_ms = rng.random_range(0..700);
                    let sample = (handle, now_ms + offsets_ms[at / 3 % 6] - disorder_ms, value);
                    sent.push(sample);
                    samples.push(sample);
                }
                Event::Samples(samples)
            }
        };
        events.push((now_ms, event));
    }
    events
}

/// Lets `event` happen.
pub(crate) fn apply(site: &mut Site, now_ms: i64, event: &Event) {
    match event {
        Event::Register { handle } => {
            site.register(now_ms, *handle, &labels(*handle));
        }
        Event::End { handle } => site.end(now_ms, *handle),
        Event::Samples(samples) => site.samples(now_ms, samples),
        Event::Poll => site.poll(now_ms),
    }
}

/// Configurations that together have every operator, suppressed and derived values before and behind windows, windows
/// behind windows.
pub(crate) const CONFIGS: [&str; 4] = [
    "",
    r#"
    [[operator]]
    kind = "on_change"
    select = "rate"
    refresh_ms = 2000
    deadband = 1
    [[operator]]
    kind = "derive"
    select = "bytes_total"
    function = "rate"
    [[operator]]
    kind = "discard"
    select = "latency_ms{host='c'}"
    [[operator]]
    kind = "scale"
    select = "latency_ms"
    from = "ms"
    to = "us"
    [[operator]]
    kind = "window"
    functions = ["count", "max", "last"]
    length_ms = 500
    consume = true
    select = "latency_us"
    "#,
    r#"
    [[operator]]
    kind = "window"
    id = "second"
    select = "{__name__=~'rate|bytes_total'}"
    functions = ["count", "sum", "min", "max", "avg", "rate", "quantile(0.9)"]
    length_ms = 1000
    by = ["detector"]
    consume = true
    [[operator]]
    kind = "window"
    id = "slide"
    select = "{__name__=~'rate_sum|bytes_total_sum'}"
    functions = ["sum", "count"]
    length_ms = 3000
    slide_ms = 1000
    without = ["detector"]
    [[operator]]
    kind = "on_change"
    select = "{__name__=~'.*_max'}"
    [[operator]]
    kind = "route"
    select = "{__name__=~'.*_avg'}"
    to = ["live"]
    "#,
    r#"
    tables.hosts = { columns = ["host", "rack"], rows = [["a", "A"], ["b", "A"], ["c", "B"]] }
    [[operator]]
    kind = "enrich"
    table = "hosts"
    key = ["host"]
    [[operator]]
    kind = "set"
    labels = { farm = "p2" }
    [[operator]]
    kind = "drop"
    labels = ["pid"]
    [[operator]]
    kind = "rename"
    label = "(host)"
    to = "${1}name"
    [[operator]]
    kind = "keep"
    select = "{hostname=~'[a-e]'}"
    [[operator]]
    kind = "window"
    functions = ["count", "max"]
    length_ms = 2000
    slide_ms = 500
    late_ms = 1000
    ahead_ms = 5000
    by = ["rack"]
    "#,
];
