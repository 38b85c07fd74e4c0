//! The page under clients that mean no good, on real sockets.

use super::*;
use crate::clock::Clock;
use crate::health::Standing;
use sheaf_auth::{Authority, Credentials, Validity};
use sheaf_protocol::{NodeId, Role, RunId, Term, Timestamp};
use std::io::{Read as _, Write as _};
use std::net::TcpStream as Client;
use std::sync::mpsc::{SyncSender, sync_channel};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

/// How long anything may take before it counts as never happening.
const PATIENCE: Duration = Duration::from_secs(60);

fn page() -> Page {
    Page {
        registry: Arc::default(),
        health: Arc::new(Health::new(&"epn:3", Clock::start())),
        build: Build::default(),
        others: vec![("icn", "10.0.0.1:9100".to_owned())],
        tls: None,
    }
}

/// A page that is served, with what it shows.
struct Served {
    address: SocketAddr,
    registry: Arc<Registry>,
    health: Arc<Health>,
}

fn served() -> Served {
    served_by(page())
}

fn served_by(page: Page) -> Served {
    let (registry, health) = (page.registry.clone(), page.health.clone());
    let address = serve("127.0.0.1:0", page).unwrap();
    Served {
        address,
        registry,
        health,
    }
}

impl Served {
    /// Sends `request` and returns the answer, as far as it comes.
    fn ask(&self, request: &str) -> String {
        let mut client = Client::connect(self.address).unwrap();
        // The page may refuse before it has read all.
        let _ = client.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    fn refused(&self, reason: &str) -> u64 {
        let labels = [("reason", reason)];
        self.registry
            .counter(REFUSED.name, REFUSED.help, &labels)
            .value()
    }

    /// Waits until so many requests were refused: the client may know before they are counted.
    fn await_refused(&self, reason: &str, count: u64) {
        let began = Instant::now();
        while self.refused(reason) < count {
            assert!(
                began.elapsed() < PATIENCE,
                "{reason}: {}",
                self.refused(reason)
            );
            std::thread::yield_now();
        }
        assert_eq!(self.refused(reason), count);
    }

    fn replaced(&self) -> u64 {
        self.registry
            .counter(REPLACED.name, REPLACED.help, &[])
            .value()
    }
}

#[test]
fn half_requests_leave_room_for_a_whole_one() {
    let served = served();
    let mut halves = Vec::new();
    for round in 0..20 {
        for _ in 0..CONNECTIONS_MAX {
            let mut client = Client::connect(served.address).unwrap();
            // Those that were closed for newer ones may have gone already.
            let _ = client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x");
            halves.push(client);
        }
        let answer = served.get("/metrics");
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "round {round}: {answer}"
        );
    }
    // All but those that still have a place have been closed, on a slow machine for their time.
    let oldest = halves.len() - CONNECTIONS_MAX;
    assert!(served.replaced() + served.refused("slow_head") >= oldest as u64);
    for client in &mut halves[..oldest] {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let error = client.read_to_end(&mut Vec::new()).err();
        let kind = error.map(|error| error.kind());
        assert!(
            matches!(kind, None | Some(io::ErrorKind::ConnectionReset)),
            "{kind:?}"
        );
    }
}

#[test]
fn a_head_above_16_kib_is_refused_and_counted() {
    let served = served();
    let long = "x".repeat(HEAD_BYTES_MAX);
    let answer = served.ask(&format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX-Long: {long}\r\n\r\n"
    ));
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    served.await_refused("large_head", 1);
    assert!(served.get("/").starts_with("HTTP/1.1 200"));
}

#[test]
fn another_protocol_is_refused_and_counted() {
    let served = served();
    let answer = served.ask("\x16\x03\x01 a client of TLS\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    served.await_refused("no_http", 1);
}

#[test]
fn a_half_request_ends_with_its_time() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let page = page();
    let host = Host::new(page);
    runtime.block_on(async {
        let (ours, _theirs) = pair().await;
        let asked = Arc::new(AtomicBool::new(false));
        let began = tokio::time::Instant::now();
        converse(ours, host.page.clone(), asked.clone(), host.refused.clone()).await;
        assert_eq!(began.elapsed().as_secs(), HEAD_WITHIN.as_secs());
        assert!(!asked.load(Ordering::Relaxed));
    });
    assert_eq!(host.refused[0].value(), 1);
}

/// Both ends of a connection; the second has sent half a request.
async fn pair() -> (TcpStream, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Client::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"GET / HT").unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (TcpStream::from_std(ours).unwrap(), client)
}

/// Listener that fails with the given errors, and then reports the next call.
struct Failing {
    errors: Vec<i32>,
    done: SyncSender<()>,
}

impl Accept for Failing {
    async fn accept(&mut self) -> io::Result<TcpStream> {
        match self.errors.pop() {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => {
                let _ = self.done.try_send(());
                std::future::pending().await
            }
        }
    }
}

