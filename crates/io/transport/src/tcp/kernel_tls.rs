//! Records that the kernel protects (kTLS): the system calls.
//!
//! A session gives the keys of a direction to its socket. From then on plain bytes go in and come out of the system
//! calls, and the kernel, or a network card that can, makes and opens the records. The kernel encrypts from where the
//! payload lies and decrypts to where it is read to: a copy less in each direction
//! (docs/adr/2026-11-30-the-kernel-protects-records-where-it-can.md). Source: Linux,
//! `Documentation/networking/tls.rst`.

#![expect(
    unsafe_code,
    reason = "keys of a socket, and types of records, have no safe interface"
)]

use crate::transport::TlsFailure;
use rustix::io::Errno;
use rustls::{ConnectionTrafficSecrets, ContentType};
use std::io::{self, IoSliceMut};
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd};

/// Constants of the Linux headers, which `libc` lacks.
const TLS_TX: libc::c_int = 1;
const TLS_RX: libc::c_int = 2;
const TLS_RX_EXPECT_NO_PAD: libc::c_int = 4;
const TLS_SET_RECORD_TYPE: libc::c_int = 1;
const TLS_GET_RECORD_TYPE: libc::c_int = 2;
const TLS_1_3_VERSION: u16 = 0x0304;
const TLS_CIPHER_AES_GCM_128: u16 = 51;
const TLS_CIPHER_AES_GCM_256: u16 = 52;
const TLS_CIPHER_CHACHA20_POLY1305: u16 = 54;

/// Bytes that the kernel may hold back, as records that the send buffer had no room for: one that is sent in part, and
/// one behind it. With their overhead in the buffer, and as much again.
const HELD_BACK_MAX: u32 = 128 << 10;

/// Smallest send buffer of a socket that gets keys to send: what is held back fits it.
const SEND_BUFFER_MIN: u32 = 64 << 10;

/// Direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Send,
    Receive,
}

/// Memory of a socket for what it sends, in bytes.
#[derive(Clone, Copy, Debug)]
struct SendBuffer {
    most: u32,
    queued: u32,
}

