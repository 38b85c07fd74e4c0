//! Records of each format, given to the tables one by one.

use super::tables::{Tables, Visit};
use crate::{Batch, events};
use sheaf_samples::wire::collectd::Security;
use sheaf_samples::wire::exposition::{self, Format};
use sheaf_samples::wire::{Code, collectd, otlp, remote_write, statsd};
use sheaf_samples::{Labels, LabelsError};
use std::collections::BTreeMap;

impl Tables {
    pub(super) fn remote_write(&mut self, visit: &mut Visit, bytes: &[u8], out: &mut Batch) {
        let limits = remote_write::Limits {
            message_bytes_max: self.config.message_bytes_max as usize,
            ..remote_write::Limits::default()
        };
        let message = match remote_write::decompress(bytes, limits.message_bytes_max) {
            Ok(message) => message,
            Err(fault) => return self.faults.push(fault.code),
        };
        for record in remote_write::decode(&message, limits) {
            match record {
                Ok(remote_write::Record::Series(labels, samples)) => {
                    for sample in samples {
                        self.labelled(visit, labels.clone(), Some(sample.at_ms), sample.value, out);
                    }
                }
                Ok(remote_write::Record::Metadata(metadata)) => self.names.describe(metadata),
                Err(fault) => self.faults.push(fault.code),
            }
        }
    }

    pub(super) fn exposition(
        &mut self,
        visit: &mut Visit,
        bytes: &[u8],
        format: Format,
        target: &[(&str, &str)],
        seen: &mut Vec<Labels>,
        out: &mut Batch,
    ) {
        let mut metadata = BTreeMap::new();
        for record in exposition::decode(bytes, format) {
            match record {
                Ok(exposition::Record::Sample {
                    labels,
                    value,
                    at_ms,
                }) => match of_target(labels, target) {
                    Ok(labels) => {
                        if at_ms.is_none() && !target.is_empty() {
                            seen.push(labels.clone());
                        }
                        self.labelled(visit, labels, at_ms, value, out);
                    }
                    Err(_) => self.faults.push(Code::BadLabels),
                },
                Ok(record) => exposition::describe(&mut metadata, &record),
                Err(fault) => self.faults.push(fault.code),
            }
        }
        for metadata in metadata.into_values() {
            self.names.describe(metadata);
        }
    }

    pub(super) fn otlp(&mut self, visit: &mut Visit, bytes: &[u8], out: &mut Batch) {
        if bytes.len() > self.config.message_bytes_max as usize {
            return self.faults.push(Code::TooBig);
        }
        otlp::decode(bytes, otlp::Limits::default(), &mut |record| match record {
            Ok(otlp::Record::Point(point)) if point.is_delta => {
                self.grown(visit, point.labels, point.at_ms, point.value, out);
            }
            Ok(otlp::Record::Point(point)) => {
                self.labelled(visit, point.labels, point.at_ms, point.value, out);
            }
            Ok(otlp::Record::Metadata(metadata)) => self.names.describe(metadata),
            Err(fault) => self.faults.push(fault.code),
        });
    }

    pub(super) fn collectd(&mut self, visit: &mut Visit, bytes: &[u8], out: &mut Batch) {
        // Taken out meanwhile: the lists borrow the check, and the tables take their values.
        let settings = std::mem::take(&mut self.collectd);
        let verify = settings
            .verify
            .as_ref()
            .map(|verify| |user: &str, signed: &[u8], mac: &[u8]| verify(user, signed, mac));
        let security = Security {
            verify: verify
                .as_ref()
                .map(|verify| verify as &collectd::Verify<'_>),
            is_required: settings.is_required,
        };
        for list in collectd::decode(bytes, security) {
            let list = match list {
                Ok(list) => list,
                Err(fault) => {
                    self.faults.push(fault.code);
                    continue;
                }
            };
            let values = list.values();
            let count = values.len();
            for (at, value) in values.enumerate() {
                let source = settings.types.source(list.kind, at, count);
                match list.labels(&source, value) {
                    Ok(labels) => self.labelled(visit, labels, list.at_ms, value.number(), out),
                    Err(code) => self.faults.push(code),
                }
            }
        }
        self.collectd = settings;
    }

    pub(super) fn statsd(&mut self, visit: &mut Visit, bytes: &[u8], out: &mut Batch) {
        for event in statsd::decode(bytes) {
            let event = event.map_err(|fault| fault.code);
            let event = event.and_then(|event| {
                let labels = event.labels()?;
                let all = events::series_of(&labels, event.change);
                Ok((event, all.map_err(|_| Code::BadLabels)?))
            });
            let (event, all) = match event {
                Ok(event) => event,
                Err(code) => {
                    self.faults.push(code);
                    continue;
                }
            };
            // The bounds hold for the series that the sums go to.
            let mut series = Vec::with_capacity(all.len());
            for labels in all {
                match self.known(visit, labels, event.at_ms, out) {
                    Some(known) => series.push(known),
                    None => break,
                }
            }
            if series.len() == events::series_count(event.change) {
                self.count(visit, series[0]);
                let handles = series.iter().map(|known| known.handle);
                self.events.add(handles.collect(), event.change);
            }
        }
    }
}

/// Adds the labels of a target to those of a series.
fn of_target(labels: Labels, target: &[(&str, &str)]) -> Result<Labels, LabelsError> {
    if target.is_empty() {
        return Ok(labels);
    }
    let own = labels.iter().map(|(name, value)| {
        let is_taken = target.iter().any(|label| label.0 == name);
        let front = if is_taken { "exported_" } else { "" };
        (format!("{front}{name}"), value)
    });
    let target = target
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value));
    Labels::new(own.chain(target))
}