#[test]
fn errors_of_accept_are_counted_by_kind_and_end_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let mut host = Host::new(page());
    let (done, is_done) = sync_channel(1);
    let errno = rustix::io::Errno::raw_os_error;
    let errors = [
        rustix::io::Errno::MFILE,
        rustix::io::Errno::NFILE,
        rustix::io::Errno::NOBUFS,
        rustix::io::Errno::CONNABORTED,
        rustix::io::Errno::PERM,
    ];
    let errors = errors.map(errno).to_vec();
    let listener = Failing { errors, done };
    runtime.block_on(async {
        let serving = host.run(listener);
        let _ = tokio::time::timeout(Duration::from_secs(60), serving).await;
    });
    assert!(
        is_done.try_recv().is_ok(),
        "it is asked again after each error"
    );
    let counts = host.accept_errors.each_ref().map(|counter| counter.value());
    assert_eq!(
        KINDS.into_iter().zip(counts).collect::<Vec<_>>(),
        [("files", 2), ("memory", 1), ("aborted", 1), ("other", 1)]
    );
}

/// TLS of a node with a certificate of `authority`.
fn tls_of(authority: &Authority, node: NodeId) -> Tls {
    let pem = authority.issue(node, Validity::of_days(1)).unwrap();
    let credentials = Credentials::from_pem(&pem, authority.certificate_pem(), Moment::now());
    Tls::new(&credentials.unwrap()).unwrap()
}

/// Asks for `/healthz` under TLS. Returns the answer, or what the handshake ended with.
fn get_sealed(address: SocketAddr, tls: &Tls) -> io::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stream = TcpStream::connect(address).await?;
        let name = "sheaf".try_into().unwrap();
        let mut stream = TlsConnector::from(tls.client())
            .connect(name, stream)
            .await?;
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            .await?;
        let mut answer = String::new();
        // The page ends the connection without a farewell of TLS.
        match stream.read_to_string(&mut answer).await {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    })
}

#[test]
fn a_sealed_page_answers_clients_of_the_farm_alone() {
    let authority = Authority::new("north", Validity::of_days(2)).unwrap();
    let epn = NodeId {
        role: Role::Epn,
        index: 3,
    };
    let operator = NodeId {
        role: Role::Operator,
        index: 0,
    };
    let served = served_by(Page {
        tls: Some(tls_of(&authority, epn)),
        ..page()
    });
    let answer = get_sealed(served.address, &tls_of(&authority, operator)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(served.refused("tls"), 0);
    let other = Authority::new("south", Validity::of_days(2)).unwrap();
    assert!(get_sealed(served.address, &tls_of(&other, operator)).is_err());
    let plain = served.get("/healthz");
    assert!(!plain.contains("200"), "{plain}");
    served.await_refused("tls", 2);
}

#[test]
fn health_and_readiness_are_those_of_the_process() {
    let served = served();
    assert!(served.get("/healthz").starts_with("HTTP/1.1 200"));
    let answer = served.get("/readyz");
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.ends_with("\r\n\r\nstarting\n"),
        "{answer}"
    );
    served.health.stand(Standing {
        phase: "joined",
        is_ready: true,
        run: RunId(0xaa),
        term: Term(2),
    });
    let answer = served.get("/readyz");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\njoined\n"),
        "{answer}"
    );
    served.health.sleep_until(Timestamp(u64::MAX));
    assert!(served.get("/healthz").starts_with("HTTP/1.1 200"));
    let answer = served.get("/");
    for part in [
        "HTTP/1.1 200",
        "text/html",
        "<h1>sheaf epn:3</h1>",
        "<td>00000000000000aa</td>",
        "<td>joined</td>",
        "<a href=\"/metrics\">",
        "<a href=\"http://10.0.0.1:9100/\">",
    ] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
}

#[test]
fn a_loop_that_hangs_makes_the_page_say_so() {
    let page = page();
    page.health.turn(Timestamp(0));
    // The loop was due when the process began; the clock of the page goes on.
    let answer = |path: &str| routes::answer(&page, &hyper::Method::GET, path);
    assert_eq!(answer("/healthz").status(), 200);
    let late = Health::new(&"epn:3", Clock::started_before(Duration::from_secs(60)));
    late.turn(Timestamp(0));
    let page = Page {
        health: Arc::new(late),
        ..self::page()
    };
    let answer = routes::answer(&page, &hyper::Method::GET, "/healthz");
    assert_eq!(answer.status(), 503);
}

#[test]
fn what_there_is_not_is_answered_with_what_there_is() {
    let served = served();
    let answer = served.get("/metric");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let expected = "found another path, expected /, /metrics, /healthz, /readyz\n";
    assert!(answer.ends_with(expected), "{answer}");
    let answer = served.ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert!(answer.contains("allow: GET, HEAD"), "{answer}");
}
