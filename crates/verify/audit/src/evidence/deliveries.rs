//! Deliveries: a row each, with its parts and its fates in streams.

use super::Evidence;
use crate::tables::{Delivery, Part};
use sheaf_verdict_log::event::{PartEvent, StreamEvent};

impl Evidence {
    /// Adds the fates in streams of the delivery that comes next.
    pub(super) fn add_fates(&mut self, streams: Vec<StreamEvent>) {
        let number = u32::try_from(self.tables.deliveries.len());
        if let (false, Ok(number)) = (streams.is_empty(), number) {
            let fates = self.tables.stream_fates.place(streams);
            self.streams.insert(number, fates);
        }
    }

    /// Adds a delivery, and gives it its number.
    pub(super) fn add_delivery(&mut self, delivery: Delivery, parts: &[PartEvent]) {
        let tables = &mut self.tables;
        let number = u32::try_from(tables.deliveries.len()).unwrap_or(u32::MAX);
        let Delivery { tf, life, .. } = delivery;
        tables.deliveries.push(Delivery { number, ..delivery });
        for part in parts {
            let source = tables.sources.place((part.flp, part.incarnation));
            let (bytes, digest, delivery) = (part.bytes, part.digest, number);
            tables.parts.push(Part {
                tf,
                bytes,
                digest,
                source,
                delivery,
            });
        }
        if !delivery.is_hearsay {
            self.count(life, parts.iter().map(|part| part.bytes).sum());
        }
    }
}
