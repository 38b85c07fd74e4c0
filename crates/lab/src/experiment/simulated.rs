//! A simulated run.

use super::Trial;
use super::live::Turn;
use super::result::RunResult;
use crate::error::LabError;

pub(super) fn run(trial: &Trial, turn: &Turn) -> Result<RunResult, LabError> {
    let _ = (trial, turn);
    Err(LabError::Missing("simulated points".to_owned()))
}
