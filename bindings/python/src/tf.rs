//! One TF, of an EPN or of a file.

use crate::Home;
use crate::errors::{ConsumerError, ReturnedError};
use crate::part::Part;
use bytes::Bytes;
use pyo3::prelude::*;
use sheaf_node::consume::{self, Lent};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A timeframe: one part for each FLP that gave an STF, and the FLPs that did not.
///
/// A TF of a consumer lies in the memory of its EPN, which waits for it: it goes back when the loop goes on to the next
/// one, with `done()`, or with `give_back()`. `keep()` lets it outlive its turn of the loop. Parts that are kept hold
/// the memory of their TF.
#[pyclass(frozen, module = "sheaf")]
pub(crate) struct Tf {
    /// Run, as in logs and names of folders.
    #[pyo3(get)]
    run: String,
    /// Id of the TF within its run.
    #[pyo3(get)]
    id: u64,
    /// Number of the attempt to build it, from 1; 0 in a file that does not say.
    #[pyo3(get)]
    attempt: u32,
    /// True if another consumer may have had it before.
    #[pyo3(get)]
    redelivered: bool,
    /// FLPs of which there is no part.
    #[pyo3(get)]
    missing: Vec<u16>,
    /// Bytes of all payloads.
    #[pyo3(get)]
    nbytes: u64,
    is_kept: AtomicBool,
    home: Home,
    held: Mutex<Held>,
}

/// Owner of the payloads.
enum Held {
    /// An EPN, which waits for them.
    Lent(Lent),
    /// The TF itself.
    Own(sheaf_protocol::Tf<Bytes>),
    /// Nothing: it went back.
    Returned,
}

impl Tf {
    /// Returns a TF that an EPN has lent.
    pub(crate) fn lent(lent: Lent) -> Self {
        Self::of(&lent).holding(Held::Lent(lent))
    }

    /// Returns a TF that owns its payloads.
    pub(crate) fn own(tf: sheaf_protocol::Tf<Bytes>) -> Self {
        Self::of(&tf).holding(Held::Own(tf))
    }

    fn of(tf: &sheaf_protocol::Tf<Bytes>) -> Self {
        Self {
            run: tf.run.to_string(),
            id: tf.tf.0,
            attempt: tf.attempt.0,
            redelivered: tf.is_redelivered,
            missing: tf.missing.iter().map(|flp| flp.0).collect(),
            nbytes: tf.bytes(),
            is_kept: AtomicBool::new(false),
            home: Home::here(),
            held: Mutex::new(Held::Returned),
        }
    }

    fn holding(self, held: Held) -> Self {
        let held = Mutex::new(held);
        Self { held, ..self }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Held {
        std::mem::replace(&mut *self.held(), Held::Returned)
    }

    /// Gives the TF back if it was not kept: its turn is over.
    pub(crate) fn end_turn(&self) {
        if !self.is_kept.load(Ordering::Relaxed) {
            drop(self.take());
        }
    }

    /// Calls `look` with the TF, unless it went back.
    fn look<T>(&self, look: impl FnOnce(&sheaf_protocol::Tf<Bytes>) -> T) -> PyResult<T> {
        match &*self.held() {
            Held::Lent(lent) => Ok(look(lent)),
            Held::Own(tf) => Ok(look(tf)),
            Held::Returned => Err(self.returned()),
        }
    }

    fn returned(&self) -> PyErr {
        ReturnedError::new_err(format!(
            "TF {} went back to its EPN before; call keep() on a TF that outlives its turn of the loop, and done() \
             when you have finished with it",
            self.id
        ))
    }
}

#[pymethods]
impl Tf {
    /// Parts in the order of their FLPs.
    #[getter]
    fn parts(&self) -> PyResult<Vec<Part>> {
        self.look(|tf| tf.parts.iter().map(Part::of).collect())
    }

    /// Returns the part of one FLP; None if it is missing.
    fn part(&self, flp: u16) -> PyResult<Option<Part>> {
        self.look(|tf| {
            let mut parts = tf.parts.iter();
            parts.find(|part| part.source.flp.0 == flp).map(Part::of)
        })
    }

    /// Computes the CRC-32C of every payload again; returns one line for each that differs from what its FLP took.
    fn faults(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        // Its payloads are shared: who waits for the lock has the GIL, which this thread gives away.
        let tf = self.look(sheaf_protocol::Tf::clone)?;
        Ok(py.detach(|| consume::faults(&tf)))
    }

    /// Keeps the TF beyond its turn of the loop, until `done()`, `give_back()`, or nothing refers to it any more.
    /// Returns the TF.
    fn keep(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf.is_kept.store(true, Ordering::Relaxed);
        slf
    }

    /// Gives the TF back without a tag. Its memory is free when no part of it is referred to any more. A second call
    /// does nothing.
    fn done(&self) {
        drop(self.take());
    }

    /// Gives the TF back with tags (words of a-z, 0-9, - and _ with a comma between two), by which streams of the EPN's
    /// farm file take it, and with a product: bytes that were made of it. Raises ConsumerError if the EPN writes
    /// nothing, or tags or product are not what it takes; the TF went back without them then.
    #[pyo3(signature = (tags = "", product = None))]
    fn give_back(&self, py: Python<'_>, tags: &str, product: Option<Vec<u8>>) -> PyResult<()> {
        self.home.check("TF")?;
        match self.take() {
            Held::Lent(lent) => {
                let given = py.detach(|| match &product {
                    None => lent.give_back(tags),
                    Some(product) => lent.give_back_with(tags, product),
                });
                given.map_err(|error| ConsumerError::new_err(error.to_string()))
            }
            own @ Held::Own(_) => {
                *self.held() = own;
                Err(ConsumerError::new_err(
                    "the TF is of a file: only a TF of a consumer can be given back",
                ))
            }
            Held::Returned => Err(self.returned()),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        self.look(|tf| tf.parts.len())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        Self::keep(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, pyo3::types::PyTuple>) {
        self.done();
    }

    fn __repr__(&self) -> String {
        let (id, bytes) = (self.id, self.nbytes);
        let missing = match self.missing.len() {
            0 => String::new(),
            missing => format!(", {missing} FLPs missing"),
        };
        format!(
            "<sheaf.Tf {id} of run {}, {bytes} bytes{missing}>",
            self.run
        )
    }
}
