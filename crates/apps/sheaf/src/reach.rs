//! Way of a command to a running farm: its ICNs, its certificates, and how long it is tried.

use crate::{address, duration, fail};
use sheaf_node::config::FarmConfig;
use sheaf_node::operator::{Operator, OperatorError};
use std::path::PathBuf;
use std::time::Duration;

/// Connection to the farm.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Way {
    /// Read addresses of the ICNs and certificates from this farm file.
    #[arg(long, value_name = "FILE", required_unless_present = "icn")]
    pub(crate) config: Option<PathBuf>,
    /// Connect to these ICNs in place of those of the farm file.
    #[arg(long, value_name = "ADDR", value_parser = address::parse_node, num_args = 1..)]
    pub(crate) icn: Vec<String>,
    /// Give up if no ICN has carried out the order within this time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
    /// Authenticate as this operator: the index in the certificate.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) operator: u16,
}

/// Connection to the farm, and form of the answer.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Reach {
    #[command(flatten)]
    pub(crate) way: Way,
    /// Print the outcome as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Way {
    /// Returns the farm file, with the ICNs of the command line.
    ///
    /// # Errors
    ///
    /// What is wrong with the farm file.
    pub(crate) fn farm(&self) -> anyhow::Result<FarmConfig> {
        let mut config = match &self.config {
            Some(file) => FarmConfig::load_for(file, &[])?,
            None => FarmConfig::default(),
        };
        if !self.icn.is_empty() {
            config.icn.addresses.clone_from(&self.icn);
        }
        Ok(config)
    }

    /// Returns a client of the farm.
    ///
    /// # Errors
    ///
    /// What is wrong with the farm file, its certificates or its addresses.
    pub(crate) fn operator(&self) -> anyhow::Result<Operator> {
        let config = self.farm()?;
        Operator::new(&config, self.operator).map_err(|error| match error {
            OperatorError::Security(_) | OperatorError::Resolve { .. } => fail::bad_use(error),
            error => error.into(),
        })
    }
}
