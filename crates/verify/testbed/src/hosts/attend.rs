//! A node of an experiment on another machine: the process that attends it there, and the orders to it.
//!
//! `sheaf lab attend WORDS` runs there, at the end of an `ssh`, and starts `sheaf WORDS`. Its input has an order a
//! line: the name of a signal for the node, or nothing. When its input ends, or stays silent too long, the process that
//! began the experiment is gone: it kills the node. So no node outlives its experiment, whatever happens to that, to
//! the `ssh` or to the network between.

use crate::IoError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Interval of the signs of life to the other end.
const WORD_EVERY: Duration = Duration::from_secs(1);
/// Silence after which the near end counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Orders under way to a host: more than an experiment ever gives at once.
const ORDERS_MAX: usize = 16;

/// Signals by their names in an order.
const SIGNALS: [(&str, Signal); 4] = [
    ("term", Signal::TERM),
    ("kill", Signal::KILL),
    ("stop", Signal::STOP),
    ("cont", Signal::CONT),
];

/// The near end: gives orders. When it is dropped, the node is killed.
#[derive(Debug)]
pub struct Orders(SyncSender<&'static str>);

impl Orders {
    /// Gives orders through `input`, and sends signs of life all the time.
    pub fn through(mut input: ChildStdin) -> Self {
        let (orders, given) = sync_channel(ORDERS_MAX);
        std::thread::spawn(move || {
            loop {
                let order = match given.recv_timeout(WORD_EVERY) {
                    Ok(order) => order,
                    Err(RecvTimeoutError::Timeout) => "",
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                // The other end is gone when it does not read any more; who waits for the process sees it.
                if writeln!(input, "{order}")
                    .and_then(|()| input.flush())
                    .is_err()
                {
                    return;
                }
            }
        });
        Self(orders)
    }

    /// Sends a signal; whether it is under way.
    pub fn send(&self, signal: Signal) -> bool {
        let name = SIGNALS.iter().find(|(_, known)| *known == signal);
        name.is_some_and(|(name, _)| self.0.try_send(name).is_ok())
    }
}

/// The far end: runs `sheaf WORDS` until it ends, or until the near end is gone. Returns the exit status, as a shell
/// would.
///
/// # Errors
///
/// What starting a process gives.
pub fn attend(words: &[String]) -> Result<u8, IoError> {
    let mut command = Command::new(crate::tool::program()?);
    command
        .args(words)
        .arg("--parent")
        .arg(std::process::id().to_string())
        .process_group(0);
    attend_to(command, std::io::stdin(), SILENCE_MAX)
}

fn attend_to(mut command: Command, input: impl AsFd, silence_max: Duration) -> Result<u8, IoError> {
    command.stdin(Stdio::null());
    let mut child = command.spawn().map_err(IoError::of("start the node"))?;
    let outcome = obey(&child, &input, silence_max);
    if !matches!(outcome, Ok(true)) {
        // It is not reaped yet, so the id is still its own.
        let _ = child.kill();
    }
    let status = child.wait().map_err(IoError::of("wait for the node"))?;
    outcome.map(|_| code(status))
}

/// Carries out what stands in `input`. `true`: the node has ended; `false`: the near end is gone.
fn obey(child: &Child, input: &impl AsFd, silence_max: Duration) -> Result<bool, IoError> {
    let failed = |error: Errno| IoError::of("look after the node")(error.into());
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(failed)?;
    let patience = Timespec::try_from(silence_max).expect("a few seconds");
    let mut line = String::new();
    loop {
        let mut waiting = [
            PollFd::new(&process, PollFlags::IN),
            PollFd::new(input, PollFlags::IN),
        ];
        match poll(&mut waiting, Some(&patience)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(failed(error)),
        }
        if !waiting[0].revents().is_empty() {
            return Ok(true);
        }
        // Without a buffer behind it: what stood in one would not wake the poll.
        let mut bytes = [0; 64];
        let count = rustix::io::read(input, &mut bytes).map_err(failed)?;
        if count == 0 {
            return Ok(false);
        }
        for byte in &bytes[..count] {
            if *byte != b'\n' {
                // No order is as long; another line is none.
                line.truncate(bytes.len());
                line.push(char::from(*byte));
                continue;
            }
            let order = std::mem::take(&mut line);
            if let Some((_, signal)) = SIGNALS.iter().find(|(name, _)| *name == order) {
                // It may have ended this moment.
                let _ = pidfd_send_signal(&process, *signal);
            }
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let of_signal = || 128 + status.signal().unwrap_or(0);
    u8::try_from(status.code().unwrap_or_else(of_signal)).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;

    /// Looks after `script` with `orders`, after which the input ends, or stays open and silent.
    fn check(script: &str, orders: &str, ends: bool) -> u8 {
        let (input, mut far) = pipe().unwrap();
        far.write_all(orders.as_bytes()).unwrap();
        let open = (!ends).then_some(far);
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let code = attend_to(command, input, Duration::from_millis(300)).unwrap();
        drop(open);
        code
    }

    #[test]
    fn a_node_ends_by_itself_by_order_or_when_nobody_is_there() {
        let forever = "exec tail -f /dev/null";
        assert_eq!(check("exit 7", "", false), 7);
        assert_eq!(check(forever, "\n\nterm\n", false), 143);
        assert_eq!(check(forever, "stop\nkill\n", false), 137);
        assert_eq!(check(forever, "\nstop\n", true), 137, "the input has ended");
        assert_eq!(
            check(forever, "\nreboot\n", false),
            137,
            "the near end is gone"
        );
    }

    #[test]
    fn orders_reach_the_far_end_and_end_with_the_near_one() {
        let mut far = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = Orders::through(far.stdin.take().unwrap());
        assert!(orders.send(Signal::TERM) && orders.send(Signal::KILL));
        assert!(!orders.send(Signal::USR1), "the signal is unknown there");
        drop(orders);
        let said = far.wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(said).unwrap(), "term\nkill\n");
    }
}
