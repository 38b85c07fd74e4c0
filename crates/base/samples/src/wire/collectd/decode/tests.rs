//! Packets that were written here, and packets of a real collectd.

use super::super::encode::Names;
use super::super::{Types, write};
use super::*;
use proptest::prelude::*;

const NAMES: Names<'_> = Names {
    host: "flp1",
    plugin: "interface",
    plugin_instance: "eth0",
    kind: "if_octets",
    type_instance: "",
};
const VALUES: [Value; 2] = [Value::Derive(-5), Value::Gauge(1.5)];

fn packet() -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, NAMES, 1_700_000_000_123, 10_000, &VALUES).unwrap();
    bytes
}

fn codes(bytes: &[u8], security: Security<'_>) -> Vec<Result<usize, Code>> {
    let lists = decode(bytes, security);
    let count = |list: Result<ValueList<'_>, Fault>| match list {
        Ok(list) => Ok(list.values().len()),
        Err(fault) => Err(fault.code),
    };
    lists.map(count).collect()
}

#[test]
fn a_list_has_names_times_and_labels() {
    let bytes = packet();
    let list = decode(&bytes, Security::default()).next().unwrap().unwrap();
    assert_eq!(
        (list.at_ms, list.interval_ms),
        (Some(1_700_000_000_123), Some(10_000))
    );
    let values: Vec<Value> = list.values().collect();
    assert_eq!(values, VALUES);
    let types = Types::parse("if_octets rx:DERIVE:0:U, tx:DERIVE:0:U").0;
    let labels = |at: usize| list.labels(&types.source(list.kind, at, 2), values[at]);
    let expected = r#"collectd_interface_if_octets_rx_total{host="flp1", plugin_instance="eth0"}"#;
    assert_eq!(labels(0).unwrap().to_string(), expected);
    let expected = r#"collectd_interface_if_octets_tx{host="flp1", plugin_instance="eth0"}"#;
    assert_eq!(labels(1).unwrap().to_string(), expected);
}

#[test]
fn the_older_times_are_seconds() {
    let mut bytes = packet();
    for (kind, value) in [(part::TIME, 7_u64), (part::INTERVAL, 2)] {
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&12_u16.to_be_bytes());
        bytes.extend_from_slice(&value.to_be_bytes());
    }
    // Values alone: the names stay in force.
    let head = [0, 6, 0, 15, 0, 1, 3];
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&9_u64.to_be_bytes());
    let list = decode(&bytes, Security::default()).nth(1).unwrap().unwrap();
    assert_eq!(
        (list.at_ms, list.interval_ms, list.host),
        (Some(7_000), Some(2_000), "flp1")
    );
    assert_eq!(list.values().next(), Some(Value::Absolute(9)));
}

#[test]
fn a_bad_part_is_named_and_the_next_ones_kept() {
    let good = packet();
    for (bad, code) in [
        (vec![0, 2, 0, 5, b'x'], Code::BadPart),
        (vec![0, 2, 0, 6, 0xff, 0], Code::NotUtf8),
        (vec![0, 1, 0, 5, 0], Code::BadPart),
        (
            vec![0, 1, 0, 12, 255, 255, 255, 255, 255, 255, 255, 255],
            Code::BadTime,
        ),
        (vec![0, 6, 0, 6, 0, 0], Code::BadPart),
        (
            vec![0, 6, 0, 15, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0],
            Code::BadPart,
        ),
    ] {
        let bytes = [&good[..], &bad, &good].concat();
        assert_eq!(
            codes(&bytes, Security::default()),
            [Ok(2), Err(code), Ok(2)],
            "{bad:?}"
        );
    }
    for bad in [&[0, 2, 0, 3][..], &[0, 2, 1, 0, 0], &[0, 2, 0]] {
        let bytes = [&good[..], bad, &good].concat();
        let found = codes(&bytes, Security::default());
        assert_eq!(found[..2], [Ok(2), Err(Code::Truncated)], "{bad:?}");
        assert_eq!(found.len(), 2);
    }
    let nameless = &good[good.len() - 24..];
    assert_eq!(codes(nameless, Security::default()), [Err(Code::BadSeries)]);
    // Parts of later versions, and notifications, are passed over.
    let bytes = [&[1, 0, 0, 6, b'x', 0][..], &[0x7f, 0, 0, 4], &good].concat();
    assert_eq!(codes(&bytes, Security::default()), [Ok(2)]);
}

fn signed(password: &[u8], content: &[u8]) -> Vec<u8> {
    let user = b"me";
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, password);
    let mac = ring::hmac::sign(&key, &[user, content].concat());
    [&[2, 0, 0, 38], mac.as_ref(), user, content].concat()
}

fn verify(user: &str, signed: &[u8], mac: &[u8]) -> bool {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"secret");
    user == "me" && ring::hmac::verify(&key, signed, mac).is_ok()
}

#[test]
fn signatures_are_checked_and_encryption_is_refused() {
    let strict = Security {
        verify: Some(&verify),
        is_required: true,
    };
    let good = packet();
    assert_eq!(codes(&signed(b"secret", &good), strict), [Ok(2)]);
    assert_eq!(
        codes(&signed(b"guess", &good), strict),
        [Err(Code::BadSignature)]
    );
    assert_eq!(codes(&good, strict), [Err(Code::Unsigned)]);
    assert_eq!(
        codes(&signed(b"guess", &good), Security::default()),
        [Ok(2)]
    );
    let mut changed = signed(b"secret", &good);
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(codes(&changed, strict), [Err(Code::BadSignature)]);
    // Values before the signature are not under it.
    let before = [&good[..], &signed(b"secret", &good)].concat();
    assert_eq!(codes(&before, strict), [Err(Code::Unsigned), Ok(2)]);
    let encrypted = [&[2, 0x10, 0, 6, 0, 0][..], &good].concat();
    assert_eq!(
        codes(&encrypted, Security::default()),
        [Err(Code::Encrypted)]
    );
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::Counter),
        (-1e300..1e300).prop_map(Value::Gauge),
        any::<i64>().prop_map(Value::Derive),
        any::<u64>().prop_map(Value::Absolute),
    ]
}

proptest! {
    #[test]
    fn lists_come_back(
        names in proptest::array::uniform5("[a-z0-9.µ-]{1,9}"),
        at_ms in 0..4_000_000_000_000_i64,
        values in proptest::collection::vec(value(), 1..6),
    ) {
        let mut bytes = Vec::new();
        let [host, plugin, plugin_instance, kind, type_instance] = names.each_ref().map(String::as_str);
        let names = Names { host, plugin, plugin_instance, kind, type_instance };
        write(&mut bytes, names, at_ms, 1, &values).unwrap();
        let list = decode(&bytes, Security::default()).next().unwrap().unwrap();
        prop_assert_eq!((list.at_ms, list.interval_ms), (Some(at_ms), Some(1)));
        let found = [list.host, list.plugin, list.plugin_instance, list.kind, list.type_instance];
        prop_assert_eq!(found, [host, plugin, plugin_instance, kind, type_instance]);
        prop_assert_eq!(list.values().collect::<Vec<_>>(), values);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), cut in 0..200_usize) {
        let mut whole = packet();
        whole.truncate(cut);
        whole.extend(bytes);
        for list in decode(&whole, Security { verify: Some(&verify), is_required: false }) {
            match list {
                Ok(list) => prop_assert!(list.values().all(|value| list.labels("value", value).is_ok())),
                Err(fault) => prop_assert!(fault.offset < whole.len()),
            }
        }
    }
}