impl SendBuffer {
    fn of(socket: impl AsFd) -> io::Result<Self> {
        // Index of each number in the result (`linux/sock_diag.h`).
        const SNDBUF: usize = 3;
        const WMEM_QUEUED: usize = 5;
        let mut numbers = [0_u32; 9];
        let mut bytes = libc::socklen_t::try_from(size_of_val(&numbers)).expect("a few bytes");
        // SAFETY: the kernel writes as many bytes as `numbers` has at most, and says in `bytes` how many.
        let got = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                numbers.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        match got {
            0 => Ok(Self {
                most: numbers[SNDBUF],
                queued: numbers[WMEM_QUEUED],
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns whether records that the kernel has made and holds back go into the send buffer of `socket` with the next
/// one that is sent. Behind that nothing is lost if the socket is shut or closed.
pub(super) fn takes_held_back(socket: impl AsFd) -> io::Result<bool> {
    let SendBuffer { most, queued } = SendBuffer::of(socket)?;
    Ok(queued == 0 || most.saturating_sub(queued) >= HELD_BACK_MAX)
}

/// Returns whether the send buffer of `socket` is large enough for records of the kernel.
pub(super) fn is_large_enough(socket: impl AsFd) -> bool {
    SendBuffer::of(socket).is_ok_and(|buffer| buffer.most >= SEND_BUFFER_MIN)
}

/// Makes `socket`, which is connected, ready to be given keys. What it sends and receives is as before until then.
pub(super) fn prepare(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_TCP, libc::TCP_ULP, b"tls")
}

/// Gives the keys of one direction to the kernel, whose next record has the number `sequence`.
pub(super) fn give(
    socket: impl AsFd,
    way: Way,
    sequence: u64,
    secrets: &ConnectionTrafficSecrets,
) -> io::Result<()> {
    let (cipher, key, iv, salt_bytes) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (TLS_CIPHER_AES_GCM_128, key, iv, 4),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (TLS_CIPHER_AES_GCM_256, key, iv, 4),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (TLS_CIPHER_CHACHA20_POLY1305, key, iv, 0)
        }
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    // The structures `tls12_crypto_info_*`: all of their fields but the first two are bytes.
    let (salt, iv) = iv.as_ref().split_at(salt_bytes);
    let mut info = [
        &TLS_1_3_VERSION.to_ne_bytes()[..],
        &cipher.to_ne_bytes(),
        iv,
        key.as_ref(),
        salt,
        &sequence.to_be_bytes(),
    ]
    .concat();
    let name = match way {
        Way::Send => TLS_TX,
        Way::Receive => TLS_RX,
    };
    let given = set(&socket, libc::SOL_TLS, name, &info);
    info.fill(0);
    given?;
    if way == Way::Receive {
        // Records without padding are decrypted where they are wanted. A kernel before 6.0 copies them.
        let _ = set(
            &socket,
            libc::SOL_TLS,
            TLS_RX_EXPECT_NO_PAD,
            &1_i32.to_ne_bytes(),
        );
    }
    Ok(())
}

fn set(socket: impl AsFd, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `value` has, which lives as long as the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            libc::socklen_t::try_from(value.len()).expect("a few bytes"),
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A control message with the type of a record.
#[repr(C)]
struct Control {
    head: libc::cmsghdr,
    kind: u8,
    padding: [u8; 7],
}

impl Control {
    fn zero() -> Self {
        // SAFETY: all of its fields are numbers.
        unsafe { zeroed() }
    }
}

/// Sends `content` as a record of `kind` that is not data: all of it, or none.
pub(super) fn send_record(socket: impl AsFd, kind: ContentType, content: &[u8]) -> io::Result<()> {
    let mut control = Control::zero();
    control.head.cmsg_level = libc::SOL_TLS;
    control.head.cmsg_type = TLS_SET_RECORD_TYPE;
    // Numbers of another width with musl.
    control.head.cmsg_len = (size_of::<libc::cmsghdr>() + 1) as _;
    control.kind = kind.into();
    let mut piece = libc::iovec {
        iov_base: content.as_ptr().cast_mut().cast(),
        iov_len: content.len(),
    };
    // SAFETY: all zero is a message header without name, data and control.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the header names `content` and `control`, with their lengths; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    match sent {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Plain bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) bytes: usize,
    /// Type of the records; `None` at the end of the stream.
    pub(super) kind: Option<ContentType>,
}

/// Receives plain bytes into `places`, of whole records and of one type.
pub(super) fn receive(socket: impl AsFd, places: &mut [IoSliceMut<'_>]) -> io::Result<Received> {
    let mut control = Control::zero();
    // SAFETY: all zero is a message header without name, data and control.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = places.as_mut_ptr().cast();
    message.msg_iovlen = places.len() as _;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `IoSliceMut` is laid out as `iovec`; the header names `places` and `control`, with their lengths.
    let received = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) };
    let Ok(bytes) = usize::try_from(received) else {
        return Err(io::Error::last_os_error());
    };
    let (level, kind) = (control.head.cmsg_level, control.head.cmsg_type);
    let is_typed =
        message.msg_controllen > 0 && (level, kind) == (libc::SOL_TLS, TLS_GET_RECORD_TYPE);
    Ok(Received {
        bytes,
        kind: is_typed.then(|| ContentType::from(control.kind)),
    })
}

/// Returns what an error of a socket says about the records of the peer; `None` for all others.
pub(super) fn failure(error: &io::Error) -> Option<TlsFailure> {
    let text = match Errno::from_io_error(error)? {
        Errno::BADMSG => "a record that cannot be decrypted",
        Errno::MSGSIZE => "a record that is too long",
        Errno::INVAL => "bytes that are no record of TLS 1.3",
        Errno::KEYEXPIRED => "a record behind a change of keys without new ones",
        _ => return None,
    };
    Some(TlsFailure::Protocol(text.to_owned()))
}
