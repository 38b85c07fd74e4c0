//! Sessions of the transport beside sessions of rustls alone, which know nothing of these records.

use super::*;
use crate::tcp::address::Address;
use crate::tcp::session::{Protection, Session};
use crate::transport::ListenerId;
use proptest::prelude::*;
use rustls::crypto::cipher::{AeadKey, OutboundChunks, OutboundPlainMessage};
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ProtocolVersion, ServerConnection};
use sheaf_auth::{Authority, Credentials, Moment, Tls, Validity, parse_node};
use std::io::{Read as _, Write as _};

/// One end of a session, with what has come for it.
enum End {
    Ours(Box<Session>, Vec<u8>),
    Stock(Box<Connection>),
}

impl End {
    /// Returns the bytes for the other end.
    fn output(&mut self) -> Vec<u8> {
        match self {
            Self::Ours(session, _) => std::mem::take(&mut session.outgoing),
            Self::Stock(connection) => {
                let mut bytes = Vec::new();
                while connection.wants_write() {
                    connection.write_tls(&mut bytes).unwrap();
                }
                bytes
            }
        }
    }

    /// Takes `bytes` of the other end and returns the plain ones among them.
    fn feed(&mut self, bytes: &[u8]) -> std::result::Result<Vec<u8>, TlsFailure> {
        let mut plain = Vec::new();
        match self {
            Self::Ours(session, input) => {
                input.extend_from_slice(bytes);
                loop {
                    let (done, step) = session.step(input, |piece| plain.extend_from_slice(piece));
                    input.drain(..done);
                    let step = step?;
                    if session.is_to_be_met() {
                        session.meet()?;
                    }
                    session.open()?;
                    if step != Step::Went {
                        return Ok(plain);
                    }
                }
            }
            Self::Stock(connection) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    connection.read_tls(&mut rest).unwrap();
                    let state = connection.process_new_packets();
                    let state = state.map_err(|error| TlsFailure::Protocol(error.to_string()))?;
                    let filled = plain.len();
                    plain.resize(filled + state.plaintext_bytes_to_read(), 0);
                    connection
                        .reader()
                        .read_exact(&mut plain[filled..])
                        .unwrap();
                }
                Ok(plain)
            }
        }
    }

    /// Puts `plain` into the output.
    fn say(&mut self, plain: &[u8]) {
        match self {
            Self::Ours(session, _) => {
                let mut place = vec![0; plain.len() + 100 * (1 + plain.len() / PLAIN_BYTES_MAX)];
                let bytes = session.encrypt(plain, &mut place).unwrap();
                session.outgoing.extend_from_slice(&place[..bytes]);
            }
            Self::Stock(connection) => {
                connection.set_buffer_limit(None);
                connection.writer().write_all(plain).unwrap();
            }
        }
    }

    fn records(&mut self) -> &mut Records {
        match self {
            Self::Ours(session, _) => session.records(),
            Self::Stock(_) => panic!("rustls does not show its records"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Ours,
    Stock,
}

fn tls_of(authority: &Authority, node: &str) -> Tls {
    let node = parse_node(node).unwrap();
    let pem = authority.issue(node, Validity::of_days(1)).unwrap();
    let credentials = Credentials::from_pem(&pem, authority.certificate_pem(), Moment::now());
    Tls::new(&credentials.unwrap()).unwrap()
}

/// Returns a client and a server behind their handshake.
fn opened(client: Kind, server: Kind) -> (End, End) {
    let authority = Authority::new("north", Validity::of_days(2)).unwrap();
    let (flp, epn) = (tls_of(&authority, "flp:0"), tls_of(&authority, "epn:0"));
    let address = Address::Inet(([127, 0, 0, 1], 9).into());
    let mut client = match client {
        Kind::Ours => End::Ours(
            Box::new(Session::client(&flp, &address, Protection::default()).unwrap()),
            Vec::new(),
        ),
        Kind::Stock => {
            let name = ServerName::try_from("epn").unwrap();
            let made = ClientConnection::new(flp.client(), name).unwrap();
            End::Stock(Box::new(made.into()))
        }
    };
    let mut server = match server {
        Kind::Ours => {
            let arrival = (ListenerId(0), String::new());
            End::Ours(
                Box::new(Session::server(&epn, arrival, Protection::default()).unwrap()),
                Vec::new(),
            )
        }
        Kind::Stock => End::Stock(Box::new(
            ServerConnection::new(epn.server()).unwrap().into(),
        )),
    };
    client.feed(&[]).unwrap();
    loop {
        let (there, back) = (client.output(), server.output());
        if there.is_empty() && back.is_empty() {
            break;
        }
        assert!(server.feed(&there).unwrap().is_empty());
        assert!(client.feed(&back).unwrap().is_empty());
    }
    (client, server)
}

/// Says `plain` and returns what the other end makes of it.
fn pass(from: &mut End, to: &mut End, plain: &[u8]) -> Vec<u8> {
    from.say(plain);
    let cipher = from.output();
    to.feed(&cipher).unwrap()
}

const PAIRS: [(Kind, Kind); 3] = [
    (Kind::Ours, Kind::Ours),
    (Kind::Ours, Kind::Stock),
    (Kind::Stock, Kind::Ours),
];

#[test]
fn bytes_pass_both_ways_beside_rustls() {
    for (client, server) in PAIRS {
        let (mut a, mut b) = opened(client, server);
        for bytes in [1, 2, 16_383, 16_384, 16_385, 100_000] {
            let plain: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            assert_eq!(
                pass(&mut a, &mut b, &plain),
                plain,
                "{client:?}, {server:?}"
            );
            assert_eq!(
                pass(&mut b, &mut a, &plain),
                plain,
                "{client:?}, {server:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn records_survive_any_cutting_of_the_stream(
        says in prop::collection::vec(0_usize..40_000, 1..6),
        cuts in prop::collection::vec(1_usize..20_000, 1..20),
    ) {
        let (mut a, mut b) = opened(Kind::Stock, Kind::Ours);
        let (mut cipher, mut expected) = (Vec::new(), Vec::new());
        for (fill, bytes) in (1_u8..).zip(says) {
            let plain = vec![fill; bytes];
            a.say(&plain);
            cipher.extend(a.output());
            expected.extend(plain);
        }
        let mut got = Vec::new();
        let mut cuts = cuts.into_iter().cycle();
        let mut rest = cipher.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            got.extend(b.feed(piece).unwrap());
            rest = behind;
        }
        prop_assert!(got == expected);
    }

    #[test]
    fn any_bytes_behind_the_handshake_are_refused_without_a_panic(
        header in prop::option::of(0_u16..20_000),
        bytes in prop::collection::vec(any::<u8>(), 5..300),
    ) {
        let (_, mut b) = opened(Kind::Ours, Kind::Ours);
        let mut bytes = bytes;
        if let Some(length) = header {
            bytes[..3].copy_from_slice(&[23, 3, 3]);
            bytes[3..5].copy_from_slice(&length.to_be_bytes());
        }
        if let Ok(plain) = b.feed(&bytes) {
            prop_assert!(plain.is_empty());
        }
    }
}

#[test]
fn keys_change_when_rustls_asks_for_it() {
    for (client, server) in [(Kind::Stock, Kind::Ours), (Kind::Ours, Kind::Stock)] {
        let (mut a, mut b) = opened(client, server);
        for round in 0..5 {
            let End::Stock(stock) = (if matches!(a, End::Stock(_)) {
                &mut a
            } else {
                &mut b
            }) else {
                unreachable!("one of the two is")
            };
            stock.refresh_traffic_keys().unwrap();
            assert_eq!(pass(&mut a, &mut b, &[round; 20_000]), [round; 20_000]);
            assert_eq!(pass(&mut b, &mut a, &[round; 20_000]), [round; 20_000]);
        }
    }
}

#[test]
fn keys_change_when_one_has_protected_enough_records() {
    for (client, server) in PAIRS {
        let (mut a, mut b) = opened(client, server);
        for end in [&mut a, &mut b] {
            if let End::Ours(session, _) = end {
                session.records().records_max = 3;
            }
        }
        for round in 0..9 {
            assert_eq!(pass(&mut a, &mut b, &[round; 90_000]), [round; 90_000]);
            assert_eq!(pass(&mut b, &mut a, &[round; 90_000]), [round; 90_000]);
        }
        for end in [&mut a, &mut b] {
            if let End::Ours(session, _) = end {
                assert!(session.records().tx.sequence <= 3, "keys have changed");
            }
        }
    }
}

#[test]
fn a_changed_record_ends_the_session_and_rustls_is_told_why() {
    let (mut a, mut b) = opened(Kind::Stock, Kind::Ours);
    a.say(&[7; 1000]);
    let mut cipher = a.output();
    cipher[500] ^= 1;
    let failure = b.feed(&cipher).unwrap_err();
    assert_eq!(failure.to_string(), "a record that cannot be decrypted");
    let End::Ours(session, _) = &mut b else {
        unreachable!("made above")
    };
    session.collect_alert();
    assert!(session.encrypt(&[1], &mut [0; 100]).is_err());
    let told = a.feed(&b.output()).unwrap_err();
    assert!(told.to_string().contains("BadRecordMac"), "{told}");
}

#[test]
fn a_record_that_comes_twice_is_refused() {
    let (mut a, mut b) = opened(Kind::Ours, Kind::Ours);
    a.say(&[7; 1000]);
    let cipher = a.output();
    assert_eq!(b.feed(&cipher).unwrap(), [7; 1000]);
    assert!(b.feed(&cipher).is_err());
}

#[test]
fn the_end_of_a_direction_is_said_and_heard() {
    for (client, server) in PAIRS {
        let (mut a, mut b) = opened(client, server);
        match &mut a {
            End::Ours(session, _) => session.end().unwrap(),
            End::Stock(connection) => connection.send_close_notify(),
        }
        let cipher = a.output();
        assert!(b.feed(&cipher).unwrap().is_empty());
        match &mut b {
            End::Ours(session, _) => assert!(session.records().is_ended),
            End::Stock(connection) => {
                let end = connection.reader().read(&mut [0]).unwrap();
                assert_eq!(end, 0, "an end in order");
            }
        }
        // The other direction goes on.
        assert_eq!(pass(&mut b, &mut a, &[3; 10]), [3; 10]);
    }
}

/// Seals each content as a record of its kind, and returns what the other end says to them.
fn answer(records: &[(ContentType, &[u8])]) -> String {
    let (mut a, mut b) = opened(Kind::Ours, Kind::Ours);
    let mut cipher = Vec::new();
    for (kind, content) in records {
        let mut place = [0; 20_000];
        let bytes = a.records().tx.seal(*kind, content, &mut place);
        cipher.extend_from_slice(&place[..bytes]);
    }
    match b.feed(&cipher) {
        Ok(plain) => format!("{} plain bytes", plain.len()),
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn records_that_are_not_allowed_are_refused() {
    use ContentType::{Alert, ApplicationData, ChangeCipherSpec, Handshake};
    let split: &[u8] = &[24, 0, 0];
    let asks: &[u8] = &[24, 0, 0, 1, 1];
    type Sent<'a> = &'a [(ContentType, &'a [u8])];
    let cases: &[(Sent<'_>, &str)] = &[
        (
            &[(ApplicationData, &[]), (ApplicationData, &[1])],
            "1 plain bytes",
        ),
        (
            &[(Alert, &[2, 40])],
            "the peer refuses the connection with alert HandshakeFailure",
        ),
        (
            &[(Alert, &[1, 90]), (ApplicationData, &[1])],
            "1 plain bytes",
        ),
        (&[(Alert, &[1])], "an alert of 1 bytes"),
        (
            &[(ChangeCipherSpec, &[1])],
            "a record of type ChangeCipherSpec",
        ),
        (
            &[(ContentType::Unknown(0), &[0, 0])],
            "a record without a type",
        ),
        (&[(Handshake, &[20, 0, 0, 0])], "a message Finished"),
        (&[(Handshake, &[4, 0, 0, 0])], "a message NewSessionTicket"),
        (
            &[(Handshake, &[11, 255, 0, 0])],
            "a message Certificate of 16711680 bytes",
        ),
        (
            &[(Handshake, &[24, 0, 0, 1, 2])],
            "a change of keys with [2]",
        ),
        (
            &[(Handshake, &[24, 0, 0, 1, 0, 24])],
            "a message behind a change of keys",
        ),
        (
            &[(Handshake, split), (ApplicationData, &[1])],
            "ApplicationData inside a message of the handshake",
        ),
        // Behind a change of keys the old ones are worth nothing.
        (
            &[(Handshake, asks), (ApplicationData, &[1])],
            "a record that cannot be decrypted",
        ),
    ];
    for (records, expected) in cases {
        assert_eq!(answer(records), *expected);
    }
}

#[test]
fn a_message_of_the_handshake_may_come_in_pieces() {
    let (mut a, mut b) = opened(Kind::Ours, Kind::Ours);
    for piece in [&KEY_UPDATE[..2], &KEY_UPDATE[2..]] {
        let mut place = [0; 100];
        let bytes = a
            .records()
            .tx
            .seal(ContentType::Handshake, piece, &mut place);
        assert!(b.feed(&place[..bytes]).unwrap().is_empty());
    }
    assert_eq!(b.records().rx.sequence, 0, "the first under the new key");
}

#[test]
fn a_peer_may_not_ask_for_keys_without_end() {
    let (mut a, mut b) = opened(Kind::Ours, Kind::Ours);
    for round in 0..=KEY_UPDATES_MAX {
        let mut place = [0; 100];
        let asks = [24, 0, 0, 1, 1];
        let bytes = a
            .records()
            .tx
            .seal(ContentType::Handshake, &asks, &mut place);
        let Keys::Client(keys) = &mut a.records().keys else {
            unreachable!("the client is ours")
        };
        let secrets = keys.update_tx_secret().unwrap();
        a.records().tx = Direction::new(secrets).unwrap();
        let outcome = b.feed(&place[..bytes]);
        assert_eq!(outcome.is_ok(), round < KEY_UPDATES_MAX, "{round}");
    }
}

#[test]
fn a_record_in_the_clear_or_too_long_is_refused() {
    for (bytes, expected) in [
        ([22, 3, 3, 0, 5], "a record of type Handshake in the clear"),
        (
            [23, 3, 3, 65, 1],
            "a record of 16641 bytes, at most 16640 are allowed",
        ),
    ] {
        let (_, mut b) = opened(Kind::Ours, Kind::Ours);
        assert_eq!(b.feed(&bytes).unwrap_err().to_string(), expected);
    }
}

#[test]
fn nothing_follows_the_end_of_our_direction() {
    let (mut a, mut b) = opened(Kind::Ours, Kind::Stock);
    let End::Ours(session, _) = &mut a else {
        unreachable!("made above")
    };
    session.end().unwrap();
    let _ = a.output();
    let End::Stock(stock) = &mut b else {
        unreachable!("made above")
    };
    stock.refresh_traffic_keys().unwrap();
    assert_eq!(pass(&mut b, &mut a, &[3; 10]), [3; 10]);
    assert!(a.output().is_empty(), "no answer to the change of keys");
}

#[test]
fn records_of_all_ciphers_are_those_of_rustls() {
    let key = || AeadKey::from([7; 32]);
    let iv = || Iv::from([9; 12]);
    let aes = || ConnectionTrafficSecrets::Aes256Gcm {
        key: key(),
        iv: iv(),
    };
    let chacha = || ConnectionTrafficSecrets::Chacha20Poly1305 {
        key: key(),
        iv: iv(),
    };
    let ciphers: [(_, &dyn Fn() -> ConnectionTrafficSecrets); 2] = [
        (TLS13_AES_256_GCM_SHA384, &aes),
        (TLS13_CHACHA20_POLY1305_SHA256, &chacha),
    ];
    for (suite, secrets) in ciphers {
        let suite = suite.tls13().unwrap();
        let mut theirs = suite.aead_alg.encrypter(key(), iv());
        let mut ours = Direction::new((5, secrets())).unwrap();
        let mut back = Direction::new((5, secrets())).unwrap();
        for (sequence, bytes) in (5..).zip([0, 1, 1000, PLAIN_BYTES_MAX]) {
            let plain = vec![3; bytes];
            let message = OutboundPlainMessage {
                typ: ContentType::ApplicationData,
                version: ProtocolVersion::TLSv1_3,
                payload: OutboundChunks::Single(&plain),
            };
            let expected = theirs.encrypt(message, sequence).unwrap().encode();
            let mut record = vec![0; bytes + OVERHEAD];
            let sealed = ours.seal(ContentType::ApplicationData, &plain, &mut record);
            assert_eq!(&record[..sealed], expected);
            let (kind, opened) = back.open(&mut record).unwrap();
            assert_eq!(
                (kind, opened),
                (ContentType::ApplicationData, plain.as_slice())
            );
        }
    }
}
