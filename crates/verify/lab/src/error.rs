//! The error of all operations, for the command line.

use crate::calibrate::CalibrateError;
use crate::ceiling::CeilingError;
use crate::experiment::ExperimentError;
use crate::experiment::run::RunError;
use crate::experiment::store::{ConcludeError, ReadError, StoreError};
use crate::experiment::venue::StageError;
use crate::faults::FaultsError;
use crate::hosted::{CollectError, StartError, StopError};
use crate::machine::MachineFitError;
use crate::report::pages::ReportError;
use sheaf_testbed::hosts::{OpenError, PushError, SessionError};
use sheaf_testbed::input::InputError;
use sheaf_testbed::net::{NetError, RemoveError};
use sheaf_testbed::tool::Missing;
use thiserror::Error;

/// Sum of the errors of operations that the command line prints.
#[derive(Debug, Error)]
pub enum LabError {
    /// The fault matrix.
    #[error(transparent)]
    Faults(Box<FaultsError>),
    /// The runs of an experiment.
    #[error(transparent)]
    Run(Box<RunError>),
    /// Results read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A report.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// Simulated beside live points.
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    /// Numbers of a machine.
    #[error(transparent)]
    MachineFit(#[from] MachineFitError),
    /// Throughput of links.
    #[error(transparent)]
    Ceiling(#[from] CeilingError),
    /// A file that people write.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A check of what the machine has.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A network that is made.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A network that is removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// Connections to hosts.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// This program on hosts.
    #[error(transparent)]
    Push(#[from] PushError),
    /// An action on a host.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A farm that is started by hand.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A farm that is stopped by hand.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Files that are fetched from hosts.
    #[error(transparent)]
    Collect(#[from] CollectError),
}

impl From<ExperimentError> for LabError {
    fn from(error: ExperimentError) -> Self {
        Self::Run(Box::new(error.into()))
    }
}

impl From<FaultsError> for LabError {
    fn from(error: FaultsError) -> Self {
        Self::Faults(Box::new(error))
    }
}

impl From<RunError> for LabError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

impl LabError {
    /// Returns whether the user can mend it: a file, a name, a folder, or something that the machine lacks.
    #[must_use]
    pub fn is_bad_use(&self) -> bool {
        match self {
            Self::Faults(error) => {
                matches!(**error, FaultsError::Cell { .. } | FaultsError::Missing(_))
            }
            Self::Read(ReadError::Refused { .. })
            | Self::Collect(CollectError::Refused { .. })
            | Self::Calibrate(_)
            | Self::MachineFit(
                MachineFitError::Experiment(_)
                | MachineFitError::Partial { .. }
                | MachineFitError::Unpaired { .. },
            )
            | Self::Input(_)
            | Self::Missing(_)
            | Self::Remove(RemoveError::Missing(_))
            | Self::Open(OpenError::Missing(_)) => true,
            Self::Net(error) | Self::Ceiling(CeilingError::Net(error)) => lacks(error),
            Self::Run(error) => match &**error {
                RunError::Experiment(_)
                | RunError::Missing(_)
                | RunError::Open(OpenError::Missing(_))
                | RunError::Store(StoreError::Refused { .. })
                | RunError::Read(ReadError::Refused { .. })
                | RunError::Conclude(ConcludeError::Read(ReadError::Refused { .. }))
                | RunError::Stage(StageError::Open(OpenError::Missing(_))) => true,
                RunError::Stage(StageError::Net(error)) => lacks(error),
                RunError::Servers(error) => error.is_missing(),
                _ => false,
            },
            _ => false,
        }
    }
}

fn lacks(error: &NetError) -> bool {
    matches!(
        error,
        NetError::Missing(_) | NetError::Remove(RemoveError::Missing(_))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn what_the_user_can_mend_is_told_from_what_fails() {
        let missing = || Missing("needs root".to_owned());
        let refused = || ReadError::Refused {
            folder: PathBuf::from("results"),
            why: "it is empty".to_owned(),
        };
        let of_run = |error: RunError| LabError::from(error);
        for (error, is_bad_use, text) in [
            (missing().into(), true, "this cannot run here: needs root"),
            (
                of_run(missing().into()),
                true,
                "this cannot run here: needs root",
            ),
            (
                of_run(StageError::from(NetError::from(missing())).into()),
                true,
                "this cannot run here: needs root",
            ),
            (refused().into(), true, "results: it is empty"),
            (
                of_run(sheaf_testbed::clock::Interrupted.into()),
                false,
                "asked to end",
            ),
        ] {
            let error: LabError = error;
            assert_eq!(
                (error.is_bad_use(), error.to_string().as_str()),
                (is_bad_use, text)
            );
        }
    }
}
