//! A session with a real ensemble, in a thread of its own.
//!
//! The client library is asynchronous, so the thread runs a small runtime; nothing of that is seen outside. The
//! caller submits requests and is notified of events by a waker, and waits for neither.

use crate::Waker;
use crate::keeper::{Answer, Keeper, KeeperError, KeeperEvent, Kind, Request, Step, Ticket};
use crate::options::{OptionsError, ZooKeeperOptions};
use crate::probe;
use crate::tunnel::{Failures, Tunnel};
use sheaf_protocol::Timestamp;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};
use zookeeper_client as zk;

/// Requests that wait to be sent. More are lost, as with a broken connection.
const REQUESTS_MAX: usize = 65_536;

/// How long the end of this value waits for the session to be closed in order.
const PATIENCE: Duration = Duration::from_millis(500);

/// Pause between two attempts to begin a session.
const AGAIN: Duration = Duration::from_millis(100);

/// A [`Keeper`] with sockets. Dropped, it ends its session in order, if that takes less than half a second.
#[derive(Debug)]
pub struct Live {
    commands: Sender<Command>,
    shared: Arc<Shared>,
    last: u64,
    /// Session that the caller knows of; 0: none.
    session: i64,
}

/// Lets a frozen [`Live`] go on when it is dropped.
#[derive(Debug)]
pub struct Thaw {
    _until: std::sync::mpsc::SyncSender<()>,
}

struct Shared {
    state: Mutex<State>,
    ended: Condvar,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<KeeperEvent>,
    has_ended: bool,
}

#[derive(Debug)]
enum Command {
    /// A request, and the session that it was made in.
    Ask(Ticket, i64, Request),
    Freeze(std::sync::mpsc::Receiver<()>),
    /// The end, and whether the session is closed first.
    End {
        in_order: bool,
    },
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Live {
    /// Starts the thread, which begins a session and keeps it up for ever.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] if an option cannot be used or there is no thread to be had.
    pub fn start(options: &ZooKeeperOptions, waker: Waker) -> Result<Self, OptionsError> {
        options.check_servers()?;
        let tunnel = options
            .tls
            .as_ref()
            // The reason is to be known before the client gives up.
            .map(|tls| Tunnel::open(&options.servers, tls, options.session * 3 / 4))
            .transpose()?;
        let servers = options.servers.join(",");
        let session = Session {
            connector: options.connector(),
            acls: options.acls(),
            connect_to: match &tunnel {
                Some(tunnel) => tunnel.addresses().collect::<Vec<_>>().join(","),
                None => servers.clone(),
            },
            failures: tunnel.as_ref().map(Tunnel::failures),
            other_tasks: tunnel.as_ref().map_or(0, Tunnel::tasks),
            patience: options.session,
            named: options.servers.clone(),
            servers,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (commands, requests) = channel(REQUESTS_MAX);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            ended: Condvar::new(),
            waker,
        });
        let ends = Ends(shared.clone());
        std::thread::Builder::new()
            .name("zookeeper".into())
            .spawn(move || {
                let ends = ends;
                runtime.block_on(async {
                    let tunnel = async {
                        match tunnel {
                            Some(tunnel) => tunnel.run().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = session.keep_up(&ends.0, requests) => {}
                        () = tunnel => {}
                    }
                });
                runtime.shutdown_background();
            })?;
        Ok(Self {
            commands,
            shared,
            last: 0,
            session: 0,
        })
    }

    /// Ends as a process that is killed: nothing is said, and the session is left to run out. For tests and the lab.
    pub fn vanish(self) {
        let _ = self.commands.try_send(Command::End { in_order: false });
    }

    /// Stops the thread as SIGSTOP would, until the answer is dropped. For tests and the lab.
    #[must_use]
    pub fn freeze(&self) -> Thaw {
        let (until, thawed) = std::sync::mpsc::sync_channel(0);
        let _ = self.commands.try_send(Command::Freeze(thawed));
        Thaw { _until: until }
    }
}

impl Keeper for Live {
    fn submit(&mut self, _now: Timestamp, request: Request) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        if self
            .commands
            .try_send(Command::Ask(ticket, self.session, request))
            .is_err()
        {
            let lost = KeeperEvent::Answer(ticket, Err(KeeperError::Lost));
            self.shared.lock().events.push_back(lost);
        }
        ticket
    }

