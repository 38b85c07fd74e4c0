//! Server of the tests: SeaweedFS, as `scripts/setup.sh s3` installs it, with a bucket.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rusty_s3::{Bucket, Credentials, Method, S3Action as _, UrlStyle, signing};
use sheaf_ship::S3Keys;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(super) const BUCKET: &str = "shipped";
const ID: &str = "SHIPPER";
const SECRET: &str = "correct-horse";
const VERSION: &str = "4.48";
/// Longest time until a server works.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time that a signature of the tests is good for.
const GOOD: Duration = Duration::from_secs(60);

pub(super) fn keys() -> S3Keys {
    S3Keys {
        id: ID.to_owned(),
        secret: SECRET.to_owned(),
        session_token: None,
    }
}

/// Returns the program of the server; `None`, and a line that says so, if it is not on this machine.
fn program() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = set("SHEAF_WEED") {
        return Some(PathBuf::from(path));
    }
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")));
    let place = format!("sheaf/seaweedfs-{VERSION}/bin/weed");
    let program = cache.unwrap_or_default().join(place);
    if !program.is_file() {
        let at = program.display();
        println!("skipped: no SeaweedFS {VERSION} at {at}; run scripts/setup.sh s3");
        return None;
    }
    Some(program)
}

/// A server with an empty bucket; killed when dropped.
pub(super) struct Store {
    program: PathBuf,
    folder: TempDir,
    ports: Vec<u16>,
    child: Child,
    bucket: Bucket,
}

impl Store {
    pub(super) fn start() -> Option<Self> {
        let program = program()?;
        // A port that was free may be taken before the server has it: it ends then.
        (0..5).find_map(|_| Self::try_start(&program)).or_else(|| {
            panic!("{} ends at once", program.display());
        })
    }

    fn try_start(program: &Path) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "{{\"identities\": [{{\"name\": \"test\", \"actions\": [\"Admin\"], \"credentials\": \
             [{{\"accessKey\": \"{ID}\", \"secretKey\": \"{SECRET}\"}}]}}]}}"
        );
        std::fs::write(folder.path().join("s3.json"), config).expect("written");
        certify(folder.path());
        // Held together, so that they differ.
        let free = (0..9).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let free: Vec<TcpListener> = free.collect();
        let ports = free.iter().map(|it| it.local_addr().expect("bound").port());
        let ports: Vec<u16> = ports.collect();
        drop(free);
        let endpoint = format!("http://127.0.0.1:{}", ports[0]);
        let url = endpoint.parse().expect("an address");
        let mut store = Self {
            child: spawn(program, &folder, &ports),
            program: program.to_owned(),
            folder,
            ports,
            bucket: Bucket::new(url, UrlStyle::Path, BUCKET, "us-east-1").expect("a bucket"),
        };
        let made = store.bucket.create_bucket(&credentials()).sign(GOOD);
        let is_made = store.until("the bucket is made", || {
            ureq::put(made.as_str()).send_empty().is_ok()
        });
        (is_made && store.works()).then_some(store)
    }

    pub(super) fn port(&self) -> u16 {
        self.ports[0]
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Endpoint with TLS, and the certificate of its authority.
    pub(super) fn secured(&self) -> (String, PathBuf) {
        let port = self.ports[8];
        let ca = self.folder.path().join("ca.pem");
        (format!("https://127.0.0.1:{port}"), ca)
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it ends");
    }

    pub(super) fn start_again(&mut self) {
        self.child = spawn(&self.program, &self.folder, &self.ports);
        assert!(self.works());
    }

    /// Waits until objects are taken; false if the server has ended.
    fn works(&mut self) -> bool {
        let keys = credentials();
        let url = self.bucket.put_object(Some(&keys), "probe").sign(GOOD);
        self.until("objects are taken", || {
            ureq::put(url.as_str()).send(&b"probe"[..]).is_ok()
        })
    }

    /// Waits until `is_so`; false if the server has ended.
    fn until(&mut self, what: &str, is_so: impl Fn() -> bool) -> bool {
        let due = Instant::now() + PATIENCE;
        let address = ("127.0.0.1", self.port());
        while TcpStream::connect(address).is_err() || !is_so() {
            if self.child.try_wait().expect("a child of ours").is_some() {
                return false;
            }
            let log = std::fs::read_to_string(self.folder.path().join("log"));
            assert!(Instant::now() < due, "{what}: {}", log.unwrap_or_default());
            // A server does not say when it is ready.
            std::thread::park_timeout(Duration::from_millis(50));
        }
        true
    }

    pub(super) fn put(&self, key: &str, bytes: &[u8]) {
        let url = self.bucket.put_object(Some(&credentials()), key).sign(GOOD);
        ureq::put(url.as_str()).send(bytes).expect("stored");
    }

    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let url = self.bucket.get_object(Some(&credentials()), key).sign(GOOD);
        let mut answer = ureq::get(url.as_str()).call().ok()?;
        let body = answer.body_mut().with_config().limit(1 << 30);
        Some(body.read_to_vec().expect("all of it"))
    }

    /// Counts the uploads in parts that are neither complete nor aborted.
    pub(super) fn uploads(&self) -> usize {
        let url = signing::sign(
            &jiff::Timestamp::now(),
            Method::Get,
            self.bucket.base_url().clone(),
            ID,
            SECRET,
            None,
            "us-east-1",
            GOOD.as_secs(),
            [("uploads", "")].into_iter(),
            std::iter::empty(),
        );
        let mut answer = ureq::get(url.as_str()).call().expect("listed");
        let text = answer.body_mut().read_to_string().expect("a text");
        assert!(text.contains("ListMultipartUploadsResult"), "{text}");
        text.matches("<UploadId>").count()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn credentials() -> Credentials {
    Credentials::new(ID, SECRET)
}

/// Writes the certificate of an authority, and one of the server by it with its key.
pub(super) fn certify(folder: &Path) {
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).expect("written");
    };
    let key = || KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let of_authority = key();
    let certificate = authority.self_signed(&of_authority).expect("signed");
    write("ca.pem", certificate.pem());
    let names = vec!["127.0.0.1".to_owned()];
    let server = CertificateParams::new(names).expect("an address");
    let of_server = key();
    let issuer = Issuer::new(authority, of_authority);
    let certificate = server.signed_by(&of_server, &issuer).expect("signed");
    write("server.pem", certificate.pem());
    write("server.key", of_server.serialize_pem());
}

fn spawn(program: &Path, folder: &TempDir, ports: &[u16]) -> Child {
    let data = folder.path().join("data");
    std::fs::create_dir_all(&data).expect("made");
    let log = std::fs::File::create(folder.path().join("log")).expect("made");
    let named = [
        "s3.port",
        "s3.port.grpc",
        "master.port",
        "master.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "filer.port",
        "filer.port.grpc",
        "s3.port.https",
    ];
    let ports = named.iter().zip(ports);
    let ports = ports.map(|(name, port)| format!("-{name}={port}"));
    let fixed = [
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        "-s3.config=s3.json",
        "-s3.cert.file=server.pem",
        "-s3.key.file=server.key",
        "-s3.iam=false",
        "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=100",
        "-dir=data",
    ];
    Command::new(program)
        .current_dir(folder.path())
        .args(fixed.map(str::to_owned))
        .args(ports)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("it is installed")
}
