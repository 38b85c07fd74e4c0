//! Packets of a real collectd, plain and signed, against the decoder.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test runs a process and reads its packets"
)]

use sheaf_samples::wire::collectd::{Security, Types, Value, decode};
use sheaf_samples::wire::{Code, Fault};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, io};

const PROGRAM: &str = "/usr/sbin/collectd";
const TYPES: &str = "/usr/share/collectd/types.db";

/// collectd that sends what its plugins read to a socket; killed when dropped.
struct Collectd {
    process: Child,
    socket: UdpSocket,
    _folder: tempfile::TempDir,
}

impl Collectd {
    /// Starts one whose network plugin has `security` in its `Server` block.
    fn start(security: &str) -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let port = socket.local_addr()?.port();
        let folder = tempfile::tempdir()?;
        let at = folder.path().display();
        let config = format!(
            "Hostname \"flp7\"\nFQDNLookup false\nBaseDir \"{at}\"\nPIDFile \"{at}/pid\"\nTypesDB \"{TYPES}\"\n\
             Interval 0.2\nLoadPlugin load\nLoadPlugin memory\nLoadPlugin interface\nLoadPlugin network\n\
             <Plugin network>\n<Server \"127.0.0.1\" \"{port}\">\n{security}\n</Server>\n</Plugin>\n"
        );
        let path = folder.path().join("collectd.conf");
        fs::write(&path, config)?;
        let process = Command::new(PROGRAM)
            .arg("-f")
            .arg("-C")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            process,
            socket,
            _folder: folder,
        })
    }

    fn packet(&self) -> Vec<u8> {
        let mut buffer = vec![0; 65_536];
        let length = self
            .socket
            .recv(&mut buffer)
            .expect("collectd sends every 0.2 s");
        buffer.truncate(length);
        buffer
    }
}

impl Drop for Collectd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_here() -> bool {
    let is_here = Path::new(PROGRAM).exists() && Path::new(TYPES).exists();
    if !is_here {
        println!("skipped: {PROGRAM} and {TYPES} of collectd are not here");
    }
    is_here
}

#[test]
fn a_real_collectd_is_understood() {
    if !is_here() {
        return;
    }
    let (types, faults) = Types::parse(&fs::read_to_string(TYPES).unwrap());
    assert_eq!(faults, []);
    let collectd = Collectd::start("").unwrap();
    let mut names = BTreeSet::new();
    // The three plugins take a few packets to be all seen.
    for _ in 0..200 {
        let packet = collectd.packet();
        for list in decode(&packet, Security::default()) {
            let list = list.unwrap();
            assert_eq!(
                (list.host, list.interval_ms.map(|ms| ms / 10)),
                ("flp7", Some(19))
            );
            assert!(list.at_ms.unwrap() > 1_600_000_000_000, "{list:?}");
            let count = list.values().len();
            for (at, value) in list.values().enumerate() {
                let source = types.source(list.kind, at, count);
                let labels = list.labels(&source, value).unwrap();
                names.insert(labels.name().unwrap().to_owned());
                if list.plugin == "load" {
                    let Value::Gauge(load) = value else {
                        panic!("{list:?}")
                    };
                    assert!((0.0..100_000.0).contains(&load), "{load}");
                }
            }
        }
        let all = [
            "collectd_load_shortterm",
            "collectd_memory",
            "collectd_interface_if_octets_rx_total",
        ];
        if all.iter().all(|name| names.contains(*name)) {
            return;
        }
    }
    panic!("not all plugins were seen: {names:?}");
}

#[test]
fn a_real_signature_is_checked_and_a_real_encryption_refused() {
    if !is_here() {
        return;
    }
    let security = |level: &str| {
        let line = format!("SecurityLevel \"{level}\"\nUsername \"me\"\nPassword \"secret\"");
        Collectd::start(&line).unwrap()
    };
    let check = |password: &'static [u8]| {
        move |user: &str, signed: &[u8], mac: &[u8]| {
            let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, password);
            user == "me" && ring::hmac::verify(&key, signed, mac).is_ok()
        }
    };
    let packet = security("Sign").packet();
    let (right, wrong) = (check(b"secret"), check(b"guess"));
    let of = |verify| Security {
        verify: Some(verify),
        is_required: true,
    };
    assert!(decode(&packet, of(&right)).all(|list| list.is_ok()));
    assert!(decode(&packet, of(&right)).count() > 0);
    let fault = |list: Result<_, Fault>| {
        list.map(|_: sheaf_samples::wire::collectd::ValueList<'_>| ())
            .map_err(|fault| fault.code)
    };
    let found: Vec<_> = decode(&packet, of(&wrong)).map(fault).collect();
    assert_eq!(found, [Err(Code::BadSignature)]);
    let packet = security("Encrypt").packet();
    let found: Vec<_> = decode(&packet, of(&right)).map(fault).collect();
    assert_eq!(found, [Err(Code::Encrypted)]);
}
