//! Failures of planes.

use sheaf_serve::{ServerPlace, Wanted};
use std::net::IpAddr;

/// Failure of a plane.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    /// Name that no plane has.
    #[error("found plane {found:?}, expected one of {expected}")]
    Unknown {
        /// Name as found.
        found: String,
        /// Names of planes.
        expected: String,
    },
    /// A program that a plane needs and that is not there.
    #[error("{tool} cannot be started ({error}); on Debian: apt-get install {package}")]
    Missing {
        /// Program.
        tool: &'static str,
        /// Package of Debian.
        package: &'static str,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A program that has refused.
    #[error("{tool} refused: {text}")]
    Refused {
        /// Program.
        tool: &'static str,
        /// Words of the program.
        text: String,
    },
    /// Output that is not as documented.
    #[error("the output of {tool} cannot be read: {text}")]
    Output {
        /// Program.
        tool: &'static str,
        /// Text that was found.
        text: String,
    },
    /// Server whose network card does not answer.
    #[error(
        "server {server:?} at {address} does not answer for its hardware address on {interface}"
    )]
    NoNeighbor {
        /// Name of the server.
        server: String,
        /// Address.
        address: IpAddr,
        /// Interface that was asked.
        interface: String,
    },
    /// Server whose port is not that of the service, in a plane that rewrites none.
    #[error("server {server:?} has port {found}, expected {expected}: the plane rewrites no ports")]
    Port {
        /// Name of the server.
        server: String,
        /// Port of the server.
        found: u16,
        /// Port of the service.
        expected: u16,
    },
    /// Virtual address that cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Address and port.
        address: std::net::SocketAddr,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// File or socket that cannot be used.
    #[error("{path}: {error}")]
    File {
        /// Path.
        path: std::path::PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Program that is too old, or made without a part that a plane needs.
    #[error("found {tool} {found}, expected {expected}")]
    Version {
        /// Program.
        tool: &'static str,
        /// Version as found, or the part that is missing.
        found: String,
        /// Version that does.
        expected: &'static str,
    },
    /// Kernel without the scheduler of IPVS.
    #[error("this kernel has ip_vs without its scheduler mh (modprobe ip_vs_mh)")]
    NoScheduler,
    /// Kernel without IPVS.
    #[error("this kernel has no ip_vs (modprobe ip_vs)")]
    NoIpvs,
    /// Request that the kernel has refused.
    #[error("the kernel refused {what}: {error}")]
    Kernel {
        /// Request.
        what: &'static str,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Setting of the kernel that a plane needs otherwise.
    #[error("found {setting} = {found}, expected {expected}; sysctl -w {setting}={expected}")]
    Setting {
        /// Name, as `sysctl` has it.
        setting: &'static str,
        /// Value as found.
        found: String,
        /// Value that fits.
        expected: &'static str,
    },
    /// Interface that is not there.
    #[error("found no interface {found:?}: {error}")]
    NoInterface {
        /// Name as found.
        found: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Program of BPF that is not there.
    #[error(
        "found no BPF program at {places}; make bpf builds it (on Debian: apt-get install clang libbpf-dev)"
    )]
    NoProgram {
        /// Paths that were looked at.
        places: String,
    },
    /// Program of BPF that the kernel has refused.
    #[error("the kernel refused the BPF program {path}: {text}")]
    Program {
        /// Path of the program.
        path: std::path::PathBuf,
        /// Reason, and the end of what the verifier wrote.
        text: String,
    },
    /// Driver without XDP.
    #[error(
        "the driver of {interface} refused XDP ({error}), expected mode = \"xdp-generic\" or \"tc\""
    )]
    Native {
        /// Interface.
        interface: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Interface whose place of XDP is taken.
    #[error(
        "found program {found} of XDP on {interface}, expected none: XDP takes one service for each interface, mode = \"tc\" several; ip link set dev {interface} xdp off removes it"
    )]
    Busy {
        /// Interface.
        interface: String,
        /// Number of the program in the kernel.
        found: u32,
    },
    /// More of something than a program has room for.
    #[error("found {found} {what}, expected at most {most}")]
    TooMany {
        /// Thing.
        what: &'static str,
        /// Number of them.
        found: usize,
        /// Most of them.
        most: usize,
    },
    /// Process that cannot be stopped.
    #[error("{tool} cannot be stopped: {error}")]
    Stop {
        /// Program.
        tool: &'static str,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Thread or runtime that does not start.
    #[error("a thread of the plane cannot be started: {0}")]
    Thread(std::io::Error),
}

impl PlaneError {
    /// Refuses a server with another port than that of its service, for planes that rewrite none.
    pub(crate) fn check_port(wanted: &Wanted, place: &ServerPlace) -> Result<(), Self> {
        if place.port == wanted.port {
            return Ok(());
        }
        Err(Self::Port {
            server: place.name.clone(),
            found: place.port,
            expected: wanted.port,
        })
    }
}
