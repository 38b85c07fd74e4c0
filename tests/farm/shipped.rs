//! Files of a farm: shipped to permanent storage of every kind that is here, and replayed into another farm.

use crate::harness::{PROGRAM, farm_turn, free_address, sheaf, write};
use crate::streams::{demo_into, json_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time for a server to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether `program` is there. Continuous integration must have it: `scripts/setup.sh` installs it.
fn has(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |folder: PathBuf| folder.join(program).is_file();
    let has = std::env::split_paths(&path).any(is_there)
        || Path::new("/usr/sbin").join(program).is_file();
    assert!(
        has || std::env::var_os("CI").is_none(),
        "{program} is not installed (Debian package {package})"
    );
    if !has {
        println!("skipped: needs {program} (Debian package {package})");
    }
    has
}

/// A server of others; killed when dropped.
struct Server(Child);

impl Server {
    fn start(command: &mut Command, address: &str) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it is installed");
        let due = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            let ended = child.try_wait().expect("a child of ours");
            assert_eq!(ended, None, "{command:?}");
            assert!(
                Instant::now() < due,
                "{command:?} does not listen at {address}"
            );
            std::thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Files of a folder and the folders in it that end in `.tf`, with their bytes.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else if path.extension().is_some_and(|end| end == "tf") {
            let name = path.file_name().expect("a name").to_string_lossy();
            found.insert(name.into_owned(), std::fs::read(&path).expect("readable"));
        }
    }
    found
}

/// Ships `files` to `address`, and compares what is in `store` then.
#[track_caller]
fn ship_to(files: &Path, address: &str, store: &Path, more: &[&str]) {
    let expected = contents(files);
    assert!(expected.len() >= 3, "{:?}", expected.keys());
    let words = [
        "ship",
        files.to_str().unwrap(),
        "--to",
        address,
        "--once",
        "--json",
    ];
    let words = [&words[..], more].concat();
    let report = &json_of(&words)[0];
    let verified = &report["destinations"][0]["states"]["verified"]["files"];
    assert_eq!(*verified, expected.len(), "{report:#}");
    assert_eq!(report["failed_attempts"], 0, "{report:#}");
    let found = contents(store);
    assert!(found == expected, "{:?}", found.keys());
    // Again: nothing is left to do.
    let report = &json_of(&words)[0];
    assert_eq!(report["copied_bytes"], 0, "{report:#}");
}

/// Files of a farm that has ended, and a folder for what is shipped, both in a folder that goes with the test.
fn written() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (files, store) = (folder.path().join("files"), folder.path().join("store"));
    demo_into(&files, FARM);
    std::fs::create_dir(&store).unwrap();
    (folder, files, store)
}

const FARM: &str = "--rate 100 --orbits-per-tf 8 --flps 2 --epns 3 --duration 1s";

#[test]
fn files_are_shipped_to_a_folder_and_deleted_and_nothing_misses_them() {
    let _turn = farm_turn();
    let (_folder, files, store) = written();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (files_text, store_text) = (text(&files), text(&store));
    ship_to(&files, &store_text, &store, &[]);
    let expected = contents(&files);
    let deleted = sheaf(&[
        "ship",
        &files_text,
        "--to",
        &store_text,
        "--once",
        "--delete",
    ]);
    assert!(deleted.status.success(), "{}", deleted.stderr);
    assert!(
        deleted.stdout.iter().any(|line| line.contains("deleted")),
        "{:?}",
        deleted.stdout
    );
    assert_eq!(contents(&files), BTreeMap::new());
    assert!(contents(&store) == expected);
    let rows = json_of(&["files", "list", &files_text, "--json"]);
    assert!(
        rows.iter().all(|row| row["shipped"] == "deleted"),
        "{rows:#?}"
    );
    assert_eq!(json_of(&["files", &files_text, "--json"]), rows);
    assert_eq!(
        json_of(&["files", "-q", "list", &files_text, "--json"]),
        rows
    );
    let report = &json_of(&["write", "fsck", &files_text, "--json"])[0];
    assert_eq!(report["deleted"], expected.len());
    assert_eq!(report["faults"], json!([]));
    let status = &json_of(&["ship", &files_text, "--status", "--json"])[0];
    assert_eq!(
        status["destinations"][0]["states"]["deleted"]["files"],
        expected.len()
    );
    // Wrong uses are refused before anything happens.
    for (words, told) in [
        (
            &["ship", &files_text, "--to", "ftp://host/x"][..],
            "expected one of: https://",
        ),
        (
            &["files", "--json", "list", &files_text],
            "expected its arguments behind it",
        ),
        (
            &["ship", &files_text, "--to", "s3://raw"],
            "needs credentials: AWS_ACCESS_KEY_ID",
        ),
        (
            &["ship", &files_text, "--to", "/no/such/folder"],
            "/no/such/folder is not there",
        ),
        (
            &["ship", &store_text, "--to", &store_text],
            "found no catalogue in",
        ),
        (
            &["ship", &files_text, "--to", "https://host/x"],
            "needs --ca FILE",
        ),
    ] {
        let ended = sheaf(words);
        assert_eq!(ended.status.code(), Some(2), "{words:?}");
        assert!(ended.stderr.contains(told), "{words:?}: {}", ended.stderr);
    }
}

