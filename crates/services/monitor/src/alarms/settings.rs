//! Configuration of alarms: the `[monitor.alarms]` table, and the files that it names.

use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use sheaf_alarms::{AlarmsConfig, Channel, Findings, Routing, RuleFile, sheaf_rules};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The `[monitor.alarms]` table: rules, whom they notify, and what they may order.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlarmsSettings {
    /// Files of rules, in the format of Prometheus.
    pub rules: Vec<PathBuf>,
    /// Whether the rules for a Sheaf farm that come with this program are in force as well.
    pub sheaf_rules: bool,
    /// Whether late rules see the samples of collectors side by side as well (`monitor.peer`): at one of them, or each
    /// of them notifies.
    pub over_peers: bool,
    /// File of routes and receivers, in the format of Alertmanager; empty: every alert is a line of the log.
    pub routes: PathBuf,
    /// Address of the page of alarms, for links in notifications; empty: none.
    pub page: String,
    /// Certificates that those of receivers are signed with, as PEM.
    pub ca: PathBuf,
    /// Longest attempt to deliver a notification, in ms.
    pub timeout_ms: u64,
    /// Server of e-mail.
    pub mail: MailSettings,
    /// Bounds and times.
    pub limits: AlarmsConfig,
}

/// The `[monitor.alarms.mail]` table: the server that takes e-mail.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MailSettings {
    /// Name or address and port; empty: no e-mail.
    pub server: String,
    /// Encryption of the connection.
    pub tls: MailTls,
    /// Sender of notifications.
    pub from: String,
    /// User; empty: without a login.
    pub user: String,
    /// File whose first line is the password.
    pub password_file: PathBuf,
}

/// Encryption of the connection to a server of e-mail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MailTls {
    /// TLS after a greeting in the clear; a server that does not offer it gets nothing.
    #[default]
    StartTls,
    /// TLS from the first byte.
    Wrapped,
    /// None: for a server on this machine.
    None,
}

impl Default for AlarmsSettings {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            sheaf_rules: true,
            over_peers: false,
            routes: PathBuf::new(),
            page: String::new(),
            ca: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
            timeout_ms: 10_000,
            mail: MailSettings::default(),
            limits: AlarmsConfig::default(),
        }
    }
}

/// Rules and routes of the files.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) files: Vec<RuleFile>,
    pub(crate) routing: Routing,
}

impl AlarmsSettings {
    /// Takes the paths of files as relative to `folder`.
    pub fn resolve(&mut self, folder: &Path) {
        let password = &mut self.mail.password_file;
        let files = self.rules.iter_mut().chain([&mut self.routes, password]);
        for path in files.filter(|path| !path.as_os_str().is_empty()) {
            *path = folder.join(&path);
        }
    }

