//! How errors end a command: what is told, and with which exit status.

use sheaf_node::config::ConfigErrors;
use std::fmt;
use std::process::ExitCode;

/// The command line or the farm file is wrong: nothing was started.
const BAD_USE: u8 = 2;
/// It was started and failed.
const FAILED: u8 = 1;

/// What was asked for cannot be done as it was asked.
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
    eprintln!("sheaf: {error:#}");
    ExitCode::from(status(error))
}

fn status(error: &anyhow::Error) -> u8 {
    if error.is::<BadUse>() || error.is::<ConfigErrors>() {
        BAD_USE
    } else {
        FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn wrong_use_and_failure_have_different_statuses() {
        assert_eq!(status(&bad_use("no")), 2);
        assert_eq!(status(&anyhow::Error::from(ConfigErrors(Vec::new()))), 2);
        let wrapped = Err::<(), _>(ConfigErrors(Vec::new())).context("while starting");
        assert_eq!(status(&wrapped.unwrap_err()), 2);
        assert_eq!(status(&anyhow::anyhow!("no port")), 1);
    }
}
