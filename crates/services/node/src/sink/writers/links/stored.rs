//! TFs that are stored at writers before they are committed: published then, or revoked.

use super::{Done, Links, LinksEvent, fate_of};
use crate::event::StreamEvent;
use crate::sink::Recovered;
use bytes::Bytes;
use sheaf_protocol::control::{HeldPart, HeldTf, Move, Recover, TfCopy};
use sheaf_protocol::{Control, Incarnation, RunId, Tf, TfId};
use sheaf_transport::Transport;
use sheaf_verdict_log::event::PartEvent;
use sheaf_write::HandoffId;
use std::collections::BTreeMap;

/// A TF that a writer is to publish.
#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) writer: u16,
    pub(super) tried: Vec<u16>,
    pub(super) copy: TfCopy,
    /// Whether the writer was asked on its stream of now.
    pub(super) is_sent: bool,
    pub(super) what: Published,
}

/// A TF that is published: of this life, or of a former one.
#[derive(Debug)]
pub(super) enum Published {
    Own(Done),
    Former(Incarnation, Recovered),
}

/// A TF that a writer has, and that is not committed.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) writer: u16,
    /// Writers that it was sent to, the last one at the end.
    pub(super) tried: Vec<u16>,
    pub(super) copy: TfCopy,
    pub(super) streams: Vec<StreamEvent>,
    /// Of a former life.
    pub(super) of: Option<HeldTf>,
}

impl Stored {
    /// Whether a former life has published it, so that it is not to be revoked.
    pub(super) fn is_published(&self) -> bool {
        self.of.as_ref().is_some_and(|held| held.is_published)
    }
}

fn part_of(part: &HeldPart) -> PartEvent {
    PartEvent {
        flp: part.source.flp.0,
        incarnation: part.source.incarnation.0,
        bytes: part.bytes,
        digest: part.digest,
    }
}

impl<T: Transport> Links<T> {
    /// Takes a TF that is to be stored before it is committed.
    pub(in crate::sink::writers) fn store(&mut self, tf: Tf<Bytes>) {
        let id = HandoffId::of_tf(&tf);
        self.held.insert(id);
        self.handoff.offer(id, tf.bytes());
        self.tfs.insert(id, tf);
    }

    /// Revokes what was stored of a TF by this life, or by former lives.
    pub(in crate::sink::writers) fn unstore(&mut self, run: RunId, tf: TfId, by_former: bool) {
        if by_former {
            let stored = self.former.remove(&(run, tf)).unwrap_or_default();
            let (published, waiting): (Vec<Stored>, Vec<Stored>) =
                stored.into_iter().partition(Stored::is_published);
            for stored in waiting {
                self.handoff
                    .revoke(stored.writer, HandoffId::of(&stored.copy));
            }
            if !published.is_empty() {
                self.former.insert((run, tf), published);
            }
            return;
        }
        let is_it = |id: &HandoffId| id.run == run && id.tf == tf;
        let ids: Vec<HandoffId> = self.stored.keys().copied().filter(is_it).collect();
        for id in ids {
            if let Some(stored) = self.stored.remove(&id) {
                self.handoff.revoke(stored.writer, id);
            }
        }
        let ids: Vec<HandoffId> = self.tfs.keys().copied().filter(is_it).collect();
        for id in ids {
            self.tfs.remove(&id);
            self.held.remove(&id);
            self.handoff.withdraw(id);
        }
    }

    /// Publishes what a former life has stored of a TF.
    pub(in crate::sink::writers) fn recover(&mut self, run: RunId, item: &Recover) {
        let Recover {
            tf, incarnation, ..
        } = *item;
        let of_life = |stored: &Stored| {
            let held = stored.of.as_ref();
            held.is_some_and(|held| held.incarnation == incarnation)
        };
        let (mut found, mut at) = (None, None);
        let mut stored = self.former.remove(&(run, tf)).unwrap_or_default();
        // The highest copy counts, if several writers have one.
        stored.sort_by_key(|stored| std::cmp::Reverse(stored.copy.copy));
        for stored in stored {
            if found.is_some() || !of_life(&stored) {
                self.handoff
                    .revoke(stored.writer, HandoffId::of(&stored.copy));
                continue;
            }
            let held = stored.of.as_ref().expect("it is of that life");
            let flps: Vec<_> = held.parts.iter().map(|part| part.source.flp).collect();
            let has_all = item.parts.iter().all(|flp| flps.contains(flp));
            if has_all && flps.len() == item.parts.len() {
                found = Some(Recovered {
                    attempt: stored.copy.attempt,
                    bytes: held.parts.iter().map(|part| part.bytes).sum(),
                    parts: held.parts.iter().map(part_of).collect(),
                    missing: item.missing.iter().map(|flp| flp.0).collect(),
                    streams: held.streams.iter().cloned().map(fate_of).collect(),
                });
                at = Some((stored.writer, stored.copy));
            } else {
                self.handoff
                    .revoke(stored.writer, HandoffId::of(&stored.copy));
            }
        }
        if let Some(((writer, copy), found)) = at.zip(found) {
            let what = Published::Former(incarnation, found);
            return self.publish(writer, vec![writer], copy, what);
        }
        // One that is published already is answered when that is done.
        let is_under_way = |id: &HandoffId| id.run == run && id.tf == tf;
        if !self.publishing.keys().any(is_under_way) {
            let found = None;
            self.events.push_back(LinksEvent::Recovered {
                run,
                tf,
                incarnation,
                found,
            });
        }
    }

