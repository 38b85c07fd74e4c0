//! How packets of collectd are read: names of data sources, and users with their passwords.

use crate::config::CollectdConfig;
use ring::hmac;
use sheaf_intake::Intake;
use sheaf_samples::wire::collectd::Types;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tracing::warn;

/// Reason why collectd's packets could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CollectdError {
    /// A file of the configuration.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// A line of the file of users.
    #[error("{}:{line}: found no user, expected `user: password`", path.display())]
    User {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
}

/// Settings for all intakes.
#[derive(Clone)]
pub(crate) struct Collectd {
    types: Types,
    users: Option<Arc<BTreeMap<String, hmac::Key>>>,
    is_required: bool,
}

impl Collectd {
    /// Reads the files of the configuration.
    pub(crate) fn open(config: &CollectdConfig) -> Result<Self, CollectdError> {
        let failed = |path: &PathBuf| {
            let path = path.clone();
            move |source| CollectdError::File { path, source }
        };
        let mut text = String::new();
        // Without collectd there are no types to read.
        for path in config.types_db.iter().filter(|_| !config.udp.is_empty()) {
            match std::fs::read_to_string(path) {
                Ok(more) => text = text + &more + "\n",
                Err(error) if error.kind() == io::ErrorKind::NotFound => warn!(
                    path = %path.display(),
                    "No types.db: data sources of collectd are numbered, not named"
                ),
                Err(error) => return Err(failed(path)(error)),
            }
        }
        let (types, faults) = Types::parse(&text);
        if let Some(fault) = faults.first() {
            warn!(%fault, faults = faults.len(), "Lines of types.db are passed over");
        }
        let path = &config.auth_file;
        let users = if path.as_os_str().is_empty() {
            None
        } else {
            let text = std::fs::read_to_string(path).map_err(failed(path))?;
            let lines = text.lines().enumerate();
            let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
            let users = lines.map(|(number, line)| match line.split_once(':') {
                Some((user, password)) if !user.trim().is_empty() => {
                    let key = hmac::Key::new(hmac::HMAC_SHA256, password.trim().as_bytes());
                    Ok((user.trim().to_owned(), key))
                }
                _ => Err(CollectdError::User {
                    path: path.clone(),
                    line: number + 1,
                }),
            });
            Some(Arc::new(users.collect::<Result<BTreeMap<_, _>, _>>()?))
        };
        Ok(Self {
            types,
            users,
            is_required: config.require_signature,
        })
    }

    /// Sets up an intake.
    pub(crate) fn set(&self, intake: &mut Intake) {
        let users = self.users.clone();
        let verify = users.map(|users| {
            let verify = move |user: &str, signed: &[u8], mac: &[u8]| {
                users
                    .get(user)
                    .is_some_and(|key| hmac::verify(key, signed, mac).is_ok())
            };
            Box::new(verify) as Box<sheaf_intake::Verify>
        });
        intake.set_collectd(self.types.clone(), verify, self.is_required);
    }
}
