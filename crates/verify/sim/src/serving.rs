//! The `[serving]` table of a scenario: servers behind one address, their clients, and the words for them.

use serde::{Deserialize, Serialize};

/// Spread of clients over their hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// As many on each host as on every other.
    #[default]
    Even,
    /// A host for each client by lot, as a batch system places jobs.
    Random,
}

/// Method of all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Downloads.
    #[default]
    Get,
    /// Uploads.
    Put,
}

/// Fault after a third of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServingFault {
    /// The program of a server is killed.
    ServerKilled,
    /// The cable of a server is cut.
    ServerCut,
    /// The program of the director is killed.
    DirectorKilled,
}

impl ServingFault {
    /// Name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerKilled => "server-killed",
            Self::ServerCut => "server-cut",
            Self::DirectorKilled => "director-killed",
        }
    }

    /// Words for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ServerKilled => "a server killed",
            Self::ServerCut => "a server cut off",
            Self::DirectorKilled => "the director killed",
        }
    }
}

/// Servers behind one address, and the clients that load them, always live: on this machine in namespaces.
///
/// Rates of cables and sizes of objects are those of the original ÷ `scale`; rates in results are multiplied by it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Serving {
    /// Way of clients to servers: a plane of `sheaf bench serve`.
    pub plane: String,
    /// Kind of servers of `sheaf bench serve`.
    pub engine: String,
    /// Servers.
    pub servers: u32,
    /// Clients at once.
    pub clients: u32,
    /// Client hosts.
    pub client_hosts: u32,
    /// Spread of the clients over them.
    pub placement: Placement,
    /// Method of all clients.
    pub method: Method,
    /// Bytes of an object.
    pub object_bytes: u64,
    /// Factor by which rates are smaller than those of the original.
    pub scale: f64,
    /// Rate of the cable of each server in Mbit/s; 0: as fast as the machine.
    pub server_mbit: f64,
    /// Rate of the cable of each client host in Mbit/s; 0: as fast as the machine.
    pub client_mbit: f64,
    /// Time before the window in which clients begin, as a share of the window.
    pub warm_up: f64,
    /// Servers drained and added again in each window, in turn.
    pub drains: u32,
    /// Fault after a third of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<ServingFault>,
}

impl Default for Serving {
    fn default() -> Self {
        Self {
            plane: "nft".to_owned(),
            engine: "nginx".to_owned(),
            servers: 6,
            clients: 1000,
            client_hosts: 50,
            placement: Placement::Even,
            method: Method::Get,
            object_bytes: 1_000_000,
            scale: 50.0,
            server_mbit: 200.0,
            client_mbit: 20.0,
            warm_up: 1.0 / 3.0,
            drains: 0,
            fault: None,
        }
    }
}

impl Serving {
    /// Words for the client hosts: their cables, and the spread of the clients over them where it matters.
    #[must_use]
    pub fn hosts(&self) -> String {
        match (self.client_mbit > 0.0, self.placement) {
            (false, _) => "without cables".to_owned(),
            (true, Placement::Even) => format!("{} Mbit/s", self.client_mbit),
            (true, Placement::Random) => format!("{} Mbit/s, by lot", self.client_mbit),
        }
    }

    /// Words for what differs from downloads of servers that are well; nothing for these.
    #[must_use]
    pub fn besides(&self) -> String {
        let put = (self.method == Method::Put).then(|| "uploads".to_owned());
        let drains = (self.drains > 0).then(|| format!("{} drains", self.drains));
        let fault = self.fault.map(|fault| fault.words().to_owned());
        let words: Vec<String> = [put, drains, fault].into_iter().flatten().collect();
        words.join(", ")
    }

    /// Words for the load, without the plane: clients, their hosts and what is special.
    #[must_use]
    pub fn load(&self) -> String {
        let besides = self.besides();
        let besides = match besides.as_str() {
            "" => String::new(),
            words => format!(", {words}"),
        };
        format!("{} clients, hosts {}{besides}", self.clients, self.hosts())
    }

    /// Name of the load in names of files.
    #[must_use]
    pub fn id(&self) -> String {
        let hosts = match (self.client_mbit > 0.0, self.placement) {
            (false, _) => "free".to_owned(),
            (true, Placement::Even) => format!("{}mbit", self.client_mbit),
            (true, Placement::Random) => format!("{}mbit-by-lot", self.client_mbit),
        };
        let put = (self.method == Method::Put).then(|| "put".to_owned());
        let drains = (self.drains > 0).then(|| format!("{}-drains", self.drains));
        let fault = self.fault.map(|fault| fault.name().to_owned());
        let head = [self.clients.to_string(), hosts];
        let besides = [put, drains, fault].into_iter().flatten();
        let words: Vec<String> = head.into_iter().chain(besides).collect();
        words.join("-")
    }

    /// Time before the window, for one of `window_s`, in s.
    #[must_use]
    pub fn warm_up_s(&self, window_s: f64) -> f64 {
        self.warm_up * window_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_told_in_words() {
        let serving = Serving::default();
        assert_eq!(serving.load(), "1000 clients, hosts 20 Mbit/s");
        let other = Serving {
            placement: Placement::Random,
            method: Method::Put,
            drains: 3,
            fault: Some(ServingFault::ServerKilled),
            ..serving.clone()
        };
        let words = "1000 clients, hosts 20 Mbit/s, by lot, uploads, 3 drains, a server killed";
        assert_eq!(other.load(), words);
        assert_eq!(other.id(), "1000-20mbit-by-lot-put-3-drains-server-killed");
        let free = Serving {
            client_mbit: 0.0,
            // Without cables it is all the same where clients are.
            placement: Placement::Random,
            ..serving
        };
        assert_eq!(free.load(), "1000 clients, hosts without cables");
        assert_eq!(free.id(), "1000-free");
    }
}
