//! Producer of a topic of Kafka: gives the records of a request, in their order, until all replicas in sync have them.
//!
//! A request is acknowledged when every record of it is, so it may go out again after some of its records are there;
//! those that brokers have acknowledged stay out of the next attempt of this process. Brokers are asked once for each
//! batch: the pauses between attempts are those of the forwarder.

use super::given::Given;
use super::records::{self, Record};
use super::spool::Waiting;
use crate::client::{ClientError, read_token};
use crate::config::{ForwardConfig, Mechanism, is_set};
use futures_util::future::join_all;
use rskafka::chrono::{DateTime, Utc};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{ClientBuilder, Credentials, SaslConfig};
use rskafka::{BackoffConfig, BackoffError};
use rustls::ClientConfig;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of a batch before compression, at most; half of what brokers take by default (`message.max.bytes`).
const BATCH_BYTES_MAX: usize = 512 << 10;
/// Bytes that batches are not made smaller than before one is sent.
const BATCH_BYTES_LEAST: usize = 4 << 10;
/// Age at which connections are made again, so that partitions that were added are used, and none is idle until a
/// broker closes it (`connections.max.idle.ms`).
const SESSION: Duration = Duration::from_secs(300);

/// Producer of one topic.
pub(super) struct Producer {
    brokers: Vec<String>,
    topic: String,
    tls: Option<Arc<ClientConfig>>,
    user: String,
    mechanism: Mechanism,
    /// File of the password.
    password: PathBuf,
    session: Option<Session>,
    /// Place of a request in the spool, and the fate of its records so far.
    progress: ((u64, u64), Progress),
}

/// Connections to the leaders of all partitions, by their number.
struct Session {
    partitions: Vec<PartitionClient>,
    bytes_max: usize,
    begun: Instant,
}

/// Fate of the records of a request.
#[derive(Default)]
struct Progress {
    /// Records that need no other attempt.
    done: Vec<bool>,
    refused: BTreeMap<usize, String>,
}

/// Fate of the records of one partition in an attempt.
#[derive(Default)]
struct Share {
    taken: Vec<usize>,
    refused: Vec<(usize, String)>,
    /// Whether a batch was too large for the topic.
    is_too_large: bool,
    /// Reason why the rest waits.
    stopped: Option<String>,
}

impl Producer {
    /// Reads the files that the configuration names.
    pub(super) fn new(config: &ForwardConfig) -> Result<Self, ClientError> {
        let tls = is_set(&config.ca).then(|| sheaf_auth::web::client(&config.ca));
        let producer = Self {
            brokers: config.brokers.clone(),
            topic: config.topic.clone(),
            tls: tls.transpose()?,
            user: config.user.clone(),
            mechanism: config.mechanism,
            password: config.token_file.clone(),
            session: None,
            progress: Default::default(),
        };
        producer.sasl()?;
        Ok(producer)
    }

    /// Drops the connections; the next request makes others.
    pub(super) fn disconnect(&mut self) {
        self.session = None;
    }

    /// Sends the records of a request that brokers do not have yet.
    pub(super) async fn send(&mut self, waiting: &Waiting) -> Result<Given, String> {
        let Some(records) = records::read(&waiting.body) else {
            return Ok(Given {
                refused: waiting.samples,
                reason: "the request was spooled for an engine of another kind".to_owned(),
            });
        };
        if self.progress.0 != waiting.place() || self.progress.1.done.len() != records.len() {
            let done = vec![false; records.len()];
            let refused = BTreeMap::new();
            self.progress = (waiting.place(), Progress { done, refused });
        }
        self.session
            .take_if(|session| session.begun.elapsed() > SESSION);
        let session = match self.session.take() {
            Some(session) => session,
            None => self.connect().await?,
        };
        let progress = &mut self.progress.1;
        let lists = records::by_partition(&records, &progress.done, session.partitions.len());
        let shares = session.partitions.iter().zip(&lists);
        let shares = shares
            .map(|(client, list)| produce(client, &self.topic, &records, list, session.bytes_max));
        let shares = join_all(shares).await;
        for (place, _) in shares.iter().flat_map(|share| &share.refused) {
            progress.done[*place] = true;
        }
        for place in shares.iter().flat_map(|share| &share.taken) {
            progress.done[*place] = true;
        }
        let mut bytes_max = session.bytes_max;
        if shares.iter().any(|share| share.is_too_large) {
            bytes_max = (bytes_max / 2).max(BATCH_BYTES_LEAST);
        }
        let stopped = shares.iter().find_map(|share| share.stopped.clone());
        let refused = shares.into_iter().flat_map(|share| share.refused);
        progress.refused.extend(refused);
        if let Some(reason) = stopped {
            return Err(reason);
        }
        self.session = Some(Session {
            bytes_max,
            ..session
        });
        let refused = std::mem::take(&mut self.progress.1).refused;
        let reason = refused.values().next().cloned().unwrap_or_default();
        Ok(Given {
            refused: refused.len() as u64,
            reason,
        })
    }