    fn poll(&mut self, _now: Timestamp) -> Option<KeeperEvent> {
        let event = self.shared.lock().events.pop_front();
        match event {
            Some(KeeperEvent::Connected { session, .. }) => self.session = session,
            Some(KeeperEvent::Expired) => self.session = 0,
            _ => {}
        }
        event
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.commands.try_send(Command::End { in_order: true });
        let state = self.shared.lock();
        let wait = self
            .shared
            .ended
            .wait_timeout_while(state, PATIENCE, |state| !state.has_ended);
        drop(wait);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, event: KeeperEvent) {
        self.lock().events.push_back(event);
        (self.waker)();
    }
}

/// Says that the thread has ended, also when it panics: then no caller waits for a session that has ended.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.ended.notify_all();
        let why = "the thread for ZooKeeper has ended".to_owned();
        self.0.notify(KeeperEvent::Away { why });
    }
}

struct Session {
    connector: zk::Connector,
    acls: zk::Acls<'static>,
    /// The servers, for people.
    servers: String,
    /// The same, each.
    named: Vec<String>,
    /// Time that a server has to answer.
    patience: Duration,
    /// The servers in the form of the client, or the ports of the tunnel to them.
    connect_to: String,
    /// Failures of the tunnel, if there is one.
    failures: Option<Failures>,
    /// Tasks of the runtime beside the client's.
    other_tasks: usize,
}

type Outcome = Result<(Answer, Option<zk::OneshotWatcher>), KeeperError>;

/// A request that was sent. Answers come in the order of the requests, so only the first is looked at.
enum Asked {
    Waiting(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    Answered(Outcome),
}

/// Why a session is left.
enum Left {
    /// Ended, and a new session is wanted.
    Expired,
    /// This value was dropped.
    Ended,
}

impl Session {
    async fn keep_up(&self, shared: &Shared, mut commands: Receiver<Command>) {
        let mut said = String::new();
        loop {
            let connect = self.connector.clone().connect(&self.connect_to);
            let mut connect = std::pin::pin!(connect);
            let connected = loop {
                tokio::select! {
                    connected = &mut connect => break connected,
                    command = commands.recv() => if self.is_over(shared, command) { return },
                }
            };
            match connected {
                Ok(client) => {
                    said.clear();
                    if matches!(self.serve(shared, &mut commands, client).await, Left::Ended) {
                        return;
                    }
                }
                Err(error) => {
                    let error = self.cause(&error).await;
                    // Once for each reason; the attempts go on.
                    if said != error {
                        let why = format!("no session with {}: {error}", self.servers);
                        warn!(servers = self.servers, error, "No session with ZooKeeper");
                        said = error;
                        shared.notify(KeeperEvent::Away { why });
                    }
                    let mut again = std::pin::pin!(tokio::time::sleep(AGAIN));
                    loop {
                        tokio::select! {
                            () = &mut again => break,
                            command = commands.recv() => if self.is_over(shared, command) { return },
                        }
                    }
                }
            }
        }
    }

    /// Returns why there is no session. The client says that time is over, whatever answers at the port.
    async fn cause(&self, error: &zk::Error) -> String {
        let cause = match &self.failures {
            Some(failures) => failures.last(),
            None => probe::cause(&self.named, self.patience).await,
        };
        cause.unwrap_or_else(|| error.to_string())
    }

    /// A command while there is no session; whether it is the end.
    fn is_over(&self, shared: &Shared, command: Option<Command>) -> bool {
        match command {
            None | Some(Command::End { .. }) => return true,
            Some(Command::Freeze(until)) => freeze(&until),
            Some(Command::Ask(ticket, ..)) => {
                shared.notify(KeeperEvent::Answer(ticket, Err(KeeperError::Lost)));
            }
        }
        false
    }

