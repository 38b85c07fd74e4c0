//! Places of an interface where programs run: ingress of tc, and XDP. Both keep a program until it is removed.
//!
//! Numbers and layouts are those of `rtnetlink.h`, `pkt_sched.h`, `pkt_cls.h` and `if_link.h` of Linux. A filter of tc
//! and not a link of TCX, which kernels have from 6.6 on alone.

use crate::error::PlaneError;
use crate::netlink::{self, Message, Netlink, find, nested};
use crate::plane::BpfMode;
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

const SET_LINK: u16 = 19;
const GET_LINK: u16 = 18;
const NEW_QDISC: u16 = 36;
const DEL_QDISC: u16 = 37;
const NEW_FILTER: u16 = 44;
const DEL_FILTER: u16 = 45;
const GET_FILTER: u16 = 46;
/// Queueing discipline `clsact`, which holds filters and queues nothing.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// Parents of filters at ingress and egress.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
/// Priority of the filters: a low one, so that they are in front of most that people write.
const PRIORITY: u16 = 7;
/// `ETH_P_ALL`.
const ALL: u16 = 3;
/// Attributes of disciplines and filters: kind and options.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// Attributes of filters of the kind `bpf`.
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const BPF_ID: u16 = 11;
/// The program says itself what becomes of a packet.
const DIRECT_ACTION: u32 = 1;
/// Attribute of interfaces with that of XDP.
const XDP: u16 = 43;
const XDP_FD: u16 = 1;
const XDP_ATTACHED: u16 = 2;
const XDP_FLAGS: u16 = 3;
const XDP_ID: u16 = 4;
const XDP_EXPECTED: u16 = 8;
/// Flags of XDP.
const IF_NONE: u32 = 1;
const GENERIC: u32 = 2;
const NATIVE: u32 = 4;
const REPLACE: u32 = 16;
/// Value of [`XDP_ATTACHED`].
const ATTACHED_GENERIC: u8 = 2;

/// Program at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    pub(super) mode: BpfMode,
    /// Name of the filter of tc; programs of XDP have none.
    pub(super) name: String,
    /// Number of the filter of tc.
    handle: u32,
    /// Number of the program in the kernel.
    pub(super) id: u32,
}

/// Interface with its places for programs.
pub(super) struct Hook {
    netlink: Netlink,
    name: String,
    pub(super) index: u32,
}

