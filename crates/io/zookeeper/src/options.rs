//! How to reach an ensemble, and as whom.

use std::fmt;
use std::time::Duration;
use thiserror::Error;
#[cfg(feature = "client")]
use zookeeper_client::{Acls, Client, Connector};

/// How to reach an ensemble.
#[derive(Clone)]
pub struct ZooKeeperOptions {
    /// HOST:PORT of each server.
    pub servers: Vec<String>,
    /// How long a session outlives a break. Servers grant no less than two of their ticks, unless told otherwise.
    pub session: Duration,
    /// Name and password. With them every node that is made is for this user alone.
    pub user: Option<(String, String)>,
    /// With it, connections are encrypted.
    pub tls: Option<Tls>,
}

/// The certificates of a connection, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// CA certificates that sign the servers' certificates.
    pub ca: String,
    /// This client's certificate and key, for servers that ask for them.
    pub identity: Option<(String, String)>,
}

/// Option that cannot be used.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// No server, or one that is not HOST:PORT.
    #[error("found the ZooKeeper servers {found:?}, expected HOST:PORT of at least one")]
    Servers {
        /// The list.
        found: Vec<String>,
    },
    /// Certificates or a key that are none.
    #[error("cannot use the certificates for ZooKeeper: {0}")]
    Tls(String),
    /// A build without the feature `client`.
    #[error("this build has no client for ZooKeeper (cargo feature `zookeeper`)")]
    NotBuilt,
    /// No thread.
    #[error("cannot start the thread for ZooKeeper: {0}")]
    Thread(#[from] std::io::Error),
}

/// Passwords and keys do not stand in logs.
impl fmt::Debug for ZooKeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("ZooKeeperOptions")
            .field("servers", &self.servers)
            .field("session", &self.session)
            .field("user", &user)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

impl ZooKeeperOptions {
    /// No user and no TLS, as on loopback.
    #[must_use]
    pub fn new(servers: Vec<String>, session: Duration) -> Self {
        Self {
            servers,
            session,
            user: None,
            tls: None,
        }
    }

    /// Refuses servers that are not HOST:PORT, and none at all.
    ///
    /// # Errors
    ///
    /// [`OptionsError::Servers`].
    #[cfg(any(feature = "client", test))]
    pub(crate) fn check_servers(&self) -> Result<(), OptionsError> {
        let is_address = |server: &String| {
            let has_port =
                |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
            server.rsplit_once(':').is_some_and(has_port) && !server.contains(['/', ','])
        };
        if self.servers.is_empty() || !self.servers.iter().all(is_address) {
            let found = self.servers.clone();
            return Err(OptionsError::Servers { found });
        }
        Ok(())
    }

    #[cfg(feature = "client")]
    pub(crate) fn connector(&self) -> Connector {
        let mut connector = Client::connector().with_session_timeout(self.session);
        if let Some((name, password)) = &self.user {
            connector = connector.with_auth("digest", format!("{name}:{password}").as_bytes());
        }
        connector
    }

    /// Returns the rights on the nodes that this client makes.
    #[cfg(feature = "client")]
    pub(crate) fn acls(&self) -> Acls<'static> {
        match self.user {
            Some(_) => Acls::creator_all(),
            None => Acls::anyone_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_a_host_and_a_port() {
        let of = |servers: &[&str]| {
            let servers = servers.iter().map(|one| (*one).to_owned()).collect();
            ZooKeeperOptions::new(servers, Duration::from_secs(1)).check_servers()
        };
        assert!(of(&["a:1", "10.0.0.1:2181"]).is_ok());
        for bad in [
            &[] as &[&str],
            &["a"],
            &["a:b"],
            &[":1"],
            &["a:1/x"],
            &["a:1,b:2"],
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_password_does_not_stand_in_logs() {
        let mut options = ZooKeeperOptions::new(vec!["a:1".to_owned()], Duration::from_secs(1));
        options.user = Some(("farm".to_owned(), "secret".to_owned()));
        let text = format!("{options:?}");
        assert!(text.contains("farm") && !text.contains("secret"), "{text}");
    }
}
