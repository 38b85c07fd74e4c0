//! Records of Kafka: which samples make one, how they wait in a spool, in which partition and batch they go.
//!
//! A record is one sample. Its key is the series in PromQL's notation, so that a series stays in one partition, in
//! order; its value is a JSON object with the fields `name`, `labels`, `time_ms` and `value`. The format is in
//! `docs/reference/monitoring-protocols.md`, section "Kafka".

use sheaf_samples::{Labels, NAME, Sample, is_stale};
use std::ops::Range;

/// Length of key and value in front of a record in a spool.
const HEAD: usize = 8;
/// Bytes of the fields that a batch has for each record, beside key and value.
const OVERHEAD: usize = 16;

/// One record of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Series.
    pub(super) key: &'a [u8],
    /// JSON object.
    pub(super) value: &'a [u8],
}

impl Record<'_> {
    /// Returns about how many bytes of a batch the record is, before compression.
    fn bytes(&self) -> usize {
        self.key.len() + self.value.len() + OVERHEAD
    }
}

/// Appends the records of the samples of a series: length of key and value (4 bytes each, little-endian), key, value.
pub(super) fn write(out: &mut Vec<u8>, labels: &Labels, samples: &[Sample]) {
    let key = labels.to_string();
    let mut begin = b"{\"name\":".to_vec();
    text(&mut begin, labels.name().unwrap_or_default());
    begin.extend(b",\"labels\":{");
    for (index, (name, value)) in labels.iter().filter(|pair| pair.0 != NAME).enumerate() {
        if index > 0 {
            begin.push(b',');
        }
        text(&mut begin, name);
        begin.push(b':');
        text(&mut begin, value);
    }
    begin.extend(b"},\"time_ms\":");
    for sample in samples {
        let end = format!("{},\"value\":{}}}", sample.at_ms, number(sample.value));
        for length in [key.len(), begin.len() + end.len()] {
            let length = u32::try_from(length).expect("labels have bounds far below");
            out.extend(length.to_le_bytes());
        }
        out.extend(key.as_bytes());
        out.extend(&begin);
        out.extend(end.as_bytes());
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a Vec takes all");
}

/// Returns a value as JSON: what no number of JSON is has a name that Java, Python and Spark read as one; a marker of
/// staleness, which is no value, is `null`.
fn number(value: f64) -> String {
    if is_stale(value) {
        "null".to_owned()
    } else if value.is_nan() {
        "\"NaN\"".to_owned()
    } else if value.is_infinite() {
        let sign = if value < 0.0 { "-" } else { "" };
        format!("\"{sign}Infinity\"")
    } else {
        serde_json::to_string(&value).expect("it is finite")
    }
}

/// Reads what [`write()`](write()) has written; `None` for bytes that others wrote.
pub(super) fn read(mut body: &[u8]) -> Option<Vec<Record<'_>>> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let (head, rest) = body.split_first_chunk::<HEAD>()?;
        let length = |at: usize| {
            let bytes = head[at..at + 4].try_into().expect("4 bytes");
            u32::from_le_bytes(bytes) as usize
        };
        let (key, rest) = rest.split_at_checked(length(0))?;
        let (value, rest) = rest.split_at_checked(length(4))?;
        records.push(Record { key, value });
        body = rest;
    }
    Some(records)
}

/// Returns the partition of a key, out of `partitions`: the one that the Java client chooses, so that records of others
/// with the same key meet these.
pub(super) fn partition_of(key: &[u8], partitions: usize) -> usize {
    (murmur2(key) & 0x7fff_ffff) as usize % partitions
}

/// Hash of the Java client (`org.apache.kafka.common.utils.Utils.murmur2`): MurmurHash2 by Austin Appleby with its
/// constants and Kafka's seed.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(data.len()).expect("keys are short");
    let mut hash = 0x9747_b28c ^ length;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Returns, for each partition, the places in `records` of those that go there and are not `done`, in their order.
pub(super) fn by_partition(
    records: &[Record<'_>],
    done: &[bool],
    partitions: usize,
) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new(); partitions];
    for (index, record) in records.iter().enumerate().filter(|one| !done[one.0]) {
        all[partition_of(record.key, partitions)].push(index);
    }
    all
}

