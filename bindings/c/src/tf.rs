//! One TF, of an EPN or of a file.

#![expect(unsafe_code, reason = "names of functions that C finds")]

use crate::border::{self, Failure, Home, call, given};
use crate::status::Status;
use bytes::Bytes;
use sheaf_node::consume::{self, Lent};
use sheaf_protocol::PayloadFormat;
use std::ffi::{CString, c_char, c_void};

/// A timeframe: one part for each FLP that gave an STF, and the FLPs that did not.
///
/// A TF of a consumer lies in the memory of its EPN, or of the FLPs, which waits for it until `sheaf_tf_release` or
/// `sheaf_tf_give_back`; pointers to its bytes are valid until then.
pub struct Tf {
    home: Home,
    run: CString,
    missing: Vec<u16>,
    parts: Vec<Part>,
    held: Held,
}

/// Owner of the payloads.
enum Held {
    /// An EPN, which waits for them.
    Lent(Lent),
    /// The TF itself.
    Own(sheaf_protocol::Tf<Bytes>),
}

/// The STF of one FLP within a TF.
#[repr(C)]
pub struct Part {
    /// Payload: `size` bytes, which are not to be written.
    pub data: *const c_void,
    /// Bytes of the payload.
    pub size: usize,
    /// Incarnation of the FLP: its start in ns since 1970.
    pub incarnation: u64,
    /// Payload format, one of `sheaf_format`.
    pub format: u32,
    /// CRC-32C that the FLP took when the data arrived.
    pub digest: u32,
    /// Index of the FLP.
    pub flp: u16,
}

/// Format of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Format {
    /// Bytes that Sheaf does not look into.
    Opaque = 0,
    /// Pages with raw data headers of ALICE.
    Rdh = 1,
    /// Records of KM3NeT.
    Km3net = 2,
    /// Datagrams of XTC2, of LCLS-II.
    Xtc2 = 3,
    /// Blocks of O2.
    O2Blocks = 4,
}

/// Returns the format with the number `found` of [`Format`].
pub(crate) fn format_of(found: u32) -> Result<PayloadFormat, Failure> {
    let mut formats = PayloadFormat::ALL.into_iter();
    let format = formats.find(|format| number(*format) as u32 == found);
    format.ok_or_else(|| {
        Failure::argument(format!(
            "found format {found}, expected one of sheaf_format (0 to 4)"
        ))
    })
}

fn number(format: PayloadFormat) -> Format {
    match format {
        PayloadFormat::Opaque => Format::Opaque,
        PayloadFormat::RdhPages => Format::Rdh,
        PayloadFormat::Km3netRecords => Format::Km3net,
        PayloadFormat::Xtc2Datagrams => Format::Xtc2,
        PayloadFormat::O2Blocks => Format::O2Blocks,
    }
}

impl Tf {
    /// Returns a TF that an EPN has lent.
    pub(crate) fn lent(lent: Lent) -> Self {
        Self::of(Held::Lent(lent))
    }

    /// Returns a TF that owns its payloads.
    pub(crate) fn own(tf: sheaf_protocol::Tf<Bytes>) -> Self {
        Self::of(Held::Own(tf))
    }

    fn of(held: Held) -> Self {
        let tf = held.tf();
        let run = CString::new(tf.run.to_string()).expect("the name of a run has no byte 0");
        let parts = tf.parts.iter().map(|part| Part {
            // Where the bytes lie does not change when their owner moves.
            data: part.payload.as_ptr().cast(),
            size: part.payload.len(),
            incarnation: part.source.incarnation.0,
            format: number(part.format) as u32,
            digest: part.digest,
            flp: part.source.flp.0,
        });
        Self {
            home: Home::here(),
            run,
            missing: tf.missing.iter().map(|flp| flp.0).collect(),
            parts: parts.collect(),
            held,
        }
    }
}

impl Held {
    fn tf(&self) -> &sheaf_protocol::Tf<Bytes> {
        match self {
            Self::Lent(lent) => lent,
            Self::Own(tf) => tf,
        }
    }
}

/// Returns the id of the TF within its run; 0 if `tf` is null.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_id(tf: Option<&Tf>) -> u64 {
    tf.map_or(0, |tf| tf.held.tf().tf.0)
}

/// Returns the run, as in logs and names of folders. Never null; valid as long as the TF.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_run(tf: Option<&Tf>) -> *const c_char {
    tf.map_or(c"".as_ptr(), |tf| tf.run.as_ptr())
}