    /// Connects to the leaders of all partitions.
    async fn connect(&self) -> Result<Session, String> {
        // The forwarder makes the pauses, and its log has the reason of each attempt.
        let once = BackoffConfig {
            deadline: Some(Duration::ZERO),
            ..BackoffConfig::default()
        };
        let mut builder = ClientBuilder::new(self.brokers.clone())
            .client_id("sheaf-monitor")
            .backoff_config(once);
        if let Some(tls) = &self.tls {
            builder = builder.tls_config(tls.clone());
        }
        if let Some(sasl) = self.sasl().map_err(|error| error.to_string())? {
            builder = builder.sasl_config(sasl);
        }
        let failed = |error: Error| reason(&error, &self.topic);
        let client = builder.build().await.map_err(failed)?;
        let topics = client.list_topics().await.map_err(failed)?;
        let topic = topics.into_iter().find(|topic| topic.name == self.topic);
        let Some(topic) = topic.filter(|topic| !topic.partitions.is_empty()) else {
            return Err(no_topic(&self.topic));
        };
        let partitions = topic.partitions.into_iter().map(|number| {
            client.partition_client(&self.topic, number, UnknownTopicHandling::Error)
        });
        let partitions: Result<Vec<_>, Error> = join_all(partitions).await.into_iter().collect();
        Ok(Session {
            partitions: partitions.map_err(failed)?,
            bytes_max: BATCH_BYTES_MAX,
            begun: Instant::now(),
        })
    }

    /// Returns how the collector proves itself; the password's file is read again each time.
    fn sasl(&self) -> Result<Option<SaslConfig>, ClientError> {
        if self.user.is_empty() {
            return Ok(None);
        }
        let credentials = Credentials::new(self.user.clone(), read_token(&self.password)?);
        Ok(Some(match self.mechanism {
            Mechanism::Plain => SaslConfig::Plain(credentials),
            Mechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
            Mechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
        }))
    }
}

/// Gives one partition the records at `places`, batch after batch; a batch that is refused is halved until the records
/// that the broker does not take are found.
async fn produce(
    client: &PartitionClient,
    topic: &str,
    records: &[Record<'_>],
    places: &[usize],
    bytes_max: usize,
) -> Share {
    let mut share = Share::default();
    let mut batches = VecDeque::from(records::batches(records, places, bytes_max));
    while let Some(batch) = batches.pop_front() {
        let at = now();
        let of_batch = places[batch.clone()].iter();
        let made = of_batch.map(|place| record(&records[*place], at)).collect();
        let Err(error) = client.produce(made, Compression::Snappy).await else {
            share.taken.extend(&places[batch]);
            continue;
        };
        match judge(&error) {
            Verdict::Wait => {
                share.stopped = Some(reason(&error, topic));
                break;
            }
            verdict if batch.len() > 1 => {
                share.is_too_large |= verdict == Verdict::TooLarge;
                let (first, second) = halves(batch);
                batches.push_front(second);
                batches.push_front(first);
            }
            _ => {
                let place = places[batch.start];
                let bytes = records[place].value.len();
                let text = format!("{}, its value has {bytes} bytes", reason(&error, topic));
                share.refused.push((place, text));
            }
        }
    }
    share
}

fn halves(range: Range<usize>) -> (Range<usize>, Range<usize>) {
    let middle = range.start + range.len() / 2;
    (range.start..middle, middle..range.end)
}

fn record(record: &Record<'_>, timestamp: DateTime<Utc>) -> rskafka::record::Record {
    rskafka::record::Record {
        key: Some(record.key.to_vec()),
        value: Some(record.value.to_vec()),
        headers: BTreeMap::new(),
        timestamp,
    }
}

/// Returns the time of records, that of sending as with other producers: brokers keep records by it, and refuse batches
/// with one far ahead. The time of a sample is in the value.
fn now() -> DateTime<Utc> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    let at = i64::try_from(ms)
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    at.unwrap_or_default()
}

/// Consequence for a batch that a broker did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All records wait: the broker may take them later, or after an operator has done something.
    Wait,
    /// Smaller batches may pass; a record that is too large by itself stays so.
    TooLarge,
    /// Some record of the batch is invalid, and stays so.
    Invalid,
}

