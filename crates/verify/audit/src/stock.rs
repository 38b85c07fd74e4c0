//! TFs in the files of sinks, as the reader of the files found them.

use super::finding::Contradiction;
use sheaf_verdict_log::event::{FileEvent, PartEvent};
use std::collections::{BTreeMap, BTreeSet};

/// TF in a file of a sink, as its bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A TF file of Sheaf.
    Tf {
        /// The TF; of a file whose head is damaged, that of its name.
        tf: u64,
        /// The run, as 16 hexadecimal digits.
        run: String,
        /// Whether it is marked as redelivered.
        redelivered: bool,
        /// STFs with their digests, computed from the bytes.
        parts: Vec<PartEvent>,
        /// FLPs without an STF in it.
        missing: Vec<u16>,
        /// Streams whose files have something of it; none of sinks without streams.
        streams: Vec<String>,
    },
    /// Some STFs of a TF. The others may stand where no digest tells them.
    Partial {
        /// The TF.
        tf: u64,
        /// The run, as 16 hexadecimal digits.
        run: String,
        /// STFs with their digests, computed from the bytes.
        parts: Vec<PartEvent>,
        /// Streams whose files have something of it.
        streams: Vec<String>,
    },
    /// A file of that name that is damaged.
    DamagedTf {
        /// The TF, by the name of the file.
        tf: u64,
        /// The damage.
        damage: String,
    },
    /// A TF in a file of DataDistribution.
    Image(FileEvent),
}

/// Content of the files of sinks.
#[derive(Clone, Debug, Default)]
pub(super) struct Stock {
    /// Places by TF.
    pub(super) tfs: BTreeMap<u64, Vec<(String, Stored)>>,
    /// Places by size and digest.
    pub(super) images: BTreeMap<(u64, u32), Vec<String>>,
    /// Streams whose files do not tell which TFs stand in them.
    pub(super) untold: BTreeSet<String>,
    /// Findings of the reader.
    pub(super) broken: Vec<Contradiction>,
}
