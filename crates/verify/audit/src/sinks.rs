//! Comparison of what sinks have written with what EPNs say they delivered.
//!
//! A delivery names the digest of every STF, computed from the bytes that the EPN received, and the sink `stf-file`
//! that of the whole TF as it stands in a file. Who reads the files computes the digests again; here they meet.

use super::auditor::Auditor;
use super::evidence::{Evidence, life_name, name};
use super::finding::{Contradiction, Kind};
use super::stock::{Stock, Stored};
use super::tables::{Delivery, Named, as_they_happened};
use sheaf_protocol::Role;
use sheaf_verdict_log::event::{FileEvent, PartEvent, StreamEvent};
use std::collections::BTreeMap;

impl Evidence {
    /// Says that the files of all sinks are known: those that are added, and no others.
    pub fn begin_sinks(&mut self) {
        self.stock.get_or_insert_default();
    }

    /// Adds what stands at `place`, a file or a byte in one.
    pub fn add_stored(&mut self, place: String, stored: Stored) {
        let stock = self.stock.get_or_insert_default();
        match stored {
            Stored::Tf { tf, .. } | Stored::Partial { tf, .. } | Stored::DamagedTf { tf, .. } => {
                stock.tfs.entry(tf).or_default().push((place, stored));
            }
            Stored::Image(FileEvent { bytes, digest }) => {
                stock.images.entry((bytes, digest)).or_default().push(place);
            }
        }
    }

    /// Adds a stream whose files do not tell which TFs stand in them, so that none is looked for there.
    pub fn add_untold_stream(&mut self, stream: &str) {
        let stock = self.stock.get_or_insert_default();
        stock.untold.insert(stream.to_owned());
    }

    /// Adds a file that is damaged, or that no sink writes.
    pub fn add_bad_file(&mut self, kind: Kind, text: String) {
        let stock = self.stock.get_or_insert_default();
        stock.broken.push(Contradiction {
            kind,
            tf: None,
            text,
        });
    }
}