impl Hook {
    pub(super) fn open(name: &str) -> Result<Self, PlaneError> {
        let kernel = |what| move |error: io::Error| PlaneError::Kernel { what, error };
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        );
        let index = socket
            .and_then(|socket| rustix::net::netdevice::name_to_index(&socket, name))
            .map_err(|error| PlaneError::NoInterface {
                found: name.to_owned(),
                error: error.into(),
            })?;
        Ok(Self {
            netlink: Netlink::open(NETLINK_ROUTE).map_err(kernel("a socket of routes"))?,
            name: name.to_owned(),
            index,
        })
    }

    /// Lists the programs of BPF at the interface.
    pub(super) fn attached(&mut self) -> Result<Vec<Attached>, PlaneError> {
        let mut found = Vec::new();
        let listed = self.filters(INGRESS, |handle, options| {
            if let Some(id) = find(options, BPF_ID).and_then(number) {
                let name = find(options, BPF_NAME).unwrap_or_default();
                let name = String::from_utf8_lossy(name);
                found.push(Attached {
                    mode: BpfMode::Tc,
                    name: name.trim_end_matches('\0').to_owned(),
                    handle,
                    id,
                });
            }
        });
        listed.map_err(|error| PlaneError::Kernel {
            what: "the list of filters of tc",
            error,
        })?;
        found.extend(self.xdp()?);
        Ok(found)
    }

    /// Puts a program at the interface, in place of `before` if that is there; in one step. XDP compares the program
    /// that is there with the one that was expected.
    pub(super) fn attach(
        &mut self,
        mode: BpfMode,
        program: BorrowedFd<'_>,
        name: &str,
        before: Option<(&Attached, Option<BorrowedFd<'_>>)>,
    ) -> Result<(), PlaneError> {
        match mode {
            BpfMode::Tc => {
                let handle = before.map_or(0, |(before, _)| before.handle);
                self.add_filter(program, name, handle)
            }
            BpfMode::Xdp | BpfMode::XdpGeneric => {
                let before = before.and_then(|(_, fd)| fd);
                self.set_xdp(mode, program.as_raw_fd(), before)
            }
        }
    }

    /// Removes a program, and the discipline that held it if nothing is left there.
    pub(super) fn detach(&mut self, attached: &Attached) -> Result<(), PlaneError> {
        if attached.mode != BpfMode::Tc {
            return self.set_xdp(attached.mode, -1, None);
        }
        let header = header(self.index, attached.handle, INGRESS, info());
        let attributes = [text(KIND, "bpf")];
        self.order(DEL_FILTER, header, 0, &attributes)
            .map_err(|error| PlaneError::Kernel {
                what: "the end of a filter of tc",
                error,
            })?;
        let mut count = 0;
        for parent in [INGRESS, EGRESS] {
            let counted = self.filters(parent, |_, _| count += 1);
            counted.map_err(|error| PlaneError::Kernel {
                what: "the list of filters of tc",
                error,
            })?;
        }
        if count > 0 {
            return Ok(());
        }
        let header = self::header(self.index, CLSACT_HANDLE, CLSACT, 0);
        match self.order(DEL_QDISC, header, 0, &[text(KIND, "clsact")]) {
            // Another discipline of ingress, in which the filter was.
            Err(error) if is(&error, Errno::INVAL) || is(&error, Errno::NOENT) => Ok(()),
            done => done.map_err(|error| PlaneError::Kernel {
                what: "the end of the discipline clsact",
                error,
            }),
        }
    }

    fn order<const N: usize>(
        &mut self,
        kind: u16,
        header: [u8; N],
        flags: u16,
        attributes: &[DefaultNla],
    ) -> io::Result<()> {
        let message = Message {
            kind,
            header,
            attributes: netlink::bytes(attributes),
        };
        self.netlink.exchange(message, NLM_F_ACK | flags, drop)
    }

    /// Calls `each` with handle and options of the filters of BPF at `parent`.
    fn filters(&mut self, parent: u32, mut each: impl FnMut(u32, &[u8])) -> io::Result<()> {
        let message = Message {
            kind: GET_FILTER,
            header: header(self.index, 0, parent, 0),
            attributes: Vec::new(),
        };
        let read = |answer: Message<20>| {
            let handle = number(&answer.header[8..12]);
            let is_bpf = find(&answer.attributes, KIND) == Some(b"bpf\0");
            // A line about the priority as a whole has no handle.
            if let (Some(handle @ 1..), true) = (handle, is_bpf) {
                each(
                    handle,
                    find(&answer.attributes, OPTIONS).unwrap_or_default(),
                );
            }
        };
        match self.netlink.exchange(message, NLM_F_DUMP, read) {
            // No discipline holds filters.
            Err(error) if is(&error, Errno::INVAL) => Ok(()),
            done => done,
        }
    }

    fn add_filter(
        &mut self,
        program: BorrowedFd<'_>,
        name: &str,
        handle: u32,
    ) -> Result<(), PlaneError> {
        let header = header(self.index, CLSACT_HANDLE, CLSACT, 0);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        match self.order(NEW_QDISC, header, flags, &[text(KIND, "clsact")]) {
            Err(error) if is(&error, Errno::EXIST) => {}
            done => done.map_err(|error| PlaneError::Kernel {
                what: "the discipline clsact (modprobe sch_ingress)",
                error,
            })?,
        }
        let options = [
            DefaultNla::new(BPF_FD, program.as_raw_fd().to_ne_bytes().to_vec()),
            text(BPF_NAME, name),
            DefaultNla::new(BPF_FLAGS, DIRECT_ACTION.to_ne_bytes().to_vec()),
        ];
        let attributes = [text(KIND, "bpf"), nested(OPTIONS, &options)];
        let header = self::header(self.index, handle, INGRESS, info());
        let flags = match handle {
            0 => NLM_F_CREATE,
            _ => NLM_F_CREATE | NLM_F_REPLACE,
        };
        self.order(NEW_FILTER, header, flags, &attributes)
            .map_err(|error| PlaneError::Kernel {
                what: "a filter of tc at priority 7 (modprobe cls_bpf)",
                error,
            })
    }

    /// Returns the program of XDP of the interface.
    fn xdp(&mut self) -> Result<Option<Attached>, PlaneError> {
        let message = Message {
            kind: GET_LINK,
            header: self.link(),
            attributes: Vec::new(),
        };
        let mut found = None;
        let read = |answer: Message<16>| {
            let xdp = find(&answer.attributes, XDP).unwrap_or_default();
            let mode = match find(xdp, XDP_ATTACHED) {
                Some([ATTACHED_GENERIC]) => BpfMode::XdpGeneric,
                _ => BpfMode::Xdp,
            };
            if let Some(id @ 1..) = find(xdp, XDP_ID).and_then(number) {
                let (name, handle) = (String::new(), 0);
                found = Some(Attached {
                    mode,
                    name,
                    handle,
                    id,
                });
            }
        };
        let done = self.netlink.exchange(message, NLM_F_ACK, read);
        done.map_err(|error| PlaneError::Kernel {
            what: "the program of XDP",
            error,
        })?;
        Ok(found)
    }

    /// Sets the program of XDP, in place of `before`; none is there any more if `program` is -1.
    fn set_xdp(
        &mut self,
        mode: BpfMode,
        program: i32,
        before: Option<BorrowedFd<'_>>,
    ) -> Result<(), PlaneError> {
        let place = match mode {
            BpfMode::XdpGeneric => GENERIC,
            _ => NATIVE,
        };
        let step = match (program, before) {
            (..0, _) => 0,
            (_, Some(_)) => REPLACE,
            (_, None) => IF_NONE,
        };
        let mut inner = vec![
            DefaultNla::new(XDP_FD, program.to_ne_bytes().to_vec()),
            DefaultNla::new(XDP_FLAGS, (place | step).to_ne_bytes().to_vec()),
        ];
        if let Some(before) = before {
            let fd = before.as_raw_fd().to_ne_bytes().to_vec();
            inner.push(DefaultNla::new(XDP_EXPECTED, fd));
        }
        let done = self.order(SET_LINK, self.link(), 0, &[nested(XDP, &inner)]);
        done.map_err(|error| match mode {
            BpfMode::Xdp if program >= 0 => PlaneError::Native {
                interface: self.name.clone(),
                error,
            },
            _ => PlaneError::Kernel {
                what: "a program of XDP",
                error,
            },
        })
    }

    /// Returns the bytes in front of the attributes of a message about the interface.
    fn link(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[4..8].copy_from_slice(&self.index.to_ne_bytes());
        bytes
    }
}

/// Returns the bytes in front of the attributes of a message about filters and disciplines.
fn header(interface: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    let fields = [interface, handle, parent, info];
    for (field, bytes) in fields.iter().zip(bytes[4..].chunks_exact_mut(4)) {
        bytes.copy_from_slice(&field.to_ne_bytes());
    }
    bytes
}

/// Priority and protocol of the filters.
fn info() -> u32 {
    u32::from(PRIORITY) << 16 | u32::from(ALL.to_be())
}

fn text(kind: u16, text: &str) -> DefaultNla {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    DefaultNla::new(kind, bytes)
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn is(error: &io::Error, code: Errno) -> bool {
    error.raw_os_error() == Some(code.raw_os_error())
}
