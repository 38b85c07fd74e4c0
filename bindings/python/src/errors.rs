//! Exceptions of the package. All are `SheafError`.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use sheaf_node::consume::ConsumeError;
use sheaf_node::readout::{ReadoutError, SendError, with_causes};

create_exception!(
    sheaf,
    SheafError,
    PyException,
    "Base of all exceptions of this package."
);
create_exception!(
    sheaf,
    BadConfig,
    SheafError,
    "The farm file cannot be used: its message names each key with what was found and what is expected."
);
create_exception!(
    sheaf,
    SourceError,
    SheafError,
    "A source cannot begin or go on."
);
create_exception!(
    sheaf,
    RunOver,
    SourceError,
    "The run is over: no more STFs are taken."
);
create_exception!(
    sheaf,
    ConsumerError,
    SheafError,
    "No TF can be taken from an EPN, or given back to it."
);
create_exception!(
    sheaf,
    ReturnedError,
    ConsumerError,
    "The TF went back to its EPN before: call keep() on a TF that outlives its turn of the loop."
);
create_exception!(
    sheaf,
    PolicyError,
    SheafError,
    "A policy has made a choice that it must not make."
);
create_exception!(
    sheaf,
    FileError,
    SheafError,
    "A file cannot be read, or is no TF file."
);
create_exception!(
    sheaf,
    ForkError,
    SheafError,
    "An object of another process was used after a fork."
);

/// Returns the exception for what happened to a readout.
pub(crate) fn of_readout(error: &ReadoutError) -> PyErr {
    let text = with_causes(error);
    match error {
        ReadoutError::Send(SendError::Over { .. }) => RunOver::new_err(text),
        ReadoutError::Send(SendError::TooLarge { .. } | SendError::Order { .. }) => {
            PyValueError::new_err(text)
        }
        ReadoutError::Kind { .. } | ReadoutError::Index { .. } | ReadoutError::NotPaced => {
            BadConfig::new_err(text)
        }
        _ => SourceError::new_err(text),
    }
}

/// Returns the exception for what happened to a consumer.
pub(crate) fn of_consumer(error: &ConsumeError) -> PyErr {
    ConsumerError::new_err(with_causes(error))
}
