//! Path of a datagram: decoded, looked up, held against the bounds, counted.

mod formats;
mod signed;
mod tables;

use crate::peer::Peer;
use crate::series::Key;
use crate::{Batch, Collision, IntakeConfig, SourceStats};
use sheaf_samples::wire::collectd::Types;
use sheaf_samples::wire::exposition::Format;
use sheaf_samples::wire::line_protocol::{Decoder, Precision};
use sheaf_samples::wire::{Code, Metadata};
use sheaf_samples::{Labels, Sample};
use signed::Collectd;
use tables::{Tables, Visit};

pub use signed::Verify;

/// Format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// InfluxDB line protocol, whose times have this precision.
    Lines(Precision),
    /// Prometheus remote write 1.0, compressed.
    RemoteWrite,
    /// Prometheus or OpenMetrics text.
    Exposition(Format),
    /// OpenTelemetry metrics as protobuf, not compressed.
    Otlp,
    /// collectd's binary protocol.
    Collectd,
    /// StatsD or DogStatsD: summed up, and given out by [`Intake::handle_tick`].
    StatsD,
}

/// Fate of the samples of one datagram or request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Samples taken.
    pub taken: u64,
    /// Lines, records and values that are bad.
    pub bad: u64,
    /// Samples refused by a bound.
    pub refused: u64,
    /// The first of the bad.
    pub first_fault: Option<Code>,
}

/// Intake of one receiving thread.
#[derive(Debug)]
pub struct Intake {
    decoder: Decoder,
    tables: Tables,
}

impl Intake {
    /// Returns an intake with nothing in it.
    #[must_use]
    pub fn new(config: IntakeConfig) -> Self {
        Self {
            decoder: Decoder::new(Precision::Ns, config.line_bytes_max as usize),
            tables: Tables::new(config),
        }
    }

    /// Takes the samples of one datagram or request of `peer`; `now_ms` is the time since 1970 by the clock of the
    /// collector.
    ///
    /// What is taken is added to `out`. A bad or refused sample takes no other one with it.
    pub fn handle_datagram(
        &mut self,
        now_ms: i64,
        peer: Peer,
        protocol: Protocol,
        bytes: &[u8],
        out: &mut Batch,
    ) -> Outcome {
        let mut visit = Visit::new(now_ms, peer, out);
        match protocol {
            Protocol::Lines(precision) => {
                self.decoder.set_precision(precision);
                let mut lines = self.decoder.lines(bytes);
                while let Some(line) = lines.next_line() {
                    match line {
                        Ok(line) => {
                            for field in line.fields() {
                                let key = Key {
                                    series: line.series,
                                    field: field.name,
                                };
                                let Some(value) = field.value.number() else {
                                    self.tables.faults.push(Code::TextValue);
                                    continue;
                                };
                                let tables = &mut self.tables;
                                tables.line(&mut visit, &key, line.at_ms, value, out);
                            }
                        }
                        Err(fault) => self.tables.faults.push(fault.code),
                    }
                }
            }
            Protocol::RemoteWrite => self.tables.remote_write(&mut visit, bytes, out),
            Protocol::Exposition(format) => {
                let tables = &mut self.tables;
                tables.exposition(&mut visit, bytes, format, &[], &mut Vec::new(), out);
            }
            Protocol::Otlp => self.tables.otlp(&mut visit, bytes, out),
            Protocol::Collectd => self.tables.collectd(&mut visit, bytes, out),
            Protocol::StatsD => self.tables.statsd(&mut visit, bytes, out),
        }
        self.tables.end(visit, bytes.len(), out)
    }

    /// Takes samples that were decoded elsewhere, such as those of a scrape, as if they came in one request.
    pub fn handle_samples(
        &mut self,
        now_ms: i64,
        peer: Peer,
        samples: impl IntoIterator<Item = (Labels, Sample)>,
        out: &mut Batch,
    ) -> Outcome {
        let mut visit = Visit::new(now_ms, peer, out);
        for (labels, sample) in samples {
            let tables = &mut self.tables;
            tables.labelled(&mut visit, labels, Some(sample.at_ms), sample.value, out);
        }
        self.tables.end(visit, 0, out)
    }

    /// Takes the answer of a scrape. The labels of `target`, such as `job` and `instance`, are added to each series;
    /// one of the same name that a series brings along becomes `exported_…`, as in Prometheus. Series whose samples
    /// have no time of their own are added to `seen`: absent from the next answer, they have ended.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a scrape is, and where its samples go"
    )]
    pub fn handle_scrape(
        &mut self,
        now_ms: i64,
        peer: Peer,
        format: Format,
        target: &[(&str, &str)],
        bytes: &[u8],
        seen: &mut Vec<Labels>,
        out: &mut Batch,
    ) -> Outcome {
        let mut visit = Visit::new(now_ms, peer, out);
        self.tables
            .exposition(&mut visit, bytes, format, target, seen, out);
        self.tables.end(visit, bytes.len(), out)
    }

    /// Sets how collectd's packets are read: the types of `types.db`, the check of signatures, and whether values
    /// without one are refused.
    pub fn set_collectd(&mut self, types: Types, verify: Option<Box<Verify>>, is_required: bool) {
        self.tables.collectd = Collectd {
            types,
            verify,
            is_required,
        };
    }

    /// Gives out the sums of events that are due, and ends what was idle for too long, and cut-offs whose time is over.
    /// To be called about once a second.
    pub fn handle_tick(&mut self, now_ms: i64, out: &mut Batch) {
        self.tables.tick(now_ms, out);
    }

    /// Counts datagrams that the kernel dropped at a socket; whose they were, only their clients' counters tell.
    pub fn handle_kernel_drops(&mut self, count: u64) {
        self.tables.kernel_drops += count;
    }

    /// Datagrams that the kernel dropped.
    #[must_use]
    pub fn kernel_drops(&self) -> u64 {
        self.tables.kernel_drops
    }

    /// Accounting of every source that is known, by name.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &SourceStats)> {
        let sources = self.tables.sources.iter();
        sources.map(|source| (source.name.as_str(), &source.stats))
    }

    /// Accounting of all that came in, also of sources that are no longer known or could not be named.
    #[must_use]
    pub fn total(&self) -> SourceStats {
        let mut total = self.tables.unnamed.clone();
        total.merge(&self.tables.sources.gone);
        for source in self.tables.sources.iter() {
            total.merge(&source.stats);
            total.seen_ms = total.seen_ms.max(source.stats.seen_ms);
        }
        total.series = self.tables.series.len() as u64;
        total
    }

    /// Sources that made way for others so far.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.tables.sources.evicted
    }

    /// Sizes of the tables: sources, series, keys of lines, links.
    #[must_use]
    pub fn sizes(&self) -> [usize; 4] {
        let tables = &self.tables;
        let links = tables.links.links();
        [
            tables.sources.len(),
            tables.series.len(),
            tables.series.keys(),
            links,
        ]
    }

    /// Names of metrics that two measurements and fields have, the first 100.
    #[must_use]
    pub fn collisions(&self) -> &[Collision] {
        &self.tables.names.collisions
    }

    /// Descriptions of metrics that came in, by name.
    pub fn metadata(&self) -> impl Iterator<Item = &Metadata> {
        self.tables.names.metadata.values()
    }
}

#[cfg(test)]
mod tests;
