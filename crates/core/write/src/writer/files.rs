//! A file that is not closed yet, and its segments.

use super::{Limits, SyncEvery};
use crate::checksum::{Kinds, Sums};
use crate::id::Place;
use sheaf_placement::TargetId;
use sheaf_protocol::Timestamp;
use std::collections::VecDeque;

/// Part of a file that one worker writes.
#[derive(Debug)]
struct OpenSegment {
    worker: TargetId,
    /// Bytes and records given to the worker.
    bytes: u64,
    records: u64,
    /// Records written.
    records_written: u64,
    /// Sums of the bytes written.
    sums: Sums,
}

impl OpenSegment {
    fn is_written(&self) -> bool {
        self.sums.bytes == self.bytes && self.records_written == self.records
    }
}

/// State of an open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) place: Place,
    pub(super) opened_at: Timestamp,
    /// Whether it gets no further records.
    pub(super) is_ended: bool,
    is_closing: bool,
    bytes: u64,
    records: u64,
    /// Segments in front that are written and over: their number, records and sums.
    done: u32,
    done_records: u64,
    done_sums: Sums,
    /// The segments behind them, in the order of the file.
    segments: VecDeque<OpenSegment>,
    kinds: Kinds,
    /// Bytes written in all segments, and how many of them at the last order to sync.
    written: u64,
    synced: u64,
    synced_at: Timestamp,
    is_syncing: bool,
}

impl OpenFile {
    pub(super) fn new(place: Place, now: Timestamp, kinds: Kinds) -> Self {
        Self {
            place,
            opened_at: now,
            is_ended: false,
            is_closing: false,
            bytes: 0,
            records: 0,
            done: 0,
            done_records: 0,
            done_sums: Sums::empty(kinds),
            segments: VecDeque::new(),
            kinds,
            written: 0,
            synced: 0,
            synced_at: now,
            is_syncing: false,
        }
    }

    pub(super) fn is_full(&self, limits: Limits) -> bool {
        self.bytes >= limits.bytes || self.records >= limits.records
    }

    /// Whether the next record begins a segment, as there is none or the last one has `segment_bytes`.
    pub(super) fn needs_segment(&self, segment_bytes: u64) -> bool {
        let last = self.segments.back();
        last.is_none_or(|segment| segment.bytes >= segment_bytes)
    }

    pub(super) fn begin_segment(&mut self, worker: TargetId) {
        self.segments.push_back(OpenSegment {
            worker,
            bytes: 0,
            records: 0,
            records_written: 0,
            sums: Sums::empty(self.kinds),
        });
        self.fold();
    }

    /// Appends a record to the last segment. Returns the number of the segment, its worker, and the offset.
    pub(super) fn append(&mut self, bytes: u64) -> (u32, TargetId, u64) {
        let offset = self.bytes;
        self.bytes += bytes;
        self.records += 1;
        let behind = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        let index = self.done + behind - 1;
        let segment = self.segments.back_mut().expect("a segment was begun");
        segment.bytes += bytes;
        segment.records += 1;
        (index, segment.worker, offset)
    }

    /// Notes what is written of a segment. Returns how many bytes that is more than before.
    pub(super) fn handle_written(&mut self, index: u32, records: u64, sums: Sums) -> u64 {
        let at = index.checked_sub(self.done).map(|at| at as usize);
        let Some(segment) = at.and_then(|at| self.segments.get_mut(at)) else {
            return 0;
        };
        let bytes = sums.bytes - segment.sums.bytes;
        segment.records_written += records;
        segment.sums = sums;
        self.written += bytes;
        self.fold();
        bytes
    }

    pub(super) fn handle_synced(&mut self, now: Timestamp) {
        self.is_syncing = false;
        self.synced_at = now;
    }

    /// Folds the segments in front that are over and written into one sum. The last one may get further records.
    fn fold(&mut self) {
        while self.segments.len() > 1
            && let Some(first) = self.segments.front()
            && first.is_written()
        {
            self.done += 1;
            self.done_records += first.records;
            self.done_sums = self.done_sums.then(first.sums);
            self.segments.pop_front();
        }
    }

    /// Returns records and bytes that are given and not written.
    pub(super) fn in_flight(&self) -> (u64, u64) {
        let each = self.segments.iter().map(|segment| {
            let records = segment.records - segment.records_written;
            (records, segment.bytes - segment.sums.bytes)
        });
        each.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }

    /// Returns the records and sums from the beginning of the file up to the first byte that is not written.
    fn prefix(&self) -> (u64, Sums) {
        let (mut records, mut sums) = (self.done_records, self.done_sums);
        for segment in &self.segments {
            records += segment.records_written;
            sums = sums.then(segment.sums);
            if !segment.is_written() {
                break;
            }
        }
        (records, sums)
    }

    /// Returns what is to be closed, once: when the file is ended, all of it is written, and no sync is under way.
    pub(super) fn take_close(&mut self) -> Option<(TargetId, u64, Sums, u32)> {
        let is_due = self.is_ended && !self.is_closing && !self.is_syncing;
        if !is_due || self.in_flight() != (0, 0) {
            return None;
        }
        self.is_closing = true;
        let (records, sums) = self.prefix();
        let behind = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        let worker = self.segments.back()?.worker;
        Some((worker, records, sums, self.done + behind))
    }

    /// Returns what a sync makes durable, if one is due by `every` and none is under way.
    pub(super) fn take_sync(
        &mut self,
        now: Timestamp,
        every: SyncEvery,
    ) -> Option<(TargetId, u64, Sums)> {
        let unsynced = self.written - self.synced;
        let is_due =
            unsynced >= every.bytes || (unsynced > 0 && now.since(self.synced_at) >= every.time);
        if !is_due || self.is_syncing || self.is_closing {
            return None;
        }
        self.is_syncing = true;
        self.synced = self.written;
        let (records, sums) = self.prefix();
        Some((self.segments.back()?.worker, records, sums))
    }
}
