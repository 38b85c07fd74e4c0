//! The crate `zeromq`: PUSH to PULL, messages sent from the pool without a copy.
//!
//! What is sent is shared and cannot be written any more, so stamps stand in the pool from the start: they have
//! the number of the slot and no time. The receiver counts the laps; it times nothing.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Parser;
use peer_harness::{Args, Layout, Role, Run, STAMP_BYTES, Stamp, fill};
use std::collections::VecDeque;
use std::time::Duration;
use zeromq::{PullSocket, PushSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// Time that a receiver waits before it checks for a request to stop.
const WAIT: Duration = Duration::from_millis(50);
/// How long the library may take to send what is queued.
const LINGER: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let args = Cli::parse().args;
    args.check()?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run(&args))
}

async fn run(args: &Args) -> Result<()> {
    let run = match args.role {
        Role::Send => {
            let pool = pool(args);
            let mut socket = PushSocket::new();
            join(args, &mut socket).await?;
            send(args, Run::ready(args)?, &mut socket, &pool).await?
        }
        Role::Receive => {
            let mut socket = PullSocket::new();
            join(args, &mut socket).await?;
            receive(args, Run::ready(args)?, &mut socket).await?
        }
    };
    run.finish("zeromq 0.7.0", None)
}

/// The library has no settable bound of its queues.
async fn join(args: &Args, socket: &mut impl Socket) -> Result<()> {
    if let Some(address) = args.bind {
        socket.bind(&format!("tcp://{address}")).await?;
    }
    for address in &args.connect {
        socket.connect(&format!("tcp://{address}")).await?;
    }
    Ok(())
}

/// The pool, with a stamp in each slot.
fn pool(args: &Args) -> Bytes {
    let mut pool = vec![0; args.pool_bytes];
    fill(&mut pool);
    let layout = Layout::new(args.bytes, args.pool_bytes);
    for sequence in 0..layout.slots() {
        let stamp = Stamp {
            sender: args.id,
            sequence,
            sent_ns: 0,
        };
        let at = layout.offset(sequence);
        pool[at..at + STAMP_BYTES].copy_from_slice(&stamp.encode());
    }
    Bytes::from(pool)
}

async fn send(args: &Args, mut run: Run, socket: &mut PushSocket, pool: &Bytes) -> Result<Run> {
    let layout = Layout::new(args.bytes, args.pool_bytes);
    run.wait_go();
    while !run.is_stopping() {
        let from = layout.offset(run.next_stamp().sequence);
        let message = ZmqMessage::from(pool.slice(from..from + args.bytes));
        // A sender that is asked to stop does not wait for a place in the queue.
        match tokio::time::timeout(LINGER, socket.send(message)).await {
            Ok(sent) => sent?,
            Err(_) => continue,
        }
        run.sent();
    }
    tokio::time::sleep(LINGER).await;
    Ok(run)
}

async fn receive(args: &Args, mut run: Run, socket: &mut PullSocket) -> Result<Run> {
    let mut laps = Laps::new(args);
    let mut held = VecDeque::with_capacity(args.held_max() + 1);
    loop {
        match tokio::time::timeout(WAIT, socket.recv()).await {
            Ok(message) => {
                let message = message?;
                let data = message.get(0).context("an empty message came")?;
                run.received(&laps.stamp(data)?, data.len(), data.last())?;
                held.push_back(message);
                if held.len() > args.held_max() {
                    held.pop_front();
                }
            }
            Err(_) if run.is_over() => break,
            Err(_) => {}
        }
    }
    Ok(run)
}

/// The next sequence number of each sender, to know the lap of a slot.
struct Laps {
    slots: u64,
    next: Vec<u64>,
}

impl Laps {
    fn new(args: &Args) -> Self {
        let slots = Layout::new(args.bytes, args.pool_bytes).slots();
        Self {
            slots,
            next: vec![0; args.peers],
        }
    }

    /// The stamp of `data` with its whole sequence number.
    fn stamp(&mut self, data: &[u8]) -> Result<[u8; STAMP_BYTES]> {
        let stamp = Stamp::decode(data).context("a message without a stamp came")?;
        let next = self
            .next
            .get_mut(usize::from(stamp.sender))
            .context("an unknown sender")?;
        let ahead = (stamp.sequence + self.slots - *next % self.slots) % self.slots;
        let sequence = *next + ahead;
        *next = sequence + 1;
        Ok(Stamp { sequence, ..stamp }.encode())
    }
}
