//! Messages of Sheaf and their bytes.
//!
//! This crate answers one question: *which messages do the nodes of a farm exchange, and how do they look
//! on the wire?* Ids, the STF and its header, the control messages and the prefix that frames them all
//! are defined here, and nowhere else: this crate is the only place that knows a byte layout of the wire
//! (`docs/reference/protocol.md` draws the same layouts). It does no I/O, takes no time and allocates nothing that
//! a peer could size.

mod checkpoint;
mod codec;
pub mod control;
mod data_hello;
mod digest;
mod id;
mod prefix;
mod range_set;
mod record;
pub mod reject;
pub mod splitmix;
mod stf;
mod tf;
mod tf_table;
mod verdict;
pub mod version;
mod wire;

pub use checkpoint::{Checkpoint, SummedSource, SummedTarget};
pub use codec::DecodeError;
pub use control::{Control, Envelope};
pub use data_hello::DataHello;
pub use digest::{DIGEST_PIECE_BYTES, Digest, SliceDigests, copy_digested, crc32c, crc32c_kernel};
pub use id::{
    Attempt, EpnId, FlpId, Incarnation, NodeId, Role, RosterId, RunId, Source, Target, Term, TfId,
    Timestamp,
};
pub use prefix::{Limits, Prefix, PrefixError, WireKind};
pub use range_set::RangeSet;
pub use record::Record;
pub use sheaf_protect as mutant;
pub use sheaf_protect::protect;
pub use stf::{PayloadFormat, Stf, StfHeader, StfHeaderError, StfKey};
pub use tf::{Part, Tf};
pub use tf_table::TfTable;
pub use verdict::{DropReason, Verdict};
pub use wire::Layout;
