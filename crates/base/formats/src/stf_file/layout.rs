//! Fixed numbers and names of the file format.

use sheaf_protocol::PayloadFormat;

/// Version of the file format that the description of a TF states.
pub(super) const FILE_VERSION: u64 = 1;
/// Bytes about a TF behind its first header: version, size, write time.
pub(super) const META_BYTES: usize = 24;
/// Bytes of one entry of the index.
pub(super) const ENTRY_BYTES: usize = 48;

/// Name of the first block of a TF.
pub(super) const META: [u8; 16] = *b"FILE_STF_META\0\0\0";
/// Name of its second block.
pub(super) const INDEX: [u8; 16] = *b"FILE_STF_INDEX\0\0";
/// Name of blocks of detector data.
pub(super) const RAW_DATA: [u8; 16] = *b"RAWDATA\0\0\0\0\0\0\0\0\0";
/// Names of whole STFs that are not made of whole HBFs, by payload format.
pub(super) const SHEAF: [[u8; 16]; PayloadFormat::ALL.len()] = [
    *b"SHEAF_OPAQUE\0\0\0\0",
    *b"SHEAF_RDH\0\0\0\0\0\0\0",
    *b"SHEAF_KM3NET\0\0\0\0",
    *b"SHEAF_XTC2\0\0\0\0\0\0",
    *b"SHEAF_O2BLOCKS\0\0",
];
/// Name of the block that says where the blocks of a share stand in their TF.
pub(super) const SHARE: [u8; 16] = *b"SHEAF_SHARE\0\0\0\0\0";
/// Bytes of an entry of that block: place, number of blocks, padding of the index.
pub(super) const PLACE_BYTES: usize = 12;
/// Origin of data that no detector made.
pub(super) const FLP: [u8; 4] = *b"FLP\0";
/// Origin that stands for any.
pub(super) const ANY: [u8; 4] = *b"***\0";
/// How payloads are serialised: not at all.
pub(super) const NONE: [u8; 8] = *b"NONE\0\0\0\0";