#[test]
fn a_bar_is_drawn_on_a_terminal_and_nowhere_else() {
    if !has("script", "bsdutils") {
        return;
    }
    let _turn = farm_turn();
    let (_folder, files, store) = written();
    let bytes: usize = contents(&files).values().map(Vec::len).sum();
    // Two seconds or three: short work has no bar.
    let rate = (bytes as u64 / 2_500_000).max(1).to_string();
    for (number, (on_terminal, json)) in [(true, ""), (true, "--json"), (false, "")]
        .iter()
        .enumerate()
    {
        let to = store.join(number.to_string());
        std::fs::create_dir(&to).unwrap();
        let line = format!(
            "{PROGRAM} ship {} --to {} --once --limit-mb-per-s {rate} {json}",
            files.display(),
            to.display()
        );
        let mut command = match on_terminal {
            true => Command::new("script"),
            false => Command::new("sh"),
        };
        match on_terminal {
            true => command.args(["-qec", &line, "/dev/null"]),
            false => command.args(["-c", &line]),
        };
        let ended = command.stdin(Stdio::null()).output().unwrap();
        assert!(ended.status.success(), "{line}: {ended:?}");
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let is_drawn = said.contains("files shipped, ") && said.contains("[###");
        assert_eq!(is_drawn, *on_terminal && json.is_empty(), "{line}: {said}");
    }
}

