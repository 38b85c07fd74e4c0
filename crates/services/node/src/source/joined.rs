//! Several files as the source of one FLP.

use sheaf_protocol::{PayloadFormat, TfId, copy_digested};
use sheaf_stf_builder::{HeapSlots, Made, Slots, StfSource};

/// The STFs of several sources of one format, those of one TF one behind the other.
pub(super) struct Joined {
    sources: Vec<Box<dyn StfSource>>,
}

impl Joined {
    /// Joins `sources`, of which there is at least one.
    pub(super) fn new(sources: Vec<Box<dyn StfSource>>) -> Self {
        Self { sources }
    }
}

impl StfSource for Joined {
    fn format(&self) -> PayloadFormat {
        self.sources
            .first()
            .map_or(PayloadFormat::Opaque, |source| source.format())
    }

    fn bytes_max(&self) -> u64 {
        self.sources.iter().map(|source| source.bytes_max()).sum()
    }

    fn make(&mut self, tf: TfId, slots: &mut dyn Slots) -> Made {
        if let [only] = self.sources.as_mut_slice() {
            return only.make(tf, slots);
        }
        let mut parts = Vec::with_capacity(self.sources.len());
        let (mut is_end, mut with_data) = (true, None);
        for (index, source) in self.sources.iter_mut().enumerate() {
            // Pieces are gathered on the heap and copied once more: several files an FLP are for recorded data.
            match source.make(tf, &mut HeapSlots) {
                Made::Payload(part) => {
                    is_end = false;
                    if !part.is_empty() {
                        with_data = Some(index);
                        parts.push(part);
                    }
                }
                Made::NoRoom => return Made::NoRoom,
                Made::End => {}
            }
        }
        if is_end {
            return Made::End;
        }
        if parts.len() <= 1 {
            // Made again where payloads belong; a slice of the file costs no copy.
            drop(parts);
            let only = with_data.and_then(|index| self.sources.get_mut(index));
            return only.map_or_else(Made::empty, |source| source.make(tf, slots));
        }
        let bytes = parts.iter().map(|part| part.len()).sum();
        Made::in_slot(slots, bytes, |place| {
            copy_digested(place, parts.iter().map(|part| part.as_ref()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use sheaf_stf_builder::Payload;
    use sheaf_stf_builder::source::contract;

    /// Makes the given payloads, then ends.
    struct Listed(Vec<Bytes>);

    impl StfSource for Listed {
        fn format(&self) -> PayloadFormat {
            PayloadFormat::Opaque
        }

        fn bytes_max(&self) -> u64 {
            self.0
                .iter()
                .map(|payload| payload.len() as u64)
                .max()
                .unwrap_or(0)
        }

        fn make(&mut self, tf: TfId, _: &mut dyn Slots) -> Made {
            let index = usize::try_from(tf.0).unwrap();
            let payload = self.0.get(index).cloned();
            payload.map_or(Made::End, |bytes| Made::Payload(Payload::of(bytes)))
        }
    }

    #[test]
    fn parts_stand_one_behind_the_other_until_all_have_ended() {
        let listed = |payloads: &[&'static str]| {
            let payloads = payloads
                .iter()
                .map(|text| Bytes::from_static(text.as_bytes()));
            Box::new(Listed(payloads.collect())) as Box<dyn StfSource>
        };
        let mut joined = Joined::new(vec![
            listed(&["ab", "", "c"]),
            listed(&["d", ""]),
            listed(&["", "", "", "e"]),
        ]);
        contract::check(&mut joined, 6);
        let made: Vec<Made> = (0..5)
            .map(|tf| joined.make(TfId(tf), &mut HeapSlots))
            .collect();
        let payload =
            |text: &'static str| Made::Payload(Payload::of(Bytes::from_static(text.as_bytes())));
        assert_eq!(
            made,
            [
                payload("abd"),
                payload(""),
                payload("c"),
                payload("e"),
                Made::End
            ]
        );
    }
}
