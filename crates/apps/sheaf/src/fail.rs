//! How errors end a command: what is printed, and with which exit status.

use sheaf_node::config::ConfigErrors;
use sheaf_node::icn::IcnError;
use sheaf_node::role::RoleError;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

/// The command line or the farm file is wrong: nothing was started.
const BAD_USE: u8 = 2;
/// Failure after the start.
const FAILED: u8 = 1;
/// The verdict log is an old copy. A service manager must not start the ICN again: each start takes a term.
const ROLLED_BACK: u8 = 4;

/// Wrong use of the command.
#[derive(Debug)]
struct BadUse(String);

impl fmt::Display for BadUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUse {}

/// An error that ends the command with status 2.
pub(crate) fn bad_use(text: impl fmt::Display) -> anyhow::Error {
    BadUse(text.to_string()).into()
}

/// Tells `error` with its causes on the standard error. Gives the exit status.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    // Unlike `eprintln!` this does not panic if the pipe is closed, or if the disk of a log file is full.
    let _ = writeln!(std::io::stderr(), "sheaf: {}", message(error));
    ExitCode::from(status(error))
}

/// `error` with its causes, without those that it names itself.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

fn status(error: &anyhow::Error) -> u8 {
    let is_unsafe = matches!(error.downcast_ref(), Some(RoleError::Security(_)));
    if error.is::<BadUse>() || error.is::<ConfigErrors>() || is_unsafe {
        BAD_USE
    } else if matches!(
        error.downcast_ref(),
        Some(RoleError::Icn(IcnError::RolledBack(_)))
    ) {
        ROLLED_BACK
    } else {
        FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_cause_is_told_once() {
        let cause = || std::io::Error::other("in use");
        let naming = anyhow::Error::from(cause()).context("cannot listen: in use");
        assert_eq!(
            message(&naming.context("icn:0 failed")),
            "icn:0 failed: cannot listen: in use"
        );
        let silent = anyhow::Error::from(cause()).context("cannot listen");
        assert_eq!(message(&silent), "cannot listen: in use");
    }

    #[test]
    fn wrong_use_and_failure_have_different_statuses() {
        assert_eq!(status(&bad_use("no")), 2);
        assert_eq!(status(&anyhow::Error::from(ConfigErrors(Vec::new()))), 2);
        let wrapped = Err::<(), _>(ConfigErrors(Vec::new())).context("while starting");
        assert_eq!(status(&wrapped.unwrap_err()), 2);
        assert_eq!(status(&anyhow::anyhow!("no port")), 1);
    }
}
