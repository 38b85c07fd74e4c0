//! Policies in Python: an object with `choose(job, targets)`.

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use sheaf_placement::{Job, LoadView, Policy, Refusal, TargetId, TargetLoad};
use sheaf_protocol::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::errors::PolicyError;

/// A job to be placed: a TF that needs an EPN.
#[pyclass(frozen, name = "Job", module = "sheaf", get_all)]
pub(crate) struct PyJob {
    /// Number of the job: that of its TF. A job that is placed again keeps it.
    id: u64,
    /// Bytes that it takes at its target.
    bytes: u64,
    /// Targets that must not get it.
    avoid: Vec<u32>,
    /// Time in s, on a clock that only goes on.
    now: f64,
}

/// The targets as known now, in the order of their ids. A sequence of `Target`, and columns of numbers for all of them,
/// which NumPy takes without a copy: `numpy.asarray(targets.free_bytes)`.
#[pyclass(frozen, name = "Targets", module = "sheaf", sequence)]
pub(crate) struct PyTargets {
    loads: Vec<TargetLoad>,
    fits: Vec<bool>,
    busy: Vec<f64>,
}

/// Load of one target.
#[pyclass(frozen, name = "Target", module = "sheaf", get_all)]
pub(crate) struct PyTarget {
    /// Id: that of an EPN.
    id: u32,
    /// True if it has room for the job, is online, and need not be avoided: only such a target may be chosen.
    fits: bool,
    /// Room in all, in bytes.
    capacity_bytes: u64,
    /// Bytes neither booked nor held.
    free_bytes: u64,
    /// Bytes of jobs that were placed there and are not done.
    booked_bytes: u64,
    /// Bytes that its consumer still has, by its last report.
    held_bytes: u64,
    /// Jobs that it takes beside those that it has.
    free_slots: u32,
    /// Jobs that were placed there and are not done.
    booked_slots: u32,
    /// Share of the work that it should get beside others; 1 is one share.
    weight: f64,
    /// Time for which it works on a job, in s, as measured; 0 before the first one.
    job_s: f64,
}

impl PyTargets {
    fn of(view: &LoadView, job: &Job<'_>) -> Self {
        let loads = view.targets().to_vec();
        Self {
            fits: loads.iter().map(|load| load.fits(job)).collect(),
            busy: (view.measured().iter().map(|it| it.job_time().as_secs_f64())).collect(),
            loads,
        }
    }

    /// Returns one number for each target as a view of items of the kind `code` of the module struct.
    fn column<const N: usize>(
        &self,
        py: Python<'_>,
        code: &str,
        of: impl Fn(&TargetLoad) -> [u8; N],
    ) -> PyResult<Py<PyAny>> {
        let bytes: Vec<u8> = self.loads.iter().flat_map(of).collect();
        cast(py, &bytes, code)
    }
}

fn cast(py: Python<'_>, bytes: &[u8], code: &str) -> PyResult<Py<PyAny>> {
    let view = PyMemoryView::from(PyBytes::new(py, bytes).as_any())?;
    Ok(view.call_method1("cast", (code,))?.unbind())
}

#[pymethods]
impl PyTargets {
    fn __len__(&self) -> usize {
        self.loads.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<PyTarget> {
        let count = self.loads.len();
        let place = match usize::try_from(index) {
            Ok(place) => Some(place),
            Err(_) => count.checked_add_signed(index),
        };
        let place = place.filter(|place| *place < count).ok_or_else(|| {
            PyIndexError::new_err(format!("found index {index}, expected one below {count}"))
        })?;
        let load = &self.loads[place];
        Ok(PyTarget {
            id: load.id.0,
            fits: self.fits[place],
            capacity_bytes: load.capacity_bytes,
            free_bytes: load.free_bytes(),
            booked_bytes: load.booked_bytes,
            held_bytes: load.held_bytes,
            free_slots: load.free_slots(),
            booked_slots: load.booked_slots,
            weight: f64::from(load.weight_milli) / 1000.0,
            job_s: self.busy[place],
        })
    }

    /// Ids.
    #[getter]
    fn ids(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, "I", |load| load.id.0.to_ne_bytes())
    }

    /// Whether each target may be chosen for the job.
    #[getter]
    fn fits(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let bytes: Vec<u8> = self.fits.iter().map(|fits| u8::from(*fits)).collect();
        cast(py, &bytes, "?")
    }

    /// Bytes neither booked nor held.
    #[getter]
    fn free_bytes(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, "Q", |load| load.free_bytes().to_ne_bytes())
    }

    /// Bytes of jobs that were placed and are not done.
    #[getter]
    fn booked_bytes(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, "Q", |load| load.booked_bytes.to_ne_bytes())
    }

    /// Bytes with consumers.
    #[getter]
    fn held_bytes(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, "Q", |load| load.held_bytes.to_ne_bytes())
    }

    /// Jobs that each takes beside those that it has.
    #[getter]
    fn free_slots(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, "I", |load| load.free_slots().to_ne_bytes())
    }

    /// Jobs that were placed and are not done.
    #[getter]
    fn booked_slots(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, "I", |load| load.booked_slots.to_ne_bytes())
    }

    /// Shares of the work; 1 is one share.
    #[getter]
    fn weights(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, "d", |load| {
            (f64::from(load.weight_milli) / 1000.0).to_ne_bytes()
        })
    }

    /// Times for which each works on a job, in s, as measured; 0 before the first one.
    #[getter]
    fn job_s(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let bytes: Vec<u8> = self
            .busy
            .iter()
            .flat_map(|busy| busy.to_ne_bytes())
            .collect();
        cast(py, &bytes, "d")
    }

    fn __repr__(&self) -> String {
        format!("<sheaf.Targets: {}>", self.loads.len())
    }
}

