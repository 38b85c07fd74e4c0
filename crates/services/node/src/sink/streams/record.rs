//! Parts of TFs as they go through the engine.

use super::format::Layout;
use crate::event::FileEvent;
use crate::sink::{Delivery, recomputed, stated_of};
use bytes::Bytes;
use sheaf_formats::StreamFormat;
use sheaf_protocol::{Digest, Tf};
use sheaf_stream_files::Record;
use sheaf_verdict_log::event::StreamEvent;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A TF that streams have parts of. It is delivered when the last record that holds it is written.
pub(super) struct Shared {
    pub(super) tf: Tf<Bytes>,
    /// Observations about its bytes, made by the first worker that has a part.
    delivery: OnceLock<Delivery>,
    /// The TF as the only stream of DataDistribution's format has it.
    file: OnceLock<FileEvent>,
    /// Whether a consumer has had it.
    had_consumer: bool,
    /// Streams that were to have something of it, and its fate in each.
    streams: Mutex<Vec<StreamEvent>>,
}

impl Shared {
    /// Makes the TF with its fates in `streams`; a consumer has had it if `had_consumer`.
    pub(super) fn new(tf: Tf<Bytes>, had_consumer: bool, streams: Vec<StreamEvent>) -> Self {
        Self {
            tf,
            delivery: OnceLock::new(),
            file: OnceLock::new(),
            had_consumer,
            streams: Mutex::new(streams),
        }
    }

    /// Notes that the stream at `at` of its streams does not take it.
    pub(super) fn refuse(&self, at: usize, why: String) {
        let streams = self.streams.lock();
        let mut streams = streams.unwrap_or_else(PoisonError::into_inner);
        if let Some(fate) = streams.get_mut(at) {
            fate.refused = Some(why);
        }
    }

    /// Returns the TF and the observations about it, which are made now if no worker had a part of it.
    pub(super) fn into_delivered(self) -> (Tf<Bytes>, Delivery) {
        let Self {
            tf,
            delivery,
            file,
            had_consumer,
            streams,
        } = self;
        let delivery = delivery.into_inner().unwrap_or_else(|| {
            if had_consumer {
                // No stream has it, and reading its bytes was left to the consumer.
                stated_of(&tf)
            } else {
                recomputed(&tf)
            }
        });
        let delivery = Delivery {
            file: file.into_inner(),
            streams: streams.into_inner().unwrap_or_else(PoisonError::into_inner),
            ..delivery
        };
        (tf, delivery)
    }
}

/// Part of a TF that one stream gets.
pub(super) struct TfRecord {
    layout: Layout,
    /// Whether the event log gets size and digest of the record.
    is_logged: bool,
    pub(super) part: Tf<Bytes>,
    pub(super) whole: Arc<Shared>,
}

impl TfRecord {
    pub(super) fn new(
        format: StreamFormat,
        is_logged: bool,
        part: Tf<Bytes>,
        whole: Arc<Shared>,
    ) -> Self {
        Self {
            layout: Layout::new(format, &part),
            is_logged,
            part,
            whole,
        }
    }
}

impl Record for TfRecord {
    fn slices(&self) -> Vec<&[u8]> {
        self.layout.slices(&self.part)
    }

    fn tells_its_end(&self) -> bool {
        self.layout.has_checksums()
    }

    fn prepare(&mut self) {
        // The payloads of the TF are not read for a product.
        if !self.part.is_product() {
            let whole = &self.whole;
            whole.delivery.get_or_init(|| recomputed(&whole.tf));
        }
        if self.is_logged {
            self.whole.file.get_or_init(|| {
                let mut digest = Digest::default();
                for slice in self.layout.slices(&self.part) {
                    digest.update(slice);
                }
                FileEvent {
                    bytes: self.layout.bytes(),
                    digest: digest.value(),
                }
            });
        }
    }

    fn bytes(&self) -> u64 {
        self.layout.bytes()
    }
}
