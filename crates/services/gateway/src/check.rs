//! Checks of a server, true to its protocol.

use sheaf_serve::{HealthKind, HttpCheck};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time between two looks whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Checks the server `name` at `address` once.
///
/// # Errors
///
/// What was found instead of a server that is well, in words.
pub fn check(
    kind: &HealthKind,
    name: &str,
    address: SocketAddr,
    timeout: Duration,
) -> Result<(), String> {
    match kind {
        HealthKind::Tcp => connect(address, timeout).map(drop),
        HealthKind::Http(wanted) => http(address, wanted, timeout),
        HealthKind::Gridftp => gridftp(address, timeout),
        HealthKind::Xrootd => xrootd(address, timeout),
        HealthKind::Script { program } => script(program, name, address, timeout),
    }
}

/// Connects, with this longest time of each read and write.
pub(crate) fn connect(address: SocketAddr, timeout: Duration) -> Result<TcpStream, String> {
    let stream =
        TcpStream::connect_timeout(&address, timeout).map_err(|error| error.to_string())?;
    let set = stream.set_read_timeout(Some(timeout));
    set.and_then(|()| stream.set_write_timeout(Some(timeout)))
        .map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Asks for the first bytes of a file: a server that knows ranges sends no more. Compares their checksum if there is
/// one to compare with.
fn http(address: SocketAddr, wanted: &HttpCheck, timeout: Duration) -> Result<(), String> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .build();
    let agent: ureq::Agent = config.into();
    let request = agent
        .get(format!("http://{address}{}", wanted.path))
        .header(
            "Range",
            format!("bytes=0-{}", wanted.bytes.saturating_sub(1)),
        );
    let mut answer = request.call().map_err(|error| error.to_string())?;
    match answer.status().as_u16() {
        200..=299 => {}
        status => return Err(format!("found status {status}, expected 200 to 299")),
    }
    let Some(expected) = &wanted.adler32 else {
        return Ok(());
    };
    let mut bytes = Vec::new();
    let body = answer.body_mut().as_reader();
    body.take(wanted.bytes.into())
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() < wanted.bytes as usize {
        return Err(format!(
            "found {} bytes, expected {}",
            bytes.len(),
            wanted.bytes
        ));
    }
    let found = format!("{:08x}", simd_adler32::adler32(&&bytes[..]));
    if !found.eq_ignore_ascii_case(expected) {
        return Err(format!(
            "found Adler-32 {found} of the first {} bytes, expected {expected}",
            wanted.bytes
        ));
    }
    Ok(())
}

/// Reads a reply of FTP and returns its code.
pub(crate) fn ftp_reply(stream: &mut TcpStream) -> Result<u16, String> {
    ftp_text(stream).map(|(code, _)| code)
}

/// Reads a reply of FTP: lines until one with its code and a space. Returns the code and that line.
pub(crate) fn ftp_text(stream: &mut TcpStream) -> Result<(u16, String), String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        let found = stream.read(&mut byte).map_err(|error| error.to_string())?;
        if found == 0 || line.len() > 4096 {
            return Err("the connection ended within a reply of FTP".to_owned());
        }
        if byte != *b"\n" {
            line.push(byte[0]);
            continue;
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        line.clear();
        let code = text.get(..3).and_then(|code| code.parse().ok());
        if let Some(code) = code
            && text.as_bytes().get(3) != Some(&b'-')
        {
            return Ok((code, text));
        }
    }
}

/// Welcome and login. A server that wants a certificate refuses the user by name, and is well all the same.
fn gridftp(address: SocketAddr, timeout: Duration) -> Result<(), String> {
    let mut stream = connect(address, timeout)?;
    let welcome = ftp_reply(&mut stream)?;
    if welcome != 220 {
        return Err(format!("found welcome {welcome}, expected 220"));
    }
    let sent = stream.write_all(b"USER anonymous\r\n");
    sent.map_err(|error| error.to_string())?;
    let login = ftp_reply(&mut stream)?;
    let _ = stream.write_all(b"QUIT\r\n"); // It is well already.
    match login {
        230 | 331 | 530 | 534 => Ok(()),
        other => Err(format!(
            "found reply {other} to a login, expected 230, 331, 530 or 534"
        )),
    }
}

/// Handshake of XRootD: 20 bytes, which are answered with version and kind (XRootD protocol 5.2.0, section 2.1).
fn xrootd(address: SocketAddr, timeout: Duration) -> Result<(), String> {
    let mut stream = connect(address, timeout)?;
    let mut hello = [0; 20];
    hello[15] = 4;
    hello[16..].copy_from_slice(&2012_u32.to_be_bytes());
    stream
        .write_all(&hello)
        .map_err(|error| error.to_string())?;
    let mut answer = [0; 16];
    stream
        .read_exact(&mut answer)
        .map_err(|error| error.to_string())?;
    let word = |at: usize| {
        u32::from_be_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]])
    };
    match (word(0), word(4)) {
        (0, 8) => Ok(()),
        (status, bytes) => Err(format!(
            "found a handshake of status {status}, {bytes} bytes; expected 0, 8"
        )),
    }
}

