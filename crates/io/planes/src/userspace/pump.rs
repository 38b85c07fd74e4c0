//! Bytes of a connection, both ways, through pipes of the kernel.

use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Bytes of a pipe, if the system allows that many.
const PIPE_BYTES: usize = 1 << 20;

/// Carries bytes both ways until both sides have closed, or one fails. Bytes to the server are counted.
pub(super) async fn both(
    client: &TcpStream,
    server: &TcpStream,
    to_server: &AtomicU64,
) -> io::Result<()> {
    let up = one_way(client, server, Some(to_server));
    let down = one_way(server, client, None);
    tokio::try_join!(up, down).map(drop)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let _ = fcntl_setpipe_size(&write, PIPE_BYTES); // The pipes of a user are bounded; a small one does as well.
    Ok((read, write))
}

async fn one_way(from: &TcpStream, to: &TcpStream, count: Option<&AtomicU64>) -> io::Result<()> {
    let (read, write) = pipe()?;
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    loop {
        // The pipe is empty here, so "would block" speaks of the socket.
        let taken = from
            .async_io(Interest::READABLE, || {
                Ok(splice(from, None, &write, None, PIPE_BYTES, flags)?)
            })
            .await?;
        if taken == 0 {
            let shutdown = socket2::SockRef::from(to).shutdown(std::net::Shutdown::Write);
            return match shutdown {
                Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
                _ => Ok(()),
            };
        }
        if let Some(count) = count {
            count.fetch_add(taken as u64, Ordering::Relaxed);
        }
        let mut left = taken;
        while left > 0 {
            left -= to
                .async_io(Interest::WRITABLE, || {
                    Ok(splice(&read, None, to, None, left, flags)?)
                })
                .await?;
        }
    }
}
