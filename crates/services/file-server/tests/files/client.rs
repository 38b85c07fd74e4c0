//! A client that sends the bytes that it is given, and a server to send them to.

use sheaf_file_server::{FileServer, FileServerConfig};
use sheaf_metrics::Registry;
use sheaf_stream_files::{Catalogue, FileRow, FileState};
use sheaf_write::{FileName, Sums};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer may take before the test fails.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Value of a header.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(is, _)| is.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Connection of a client.
pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        let within = Some(ANSWER_WITHIN);
        stream.set_read_timeout(within).expect("a timeout");
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("sent");
    }

    /// Ends its side of the connection.
    pub(crate) fn end(&self) {
        self.stream.shutdown(Shutdown::Write).expect("shut down");
    }

    /// Sends a request, with `headers` each ended by CR LF.
    pub(crate) fn request(&mut self, method: &str, target: &str, headers: &str, body: &[u8]) {
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{headers}");
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        self.send(bytes);
    }

    /// Reads the answer to the request before.
    pub(crate) fn reply(&mut self, method: &str) -> Reply {
        let head = loop {
            let found = self.unread.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(at) = found {
                break self.unread.drain(..at + 4).collect::<Vec<u8>>();
            }
            let got = self.more();
            let shown = String::from_utf8_lossy(&self.unread).into_owned();
            assert!(got > 0, "the connection ended in a head: {shown:?}");
        };
        let head = String::from_utf8(head).expect("heads of answers are text");
        let mut lines = head.trim_end().split("\r\n");
        let first = lines.next().expect("a first line");
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").expect("a header");
            (name.to_owned(), value.to_owned())
        });
        let mut reply = Reply {
            status: status.unwrap_or_else(|| panic!("no status in {first}")),
            headers: headers.collect(),
            body: Vec::new(),
        };
        let has_none = method == "HEAD" || [100, 204, 304].contains(&reply.status);
        if has_none {
            return reply;
        }
        if reply.get("transfer-encoding") == Some("chunked") {
            reply.body = self.chunks();
        } else {
            let length = reply.get("content-length").expect("a length");
            reply.body = self.take(length.parse().expect("a number"));
        }
        reply
    }

    /// Waits for the first bytes of an answer, which stay unread.
    pub(crate) fn peek(&self, room: &mut [u8]) {
        let got = self.stream.peek(room).expect("an answer");
        assert!(got > 0, "the connection ended");
    }

    /// Sends a request and reads the answer.
    pub(crate) fn ask(&mut self, method: &str, target: &str, headers: &str) -> Reply {
        self.request(method, target, headers, b"");
        self.reply(method)
    }

    /// Returns whether the server ends the connection and sends nothing before.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.unread.is_empty() && self.more() == 0
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(at) = self.unread.windows(2).position(|two| two == b"\r\n") {
                    break self.unread.drain(..at + 2).collect::<Vec<u8>>();
                }
                assert!(self.more() > 0, "the connection ended in a chunk");
            };
            let size = std::str::from_utf8(&line[..line.len() - 2]).expect("a size");
            let size = usize::from_str_radix(size, 16).expect("hexadecimal digits");
            body.extend(self.take(size));
            assert_eq!(self.take(2), b"\r\n");
            if size == 0 {
                return body;
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        while self.unread.len() < bytes {
            let got = self.more();
            let had = self.unread.len();
            assert!(got > 0, "the connection ended at {had} of {bytes} bytes");
        }
        self.unread.drain(..bytes).collect()
    }

    fn more(&mut self) -> usize {
        let mut room = vec![0; 64 << 10];
        // A reset says as much as an end: nothing more comes.
        let got = match self.stream.read(&mut room) {
            Ok(got) => got,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("no answer: {error}"),
        };
        self.unread.extend_from_slice(&room[..got]);
        got
    }
}

/// Server of a folder of its own.
pub(crate) struct Site {
    pub(crate) server: FileServer,
    pub(crate) registry: Arc<Registry>,
    /// Folder around the one that is served.
    pub(crate) around: tempfile::TempDir,
}

impl Site {
    /// Starts a server of an empty folder.
    pub(crate) fn start(change: impl FnOnce(&mut FileServerConfig)) -> Self {
        let around = tempfile::tempdir().expect("a folder");
        let folder = around.path().join("served");
        std::fs::create_dir(&folder).expect("made");
        let address = "127.0.0.1:0".parse().expect("an address");
        let mut config = FileServerConfig::new(folder, address);
        config.threads = 2;
        change(&mut config);
        let registry = Arc::new(Registry::default());
        let server = FileServer::start(&config, &registry).expect("started");
        Self {
            server,
            registry,
            around,
        }
    }

    /// Path of a file in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.around.path().join("served").join(name)
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("written");
    }

    /// Adds a file of five bytes to the catalogue as one that its writer has closed.
    pub(crate) fn close_in_catalogue(&self, file: &str, adler32: u32) {
        let sums = Sums {
            bytes: 5,
            adler32,
            crc32c: None,
            xxh3: None,
        };
        let row = FileRow {
            file: file.to_owned(),
            name: FileName {
                project: "p".to_owned(),
                run: 1,
                stream: "main".to_owned(),
                block: 0,
                node: "epn-0".to_owned(),
                seq: 0,
            },
            state: FileState::Open,
            opened_ns: 0,
            closed_ns: None,
            records: 1,
            sums,
        };
        let writer = Catalogue::open(&self.path("")).expect("made");
        writer.add(&row).expect("added");
        let closed = writer.close(file, FileState::Closed, i64::MAX, 1, &sums);
        closed.expect("closed");
    }

    /// Names of all that is in the folder, hidden ones too.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("")).expect("readable");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.server.address())
    }

    /// Connects to the page of the server.
    pub(crate) fn page(&self) -> Client {
        Client::connect(self.server.status_address().expect("it has a page"))
    }

    /// Text of the metrics.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        self.registry.encode(&mut text);
        text
    }

    /// Waits until the metrics have this line.
    pub(crate) fn await_metric(&self, line: &str) {
        let begun = Instant::now();
        while !self.metrics().contains(line) {
            let metrics = self.metrics();
            assert!(
                begun.elapsed() < ANSWER_WITHIN,
                "{line} is not in {metrics}"
            );
            std::thread::yield_now();
        }
    }

    /// URL of a file.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.server.address())
    }
}

/// Bytes that differ everywhere, the same in each run.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 32).to_le_bytes()[..4]);
    }
    bytes.truncate(length);
    bytes
}
