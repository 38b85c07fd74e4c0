//! One transfer over a connection: request out, answer in. Pure.

use crate::fate::Failure;
use crate::head::{HEAD_BYTES_MAX, parse};
use crate::outcome::Names;
use crate::plan::{Load, Method};

/// Common part of all transfers of a load.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    method: Method,
    /// Statuses of success.
    statuses: &'static [u16],
    expected_bytes: Option<u64>,
    server_header: String,
}

impl Rules {
    pub(crate) fn of(load: &Load) -> Self {
        Self {
            method: load.method,
            statuses: match load.method {
                Method::Get if load.range_bytes.is_some() => &[206],
                Method::Get | Method::Head => &[200],
                Method::Put => &[200, 201, 204],
            },
            expected_bytes: load.expected_bytes(),
            server_header: load.server_header.clone(),
        }
    }
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head of the answer has not come to its end.
    Head,
    /// Bytes of the body are missing, this many; `None`: it ends with the connection.
    Body(Option<u64>),
    Done,
}

/// One transfer over a connection.
#[derive(Debug)]
pub(crate) struct Exchange {
    phase: Phase,
    /// Bytes of the request that are not sent.
    unsent: u64,
    /// Bytes of the head so far.
    head: Vec<u8>,
    /// Bytes of bodies, sent and received.
    moved: u64,
    server: Option<usize>,
    keeps_alive: bool,
}

impl Exchange {
    /// A transfer whose request has `request_bytes`.
    pub(crate) fn new(request_bytes: u64) -> Self {
        Self {
            phase: Phase::Head,
            unsent: request_bytes,
            head: Vec::new(),
            moved: 0,
            server: None,
            keeps_alive: false,
        }
    }

    /// Bytes of the request that are not sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Takes `bytes` that were sent, of which `of_body` are of an upload.
    pub(crate) fn handle_sent(&mut self, bytes: u64, of_body: u64) {
        self.unsent -= bytes;
        self.moved += of_body;
    }

    /// Returns how many bytes that come next are of the body, and nothing but: they may be discarded unseen. 0: the
    /// head is awaited.
    pub(crate) fn discardable(&self) -> u64 {
        match self.phase {
            Phase::Body(left) => left.unwrap_or(u64::MAX),
            Phase::Head | Phase::Done => 0,
        }
    }

