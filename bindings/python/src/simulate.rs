//! Simulated farms: the points of an experiment in virtual time, with a policy in Python.

use crate::errors::BadConfig;
use crate::policy::{Account, PyPolicy};
use crate::program::registered;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sheaf_placement::Policy;
use sheaf_sim::des::{Run, TfRecord, run_point_with};
use sheaf_sim::experiment::ExperimentFile;
use sheaf_sim::scenario::{Scenario, ScenarioError, Subject};
use std::path::Path;
use std::time::Instant;

/// Points of one experiment.
const POINTS_MAX: usize = 100_000;

fn refused(error: &ScenarioError) -> PyErr {
    BadConfig::new_err(error.to_string())
}

/// Returns the points of an experiment, whose text is TOML, one line of JSON each.
#[pyfunction]
pub(crate) fn points_of(text: &str, folder: &str) -> PyResult<Vec<String>> {
    let file = ExperimentFile::parse(text).map_err(|error| refused(&error))?;
    let points = file.points(Path::new(folder), POINTS_MAX);
    let points = points.map_err(|error| refused(&error))?;
    let lines = points.iter().map(serde_json::to_string);
    lines
        .collect::<Result<_, _>>()
        .map_err(|error| BadConfig::new_err(error.to_string()))
}

/// Simulates one point, a line of `points_of`. `policy` is called with a seed for each run and returns an object with
/// `choose(job, targets)`; None for the policy of the point. Returns a dictionary.
#[pyfunction]
#[pyo3(signature = (point, policy, with_records))]
pub(crate) fn simulate_point(
    py: Python<'_>,
    point: &str,
    policy: Option<Py<PyAny>>,
    with_records: bool,
) -> PyResult<Py<PyDict>> {
    let scenario: Scenario =
        serde_json::from_str(point).map_err(|error| BadConfig::new_err(error.to_string()))?;
    if scenario.subject() != Subject::Farm {
        return Err(BadConfig::new_err(
            "found a point of writers or servers, expected a farm; `sheaf lab run` simulates those",
        ));
    }
    let account = Account::default();
    // A name may have been looked up without a run.
    registered().open().raised = None;
    let began = Instant::now();
    let mut kept = Vec::new();
    let mut take = |run: &Run| {
        if with_records {
            kept.push((run.seed, run.records.clone()));
        }
    };
    let simulated = py.detach(|| {
        let make = |seed| {
            let maker = policy.as_ref()?;
            Some(Box::new(PyPolicy::new(maker, seed, &account)) as Box<dyn Policy>)
        };
        let goes_on = |_, _| {
            let mut calls = account.open();
            if calls.raised.is_none() {
                calls.raised = Python::attach(|py| py.check_signals()).err();
            }
            calls.raised.is_none() && registered().open().raised.is_none()
        };
        run_point_with(&scenario, make, goes_on, &mut take)
    });
    if let Some(raised) = registered().open().raised.take() {
        return Err(raised);
    }
    let mut calls = account.open();
    if let Some(raised) = calls.raised.take() {
        return Err(raised);
    }
    let simulated = simulated.map_err(|error| refused(&error))?;
    let told = PyDict::new(py);
    let row = serde_json::to_string(&simulated.point)
        .map_err(|error| BadConfig::new_err(error.to_string()))?;
    told.set_item("point", row)?;
    told.set_item("trace_hash", format!("{:016x}", simulated.trace_hash))?;
    told.set_item("seconds", began.elapsed().as_secs_f64())?;
    told.set_item("policy_calls", calls.count)?;
    told.set_item("policy_seconds", calls.time.as_secs_f64())?;
    told.set_item(
        "records",
        with_records.then(|| columns(py, &kept)).transpose()?,
    )?;
    Ok(told.unbind())
}

/// Returns the records of all runs as columns, with the seed of the run of each.
fn columns<'py>(py: Python<'py>, runs: &[(u64, Vec<TfRecord>)]) -> PyResult<Bound<'py, PyDict>> {
    let records = || {
        let runs = runs.iter();
        runs.flat_map(|(seed, records)| records.iter().map(move |record| (*seed, record)))
    };
    let columns = PyDict::new(py);
    columns.set_item("seed", records().map(|(seed, _)| seed).collect::<Vec<_>>())?;
    for (place, name) in TfRecord::COLUMNS.into_iter().enumerate() {
        match name {
            "tf" => columns.set_item(name, records().map(|(_, it)| it.tf).collect::<Vec<_>>())?,
            "epn" => columns.set_item(name, records().map(|(_, it)| it.epn).collect::<Vec<_>>())?,
            "attempts" => {
                columns.set_item(
                    name,
                    records().map(|(_, it)| it.attempts).collect::<Vec<_>>(),
                )?;
            }
            "bytes" => {
                columns.set_item(name, records().map(|(_, it)| it.bytes).collect::<Vec<_>>())?;
            }
            "fate" => {
                columns.set_item(
                    name,
                    records().map(|(_, it)| it.fate.name()).collect::<Vec<_>>(),
                )?;
            }
            // The times stand behind the id, in their order.
            _ => columns.set_item(
                name,
                records()
                    .map(|(_, it)| it.times()[place - 1])
                    .collect::<Vec<_>>(),
            )?,
        }
    }
    Ok(columns)
}
