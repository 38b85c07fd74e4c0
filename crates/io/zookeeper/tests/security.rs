//! TLS both ways and nodes that belong to their creator alone, on a real server.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sheaf_membership::{Member, Registry, RegistryEvent};
use sheaf_protocol::{EpnId, Incarnation, Timestamp};
use sheaf_zookeeper::server::{Ensemble, Home, Relay, ServerOptions, ServerTls};
use sheaf_zookeeper::{Tls, ZooKeeperOptions};
use std::fs;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

const SESSION: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(60);

/// A registry and what its waker wakes.
struct Node {
    registry: Box<dyn Registry>,
    rung: Receiver<()>,
}

impl Node {
    fn start(options: &ZooKeeperOptions) -> Self {
        Self::start_at(options, "/farm")
    }

    fn start_at(options: &ZooKeeperOptions, root: &str) -> Self {
        let (ring, rung) = sync_channel(1);
        // One ring that waits is enough.
        let waker = Box::new(move || {
            let _ = ring.try_send(());
        });
        let registry = sheaf_zookeeper::open_registry(options, root, &[], waker).unwrap();
        Self { registry, rung }
    }

    #[track_caller]
    fn await_event(&mut self, what: &str, is_it: impl Fn(&RegistryEvent) -> bool) {
        let end = Instant::now() + LONG;
        let mut seen = Vec::new();
        while Instant::now() < end {
            match self.registry.poll(Timestamp(0)) {
                Some(event) if is_it(&event) => return,
                Some(event) => seen.push(event),
                None => drop(self.rung.recv_timeout(Duration::from_secs(1))),
            }
        }
        panic!("no {what}, but {seen:?}");
    }
}

/// A certificate for 127.0.0.1 and its key.
///
/// Servers take the subject of a client's certificate for a user of its own, so each has another one.
fn issue(name: &str, issuer: &Issuer<'_, KeyPair>) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

#[test]
fn nodes_with_certificates_and_a_password_are_let_in_and_nobody_else() {
    let Some(home) = Home::for_tests() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (ca, issuer) = authority();
    let (certificate, key) = issue("server", &issuer);
    let files = ServerTls {
        identity: folder.path().join("server.pem"),
        ca: folder.path().join("ca.pem"),
    };
    fs::write(&files.identity, format!("{key}{certificate}")).unwrap();
    fs::write(&files.ca, &ca).unwrap();
    let mut options = ServerOptions::standalone();
    options.tls = Some(files);
    let server = match Ensemble::start(&home, &options) {
        Ok(server) => server,
        // Debian's package cannot: said, and enough where there is no other.
        Err(error) if home.version().starts_with("3.8.0") => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    // The certificate is for 127.0.0.1, and the server has an address of its own.
    let relay = Relay::start(&server.tls_addresses()[0]).unwrap();
    let mut options = ZooKeeperOptions::new(vec![relay.address()], SESSION);
    options.user = Some(("farm".to_owned(), "secret".to_owned()));
    options.tls = Some(Tls {
        ca: ca.clone(),
        identity: Some(issue("epn-1", &issuer)),
    });
    let mut node = Node::start(&options);
    let member = Member {
        node: EpnId(1).into(),
        incarnation: Incarnation(1),
        address: "a:1".to_owned(),
    };
    node.registry.join(Timestamp(0), member.clone());
    node.await_event("view", |event| {
        *event == RegistryEvent::View([member.clone()].into())
    });

    // A client without a password sees nothing, in the clear or not.
    for (servers, tls) in [
        (server.addresses(), None),
        (
            vec![relay.address()],
            Some(Tls {
                ca: ca.clone(),
                identity: Some(issue("other", &issuer)),
            }),
        ),
    ] {
        let mut other = ZooKeeperOptions::new(servers, SESSION);
        other.tls = tls;
        Node::start(&other).await_event("problem", |event| {
            let RegistryEvent::Problem { what } = event else {
                return false;
            };
            what.contains("/farm/nodes cannot be read: no permission")
                && what.contains("membership.password_file")
        });
    }
    // A wrong password is named, and so is a secure port where a plain one is expected.
    // With its certificate a node is the user of that as well.
    let mut wrong = ZooKeeperOptions::new(server.addresses(), SESSION);
    wrong.user = Some(("farm".to_owned(), "wrong".to_owned()));
    Node::start(&wrong).await_event("problem", |event| {
        let RegistryEvent::Problem { what } = event else {
            return false;
        };
        what.contains("no permission: found a user or password")
    });
    let plain_client = ZooKeeperOptions::new(vec![relay.address()], SESSION);
    Node::start(&plain_client).await_event("the secure port", |event| {
        let RegistryEvent::Away { why } = event else {
            return false;
        };
        why.contains("found the secure port of ZooKeeper, expected the plain one")
    });
    // Without a certificate of the farm there is no session at all, nor with a server that has none, nor at a plain
    // port; the reason says which.
    let (other_ca, other_issuer) = authority();
    let plain_relay = Relay::start(&server.addresses()[0]).unwrap();
    let (secure, plain) = (relay.address(), plain_relay.address());
    for (address, ca, issuer, expected) in [
        (
            &secure,
            &ca,
            &other_issuer,
            "refuses the certificate of this node",
        ),
        (
            &secure,
            &other_ca,
            &issuer,
            "is not signed by the CA of membership.ca",
        ),
        (&plain, &ca, &issuer, "does not answer in TLS"),
    ] {
        let mut other = ZooKeeperOptions::new(vec![address.clone()], SESSION);
        other.tls = Some(Tls {
            ca: ca.clone(),
            identity: Some(issue("epn-1", issuer)),
        });
        Node::start(&other).await_event(expected, |event| {
            let RegistryEvent::Away { why } = event else {
                return false;
            };
            why.contains(expected) && why.contains(address.as_str())
        });
    }
}

#[test]
fn a_nested_root_leaves_what_is_above_it_to_others() {
    let Some(home) = Home::for_tests() else {
        return;
    };
    let server = Ensemble::start(&home, &ServerOptions::standalone()).unwrap();
    let joins = |user: &str, root: &str, index: u16| {
        let mut options = ZooKeeperOptions::new(server.addresses(), SESSION);
        options.user = Some((user.to_owned(), "secret".to_owned()));
        let mut node = Node::start_at(&options, root);
        let member = Member {
            node: EpnId(index).into(),
            incarnation: Incarnation(1),
            address: "a:1".to_owned(),
        };
        node.registry.join(Timestamp(0), member.clone());
        node.await_event("view", |event| {
            *event == RegistryEvent::View([member.clone()].into())
        });
        node
    };
    let _first = joins("one", "/site/daq/one", 1);
    // Another user makes a farm beside the first one, at both levels.
    let _second = joins("two", "/site/daq/two", 2);
    let _third = joins("three", "/site/three", 3);
    // What belongs to a farm is still for its user alone.
    let mut other = ZooKeeperOptions::new(server.addresses(), SESSION);
    other.user = Some(("two".to_owned(), "secret".to_owned()));
    Node::start_at(&other, "/site/daq/one").await_event("problem", |event| {
        let RegistryEvent::Problem { what } = event else {
            return false;
        };
        what.contains("/site/daq/one/nodes cannot be read: no permission")
    });
}