/// Account of the calls of a policy.
#[derive(Default)]
pub(crate) struct Calls {
    /// Calls of `choose`.
    pub(crate) count: u64,
    /// Time in them, with the making of their arguments.
    pub(crate) time: Duration,
    /// Exception of a call; the policy is not asked again.
    pub(crate) raised: Option<PyErr>,
}

/// Account that a policy shares with who runs it.
#[derive(Clone, Default)]
pub(crate) struct Account(Arc<Mutex<Calls>>);

impl Account {
    pub(crate) fn open(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A policy whose choices a Python object makes.
pub(crate) struct PyPolicy {
    name: &'static str,
    object: Py<PyAny>,
    account: Account,
    fallback: Option<Fallback>,
}

/// Maker of the policy that takes over from one that has raised an exception, which it reports; from a seed.
type MakeFallback = fn(PyErr, u64) -> Box<dyn Policy>;

/// Place for the policy that takes over.
struct Fallback {
    make: MakeFallback,
    seed: u64,
    in_force: Option<Box<dyn Policy>>,
}

impl PyPolicy {
    /// Makes the policy of one run: `maker` is called with `seed`, and what it returns has `choose(job, targets)`.
    pub(crate) fn new(maker: &Py<PyAny>, seed: u64, account: &Account) -> Self {
        Self::named("python", maker, seed, account)
    }

    /// Makes the policy `name` as [`new`](Self::new) does.
    pub(crate) fn named(
        name: &'static str,
        maker: &Py<PyAny>,
        seed: u64,
        account: &Account,
    ) -> Self {
        let account = account.clone();
        let made = Python::attach(|py| {
            let object = maker.call1(py, (seed,))?;
            if object.getattr(py, "choose").is_err() {
                let found = object.bind(py).get_type().to_string();
                return Err(PyTypeError::new_err(format!(
                    "policy(seed) returned {found}, expected an object with choose(job, targets)"
                )));
            }
            Ok(object)
        });
        let object = made.unwrap_or_else(|error| {
            account.open().raised = Some(error);
            Python::attach(|py| py.None())
        });
        Self {
            name,
            object,
            account,
            fallback: None,
        }
    }

    /// Lets what `make` returns decide from the first exception on.
    pub(crate) fn or_else(mut self, make: MakeFallback, seed: u64) -> Self {
        self.fallback = Some(Fallback {
            make,
            seed,
            in_force: None,
        });
        self
    }

    fn ask(&self, now: Timestamp, job: &Job<'_>, view: &LoadView) -> PyResult<Option<TargetId>> {
        Python::attach(|py| {
            let asked = PyJob {
                id: job.id,
                bytes: job.bytes,
                avoid: job.avoid.iter().map(|id| id.0).collect(),
                now: now.0 as f64 / 1e9,
            };
            let chosen =
                self.object
                    .call_method1(py, "choose", (asked, PyTargets::of(view, job)))?;
            if chosen.is_none(py) {
                return Ok(None);
            }
            let id: u32 = chosen.extract(py).map_err(|_| {
                let found = chosen.bind(py).get_type().to_string();
                PyTypeError::new_err(format!(
                    "choose returned {found}, expected the id of a target, or None if none fits"
                ))
            })?;
            Ok(Some(TargetId(id)))
        })
    }
}

impl Policy for PyPolicy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        if let Some(Fallback {
            in_force: Some(policy),
            ..
        }) = &mut self.fallback
        {
            return policy.choose(now, job, view);
        }
        if self.account.open().raised.is_some() {
            return self.fail(now, job, view);
        }
        let began = Instant::now();
        let asked = self.ask(now, job, view);
        let mut calls = self.account.open();
        calls.count += 1;
        calls.time += began.elapsed();
        let wrong = match asked {
            Ok(Some(id)) => match view.get(id) {
                Some(target) if target.fits(job) => return Ok(id),
                Some(_) => format!("target {}, which has no room for it", id.0),
                None => format!("target {}, which is not there", id.0),
            },
            Ok(None) if view.targets().iter().all(|target| !target.fits(job)) => {
                return Err(view.refusal(job));
            }
            Ok(None) => "None, though some target fits".to_owned(),
            Err(error) => {
                calls.raised = Some(error);
                drop(calls);
                return self.fail(now, job, view);
            }
        };
        calls.raised = Some(PolicyError::new_err(format!(
            "choose for job {} returned {wrong}; expected a target whose `fits` is True",
            job.id
        )));
        drop(calls);
        self.fail(now, job, view)
    }
}

impl PyPolicy {
    /// Answers after an exception: by the policy that takes over, or with a refusal.
    fn fail(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let Some(fallback) = &mut self.fallback else {
            return Err(view.refusal(job));
        };
        let Some(raised) = self.account.open().raised.take() else {
            return Err(view.refusal(job));
        };
        let mut policy = (fallback.make)(raised, fallback.seed);
        let choice = policy.choose(now, job, view);
        fallback.in_force = Some(policy);
        choice
    }
}
