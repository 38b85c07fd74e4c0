//! The points of the generator: names, values and times, and how they are written.

use super::{LoadOptions, Shape, Target};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_samples::wire::remote_write;
use sheaf_samples::{Labels, Sample};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Values that a point takes one of.
const TABLE: usize = 4096;
const SEED: u64 = 0x5EAF;

/// Returns the values that one socket or connection sends with `options`, in their order, by name and host.
pub(crate) fn values_of(
    options: &LoadOptions,
    points: u64,
) -> BTreeMap<(String, String), Vec<f64>> {
    let mut source = Source::new(options, 0, 1);
    let mut values: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for _ in 0..points {
        let (at, value, _) = source.step();
        let value = value.parse().expect("a value of the table is a number");
        let at = u32::try_from(at).expect("series are counted in 32 bits");
        values
            .entry(name_of(at, options.names))
            .or_default()
            .push(value);
    }
    values
}

/// Returns name and host of a series.
fn name_of(number: u32, names: u32) -> (String, String) {
    (
        format!("m{}", number % names),
        format!("h{}", number / names),
    )
}

/// Draws a value of the mix: a fraction, a whole number, or on and off.
fn mixed(kind: usize, rng: &mut Xoshiro256PlusPlus) -> String {
    match kind {
        0 => format!("{:.5}", rng.random::<f64>() * 100.0),
        1 => rng.random_range(1..=100).to_string(),
        _ => rng.random_range(0..=1).to_string(),
    }
}

/// Makes the points of every `step`-th series from `first` on, round after round.
pub(crate) struct Source {
    prefixes: Vec<Vec<u8>>,
    labels: Vec<Labels>,
    values: Vec<[String; TABLE]>,
    walks: Vec<i64>,
    rng: Xoshiro256PlusPlus,
    shape: Shape,
    at: usize,
    turn: usize,
    round: i64,
    history_ms: Option<i64>,
    now_ns: i64,
}

impl Source {
    pub(crate) fn new(options: &LoadOptions, first: u32, step: u32) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED + u64::from(first));
        let numbers = || (first..options.series).step_by(step as usize);
        let name = |number: u32| name_of(number, options.names);
        let prefix = |number| {
            let (name, host) = name(number);
            format!("{name},host={host} value=").into_bytes()
        };
        let labels = |number| {
            let (name, host) = name(number);
            Labels::new([("__name__", name), ("host", host)]).expect("two short labels")
        };
        let values = (0..3).map(|kind| std::array::from_fn(|_| mixed(kind, &mut rng)));
        let values = values.collect();
        let is_remote = matches!(options.to, Target::Remote(..));
        Self {
            prefixes: numbers().map(prefix).collect(),
            labels: if is_remote {
                numbers().map(labels).collect()
            } else {
                Vec::new()
            },
            values,
            walks: vec![5000; numbers().count()],
            rng,
            shape: options.shape,
            at: 0,
            turn: 0,
            round: 0,
            history_ms: (options.history_s > 0)
                .then(|| now_ns() / 1_000_000 - i64::from(options.history_s) * 1000),
            now_ns: now_ns(),
        }
    }

    /// Takes the time of the next points, which were due `lag` ago.
    pub(crate) fn look(&mut self, lag: Duration) {
        self.now_ns = now_ns() - i64::try_from(lag.as_nanos()).unwrap_or(0);
    }

    /// Returns the place of the next series, its value and its time in ms.
    fn step(&mut self) -> (usize, String, i64) {
        let at = self.at;
        let value = match self.shape {
            // What is kept must not repeat: a server that finds the period of a table keeps next to nothing.
            Shape::Mix if self.history_ms.is_some() => mixed(at % 3, &mut self.rng),
            Shape::Mix => {
                self.turn += 1;
                self.values[at % 3][(self.turn * 7) % TABLE].clone()
            }
            Shape::Walk => {
                self.walks[at] += self.rng.random_range(-5..=5);
                format!("{:.2}", self.walks[at] as f64 / 100.0)
            }
        };
        let at_ms = match self.history_ms {
            Some(begin) => begin + self.round * 1000 + self.rng.random_range(0..=1),
            None => self.now_ns / 1_000_000,
        };
        self.at += 1;
        if self.at == self.prefixes.len() {
            self.at = 0;
            self.round += 1;
        }
        (at, value, at_ms)
    }

    /// Appends a line.
    pub(crate) fn line(&mut self, out: &mut Vec<u8>) {
        if self.history_ms.is_none() && self.shape == Shape::Mix {
            // The path of a load: nothing is allocated.
            let at = self.at;
            self.turn += 1;
            out.extend_from_slice(&self.prefixes[at]);
            out.extend_from_slice(self.values[at % 3][(self.turn * 7) % TABLE].as_bytes());
            out.push(b' ');
            push_number(out, self.now_ns);
            out.push(b'\n');
            self.at = (at + 1) % self.prefixes.len();
            return;
        }
        let (at, value, at_ms) = self.step();
        out.extend_from_slice(&self.prefixes[at]);
        out.extend_from_slice(value.as_bytes());
        out.push(b' ');
        push_number(out, at_ms * 1_000_000);
        out.push(b'\n');
    }

    /// Returns a request of remote write with `points`.
    pub(crate) fn remote(&mut self, points: usize) -> Vec<u8> {
        let points: Vec<(usize, [Sample; 1])> = (0..points)
            .map(|_| {
                let (at, value, at_ms) = self.step();
                let value = value.parse().expect("a value of the table is a number");
                (at, [Sample { at_ms, value }])
            })
            .collect();
        let series = points
            .iter()
            .map(|(at, samples)| (&self.labels[*at], &samples[..]));
        remote_write::encode(series, &[])
    }
}

fn push_number(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn now_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_has_one_point_a_second_of_each_series() {
        let options = LoadOptions {
            series: 2,
            history_s: 10,
            shape: Shape::Walk,
            ..LoadOptions::default()
        };
        let mut source = Source::new(&options, 0, 1);
        let mut out = Vec::new();
        (0..4).for_each(|_| source.line(&mut out));
        let text = String::from_utf8(out).unwrap();
        let times: Vec<i64> = text
            .lines()
            .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        let apart_ms = (times[2] - times[0]) / 1_000_000;
        assert!((999..=1001).contains(&apart_ms), "{text}");
    }
}
