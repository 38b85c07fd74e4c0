//! A driver: one pipeline, or shards with a merger, and everything that they deliver by name.

use sheaf_processing::{
    Fate, Output, OutputHandle, PartialsError, Pipeline, ProcessingConfig, Role, SeriesHandle,
    shard_of,
};
use sheaf_samples::{Labels, Sample};
use std::collections::BTreeMap;

/// One delivered sample. Compares by bits, so that a NaN equals itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) series: String,
    pub(crate) at_ms: i64,
    pub(crate) bits: u64,
    pub(crate) destinations: u32,
}

impl Seen {
    pub(crate) fn value(&self) -> f64 {
        f64::from_bits(self.bits)
    }
}

pub(crate) struct Site {
    /// One pipeline, or shards and behind them the merger.
    pub(crate) pipelines: Vec<Pipeline>,
    shards: u32,
    names: Vec<BTreeMap<OutputHandle, String>>,
    /// Shard of each handle.
    owners: BTreeMap<u32, usize>,
    /// Delivered samples, in order.
    pub(crate) seen: Vec<Seen>,
    /// Partials of each shard that the merger does not have yet.
    outputs: Vec<Output>,
}

impl Site {
    /// `shards` 0: one pipeline for everything.
    pub(crate) fn new(config: &ProcessingConfig, shards: u32) -> Self {
        let make = |role| Pipeline::new(config, role).unwrap();
        let mut pipelines: Vec<_> = (0..shards).map(|_| make(Role::Shard)).collect();
        pipelines.push(match shards {
            0 => make(Role::Whole),
            shards => make(Role::Merger {
                shards: shards as usize,
            }),
        });
        Self {
            names: vec![BTreeMap::new(); pipelines.len()],
            outputs: vec![Output::default(); pipelines.len()],
            pipelines,
            shards,
            owners: BTreeMap::new(),
            seen: Vec::new(),
        }
    }

    pub(crate) fn of(text: &str) -> Self {
        Self::new(&config(text), 0)
    }

    /// The one pipeline of a site without shards.
    pub(crate) fn pipeline(&self) -> &Pipeline {
        assert_eq!(self.shards, 0);
        &self.pipelines[0]
    }

    pub(crate) fn register(&mut self, now_ms: i64, handle: u32, labels: &[(&str, &str)]) -> bool {
        let labels = Labels::new(labels.iter().copied()).unwrap();
        let owner = match self.shards {
            0 => 0,
            shards => shard_of(&labels, shards) as usize,
        };
        self.owners.insert(handle, owner);
        let registered =
            self.pipelines[owner].handle_new_series(now_ms, SeriesHandle(handle), &labels);
        registered.is_ok()
    }

    pub(crate) fn end(&mut self, now_ms: i64, handle: u32) {
        if let Some(owner) = self.owners.remove(&handle) {
            let pipeline = &mut self.pipelines[owner];
            pipeline.handle_series_end(now_ms, SeriesHandle(handle));
            // The merger learns of it before anything else happens, as one pipeline does.
            pipeline.handle_samples(now_ms, &[], &mut self.outputs[owner]);
            self.collect();
        }
    }

    pub(crate) fn samples(&mut self, now_ms: i64, samples: &[(u32, i64, f64)]) {
        for &(handle, at_ms, value) in samples {
            let owner = self.owners.get(&handle).copied().unwrap_or(0);
            let sample = (SeriesHandle(handle), Sample { at_ms, value });
            self.pipelines[owner].handle_samples(now_ms, &[sample], &mut self.outputs[owner]);
        }
        self.collect();
    }

    /// Polls all shards, then the merger.
    pub(crate) fn poll(&mut self, now_ms: i64) {
        let merger = self.pipelines.len() - 1;
        for at in 0..merger {
            self.pipelines[at].poll(now_ms, &mut self.outputs[at]);
        }
        self.collect();
        self.pipelines[merger].poll(now_ms, &mut self.outputs[merger]);
        self.collect();
    }

    pub(crate) fn reconfigure(&mut self, now_ms: i64, config: &ProcessingConfig) {
        let merger = self.pipelines.len() - 1;
        for at in 0..merger {
            let reconfigured =
                self.pipelines[at].reconfigure(now_ms, config, &mut self.outputs[at]);
            reconfigured.unwrap();
        }
        self.collect();
        let reconfigured =
            self.pipelines[merger].reconfigure(now_ms, config, &mut self.outputs[merger]);
        reconfigured.unwrap();
        self.collect();
    }

    /// Takes what the test had the pipeline `at` deliver.
    pub(crate) fn absorb(&mut self, at: usize, output: Output) {
        self.outputs[at] = output;
        self.collect();
    }

    /// Takes what was delivered; partials of a configuration that the merger does not have yet wait.
    fn collect(&mut self) {
        let merger = self.pipelines.len() - 1;
        for at in 0..self.pipelines.len() {
            let partials = std::mem::take(&mut self.outputs[at].partials);
            assert!(
                at < merger || partials.is_empty(),
                "only shards have partials"
            );
            if !partials.is_empty() {
                let taken = self.pipelines[merger].handle_partials(at, &partials);
                match taken {
                    Ok(()) => {}
                    Err(PartialsError::Generation { taken, .. }) => {
                        self.outputs[at].partials = partials[taken..].to_vec();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            let (output, names) = (&mut self.outputs[at], &mut self.names[at]);
            for new in output.new_series.drain(..) {
                let known = names.insert(new.handle, new.labels.to_string());
                assert_eq!(known, None, "a handle names one series");
            }
            for one in output.samples.drain(..) {
                self.seen.push(Seen {
                    series: names[&one.handle].clone(),
                    at_ms: one.sample.at_ms,
                    bits: one.sample.value.to_bits(),
                    destinations: one.destinations.0,
                });
            }
            for ended in output.ended_series.drain(..) {
                names.remove(&ended).expect("a series ends once");
            }
        }
    }

    /// Series that exist, of all pipelines.
    pub(crate) fn series(&self) -> Vec<&String> {
        self.names.iter().flat_map(BTreeMap::values).collect()
    }

    /// Everything delivered, in an order that does not depend on shards.
    pub(crate) fn sorted(&self) -> Vec<Seen> {
        let mut seen = self.seen.clone();
        seen.sort();
        seen
    }

    /// Delivered samples of each series, in order.
    pub(crate) fn by_series(&self) -> BTreeMap<&str, Vec<&Seen>> {
        let mut by_series = BTreeMap::<_, Vec<_>>::new();
        for one in &self.seen {
            by_series.entry(&*one.series).or_default().push(one);
        }
        by_series
    }

    pub(crate) fn ended(&self, fate: Fate) -> u64 {
        self.pipelines
            .iter()
            .map(|one| one.stats().ended(fate))
            .sum()
    }

    /// Delivered samples as `series@time=value`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |one: &Seen| format!("{}@{}={}", one.series, one.at_ms, one.value());
        self.seen.iter().map(line).collect()
    }

    /// Asserts that the accounting of every pipeline adds up, and that what it counts was delivered.
    pub(crate) fn assert_balanced(&self) {
        for pipeline in &self.pipelines {
            assert!(pipeline.stats().is_balanced(), "{:?}", pipeline.stats());
        }
        let out: u64 = self.pipelines.iter().map(|one| one.stats().out).sum();
        assert_eq!(out, self.seen.len() as u64);
    }
}

pub(crate) fn config(text: &str) -> ProcessingConfig {
    toml::from_str(text).unwrap()
}
