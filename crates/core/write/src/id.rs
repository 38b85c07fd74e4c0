//! Numbers of streams and files, and the place of a record.

/// Number of a stream in the table of the configuration, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub u16);

/// Number of a file in the life of a writer, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Run, stream and block of a record: what decides its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the run.
    pub run: u64,
    /// The stream.
    pub stream: StreamId,
    /// Block of the run.
    pub block: u64,
}