    /// Returns everything that makes no sense, in the files as well.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = match self.load() {
            Ok(loaded) => self.problems_of(&loaded.routing),
            Err(problems) => problems,
        };
        if !(100..=60_000).contains(&self.timeout_ms) {
            found.push(Problem::of(
                "alarms.timeout_ms",
                &self.timeout_ms,
                "100 to 60000",
            ));
        }
        let is_open = self.mail.tls == MailTls::None && !self.mail.user.is_empty();
        if is_open && !is_of_this_machine(host(&self.mail.server)) {
            found.push(Problem::of(
                "alarms.mail.tls",
                &"none",
                "starttls or wrapped: a password would be sent in the clear",
            ));
        }
        found
    }

    /// Reads all files; what is wrong in them comes all at once.
    pub(crate) fn load(&self) -> Result<Loaded, Vec<Problem>> {
        let (mut files, mut problems) = (Vec::new(), Vec::new());
        if self.sheaf_rules {
            match sheaf_rules() {
                Ok(file) => files.push(file),
                Err(findings) => problems.extend(of_file("alarms.sheaf_rules", &findings)),
            }
        }
        for path in &self.rules {
            match read("alarms.rules", path) {
                Ok(text) => match RuleFile::parse(&path.display().to_string(), &text) {
                    Ok(file) => files.push(file),
                    Err(findings) => problems.extend(of_file("alarms.rules", &findings)),
                },
                Err(problem) => problems.push(problem),
            }
        }
        let mut routing = Routing::default();
        if !self.routes.as_os_str().is_empty() {
            match read("alarms.routes", &self.routes) {
                Ok(text) => match Routing::parse(&self.routes.display().to_string(), &text) {
                    Ok(read) => routing = read,
                    Err(findings) => problems.extend(of_file("alarms.routes", &findings)),
                },
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(Loaded { files, routing })
        } else {
            Err(problems)
        }
    }

    /// Returns what is missing in the table for the receivers of `routing`.
    fn problems_of(&self, routing: &Routing) -> Vec<Problem> {
        let mut found = Vec::new();
        let channels = routing.receivers().iter().flat_map(|one| &one.channels);
        for channel in channels {
            match channel {
                Channel::Webhook { url, secret_file } => {
                    found.extend(self.problem_of_url(url));
                    if let Some(file) = secret_file
                        && let Err(problem) = read("alarms.routes", Path::new(file))
                    {
                        found.push(problem);
                    }
                }
                Channel::Alertmanager { url } => found.extend(self.problem_of_url(url)),
                Channel::Email { from, .. } => {
                    if self.mail.server.is_empty() {
                        let expected =
                            "a server such as mail.example.org:587, for the receivers of e-mail";
                        found.push(Problem::of("alarms.mail.server", &"none", expected));
                    } else if from.is_none() && self.mail.from.is_empty() {
                        let expected = "a sender such as sheaf@example.org";
                        found.push(Problem::of("alarms.mail.from", &"none", expected));
                    }
                }
                Channel::Log => {}
            }
        }
        found
    }

    /// The file of routes has been read, so the address is one of HTTP.
    fn problem_of_url(&self, url: &str) -> Option<Problem> {
        let is_tls = url.starts_with("https://");
        is_tls.then(|| read("alarms.ca", &self.ca).err()).flatten()
    }
}

fn read(key: &str, path: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(path).map_err(|error| {
        let found = format!("{} ({error})", path.display());
        Problem::of(key, &found, "a file that can be read")
    })
}

fn of_file(key: &str, findings: &Findings) -> Vec<Problem> {
    let all = findings.0.iter().map(|one| {
        let found = format!("{} at {}:{}", one.found, one.file, one.line);
        Problem::of(key, &found, &one.expected)
    });
    all.collect()
}

/// Name or address without the port.
pub(crate) fn host(server: &str) -> &str {
    let host = server.rsplit_once(':').map_or(server, |pair| pair.0);
    host.trim_matches(['[', ']'])
}

fn is_of_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_rules_are_in_force_without_a_table() {
        let settings = AlarmsSettings::default();
        assert_eq!(settings.problems(), []);
        assert_eq!(settings.load().unwrap().files.len(), 1);
    }

    #[test]
    fn everything_that_is_wrong_comes_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "rules.yml",
            "groups: [{name: g, rules: [{alert: A, expr: 'up =='}]}]",
        );
        write(
            "routes.yml",
            "route: {receiver: a}\nreceivers: [{name: a, email_configs: [{to: a@b.org}], \
             webhook_configs: [{url: 'https://x/'}]}]",
        );
        let mut settings: AlarmsSettings = toml::from_str(
            "rules = [\"rules.yml\", \"none.yml\"]\n[mail]\nuser = \"u\"\n\
             tls = \"none\"\nserver = \"mail.example.org:25\"",
        )
        .unwrap();
        settings.resolve(folder.path());
        let keys = |settings: &AlarmsSettings| -> Vec<String> {
            settings.problems().into_iter().map(|one| one.key).collect()
        };
        assert_eq!(
            keys(&settings),
            [
                "monitor.alarms.rules",
                "monitor.alarms.rules",
                "monitor.alarms.mail.tls"
            ]
        );
        let text = settings.problems()[0].to_string();
        assert!(text.contains("rules.yml:1"), "{text}");
        settings.rules.clear();
        settings.routes = folder.path().join("routes.yml");
        settings.mail = MailSettings::default();
        settings.ca = folder.path().join("none.crt");
        let expected = ["monitor.alarms.mail.server", "monitor.alarms.ca"];
        let mut found = keys(&settings);
        found.sort_by(|one, other| other.cmp(one));
        assert_eq!(found, expected);
    }
}
