//! Comparison of what sinks have written with what EPNs say they delivered.
//!
//! A delivery names the digest of every STF, computed from the bytes that the EPN received, and the sink `stf-file`
//! that of the whole TF as it stands in a file. Who reads the files computes the digests again; here they meet.

use super::auditor::Auditor;
use super::evidence::{Evidence, life_name, name};
use super::finding::{Contradiction, Kind};
use super::stock::{Stock, Stored};
use super::tables::{Delivery, Named};
use sheaf_protocol::Role;
use sheaf_verdict_log::event::{FileEvent, PartEvent};
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
            Stored::Tf { tf, .. } | Stored::DamagedTf { tf, .. } => {
                stock.tfs.entry(tf).or_default().push((place, stored));
            }
            Stored::Image(FileEvent { bytes, digest }) => {
                stock.images.entry((bytes, digest)).or_default().push(place);
            }
        }
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
            let image = evidence.files.get(&delivery.number);
            let is_there = match image {
                Some(file) => stock.images.contains_key(&(file.bytes, file.digest)),
                None => stock.tfs.contains_key(tf),
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
        if !evidence.runs.is_empty() && !evidence.runs.contains_key(run) {
            let runs = evidence.runs();
            let text = format!("{place} is of run {run}, expected {}", runs.join(" or "));
            return Some((Kind::SinkForeign, text));
        }
        let known = deliveries.by_tf.get(&tf).map_or(&[][..], Vec::as_slice);
        let same_mark = known.iter().find(|found| found.is_marked == is_marked);
        let of_killed = same_mark.is_none() && deliveries.may_lack(tf);
        let Some(delivery) = same_mark.or(known.first()).filter(|_| !of_killed) else {
            if !deliveries.may_lack(tf) {
                let text = format!("{place} has TF {tf}, which no EPN delivered");
                return Some((Kind::SinkForeign, text));
            }
            // Its EPN was killed before it could say so: what the FLPs made is what must be there.
            let wrong = parts.iter().find(|part| {
                let made = deliveries.made.get(&(tf, (part.flp, part.incarnation)));
                made.is_some_and(|made| *made != (part.bytes, part.digest))
            });
            return wrong.map(|part| {
                let text = format!(
                    "{place}: the part of flp:{} has {} bytes with CRC-32C {:08x}, which is not what it made",
                    part.flp, part.bytes, part.digest
                );
                (Kind::SinkDamaged, text)
            });
        };
        let expected = deliveries.parts.get(&delivery.number);
        let mut expected = expected.cloned().unwrap_or_default();
        let mut found: Vec<_> = parts.iter().map(key).collect();
        expected.sort_unstable();
        found.sort_unstable();
        if found != expected {
            let odd = found.iter().find(|part| !expected.contains(part));
            let text = match odd {
                Some(((flp, incarnation), bytes, digest)) => format!(
                    "{place}: the part of {} has {bytes} bytes with CRC-32C {digest:08x}, which is not what was \
                     delivered",
                    name(Role::Flp, (*flp, *incarnation))
                ),
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
        (expected != missing).then(|| {
            let text = format!("{place}: {missing:?} are missing, expected {expected:?}");
            (Kind::SinkDamaged, text)
        })
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

    fn may_lack(&self, tf: u64) -> bool {
        self.lacking.binary_search(&tf).is_ok()
    }
}