impl Auditor<'_> {
    /// Sums up the fates of TFs in streams, as the EPNs logged them.
    pub(super) fn check_streams(&mut self) {
        let evidence = self.evidence;
        let tables = &evidence.tables;
        let by_tf = tables.deliveries.chunk_by(|one, next| one.tf == next.tf);
        for delivery in by_tf.flat_map(as_they_happened) {
            let Some(fates) = evidence.streams.get(&delivery.number) else {
                continue;
            };
            for fate in tables.stream_fates.at(*fates) {
                let accounting = self.audit.streams.entry(fate.stream.clone());
                let accounting = accounting.or_default();
                accounting.announced += 1;
                match (&fate.shed, &fate.refused) {
                    (None, None) => accounting.written += 1,
                    (Some(reason), None)
                        if StreamEvent::SHED_REASONS.contains(&reason.as_str()) =>
                    {
                        *accounting.shed.entry(reason.clone()).or_default() += 1;
                    }
                    (None, Some(_)) => accounting.refused += 1,
                    (Some(_), _) => {
                        let by = life_name(evidence.life(delivery.life));
                        let text = format!(
                            "TF {}, which {by} delivered, was shed from stream {} for {:?}, refused for {:?}: expected \
                             one reason, and to be shed for one of {}",
                            delivery.tf,
                            fate.stream,
                            fate.shed,
                            fate.refused,
                            StreamEvent::SHED_REASONS.join(", ")
                        );
                        self.contradict(Kind::BadReason, Some(delivery.tf), text);
                    }
                }
            }
        }
    }

    /// Compares the streams whose files have something of a TF with the fates that its EPN logged.
    fn check_fates(&mut self, tf: u64, delivery: &Delivery, stock: &Stock, is_only: bool) {
        let evidence = self.evidence;
        let Some(fates) = evidence.streams.get(&delivery.number) else {
            return;
        };
        let places = stock.tfs.get(&tf).map_or(&[][..], Vec::as_slice);
        let by = life_name(evidence.life(delivery.life));
        let fates = evidence.tables.stream_fates.at(*fates).iter();
        for fate in fates.filter(|fate| !stock.untold.contains(&fate.stream)) {
            let has = |(_, stored): &&(String, Stored)| match stored {
                Stored::Tf { streams, .. } | Stored::Partial { streams, .. } => {
                    streams.contains(&fate.stream)
                }
                Stored::DamagedTf { .. } | Stored::Image(_) => false,
            };
            let place = places.iter().find(has).map(|(place, _)| place);
            match (fate.is_written(), place) {
                (true, None) => {
                    let text = format!(
                        "TF {tf}, which {by} delivered, stands in no file of stream {}",
                        fate.stream
                    );
                    self.contradict(Kind::SinkMissing, Some(tf), text);
                }
                // Of two deliveries the other one may have it.
                (false, Some(place)) if is_only => {
                    let text = format!(
                        "{place}: stream {} has TF {tf}, which {by} did not write there",
                        fate.stream
                    );
                    self.contradict(Kind::SinkForeign, Some(tf), text);
                }
                (true, Some(_)) | (false, _) => {}
            }
        }
    }

    /// Compares the files of sinks, if they were read, with all deliveries.
    pub(super) fn check_sinks(&mut self) {
        let evidence = self.evidence;
        let Some(stock) = &evidence.stock else {
            return;
        };
        for found in &stock.broken {
            self.contradict(found.kind, found.tf, found.text.clone());
        }
        let deliveries = Deliveries::of(evidence);
        self.check_stored_tfs(stock, &deliveries);
        self.check_images(stock, &deliveries);
        let all = deliveries.by_tf.iter();
        for (tf, delivery) in all.flat_map(|(tf, list)| list.iter().map(move |one| (tf, one))) {
            let has_fates = evidence.streams.contains_key(&delivery.number);
            if has_fates {
                let known = deliveries.by_tf.get(tf).map_or(0, Vec::len);
                let is_only = known == 1 && !deliveries.may_lack(*tf);
                self.check_fates(*tf, delivery, stock, is_only);
            }
            let image = evidence.files.get(&delivery.number);
            let is_there = match image {
                Some(file) => stock.images.contains_key(&(file.bytes, file.digest)),
                None => has_fates || stock.tfs.contains_key(tf),
            };
            if !is_there {
                let by = life_name(evidence.life(delivery.life));
                let text = format!("TF {tf}, which {by} delivered, stands in no file");
                self.contradict(Kind::SinkMissing, Some(*tf), text);
            }
        }
    }

    fn check_stored_tfs(&mut self, stock: &Stock, deliveries: &Deliveries<'_>) {
        for (tf, places) in &stock.tfs {
            // One for each EPN that was to deliver it; EPNs that share a directory replace the file.
            let expected = deliveries.expected(*tf);
            if let [(first, _), (second, _), ..] = places.as_slice()
                && places.len() > expected
            {
                let text = format!(
                    "TF {tf} stands in {} files: {first}, {second}",
                    places.len()
                );
                self.contradict(Kind::SinkTwice, Some(*tf), text);
            }
            for (place, stored) in places {
                let problem = match stored {
                    Stored::DamagedTf { damage, .. } => {
                        Some((Kind::SinkDamaged, format!("{place}: {damage}")))
                    }
                    Stored::Tf {
                        run,
                        redelivered,
                        parts,
                        missing,
                        ..
                    } => {
                        let content = (*redelivered, parts.as_slice(), missing.as_slice());
                        self.problem_of(*tf, place, run, content, deliveries)
                    }
                    Stored::Partial { run, parts, .. } => {
                        self.problem_of_partial(*tf, place, run, parts, deliveries)
                    }
                    Stored::Image(_) => None,
                };
                if let Some((kind, text)) = problem {
                    self.contradict(kind, Some(*tf), text);
                }
            }
        }
    }

    /// Returns what is wrong with a TF in a file that is whole in itself.
    fn problem_of(
        &self,
        tf: u64,
        place: &str,
        run: &str,
        (is_marked, parts, missing): (bool, &[PartEvent], &[u16]),
        deliveries: &Deliveries<'_>,
    ) -> Option<(Kind, String)> {
        let evidence = self.evidence;
        if let Some(foreign) = self.foreign_run(place, run) {
            return Some(foreign);
        }
        let known = deliveries.by_tf.get(&tf).map_or(&[][..], Vec::as_slice);
        let same_mark = known.iter().find(|found| found.is_marked == is_marked);
        let of_killed = same_mark.is_none() && deliveries.may_lack(tf);
        let Some(delivery) = same_mark.or(known.first()).filter(|_| !of_killed) else {
            if !deliveries.may_lack(tf) {
                let text = format!("{place} has TF {tf}, which no EPN delivered");
                return Some((Kind::SinkForeign, text));
            }
            return deliveries.not_made(tf, place, parts);
        };
        let expected = deliveries.parts.get(&delivery.number);
        let mut expected = expected.cloned().unwrap_or_default();
        let mut found: Vec<_> = parts.iter().map(key).collect();
        expected.sort_unstable();
        found.sort_unstable();
        let fates = evidence.streams.get(&delivery.number);
        let is_shed = fates.is_some_and(|fates| {
            let fates = evidence.tables.stream_fates.at(*fates);
            fates.iter().any(|fate| !fate.is_written())
        });
        // A stream that is not there may have been the one with the others.
        let is_same = match is_shed {
            true => found.iter().all(|part| expected.contains(part)),
            false => found == expected,
        };
        if !is_same {
            let odd = found.iter().find(|part| !expected.contains(part));
            let text = match odd {
                Some(part) => not_delivered(place, part),
                None => format!(
                    "{place}: has {} parts, expected the {} that were delivered",
                    found.len(),
                    expected.len()
                ),
            };
            return Some((Kind::SinkDamaged, text));
        }
        let lists = &evidence.tables.flp_lists;
        let expected = lists.at(delivery.missing);
        let is_same = match is_shed {
            true => missing.iter().all(|flp| expected.contains(flp)),
            false => expected == missing,
        };
        (!is_same).then(|| {
            let text = format!("{place}: {missing:?} are missing, expected {expected:?}");
            (Kind::SinkDamaged, text)
        })
    }

    /// Returns what is wrong with some STFs of a TF in a file: whether the others are there is not known.
    fn problem_of_partial(
        &self,
        tf: u64,
        place: &str,
        run: &str,
        parts: &[PartEvent],
        deliveries: &Deliveries<'_>,
    ) -> Option<(Kind, String)> {
        if let Some(foreign) = self.foreign_run(place, run) {
            return Some(foreign);
        }
        let known = deliveries.by_tf.get(&tf).map_or(&[][..], Vec::as_slice);
        if deliveries.may_lack(tf) {
            return deliveries.not_made(tf, place, parts);
        }
        if known.is_empty() {
            let text = format!("{place} has TF {tf}, which no EPN delivered");
            return Some((Kind::SinkForeign, text));
        }
        let is_delivered = |part: &PartKey| {
            let of = |one: &&Delivery| deliveries.parts.get(&one.number);
            known.iter().filter_map(of).any(|it| it.contains(part))
        };
        let odd = parts.iter().map(key).find(|part| !is_delivered(part));
        odd.map(|part| (Kind::SinkDamaged, not_delivered(place, &part)))
    }

    fn foreign_run(&self, place: &str, run: &str) -> Option<(Kind, String)> {
        let evidence = self.evidence;
        if evidence.runs.is_empty() || evidence.runs.contains_key(run) {
            return None;
        }
        let runs = evidence.runs();
        let text = format!("{place} is of run {run}, expected {}", runs.join(" or "));
        Some((Kind::SinkForeign, text))
    }

    fn check_images(&mut self, stock: &Stock, deliveries: &Deliveries<'_>) {
        let mut written: BTreeMap<(u64, u32), usize> = BTreeMap::new();
        for file in self.evidence.files.values() {
            *written.entry((file.bytes, file.digest)).or_default() += 1;
        }
        let mut unknown = Vec::new();
        for ((bytes, digest), places) in &stock.images {
            let expected = written.get(&(*bytes, *digest)).copied().unwrap_or(0);
            if expected == 0 {
                unknown.extend(places.iter().map(|place| (place, *bytes, *digest)));
            } else if places.len() > expected {
                let text = format!(
                    "a TF of {bytes} bytes with CRC-32C {digest:08x}, delivered {expected} times, stands in {} places: \
                     {}",
                    places.len(),
                    places.join(", ")
                );
                self.contradict(Kind::SinkTwice, None, text);
            }
        }
        // An EPN that was killed may have written TFs that it could not report.
        let unreported = deliveries.lacking.len();
        for (place, bytes, digest) in unknown.into_iter().skip(unreported) {
            let text = format!(
                "{place}: a TF of {bytes} bytes with CRC-32C {digest:08x}, which no EPN wrote: damaged or foreign"
            );
            self.contradict(Kind::SinkForeign, None, text);
        }
    }
}