    async fn serve(
        &self,
        shared: &Shared,
        commands: &mut Receiver<Command>,
        client: zk::Client,
    ) -> Left {
        let mut states = client.state_watcher();
        let timeout = client.session_timeout();
        let session = client.session_id().0;
        info!(session, ?timeout, "Session with ZooKeeper");
        let connected = KeeperEvent::Connected { session, timeout };
        shared.notify(connected.clone());
        let mut asked: VecDeque<(Ticket, Asked)> = VecDeque::new();
        let mut watches: JoinSet<zk::WatchedEvent> = JoinSet::new();
        loop {
            tokio::select! {
                // Answers before the state: what is known is said before it counts as lost.
                biased;
                (ticket, outcome) = first(&mut asked), if !asked.is_empty() => {
                    let answer = outcome.map(|(answer, watcher)| {
                        if let Some(watcher) = watcher {
                            watches.spawn(watcher.changed());
                        }
                        answer
                    });
                    shared.notify(KeeperEvent::Answer(ticket, answer));
                }
                Some(fired) = watches.join_next(), if !watches.is_empty() => {
                    if let Ok(event) = fired
                        && event.event_type != zk::EventType::Session
                    {
                        shared.notify(KeeperEvent::Changed { path: event.path });
                    }
                }
                state = states.changed() => {
                    debug!(session, %state, "State of the session with ZooKeeper");
                    match state {
                        zk::SessionState::SyncConnected | zk::SessionState::ConnectedReadOnly => {
                            shared.notify(connected.clone());
                        }
                        zk::SessionState::Disconnected => {
                            let why = format!("no answer from {}", self.servers);
                            shared.notify(KeeperEvent::Away { why });
                        }
                        _ => {
                            while !asked.is_empty() {
                                let (ticket, outcome) = first(&mut asked).await;
                                let answer = outcome.map(|(answer, _)| answer);
                                shared.notify(KeeperEvent::Answer(ticket, answer));
                            }
                            info!(session, %state, "The session with ZooKeeper is over");
                            let why = format!("the session is over: {state}");
                            shared.notify(KeeperEvent::Away { why });
                            shared.notify(KeeperEvent::Expired);
                            return Left::Expired;
                        }
                    }
                }
                command = commands.recv() => match command {
                    Some(Command::Ask(ticket, of, _)) if of != session => {
                        let lost = Err(KeeperError::Lost);
                        shared.notify(KeeperEvent::Answer(ticket, lost));
                    }
                    Some(Command::Ask(ticket, _, request)) => {
                        let future = Box::pin(carry_out(client.clone(), self.acls, request));
                        asked.push_back((ticket, send(future).await));
                    }
                    Some(Command::Freeze(until)) => freeze(&until),
                    Some(Command::End { in_order: false }) => return Left::Ended,
                    None | Some(Command::End { in_order: true }) => {
                        let answered = async {
                            while !asked.is_empty() {
                                let _ = first(&mut asked).await;
                            }
                        };
                        let _ = tokio::time::timeout(PATIENCE / 2, answered).await;
                        drop((client, asked, watches, states));
                        close(self.other_tasks).await;
                        return Left::Ended;
                    }
                },
            }
        }
    }
}

/// Waits for the client's own task to close the session: it does so when the last handle is dropped, and then ends. The
/// `others` are tasks that go on.
async fn close(others: usize) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let closed = async {
        while metrics.num_alive_tasks() > others {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE / 2, closed).await;
}

fn freeze(until: &std::sync::mpsc::Receiver<()>) {
    let _ = until.recv();
}

/// Polls a request once: that sends it, so requests go out in the order in which they were made.
async fn send(mut future: Pin<Box<dyn Future<Output = Outcome> + Send>>) -> Asked {
    let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    match first {
        Poll::Ready(outcome) => Asked::Answered(outcome),
        Poll::Pending => Asked::Waiting(future),
    }
}

/// The outcome of the first request. Nothing is lost if this is dropped while it waits.
async fn first(asked: &mut VecDeque<(Ticket, Asked)>) -> (Ticket, Outcome) {
    let outcome = poll_fn(|context| match asked.front_mut() {
        Some((_, Asked::Waiting(future))) => future.as_mut().poll(context),
        // Taken below, without a wait in between.
        Some((_, Asked::Answered(_))) => Poll::Ready(Err(KeeperError::Lost)),
        None => Poll::Pending,
    })
    .await;
    match asked.pop_front() {
        Some((ticket, Asked::Answered(answered))) => (ticket, answered),
        Some((ticket, Asked::Waiting(_))) => (ticket, outcome),
        None => std::future::pending().await,
    }
}

async fn carry_out(client: zk::Client, acls: zk::Acls<'static>, request: Request) -> Outcome {
    let answer = match request {
        Request::Create { path, data, kind } => {
            let options = mode(kind).with_acls(acls_of(kind, acls));
            let (_, sequence) = client
                .create(&path, &data, &options)
                .await
                .map_err(as_error)?;
            let path = match kind {
                Kind::EphemeralSequential => format!("{path}{sequence}"),
                Kind::Persistent | Kind::Shared | Kind::Ephemeral => path,
            };
            Answer::Created { path }
        }
        Request::Get { path, watch: false } => {
            let (data, stat) = client.get_data(&path).await.map_err(as_error)?;
            data_of(data, &stat)
        }
        Request::Get { path, watch: true } => {
            let (data, stat, watcher) = client.get_and_watch_data(&path).await.map_err(as_error)?;
            return Ok((data_of(data, &stat), Some(watcher)));
        }
        Request::Exists { path, watch: false } => {
            let stat = client.check_stat(&path).await.map_err(as_error)?;
            Answer::Exists(stat.is_some())
        }
        Request::Exists { path, watch: true } => {
            let (stat, watcher) = client.check_and_watch_stat(&path).await.map_err(as_error)?;
            return Ok((Answer::Exists(stat.is_some()), Some(watcher)));
        }
        Request::List { path, watch: false } => {
            Answer::Children(client.list_children(&path).await.map_err(as_error)?)
        }
        Request::List { path, watch: true } => {
            let (names, watcher) = client
                .list_and_watch_children(&path)
                .await
                .map_err(as_error)?;
            return Ok((Answer::Children(names), Some(watcher)));
        }
        Request::Set {
            path,
            data,
            version,
        } => {
            let stat = client
                .set_data(&path, &data, version)
                .await
                .map_err(as_error)?;
            Answer::Version(stat.version)
        }
        Request::Delete { path, version } => {
            client.delete(&path, version).await.map_err(as_error)?;
            Answer::Done
        }
        Request::Multi(steps) => {
            let mut writer = client.new_multi_writer();
            for step in &steps {
                match step {
                    Step::Check { path, version } => {
                        writer.add_check_version(path, version.unwrap_or(-1))
                    }
                    Step::Create { path, data, kind } => {
                        let acls = acls_of(*kind, acls);
                        writer.add_create(path, data, &mode(*kind).with_acls(acls))
                    }
                    Step::Delete { path, version } => writer.add_delete(path, *version),
                }
                .map_err(as_error)?;
            }
            writer.commit().await.map_err(|error| match error {
                zk::MultiWriteError::RequestFailed { source } => as_error(source),
                zk::MultiWriteError::OperationFailed { index, source } => {
                    KeeperError::Step(index, Box::new(as_error(source)))
                }
            })?;
            Answer::Done
        }
    };
    Ok((answer, None))
}

fn data_of(data: Vec<u8>, stat: &zk::Stat) -> Answer {
    Answer::Data {
        data,
        version: stat.version,
        owner: stat.ephemeral_owner,
    }
}

/// Returns the rights on a node of this kind, where those on the farm's own nodes are `own`.
fn acls_of(kind: Kind, own: zk::Acls<'static>) -> zk::Acls<'static> {
    match kind {
        Kind::Shared => zk::Acls::anyone_all(),
        Kind::Persistent | Kind::Ephemeral | Kind::EphemeralSequential => own,
    }
}

fn mode(kind: Kind) -> zk::CreateMode {
    match kind {
        Kind::Persistent | Kind::Shared => zk::CreateMode::Persistent,
        Kind::Ephemeral => zk::CreateMode::Ephemeral,
        Kind::EphemeralSequential => zk::CreateMode::EphemeralSequential,
    }
}

/// Returns whether the outcome is unknown: any error but a server's plain refusal.
#[expect(
    clippy::needless_pass_by_value,
    reason = "stands where `map_err` passes the error"
)]
fn as_error(error: zk::Error) -> KeeperError {
    use zk::Error;
    match error {
        Error::NoNode => KeeperError::NoNode,
        Error::NodeExists => KeeperError::NodeExists,
        Error::BadVersion => KeeperError::BadVersion,
        Error::NotEmpty => KeeperError::NotEmpty,
        Error::NoAuth => KeeperError::NoAuth,
        Error::SessionExpired | Error::SessionMoved | Error::AuthFailed | Error::ClientClosed => {
            KeeperError::Expired
        }
        Error::BadArguments(_)
        | Error::NoChildrenForEphemerals
        | Error::InvalidAcl
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::Throttled
        | Error::MarshallingError
        | Error::Unimplemented
        | Error::ReconfigDisabled
        | Error::RuntimeInconsistent
        | Error::UnexpectedErrorCode(_) => KeeperError::Other(error.to_string()),
        _ => KeeperError::Lost,
    }
}