#[test]
fn files_are_shipped_to_nginx_by_put() {
    if !has("nginx", "nginx-light") {
        return;
    }
    let _turn = farm_turn();
    let (folder, files, store) = written();
    let at = folder.path();
    let (address, place) = (free_address(), at.display());
    let user = match rustix::process::getuid().is_root() {
        true => "user root;",
        false => "",
    };
    let text = format!(
        "{user} daemon off; master_process off; pid {place}/nginx.pid; error_log stderr;\n\
         events {{ }}\n\
         http {{ access_log off; client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;\n\
         fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
         server {{ listen {address}; client_max_body_size 0;\n\
         location /raw/ {{ alias {place}/store/; dav_methods PUT DELETE; }} }} }}\n"
    );
    let config = write(at, "nginx.conf", &text);
    let mut nginx = Command::new("nginx");
    nginx.env("PATH", "/usr/sbin:/usr/bin:/bin");
    let _server = Server::start(nginx.args(["-e", "stderr", "-c", &config]), &address);
    ship_to(
        &files,
        &format!("http://{address}/raw"),
        &store,
        &["--parallel", "3"],
    );
    // What the server refuses is named, and kept here.
    let refused = format!("http://{address}/other");
    let mut shipper = Command::new(PROGRAM)
        .args(["ship", files.to_str().unwrap(), "--to", &refused])
        .args(["--retry-max", "10ms"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(shipper.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let is_refusal = |line: &String| line.contains("PUT: status 4");
    assert!(lines.any(|line| is_refusal(&line)));
    let pid = rustix::process::Pid::from_child(&shipper);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    // Until its end, so that its log does not wait for a reader.
    lines.for_each(drop);
    assert!(shipper.wait().unwrap().success());
    assert!(contents(&files).len() >= 3);
}

#[test]
fn files_are_shipped_to_xrootd() {
    if !has("xrootd", "xrootd-server") || !has("xrdcp", "xrootd-client") {
        return;
    }
    let _turn = farm_turn();
    let (folder, files, store) = written();
    let at = folder.path();
    std::fs::create_dir(store.join("raw")).unwrap();
    let (address, place) = (free_address(), at.display());
    let port = address.rsplit(':').next().unwrap();
    let text = format!(
        "all.role server\nxrd.port {port}\nall.export /raw\noss.localroot {place}/store\n\
         all.adminpath {place}/admin\nall.pidpath {place}/admin\nxrootd.chksum max 2 adler32\n"
    );
    let config = write(at, "xrootd.cfg", &text);
    let mut xrootd = Command::new("xrootd");
    xrootd
        .current_dir(at)
        .args(["-c", &config, "-l", &format!("{place}/xrootd.log")]);
    if rustix::process::getuid().is_root() {
        // It refuses to run as root, and its user has to get at the files.
        use std::os::unix::fs::PermissionsExt as _;
        for path in [at.to_owned(), store.clone(), store.join("raw")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        xrootd.args(["-R", "xrootd"]);
    }
    let _server = Server::start(&mut xrootd, &address);
    ship_to(&files, &format!("root://{address}//raw"), &store, &[]);
}

/// Returns SeaweedFS, a server of S3; `None`, and a line that says so, if it is not on this machine.
fn weed() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")));
    let usual = cache
        .unwrap_or_default()
        .join("sheaf/seaweedfs-4.48/bin/weed");
    let program = set("SHEAF_WEED").map_or(usual, PathBuf::from);
    if !program.is_file() {
        println!("skipped: no SeaweedFS 4.48; run scripts/setup.sh s3");
        return None;
    }
    Some(program)
}

#[test]
fn files_are_shipped_to_a_bucket_by_keys_of_the_environment() {
    let Some(weed) = weed() else {
        return;
    };
    let _turn = farm_turn();
    let (folder, files, store) = written();
    let identity = json!({"name": "test", "actions": ["Admin"],
        "credentials": [{"accessKey": "SHIPPER", "secretKey": "correct-horse"}]});
    let config = json!({"identities": [identity]}).to_string();
    let config = write(folder.path(), "s3.json", &config);
    let ports = (0..8).map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let held: Vec<TcpListener> = ports.collect();
    let ports = held.iter().map(|it| it.local_addr().unwrap().port());
    let ports: Vec<u16> = ports.collect();
    drop(held);
    let mut server = Command::new(&weed);
    server
        .arg("server")
        .args(["-ip=127.0.0.1", "-filer", "-s3"]);
    server.args(["-s3.autoCreateBucket=false", "-s3.iam=false"]);
    server.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=50"]);
    server.arg(format!("-s3.config={config}"));
    server.arg(format!("-dir={}", store.display()));
    for (of, ports) in ["s3", "master", "volume", "filer"]
        .iter()
        .zip(ports.chunks(2))
    {
        server.arg(format!("-{of}.port={}", ports[0]));
        server.arg(format!("-{of}.port.grpc={}", ports[1]));
    }
    let address = format!("127.0.0.1:{}", ports[0]);
    let _server = Server::start(&mut server, &address);
    let endpoint = format!("http://{address}");
    // A server that does not work yet is waited for, and not without end.
    let ship = |secret: &str, more: &[&str]| {
        Command::new("timeout")
            .args(["20", PROGRAM, "ship", files.to_str().unwrap()])
            .args(["--to", "s3://raw/run 1", "--once", "--json"])
            .args(["--s3-part-mib", "5"])
            .args(more)
            .env("AWS_ACCESS_KEY_ID", "SHIPPER")
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_REGION", "eu-central-1")
            .output()
            .unwrap()
    };
    let until_refused = |secret: &str, code: &str| {
        let due = Instant::now() + PATIENCE;
        loop {
            let refused = ship(secret, &[]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            if refused.status.code() == Some(2) && said.contains(code) {
                assert!(said.contains("s3://raw/run 1 refuses: "), "{said}");
                break;
            }
            assert!(Instant::now() < due, "{said}");
        }
    };
    until_refused("correct-horse", "NoSuchBucket");
    until_refused("wrong", "SignatureDoesNotMatch");
    let master = format!("-master=127.0.0.1:{}.{}", ports[2], ports[3]);
    let filer = format!("-filer=127.0.0.1:{}.{}", ports[6], ports[7]);
    let order = "echo 's3.bucket.create -name raw' | \"$0\" shell \"$1\" \"$2\"";
    let made = Command::new("timeout")
        .args(["20", "sh", "-c", order])
        .arg(&weed)
        .args([&master, &filer])
        .output()
        .unwrap();
    let expected = contents(&files).len();
    for (copies, state, more) in [
        (true, "verified", &[][..]),
        (false, "deleted", &["--delete"]),
    ] {
        let ended = ship("correct-horse", more);
        assert!(ended.status.success(), "{ended:?} {made:?}");
        let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
        let states = &report["destinations"][0]["states"];
        assert_eq!(states[state]["files"], expected, "{report:#}");
        assert_eq!(report["copied_bytes"] != 0, copies, "{report:#}");
    }
    assert_eq!(contents(&files), BTreeMap::new());
}

/// Parts of all TFs in the order of their ids: bytes and digests.
fn parts_of(files: &Path) -> Vec<(u64, Value)> {
    let folder = files.to_str().unwrap();
    let mut tfs = BTreeMap::new();
    for row in json_of(&["files", "list", folder, "--json"]) {
        let text = |key: &str| row[key].as_str().unwrap();
        let path = Path::new(text("directory")).join(text("file"));
        for tf in json_of(&["files", "read", path.to_str().unwrap(), "--json"]) {
            let id = tf["tf"].as_u64().unwrap();
            tfs.insert(id, (tf["bytes"].as_u64().unwrap(), tf["crc32c"].clone()));
        }
    }
    tfs.into_values().collect()
}

#[test]
fn files_of_a_farm_are_replayed_into_another_one_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let _turn = farm_turn();
    demo_into(&first, FARM);
    let expected = parts_of(&first);
    assert!(expected.len() > 50, "{}", expected.len());
    let paths = contents_paths(&first).join(" --source ");
    let line = format!("--source {paths} --flps 2 --epns 2 --duration 60s --rate 200");
    let dir = demo_into(&second, &line);
    assert_eq!(dir.summary().count("complete"), expected.len() as u64);
    assert_eq!(parts_of(&second), expected);
}

fn contents_paths(folder: &Path) -> Vec<String> {
    let rows = json_of(&["files", "list", folder.to_str().unwrap(), "--json"]);
    let path = |row: &Value| {
        let text = |key: &str| row[key].as_str().expect("a text");
        Path::new(text("directory"))
            .join(text("file"))
            .display()
            .to_string()
    };
    rows.iter().map(path).collect()
}

/// A program that is not there must not be asked for.
#[test]
fn destinations_whose_program_is_not_installed_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    let turn = farm_turn();
    demo_into(&files, FARM);
    drop(turn);
    for (address, told) in [
        (
            "root://host//raw",
            "needs the program xrdcp, which is not installed",
        ),
        (
            "gfal+davs://host/raw",
            "needs the program gfal-copy, which is not installed",
        ),
        (
            "gsiftp://host/raw",
            "needs the program globus-url-copy, which is not installed",
        ),
    ] {
        let output = Command::new(PROGRAM)
            .args(["ship", files.to_str().unwrap(), "--to", address])
            .env("PATH", folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{address}: {stderr}");
        assert!(stderr.contains(told), "{address}: {stderr}");
    }
}