/// Life of an FLP, with bytes and digest of a part.
type PartKey = (Named, u64, u32);

fn not_delivered(place: &str, ((flp, incarnation), bytes, digest): &PartKey) -> String {
    format!(
        "{place}: the part of {} has {bytes} bytes with CRC-32C {digest:08x}, which is not what was delivered",
        name(Role::Flp, (*flp, *incarnation))
    )
}

fn key(part: &PartEvent) -> PartKey {
    ((part.flp, part.incarnation), part.bytes, part.digest)
}

/// Deliveries of a run, for look-ups.
struct Deliveries<'a> {
    by_tf: BTreeMap<u64, Vec<&'a Delivery>>,
    /// Parts by the number of their delivery.
    parts: BTreeMap<u32, Vec<PartKey>>,
    /// Bytes and digests that FLPs wrote down.
    made: BTreeMap<(u64, Named), (u64, u32)>,
    /// TFs that a killed EPN may have delivered without a line about it.
    lacking: Vec<u64>,
}

impl<'a> Deliveries<'a> {
    fn of(evidence: &'a Evidence) -> Self {
        let tables = &evidence.tables;
        let mut by_tf: BTreeMap<u64, Vec<&Delivery>> = BTreeMap::new();
        for delivery in &tables.deliveries {
            let known = by_tf.entry(delivery.tf).or_default();
            // A later life may repeat the report about a former one.
            known.retain(|one| one.life != delivery.life);
            known.push(delivery);
        }
        let mut parts: BTreeMap<u32, Vec<PartKey>> = BTreeMap::new();
        for part in &tables.parts {
            let source = *tables.sources.at(part.source);
            let key = (source, part.bytes, part.digest);
            parts.entry(part.delivery).or_default().push(key);
        }
        let mut lacking = Vec::new();
        for decided in tables.decided.iter().chain(&tables.redelivered) {
            let at = tables.verdicts.at(decided.verdict).at;
            let life = at.and_then(|at| evidence.life_of(Role::Epn, at));
            let was_killed = life.is_some_and(|life| evidence.life(life).was_killed());
            let has_said = |life| {
                let known = by_tf.get(&decided.tf);
                known.is_some_and(|known| known.iter().any(|one| one.life == life))
            };
            if let Some(life) = life.filter(|life| was_killed && !has_said(*life)) {
                lacking.push((decided.tf, life));
            }
        }
        lacking.sort_unstable();
        lacking.dedup();
        let lacking: Vec<u64> = lacking.into_iter().map(|(tf, _)| tf).collect();
        let made = tables.made.iter().filter_map(|made| {
            let life = evidence.life(made.life);
            lacking.binary_search(&made.tf).ok()?;
            let named = (life.node.index, life.incarnation);
            Some(((made.tf, named), (made.bytes, made.digest)))
        });
        Self {
            made: made.collect(),
            by_tf,
            parts,
            lacking,
        }
    }

    /// Returns how many files of a TF there may be.
    fn expected(&self, tf: u64) -> usize {
        let said = self.by_tf.get(&tf).map_or(0, Vec::len);
        let unsaid = self.lacking.iter().filter(|lacking| **lacking == tf);
        (said + unsaid.count()).max(1)
    }

    /// Compares parts of a TF whose EPN was killed before it could say so: what the FLPs made is what must be there.
    fn not_made(&self, tf: u64, place: &str, parts: &[PartEvent]) -> Option<(Kind, String)> {
        let wrong = parts.iter().find(|part| {
            let made = self.made.get(&(tf, (part.flp, part.incarnation)));
            made.is_some_and(|made| *made != (part.bytes, part.digest))
        });
        wrong.map(|part| {
            let text = format!(
                "{place}: the part of flp:{} has {} bytes with CRC-32C {:08x}, which is not what it made",
                part.flp, part.bytes, part.digest
            );
            (Kind::SinkDamaged, text)
        })
    }

    fn may_lack(&self, tf: u64) -> bool {
        self.lacking.binary_search(&tf).is_ok()
    }
}