    /// Whether nothing of the answer has come.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.phase == Phase::Head && self.head.is_empty()
    }

    /// Whether the answer is here to its end.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Bytes of bodies, sent and received.
    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// Index of the server that answered, among the names.
    pub(crate) fn server(&self) -> Option<usize> {
        self.server
    }

    /// Whether the connection can take another request after this one.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.keeps_alive && self.unsent == 0
    }

    /// Takes bytes that came while the head is awaited; what follows the head in them is of the body.
    ///
    /// # Errors
    ///
    /// [`Failure::BadStatus`] or [`Failure::BadAnswer`]: the transfer has ended.
    pub(crate) fn handle_bytes(
        &mut self,
        bytes: &[u8],
        rules: &Rules,
        names: &mut Names,
    ) -> Result<(), Failure> {
        self.head.extend_from_slice(bytes);
        loop {
            let Some(head) = parse(&self.head, &rules.server_header)? else {
                return Ok(());
            };
            // "100 Continue" and its like come before the answer.
            if (100..200).contains(&head.status) {
                let length = head.bytes;
                self.head.drain(..length);
                continue;
            }
            self.server = head.server.map(|name| names.index_of(name));
            if !rules.statuses.contains(&head.status) {
                return Err(Failure::BadStatus);
            }
            let is_wrong = |expected| head.length != Some(expected);
            if rules.expected_bytes.is_some_and(is_wrong) {
                return Err(Failure::BadAnswer);
            }
            let after = (self.head.len() - head.bytes) as u64;
            let has_body = rules.method != Method::Head && head.status != 204;
            // The words between chunks would be counted as data. The answer to an upload has none to count.
            if head.is_chunked && has_body && rules.method != Method::Put {
                return Err(Failure::BadAnswer);
            }
            self.keeps_alive = head.keeps_alive && !head.is_chunked;
            self.phase = if !has_body || head.is_chunked {
                Phase::Done
            } else {
                Phase::Body(head.length)
            };
            if has_body && head.length.is_none() {
                self.keeps_alive = false;
            }
            self.head = Vec::new();
            return self.handle_discarded(after, rules);
        }
    }

    /// Takes `bytes` of the body.
    ///
    /// # Errors
    ///
    /// [`Failure::BadAnswer`] if more came than was announced: the transfer has ended.
    pub(crate) fn handle_discarded(&mut self, bytes: u64, rules: &Rules) -> Result<(), Failure> {
        // The words of an answer to an upload are not what is measured.
        if rules.method == Method::Get {
            self.moved += bytes;
        }
        match self.phase {
            Phase::Body(Some(left)) => {
                let left = left.checked_sub(bytes).ok_or(Failure::BadAnswer)?;
                self.phase = if left == 0 {
                    Phase::Done
                } else {
                    Phase::Body(Some(left))
                };
                Ok(())
            }
            Phase::Body(None) => Ok(()),
            Phase::Head | Phase::Done if bytes == 0 => Ok(()),
            Phase::Done if rules.method == Method::Put => Ok(()),
            Phase::Head | Phase::Done => Err(Failure::BadAnswer),
        }
    }

    /// Takes the end of the connection.
    ///
    /// # Errors
    ///
    /// [`Failure::NoAnswer`] before the end of the head, [`Failure::Short`] before that of the body.
    pub(crate) fn handle_end(&mut self) -> Result<(), Failure> {
        self.keeps_alive = false;
        match self.phase {
            Phase::Head => Err(Failure::NoAnswer),
            Phase::Body(Some(_)) => Err(Failure::Short),
            Phase::Body(None) | Phase::Done => {
                self.phase = Phase::Done;
                Ok(())
            }
        }
    }

    /// Room for the next bytes of the head.
    pub(crate) fn head_room(&self) -> usize {
        HEAD_BYTES_MAX - self.head.len().min(HEAD_BYTES_MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(method: Method, object_bytes: Option<u64>) -> Rules {
        Rules::of(&Load {
            method,
            object_bytes,
            ..Load::default()
        })
    }

    /// Feeds `pieces` and the end of the connection; returns what became of it and the bytes of the body.
    fn feed(rules: &Rules, pieces: &[&str]) -> (Result<(), Failure>, u64, bool) {
        let mut names = Names::default();
        let mut exchange = Exchange::new(0);
        for piece in pieces {
            let took = if exchange.discardable() > 0 {
                exchange.handle_discarded(piece.len() as u64, rules)
            } else {
                exchange.handle_bytes(piece.as_bytes(), rules, &mut names)
            };
            if took.is_err() || exchange.is_done() {
                return (took, exchange.moved(), exchange.keeps_alive());
            }
        }
        let end = exchange.handle_end();
        (end, exchange.moved(), exchange.keeps_alive())
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Served-By: s1\r\n\r\n";

    #[test]
    fn a_body_is_finished_at_its_length_however_it_is_cut() {
        let rules = rules(Method::Get, Some(10));
        let whole = format!("{HEAD}0123456789");
        for at in 1..whole.len() {
            let (first, second) = whole.split_at(at);
            let fate = feed(&rules, &[first, second]);
            assert_eq!(fate, (Ok(()), 10, true), "cut at {at}");
        }
    }

    #[test]
    fn what_ends_too_early_is_short_and_no_answer_is_none() {
        let rules = rules(Method::Get, None);
        let short = format!("{HEAD}012345678");
        assert_eq!(feed(&rules, &[&short]), (Err(Failure::Short), 9, false));
        assert_eq!(feed(&rules, &[]), (Err(Failure::NoAnswer), 0, false));
        let half = &HEAD[..20];
        assert_eq!(feed(&rules, &[half]), (Err(Failure::NoAnswer), 0, false));
    }

    #[test]
    fn another_length_or_status_than_expected_is_no_success() {
        let wanted = rules(Method::Get, Some(11));
        assert_eq!(feed(&wanted, &[HEAD]).0, Err(Failure::BadAnswer));
        let gone = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(feed(&wanted, &[gone]).0, Err(Failure::BadStatus));
        let whole_for_range = Rules::of(&Load {
            range_bytes: Some(10),
            ..Load::default()
        });
        assert_eq!(feed(&whole_for_range, &[HEAD]).0, Err(Failure::BadStatus));
    }

    #[test]
    fn more_than_was_announced_is_no_answer_to_this_request() {
        let rules = rules(Method::Get, None);
        let long = format!("{HEAD}0123456789HTTP/1.1");
        assert_eq!(feed(&rules, &[&long]).0, Err(Failure::BadAnswer));
    }

    #[test]
    fn without_a_length_a_body_ends_with_the_connection() {
        let rules = rules(Method::Get, None);
        let fate = feed(&rules, &["HTTP/1.1 200 OK\r\n\r\nabc", "de"]);
        assert_eq!(fate, (Ok(()), 5, false));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(feed(&rules, &[chunked]).0, Err(Failure::BadAnswer));
    }

    #[test]
    fn heads_and_uploads_have_no_body_to_count() {
        let head = rules(Method::Head, Some(10));
        assert_eq!(feed(&head, &[HEAD]), (Ok(()), 0, true));
        let put = rules(Method::Put, Some(10));
        let made =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nok\n";
        assert_eq!(feed(&put, &[made]), (Ok(()), 0, true));
        let empty = "HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(feed(&put, &[empty]), (Ok(()), 0, true));
    }

    #[test]
    fn an_answer_before_the_end_of_an_upload_ends_the_connection() {
        let rules = rules(Method::Put, None);
        let mut exchange = Exchange::new(100);
        exchange.handle_sent(60, 40);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let took = exchange.handle_bytes(answer, &rules, &mut Names::default());
        // Nothing is missing of a body without bytes.
        assert_eq!((took, exchange.moved()), (Ok(()), 40));
        assert!(!exchange.keeps_alive());
    }
}