/// Program that ends with 0. One that takes longer is killed.
fn script(program: &str, name: &str, address: SocketAddr, timeout: Duration) -> Result<(), String> {
    let end = Instant::now() + timeout;
    let started = Command::new(program)
        .args([name, &address.ip().to_string(), &address.port().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.map_err(|error| format!("{program} cannot be started: {error}"))?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{program} ended with {status}")),
            Ok(None) if Instant::now() < end => std::thread::park_timeout(LOOK),
            Ok(None) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(format!("{program} took longer than {timeout:?}"));
            }
            Err(error) => return Err(format!("{program} cannot be awaited: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_serve::{CheckAt, HealthConfig};
    use std::net::TcpListener;
    use std::thread;

    const SOON: Duration = Duration::from_secs(5);

    /// Serves one connection: each step waits for a question or not, and answers.
    fn serve(steps: &'static [(bool, &'static [u8])]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the check");
            for (waits, answer) in steps {
                let mut question = [0; 512];
                if *waits && stream.read(&mut question).unwrap_or(0) == 0 {
                    return;
                }
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        });
        address
    }

    #[test]
    fn each_kind_takes_its_own_protocol_and_no_other() {
        let ftp: &[(bool, &[u8])] = &[
            (false, b"220-hello\r\n220 ready\r\n"),
            (true, b"331 go on\r\n"),
        ];
        let full: &[(bool, &[u8])] = &[(false, b"421 too many\r\n")];
        let xrootd: &[(bool, &[u8])] = &[(true, b"\0\0\0\0\0\0\0\x08\0\0\x05\x20\0\0\0\x01")];
        let http: &[(bool, &[u8])] =
            &[(true, b"HTTP/1.1 206 Partial\r\nContent-Length: 1\r\n\r\nx")];
        let away: &[(bool, &[u8])] = &[(true, b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n")];
        let get = HealthKind::http("/x");
        let with_sum = |sum: &str| {
            HealthKind::Http(HttpCheck {
                path: "/x".to_owned(),
                bytes: 1,
                adler32: Some(sum.to_owned()),
            })
        };
        let run = |kind: &HealthKind, steps| check(kind, "s1", serve(steps), SOON);
        assert_eq!(run(&HealthKind::Tcp, &[]), Ok(()));
        assert_eq!(run(&HealthKind::Gridftp, ftp), Ok(()));
        assert_eq!(run(&HealthKind::Xrootd, xrootd), Ok(()));
        assert_eq!(run(&get, http), Ok(()));
        assert_eq!(
            run(&with_sum("00790079"), http),
            Ok(()),
            "Adler-32 of one x"
        );
        let empty: &[(bool, &[u8])] = &[(true, b"HTTP/1.1 200 Well\r\nContent-Length: 0\r\n\r\n")];
        for (kind, steps, expected) in [
            (&HealthKind::Gridftp, full, "found welcome 421"),
            (&HealthKind::Gridftp, xrootd, ""),
            (&HealthKind::Xrootd, http, "expected 0, 8"),
            (&get, away, "found status 503"),
            (&with_sum("00790078"), http, "found Adler-32 00790079"),
            (&with_sum("00790079"), empty, "found 0 bytes, expected 1"),
        ] {
            let short = Duration::from_millis(300);
            let error = check(kind, "s1", serve(steps), short).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_check_by_http_has_its_path_and_may_have_more() {
        let read = |text: &str| toml::from_str::<HealthConfig>(text).expect("a configuration");
        let plain = read("kind = { http = { path = \"/healthz\" } }");
        assert_eq!(plain.kind, Some(HealthKind::http("/healthz")));
        assert_eq!(plain.at, CheckAt::Server);
        let whole = read(
            "at = \"virtual\"\nkind = { http = { path = \"/f\", bytes = 9, adler32 = \"11e60398\" } }",
        );
        let Some(HealthKind::Http(http)) = &whole.kind else {
            panic!("{whole:?}");
        };
        assert_eq!((http.bytes, whole.at), (9, CheckAt::Virtual));
        assert_eq!(http.adler32.as_deref(), Some("11e60398"));
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        let address = "127.0.0.1:1".parse().expect("an address");
        let script = |program: &str, within| {
            let kind = HealthKind::Script {
                program: program.to_owned(),
            };
            check(&kind, "s1", address, within)
        };
        assert_eq!(script("/bin/true", SOON), Ok(()));
        let error = script("/bin/false", SOON).expect_err("it ends with 1");
        assert!(error.contains("exit status: 1"), "{error}");
        let error = script("/usr/bin/yes", Duration::from_millis(20)).expect_err("it never ends");
        assert!(error.contains("longer than"), "{error}");
    }
}
