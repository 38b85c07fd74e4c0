//! Seeds: bytes of ZeroMQ peers, and messages to the source of an FLP.

use super::{Seed, seed};
use bytes::Bytes;
use sheaf_node::source::RecordHeader;
use sheaf_node::zmq::o2_balancer::O2Data;
use sheaf_protocol::{PayloadFormat, TfId};
use sheaf_zmtp::{Command, Greeting};

/// All of them.
pub(super) fn all() -> Vec<Seed> {
    let peer = |ours: u8, name: &str, rest: &[&[u8]]| {
        let ready = Command::Ready {
            socket_type: name.to_owned(),
            identity: Bytes::from_static(b"flp"),
        };
        let greeting = Greeting::OURS.encode();
        [&[ours, 7], &greeting[..], &ready.encode(), &rest.concat()].concat()
    };
    let ping = Command::Ping {
        ttl_ds: 10,
        context: Bytes::from_static(b"context"),
    };
    let topic = Command::Subscribe(Bytes::from_static(b"SHTF"));
    let message = b"\x01\x03abc\x02\0\0\0\0\0\0\x01\x01";
    let body = [7; 257];
    let of = |kind: u8, parts: &[&[u8]]| {
        let mut bytes = vec![kind, 1];
        for part in parts {
            bytes.push(u8::try_from(part.len()).expect("parts of seeds are short"));
            bytes.extend_from_slice(part);
        }
        bytes
    };
    let record = RecordHeader {
        format: PayloadFormat::Opaque,
        tf: TfId(7),
        payload_bytes: 3,
    };
    let o2 = O2Data {
        heartbeat: 7,
        channel: 1,
        configures: false,
    };
    vec![
        seed(
            "zmtp",
            "push",
            peer(0, "PUSH", &[message, &body, &ping.encode()]),
        ),
        seed("zmtp", "pull", peer(1, "PULL", &[&ping.encode()])),
        seed(
            "zmtp",
            "pub",
            peer(2, "PUB", &[message, &body, message, &body]),
        ),
        seed(
            "zmtp",
            "sub",
            peer(3, "SUB", &[&topic.encode(), b"\0\x02\x01a"]),
        ),
        seed("zmtp", "http", &b"\0\x09GET / HTTP/1.1\r\n\r\n"[..]),
        seed("zmq_message", "record", of(0, &[&record.encode(), b"abc"])),
        seed("zmq_message", "tf-id", of(1, &[&[7; 8], b"abc"])),
        seed("zmq_message", "o2-balancer", of(2, &[&o2.encode(), b"abc"])),
        seed("zmq_message", "count", of(3, &[b"abc", b"", b"d"])),
    ]
}
