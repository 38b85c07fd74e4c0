//! A private Prometheus: started on loopback, filled by remote write, asked over HTTP.

use crate::data::{LENGTH_S, Store, T0_S};
use sheaf_samples::Sample;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A Prometheus of this test, ended with it.
pub(crate) struct Oracle {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Oracle {
    /// Returns none if the program is not installed.
    pub(crate) fn start() -> Option<Self> {
        let version = Command::new("prometheus").arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&version.stdout).into_owned();
        println!(
            "oracle: {}",
            text.lines().next().unwrap_or("of an unknown version")
        );
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join("prometheus.yml");
        std::fs::write(&config, "").expect("the configuration is written");
        // The port may be taken between the look and the start: the next one serves as well.
        for _ in 0..5 {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                .and_then(|listener| listener.local_addr())
                .expect("a port of loopback")
                .port();
            let mut child = Command::new("prometheus")
                .arg(format!("--config.file={}", config.display()))
                .arg(format!(
                    "--storage.tsdb.path={}",
                    folder.path().join("data").display()
                ))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .arg("--web.enable-remote-write-receiver")
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("its version was asked before");
            let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
            let is_ready = lines
                .by_ref()
                .map_while(Result::ok)
                .any(|line| line.contains("Server is ready to receive web requests"));
            if is_ready {
                // The pipe stays read, or the server would block on it.
                std::thread::spawn(move || lines.for_each(drop));
                return Some(Self {
                    child,
                    port,
                    _folder: folder,
                });
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("prometheus ended five times before it was ready");
    }

    fn post(&self, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("the server listens");
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(head.as_bytes())
            .expect("the request is sent");
        stream.write_all(body).expect("the request is sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the answer is read");
        let answer = String::from_utf8(answer).expect("JSON is UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// Sends all samples by remote write, slice by slice in time, as the head takes nothing old.
    pub(crate) fn fill(&self, store: &Store) {
        const SLICE_MS: i64 = 600_000;
        let (from_ms, to_ms) = (T0_S * 1000, (T0_S + LENGTH_S) * 1000);
        for start_ms in (from_ms..=to_ms).step_by(SLICE_MS as usize) {
            let mut request = Vec::new();
            for (labels, samples) in store {
                let slice: Vec<&Sample> = samples
                    .iter()
                    .filter(|one| (start_ms..start_ms + SLICE_MS).contains(&one.at_ms))
                    .collect();
                if slice.is_empty() {
                    continue;
                }
                let mut series = Vec::new();
                for (name, value) in labels.iter() {
                    let mut label = Vec::new();
                    bytes_field(&mut label, 1, name.as_bytes());
                    bytes_field(&mut label, 2, value.as_bytes());
                    bytes_field(&mut series, 1, &label);
                }
                for sample in slice {
                    let mut message = vec![1 << 3 | 1];
                    message.extend(sample.value.to_le_bytes());
                    message.push(2 << 3);
                    varint(&mut message, sample.at_ms.cast_unsigned());
                    bytes_field(&mut series, 2, &message);
                }
                bytes_field(&mut request, 1, &series);
            }
            let headers = "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\n";
            let (status, body) = self.post("/api/v1/write", headers, &snappy(&request));
            assert_eq!(status, 204, "{body}");
        }
    }

    pub(crate) fn query(&self, path: &str, params: &[(&str, &str)]) -> String {
        let body: Vec<String> = params
            .iter()
            .map(|(name, value)| format!("{name}={}", escaped(value)))
            .collect();
        let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
        self.post(path, headers, body.join("&").as_bytes()).1
    }
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn bytes_field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

/// Snappy's block format with literals alone: valid, and not compressed.
fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    varint(&mut out, bytes.len() as u64);
    for part in bytes.chunks(1 << 16) {
        out.push(61 << 2);
        out.extend(((part.len() - 1) as u16).to_le_bytes());
        out.extend(part);
    }
    out
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