/// Cuts a list of places into batches of `bytes_max` at most, one record at least.
pub(super) fn batches(
    records: &[Record<'_>],
    places: &[usize],
    bytes_max: usize,
) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (index, place) in places.iter().enumerate() {
        let more = records[*place].bytes();
        if index > from && bytes + more > bytes_max {
            all.push(from..index);
            (from, bytes) = (index, 0);
        }
        bytes += more;
    }
    if from < places.len() {
        all.push(from..places.len());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::STALE;

    fn body(host: &str, values: &[f64]) -> Vec<u8> {
        let labels = Labels::new([(NAME, "load"), ("host", host), ("rack", "r1")]).unwrap();
        let samples: Vec<Sample> = values
            .iter()
            .zip(1_000..)
            .map(|(value, at_ms)| Sample {
                at_ms,
                value: *value,
            })
            .collect();
        let mut out = Vec::new();
        write(&mut out, &labels, &samples);
        out
    }

    #[test]
    fn a_record_is_a_sample_as_an_object_of_json() {
        let values = [
            1.5,
            -2.0,
            1e300,
            f64::NAN,
            f64::INFINITY,
            -f64::INFINITY,
            STALE,
        ];
        let body = body("a\"b\\c\nd\u{e9}", &values);
        let records = read(&body).unwrap();
        let key = br#"load{host="a\"b\\c\nd"#;
        let expected = [
            "1.5",
            "-2.0",
            "1e+300",
            "\"NaN\"",
            "\"Infinity\"",
            "\"-Infinity\"",
            "null",
        ];
        assert_eq!(records.len(), expected.len());
        for ((record, value), at_ms) in records.iter().zip(expected).zip(1_000..) {
            assert!(record.key.starts_with(key), "{record:?}");
            let text = std::str::from_utf8(record.value).unwrap();
            let labels = r#"{"host":"a\"b\\c\nd"#.to_owned() + "\u{e9}\",\"rack\":\"r1\"}";
            let whole = format!(
                "{{\"name\":\"load\",\"labels\":{labels},\"time_ms\":{at_ms},\"value\":{value}}}"
            );
            assert_eq!(text, whole);
            serde_json::from_str::<serde_json::Value>(text).unwrap();
        }
    }

    #[test]
    fn bytes_of_others_are_no_records() {
        let body = body("a", &[1.0, 2.0]);
        for cut in 0..body.len() {
            let whole = read(&body[..cut]).map(|records| records.len());
            let expected = match cut {
                0 => Some(0),
                cut if cut == body.len() / 2 => Some(1),
                _ => None,
            };
            assert_eq!(whole, expected, "{cut}");
        }
        assert_eq!(read(&[0xff; 40]), None);
    }

    #[test]
    fn keys_go_where_the_java_client_puts_them() {
        // From Kafka's `UtilsTest.testMurmur2`.
        for (key, hash) in [
            (&b"21"[..], -973_932_308_i32),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (
                b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key).cast_signed(), hash, "{key:?}");
        }
    }

    #[test]
    fn a_request_is_cut_by_partition_and_size_and_what_is_done_stays_out() {
        let body: Vec<u8> = (0..20)
            .flat_map(|host| body(&host.to_string(), &[1.0, 2.0]))
            .collect();
        let records = read(&body).unwrap();
        let mut done = vec![false; records.len()];
        done[3] = true;
        let lists = by_partition(&records, &done, 3);
        let mut all: Vec<usize> = lists.iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..40).filter(|place| *place != 3).collect::<Vec<_>>());
        for (partition, list) in lists.iter().enumerate() {
            assert!(list.is_sorted() && list.len() > 1, "{lists:?}");
            for place in list {
                assert_eq!(partition_of(records[*place].key, 3), partition);
            }
            let size = |range: &Range<usize>| -> usize {
                list[range.clone()]
                    .iter()
                    .map(|at| records[*at].bytes())
                    .sum()
            };
            let cuts = batches(&records, list, 300);
            let joined: Vec<usize> = cuts.iter().cloned().flatten().collect();
            assert_eq!(joined, (0..list.len()).collect::<Vec<_>>());
            assert!(cuts.len() > 1 && cuts.iter().all(|cut| size(cut) <= 300));
            assert_eq!(batches(&records, list, 1).len(), list.len());
        }
        assert!(batches(&records, &[], 300).is_empty());
    }
}
