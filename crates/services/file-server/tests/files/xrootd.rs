//! Third-party copies with XRootD on the other side, in both directions, and who is asked for them.

use crate::client::{Site, bytes};
use sheaf_auth::{Authority, Validity};
use sheaf_file_server::TlsFiles;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// User that XRootD runs as when it is started by root, and its number in Debian.
const USER: &str = "daemon";
const USER_ID: u32 = 1;
/// Files of XRootD that are needed.
const PLUGIN: &str = "/usr/lib/x86_64-linux-gnu/libXrdHttpTPC-5.so";
const BEGUN_WITHIN: Duration = Duration::from_secs(30);

/// XRootD with HTTPS and third-party copies.
struct Xrootd {
    child: Child,
    port: u16,
    place: tempfile::TempDir,
}

impl Drop for Xrootd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Xrootd {
    fn start() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        let authority = Authority::new("test", Validity::of_days(2)).expect("made");
        authority.save(place.path(), false).expect("saved");
        let pem = authority.issue_host(&["localhost", "127.0.0.1"], Validity::of_days(1));
        let pem = pem.expect("issued");
        for folder in ["data", "admin"] {
            std::fs::create_dir(at(folder)).expect("made");
        }
        // One pair for each server, as each wants to own its key.
        for (certificate, key) in [("our.pem", "our.key"), ("x.pem", "x.key")] {
            std::fs::write(at(certificate), &pem.certificate).expect("written");
            std::fs::write(at(key), &pem.key).expect("written");
            set_mode(&at(key), 0o600);
        }
        set_mode(place.path(), 0o755);
        set_mode(&at("ca.pem"), 0o644);
        let free = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let (root, admin) = (at("data"), at("admin"));
        let text = format!(
            "all.export /\noss.localroot {}\nall.adminpath {admin}\nall.pidpath {admin}\nxrd.port {port}\n\
             xrd.protocol http:{port} libXrdHttp.so\nxrd.network nodnr\nxrd.tls {} {}\nxrd.tlsca certfile {}\n\
             http.exthandler xrdtpc libXrdHttpTPC.so\nxrootd.chksum adler32\n",
            root.display(),
            at("x.pem").display(),
            at("x.key").display(),
            at("ca.pem").display(),
            admin = admin.display(),
        );
        std::fs::write(at("x.cfg"), text).expect("written");
        let mut command = Command::new("xrootd");
        if rustix::process::geteuid().is_root() {
            for name in ["data", "admin", "x.pem", "x.key", "x.cfg"] {
                chown(at(name), Some(USER_ID), None).expect("given away");
            }
            command.args(["-R", USER]);
        }
        command
            .arg("-c")
            .arg(at("x.cfg"))
            .arg("-l")
            .arg(at("admin/log"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("xrootd runs");
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "xrootd ended: {ended:?}");
            assert!(begun.elapsed() < BEGUN_WITHIN, "xrootd does not listen");
            std::thread::yield_now();
        }
        Self { child, port, place }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("https://localhost:{}/{name}", self.port)
    }

    /// Has the server at `url` copy. Returns the last line of the answer.
    fn copy(&self, url: &str, header: &str) -> String {
        let output = Command::new("curl")
            .args(["-sS", "-X", "COPY", "-m", "60", "-H", header])
            .args(["-H", "Credential: none", "-H", "Overwrite: T"])
            .args(["-H", "RequireChecksumVerification: true"])
            .arg("--cacert")
            .arg(self.at("ca.pem"))
            .arg(url)
            .output()
            .expect("curl runs; it is among the packages of scripts/setup.sh");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).expect("text");
        text.trim_end()
            .lines()
            .last()
            .unwrap_or_default()
            .to_owned()
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

#[test]
fn xrootd_copies_both_ways_whoever_is_asked() {
    if !Path::new(PLUGIN).exists() || Command::new("xrootd").arg("-v").output().is_err() {
        let told = "skipped: XRootD with third-party copies is not installed; apt-get install xrootd-server";
        assert!(std::env::var_os("CI").is_none(), "{told}");
        println!("{told}");
        return;
    }
    let xrootd = Xrootd::start();
    let site = Site::start(|config| {
        config.is_writable = true;
        config.has_third_party = true;
        config.ca = Some(xrootd.at("ca.pem"));
        config.tls = Some(TlsFiles {
            certificate: xrootd.at("our.pem"),
            key: xrootd.at("our.key"),
        });
    });
    let ours = |name: &str| format!("https://localhost:{}/{name}", site.server.address().port());
    let all = bytes(3_000_000);
    site.write("ours", &all);
    std::fs::write(xrootd.at("data/theirs"), &all).expect("written");
    set_mode(&xrootd.at("data/theirs"), 0o644);
    let source = |url: String| format!("Source: {url}");
    let destination = |url: String| format!("Destination: {url}");
    let said = [
        (
            "we pull",
            xrootd.copy(&ours("1"), &source(xrootd.url("theirs"))),
        ),
        (
            "we push",
            xrootd.copy(&ours("ours"), &destination(xrootd.url("2"))),
        ),
        (
            "they pull",
            xrootd.copy(&xrootd.url("3"), &source(ours("ours"))),
        ),
        (
            "they push",
            xrootd.copy(&xrootd.url("theirs"), &destination(ours("4"))),
        ),
    ];
    for (who, said) in said {
        assert!(said.starts_with("success"), "{who}: {said}");
    }
    for path in [
        site.path("1"),
        xrootd.at("data/2"),
        xrootd.at("data/3"),
        site.path("4"),
    ] {
        assert!(
            std::fs::read(&path).expect("readable") == all,
            "{}",
            path.display()
        );
    }
    let none = xrootd.copy(&ours("5"), &source(xrootd.url("none")));
    // It says 500 where there is no file whose checksum it could tell.
    assert!(none.starts_with("failure: "), "{none}");
}