    pub(super) fn publish(&mut self, writer: u16, tried: Vec<u16>, copy: TfCopy, what: Published) {
        let publishing = Publishing {
            writer,
            tried,
            copy,
            is_sent: false,
            what,
        };
        self.publishing.insert(HandoffId::of(&copy), publishing);
    }

    pub(super) fn handle_published(&mut self, copy: &TfCopy) {
        let id = HandoffId::of(copy);
        let is_it = |it: &Publishing| it.copy == *copy;
        if !self.publishing.get(&id).is_some_and(is_it) {
            return;
        }
        match self.publishing.remove(&id).map(|it| it.what) {
            Some(Published::Own(done)) => self.events.push_back(LinksEvent::Done(done)),
            Some(Published::Former(incarnation, found)) => {
                self.events.push_back(LinksEvent::Recovered {
                    run: id.run,
                    tf: id.tf,
                    incarnation,
                    found: Some(found),
                });
            }
            None => {}
        }
    }

    /// Sends TFs that a writer which is gone was to publish to another one. Those of former lives wait for the writer:
    /// no other has them.
    pub(super) fn move_unpublished(&mut self) {
        let is_gone = |writer: u16| self.handoff.life(writer).is_none();
        let is_mine = |it: &Publishing| matches!(it.what, Published::Own(_));
        let gone = self
            .publishing
            .iter()
            .filter(|(_, it)| is_mine(it) && is_gone(it.writer));
        let gone: Vec<HandoffId> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            if let Some(Publishing {
                tried,
                copy,
                what: Published::Own(done),
                ..
            }) = self.publishing.remove(&id)
            {
                self.handoff
                    .offer_moved(id, done.tf.bytes(), copy.copy, tried);
                self.tfs.insert(id, done.tf);
            }
        }
    }

    /// Publishes TFs of former lives at the writer `holder`, where they are written later than it has said what it
    /// holds: the copies elsewhere are void.
    pub(super) fn follow(&mut self, holder: u16, moves: &[Move]) {
        for Move { copy, .. } in moves {
            let publishing = self.publishing.get_mut(&HandoffId::of(copy));
            let Some(publishing) = publishing.filter(|it| it.copy.copy < copy.copy) else {
                continue;
            };
            if let Published::Former(_, found) = &mut publishing.what {
                // It has said so before, and with what fate.
                let known = self.former.get(&(copy.run, copy.tf)).into_iter().flatten();
                let mut there = known.filter(|stored| stored.writer == holder);
                if let Some(held) = there.next().and_then(|stored| stored.of.as_ref()) {
                    found.streams = held.streams.iter().cloned().map(fate_of).collect();
                }
                publishing.writer = holder;
                publishing.copy = *copy;
                publishing.is_sent = false;
            }
        }
    }

    /// Notes what a writer holds of former lives. The list comes in pieces, and ends with an empty one.
    pub(super) fn handle_held(&mut self, writer: u16, tfs: Vec<HeldTf>) {
        if tfs.is_empty() {
            self.links[usize::from(writer)].has_said_held = true;
        }
        for held in tfs {
            let copy = held.copy;
            let known = self.former.entry((copy.run, copy.tf)).or_default();
            // A writer has one copy of a TF. What it says last is so.
            known.retain(|it| it.writer != writer);
            known.push(Stored {
                writer,
                tried: vec![writer],
                copy,
                streams: Vec::new(),
                of: Some(held),
            });
        }
    }

    /// Asks writers to publish what they have stored.
    pub(super) fn ask_to_publish(&mut self) {
        let mut copies: BTreeMap<u16, Vec<TfCopy>> = BTreeMap::new();
        for publishing in self.publishing.values_mut() {
            if !publishing.is_sent && self.handoff.life(publishing.writer).is_some() {
                publishing.is_sent = true;
                let of_writer = copies.entry(publishing.writer).or_default();
                of_writer.push(publishing.copy);
            }
        }
        for (writer, copies) in copies {
            for some in copies.chunks(Control::ENTRIES_MAX) {
                self.send(writer, &Control::Publish(some.to_vec()));
            }
        }
    }
}