fn judge(error: &Error) -> Verdict {
    match protocol_error(error) {
        Some(ProtocolError::MessageTooLarge | ProtocolError::RecordListTooLarge) => {
            Verdict::TooLarge
        }
        Some(ProtocolError::InvalidRecord) => Verdict::Invalid,
        _ => Verdict::Wait,
    }
}

/// Returns the code of the broker, which may be below a retry that did not take place.
fn protocol_error(error: &Error) -> Option<ProtocolError> {
    match error {
        Error::ServerError { protocol_error, .. } => Some(*protocol_error),
        Error::RetryFailed(BackoffError::DeadlineExceded { source, .. }) => {
            protocol_error(source.downcast_ref::<Error>()?)
        }
        _ => None,
    }
}

/// Returns a text for the log: what is wrong and, where an operator can mend it, what to do.
fn reason(error: &Error, topic: &str) -> String {
    use ProtocolError as P;
    let Some(code) = protocol_error(error) else {
        return cause(error);
    };
    match code {
        P::MessageTooLarge | P::RecordListTooLarge => {
            format!("{code}: a record is larger than max.message.bytes of the topic {topic}")
        }
        P::InvalidRecord => format!("{code}: a rule of the topic {topic} forbids a record"),
        P::UnknownTopicOrPartition => no_topic(topic),
        P::TopicAuthorizationFailed | P::ClusterAuthorizationFailed => {
            format!("{code}: the user may not write; allow WRITE and DESCRIBE on the topic {topic}")
        }
        P::NotEnoughReplicas | P::NotEnoughReplicasAfterAppend => {
            format!("{code}: fewer replicas of {topic} are in sync than min.insync.replicas")
        }
        P::InvalidTimestamp => {
            format!("{code}: the clocks of broker and collector differ; set one of them")
        }
        P::UnsupportedCompressionType => format!("{code}: the brokers have to take Snappy"),
        code => format!("the broker says {code}"),
    }
}

fn no_topic(topic: &str) -> String {
    format!(
        "the topic {topic} does not exist, or the user may not see it; create it with kafka-topics.sh --create --topic \
         {topic}, or allow WRITE and DESCRIBE on it"
    )
}

/// Returns the innermost text of an error that no broker sent, without what the library tells of its retries.
fn cause(error: &Error) -> String {
    let inner = match error {
        Error::RetryFailed(BackoffError::DeadlineExceded { source, .. }) => source.to_string(),
        Error::Connection(rskafka::ConnectionError::RetryFailed(
            BackoffError::DeadlineExceded { source, .. },
        )) => source.to_string(),
        error => error.to_string(),
    };
    format!("cannot reach the brokers: {inner}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_server(protocol_error: ProtocolError) -> Error {
        Error::ServerError {
            protocol_error,
            error_message: None,
            request: rskafka::client::error::RequestContext::Topic("t".to_owned()),
            response: None,
            is_virtual: false,
        }
    }

    #[test]
    fn only_records_that_are_wrong_for_ever_are_refused() {
        use ProtocolError as P;
        for (code, verdict, word) in [
            (P::MessageTooLarge, Verdict::TooLarge, "max.message.bytes"),
            (
                P::RecordListTooLarge,
                Verdict::TooLarge,
                "max.message.bytes",
            ),
            (P::InvalidRecord, Verdict::Invalid, "forbids"),
            (
                P::UnknownTopicOrPartition,
                Verdict::Wait,
                "kafka-topics.sh --create",
            ),
            (P::TopicAuthorizationFailed, Verdict::Wait, "WRITE"),
            (P::NotEnoughReplicas, Verdict::Wait, "min.insync.replicas"),
            (P::InvalidTimestamp, Verdict::Wait, "clocks"),
            (P::UnsupportedCompressionType, Verdict::Wait, "Snappy"),
            (P::KafkaStorageError, Verdict::Wait, "KafkaStorageError"),
        ] {
            let error = of_server(code);
            assert_eq!(judge(&error), verdict, "{code}");
            assert!(
                reason(&error, "t").contains(word),
                "{}",
                reason(&error, "t")
            );
            let retried = Error::RetryFailed(BackoffError::DeadlineExceded {
                deadline: Duration::ZERO,
                source: Box::new(of_server(code)),
            });
            assert_eq!(judge(&retried), verdict, "{code}");
        }
        let broken = Error::InvalidResponse("cut".to_owned());
        assert_eq!(judge(&broken), Verdict::Wait);
        assert!(reason(&broken, "t").contains("cut"));
    }

    #[test]
    fn halves_are_the_whole() {
        assert_eq!(halves(3..5), (3..4, 4..5));
        assert_eq!(halves(0..7), (0..3, 3..7));
    }
}
