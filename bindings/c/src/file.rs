//! Files of TFs.

#![expect(unsafe_code, reason = "names of functions that C finds")]

use crate::abi;
use crate::border::{self, Failure, call, given};
use crate::status::Status;
use crate::tf::Tf;
use sheaf_formats::tf_file::{NextTf, next_tf};
use std::ffi::c_char;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The TFs of one file of the sinks `file` and `streams`, in order.
pub struct TfFile {
    path: PathBuf,
    reader: Mutex<(BufReader<File>, u64)>,
}

/// Opens the file at `path`. `abi` is `SHEAF_ABI`. With `SHEAF_STATUS_OK` `*file` is the handle, which
/// `sheaf_file_close` frees; else it is null.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_file_open(
    abi: u32,
    path: *const c_char,
    file: Option<&mut *mut TfFile>,
) -> Status {
    call(|| {
        let place = given(file, "file")?;
        *place = std::ptr::null_mut();
        abi::check(abi)?;
        let path = PathBuf::from(border::text(path, "path")?);
        let opened = File::open(&path).map_err(|error| {
            let path = path.display();
            Failure::new(Status::ErrorFile, format!("cannot read {path}: {error}"))
        })?;
        let reader = Mutex::new((BufReader::with_capacity(1 << 20, opened), 0));
        *place = Box::into_raw(Box::new(TfFile { path, reader }));
        Ok(Status::Ok)
    })
}

/// Reads the next TF and compares all its checksums. `sheaf_tf_release` frees it.
///
/// Returns `SHEAF_STATUS_OK` with the TF in `*tf`, else null there and `SHEAF_STATUS_END` behind the last one, or
/// `SHEAF_STATUS_ERROR_FILE` where the bytes are no whole TF: `sheaf_error()` says at which offset.
///
/// Threads: any; calls on one file follow one another.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_file_next(file: *mut TfFile, tf: Option<&mut *mut Tf>) -> Status {
    call(|| {
        let place = given(tf, "tf")?;
        *place = std::ptr::null_mut();
        let file = given(border::opened(file), "file")?;
        let mut reader = file.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let (reader, offset) = &mut *reader;
        let path = file.path.display();
        let failed = |message| Err(Failure::new(Status::ErrorFile, message));
        match next_tf(reader) {
            Ok(NextTf::Whole(tf, bytes)) => {
                *offset += bytes;
                *place = Box::into_raw(Box::new(Tf::own(tf)));
                Ok(Status::Ok)
            }
            Ok(NextTf::End) => Ok(Status::End),
            Ok(NextTf::Broken(error)) => failed(format!("{path}: byte {offset}: {error}")),
            Err(error) => failed(format!("cannot read {path}: {error}")),
        }
    })
}

/// Frees the handle; null is taken and does nothing. TFs that were read stay valid.
///
/// Threads: any, when no other call on the file is under way or comes.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_file_close(file: *mut TfFile) {
    let _ = call(|| {
        if border::opened(file).is_some() {
            border::free(file);
        }
        Ok(Status::Ok)
    });
}
