//! Samples of the comparison, the same in both stores.

use sheaf_samples::{Labels, STALE, Sample};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Start of the data, a multiple of an hour, and its length in seconds.
pub(crate) const T0_S: i64 = 1_599_998_400;
pub(crate) const LENGTH_S: i64 = 7_200;

pub(crate) type Store = BTreeMap<Arc<Labels>, Vec<Sample>>;

/// Seeded numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Adds a series whose value at each second of `seconds` is that of `value`; `None` is a gap.
fn add(
    store: &mut Store,
    pairs: &[(&str, &str)],
    seconds: impl Iterator<Item = i64>,
    mut value: impl FnMut(i64) -> Option<f64>,
) {
    let labels = Labels::new(pairs.iter().copied()).expect("labels of the test");
    let samples = seconds.filter_map(|second| {
        value(second).map(|value| Sample {
            at_ms: (T0_S + second) * 1000,
            value,
        })
    });
    store.insert(Arc::new(labels), samples.collect());
}

fn every(step_s: usize) -> impl Iterator<Item = i64> {
    (0..=LENGTH_S).step_by(step_s)
}

/// Returns counters with resets and gaps, gauges, histograms, markers, NaN, infinities, and odd label sets.
pub(crate) fn data() -> Store {
    let mut store = Store::new();
    let mut random = Random(42);
    for job in ["api", "web"] {
        for instance in ["0", "1", "2"] {
            for group in ["prod", "canary"] {
                let pairs = [
                    ("__name__", "requests_total"),
                    ("job", job),
                    ("instance", instance),
                    ("group", group),
                ];
                let mut total = random.below(100) as f64;
                add(&mut store, &pairs, every(15), |second| {
                    total += random.below(20) as f64;
                    if random.below(90) == 0 {
                        total = random.below(3) as f64;
                    }
                    let is_gap = instance == "1" && (1800..2700).contains(&second);
                    (!is_gap).then_some(total)
                });
            }
            let pairs = [("__name__", "up"), ("job", job), ("instance", instance)];
            add(&mut store, &pairs, every(15), |_| {
                Some(f64::from(u8::from(random.below(9) > 0)))
            });
            let version = if instance == "2" { "1.9" } else { "1.10" };
            let pairs = [
                ("__name__", "build_info"),
                ("job", job),
                ("instance", instance),
                ("version", version),
            ];
            add(&mut store, &pairs, every(60), |_| Some(1.0));
        }
        let pairs = [("__name__", "limit"), ("job", job)];
        add(&mut store, &pairs, every(60), |_| {
            Some(if job == "api" { 500.0 } else { 250.0 })
        });
        let mut counts = [0.0; 6];
        for (index, bound) in ["0.1", "0.5", "1", "2.5", "10", "+Inf"].iter().enumerate() {
            let pairs = [("__name__", "latency_bucket"), ("job", job), ("le", bound)];
            let mut random = Random(7);
            counts[index] = 0.0;
            add(&mut store, &pairs, every(15), |_| {
                counts[index] += (0..=index).map(|_| random.below(5) as f64).sum::<f64>();
                Some(counts[index])
            });
        }
    }
    for (host, phase) in [("a", 0.0), ("b", 1.0), ("c", 2.5)] {
        let pairs = [("__name__", "temperature"), ("host", host)];
        add(&mut store, &pairs, every(10), |second| {
            let wave = (second as f64 / 300.0 + phase).sin() * 15.0 + 20.0;
            Some((wave * 100.0).round() / 100.0 + random.unit())
        });
        let pairs = [
            ("__name__", "memory_bytes"),
            ("host", host),
            ("kind", "used"),
        ];
        add(&mut store, &pairs, every(30), |second| {
            Some(1e9 + second as f64 * 1234.5 + phase)
        });
        let pairs = [
            ("__name__", "memory_bytes"),
            ("host", host),
            ("kind", "free"),
        ];
        add(&mut store, &pairs, every(30), |second| {
            Some(3e9 - second as f64 * 999.25)
        });
        let pairs = [("__name__", "balance"), ("host", host)];
        add(&mut store, &pairs, every(20), |second| {
            Some(phase * 10.0 - (second % 700) as f64)
        });
    }
    let wild = [
        f64::NAN,
        1.0,
        f64::INFINITY,
        -2.0,
        f64::NEG_INFINITY,
        0.0,
        f64::NAN,
        7.5,
    ];
    for (name, offset) in [("x", 0), ("y", 3), ("z", 5)] {
        let pairs = [("__name__", "wild"), ("case", name)];
        add(&mut store, &pairs, every(60), |second| {
            Some(wild[(second / 60 + offset) as usize % wild.len()])
        });
    }
    let special = [
        ("nan", f64::NAN),
        ("inf", f64::INFINITY),
        ("neginf", f64::NEG_INFINITY),
        ("zero", 0.0),
        ("negzero", -0.0),
        ("tiny", 1.5e-9),
        ("least", 5e-324),
        ("huge", 1.7e308),
        ("big", 123_456_789_012_345_680_000.0),
        ("bigger", 1.234e21),
        ("micro", 1e-6),
        ("third", 1.0 / 3.0),
        ("negative", -17.25),
        ("seconds", 1_600_000_000.5),
        ("ancient", -1e12),
    ];
    for (kind, value) in special {
        let pairs = [("__name__", "special"), ("kind", kind)];
        add(&mut store, &pairs, every(60), |_| Some(value));
    }
    // Ended by a marker, begun again, ended again.
    for (number, end) in [("1", 1000), ("2", 3600), ("3", 3585)] {
        let pairs = [("__name__", "ending"), ("number", number)];
        add(&mut store, &pairs, every(15), |second| {
            let is_marker = second >= end && second < end + 15 || second == 5400;
            let is_gap = second >= end + 15 && second < end + 900 || second > 5400;
            if is_marker {
                Some(STALE)
            } else {
                (!is_gap).then_some(second as f64)
            }
        });
    }
    let pairs = [("__name__", "single"), ("is", "one")];
    add(&mut store, &pairs, [3600].into_iter(), |_| Some(4.0));
    let pairs = [("__name__", "pair"), ("is", "two")];
    add(&mut store, &pairs, [3500, 3590].into_iter(), |second| {
        Some(second as f64)
    });
    let pairs = [("__name__", "sparse")];
    add(&mut store, &pairs, every(299), |second| {
        Some(second as f64 / 7.0)
    });
    let pairs = [("__name__", "uneven")];
    let mut last = 0;
    add(&mut store, &pairs, 0..=LENGTH_S, |second| {
        let is_due = second - last > 3 + second % 11;
        if is_due {
            last = second;
        }
        is_due.then_some((second % 97) as f64)
    });
    let pairs = [("__name__", "flat"), ("what", "constant")];
    add(&mut store, &pairs, every(15), |_| Some(3.5));
    let odd = [
        ("plain", "a"),
        ("quote", "say \"hi\" \\ back"),
        ("unicode", "Größe λ 日本"),
        ("line", "two\nlines"),
        ("markup", "<a&b>"),
        ("dots", "a.b.c"),
        ("number", "007"),
    ];
    for (kind, text) in odd {
        let pairs = [("__name__", "odd_labels"), ("kind", kind), ("text", text)];
        add(&mut store, &pairs, every(60), |_| Some(kind.len() as f64));
    }
    // Histograms with defects.
    let broken = [
        ("noinf", "1", 5.0),
        ("noinf", "2", 9.0),
        ("single", "+Inf", 9.0),
        ("empty", "1", 0.0),
        ("empty", "+Inf", 0.0),
        ("falling", "1", 8.0),
        ("falling", "2", 7.0),
        ("falling", "4", 9.0),
        ("falling", "+Inf", 9.5),
        ("negative", "-2", 3.0),
        ("negative", "-1", 6.0),
        ("negative", "0", 7.0),
        ("negative", "+Inf", 10.0),
        ("text", "oops", 3.0),
        ("text", "1", 4.0),
        ("text", "+Inf", 5.0),
        ("twice", "1", 3.0),
        ("twice", "1.0", 4.0),
        ("twice", "2", 12.0),
        ("twice", "+Inf", 14.0),
        ("nancount", "1", f64::NAN),
        ("nancount", "2", 4.0),
        ("nancount", "+Inf", 5.0),
    ];
    for (kind, bound, count) in broken {
        let pairs = [("__name__", "broken_bucket"), ("kind", kind), ("le", bound)];
        add(&mut store, &pairs, every(60), |_| Some(count));
    }
    // Equal labels but for the name, at different and at the same times.
    for (name, from, to) in [
        ("early", 0, 3000),
        ("late", 3900, 7200),
        ("always", 0, 7200),
    ] {
        let pairs = [("__name__", name), ("shared", "yes")];
        add(&mut store, &pairs, every(30), |second| {
            (from..=to)
                .contains(&second)
                .then_some(second as f64 / 10.0)
        });
    }
    store
}