/// Returns the number of the attempt to build the TF, from 1; 0 in a file that does not say.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_attempt(tf: Option<&Tf>) -> u32 {
    tf.map_or(0, |tf| tf.held.tf().attempt.0)
}

/// Returns whether another consumer may have had the TF before.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_is_redelivered(tf: Option<&Tf>) -> bool {
    tf.is_some_and(|tf| tf.held.tf().is_redelivered)
}

/// Returns the bytes of all payloads.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_bytes(tf: Option<&Tf>) -> u64 {
    tf.map_or(0, |tf| tf.held.tf().bytes())
}

/// Returns the parts in the order of their FLPs, and their number in `*count`, which may not be null. They are valid as
/// long as the TF.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_parts(tf: Option<&Tf>, count: Option<&mut usize>) -> *const Part {
    listed(tf.map(|tf| &tf.parts[..]), count)
}

/// Returns the part of one FLP; null if it is missing. It is valid as long as the TF.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_part(tf: Option<&Tf>, flp: u16) -> *const Part {
    let part = tf.and_then(|tf| tf.parts.iter().find(|part| part.flp == flp));
    part.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Returns the FLPs of which there is no part, and their number in `*count`, which may not be null. They are valid as
/// long as the TF.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_missing(tf: Option<&Tf>, count: Option<&mut usize>) -> *const u16 {
    listed(tf.map(|tf| &tf.missing[..]), count)
}

/// Returns where `values` begin, and writes their number; null if there are none, or no place for the number.
fn listed<T>(values: Option<&[T]>, count: Option<&mut usize>) -> *const T {
    let Some(count) = count else {
        return std::ptr::null();
    };
    let values = values.unwrap_or_default();
    *count = values.len();
    match values {
        [] => std::ptr::null(),
        values => values.as_ptr(),
    }
}

/// Computes the CRC-32C of every payload again. Returns `SHEAF_STATUS_OK`, or `SHEAF_STATUS_ERROR_DAMAGED` if one
/// differs from what its FLP took: `sheaf_error()` names all of them.
///
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_check(tf: Option<&Tf>) -> Status {
    call(|| {
        let tf = given(tf, "tf")?;
        match &consume::faults(tf.held.tf())[..] {
            [] => Ok(Status::Ok),
            faults => Err(Failure::new(Status::ErrorDamaged, faults.join("; "))),
        }
    })
}

/// Gives the TF back without a tag and frees the handle; null is taken and does nothing. In a process that was forked
/// nothing happens.
///
/// Threads: any, when no other call on the TF is under way or comes.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_release(tf: *mut Tf) {
    // There is nothing to do with a failure: it is that of a fork.
    let _ = call(|| {
        if let Some(handle) = border::opened(tf) {
            handle.home.check("TF")?;
            border::free(tf);
        }
        Ok(Status::Ok)
    });
}

/// Gives a TF of a consumer back with `tags` (words of a-z, 0-9, - and _ with a comma between two, null for none), by
/// which streams of the EPN's farm file take it, and with a product: `size` bytes that were made of it, none with null.
/// The handle is freed in any case.
///
/// Returns `SHEAF_STATUS_ERROR_CONSUMER` if the EPN writes nothing, or tags or product are not what it takes: the TF
/// went back without them then. `SHEAF_STATUS_ERROR_ARGUMENT` for a TF of a file.
///
/// Threads: any, when no other call on the TF is under way or comes.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_tf_give_back(
    tf: *mut Tf,
    tags: *const c_char,
    product: *const c_void,
    size: usize,
) -> Status {
    call(|| {
        let handle = given(border::opened(tf), "tf")?;
        handle.home.check("TF")?;
        let held = border::taken(tf).held;
        let tags = border::optional_text(tags, "tags")?.unwrap_or_default();
        let product = match product.is_null() && size == 0 {
            true => None,
            false => Some(border::bytes(product, size, "product")?),
        };
        let Held::Lent(lent) = held else {
            return Err(Failure::argument(
                "the TF is of a file: only a TF of a consumer can be given back",
            ));
        };
        let given = match product {
            None => lent.give_back(tags),
            Some(product) => lent.give_back_with(tags, product),
        };
        given.map_err(|error| Failure::of(Status::ErrorConsumer, &error))?;
        Ok(Status::Ok)
    })
}
