//! Two directors and the virtual addresses that move between them: the table `[failover]`.

use crate::error::GatewayError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sheaf_serve::ServiceConfig;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Longest interval of advertisements: 12 bits of centiseconds (RFC 5798, section 5.2.7).
const ADVERT_MS_MAX: u64 = 40_950;

/// Least delay of taking addresses back: by then a director that came back was asked twice whether it is ready.
const PREEMPT_DELAY_S_MIN: u32 = 5;

/// Directors that stand in for each other. The file is the same on all of them but for `[director] name`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailoverConfig {
    /// Number of the virtual router, of which no other in the network has the same: 1 to 255.
    pub router_id: u8,
    /// Interface of the virtual addresses; that of `[director]` by default.
    #[serde(default)]
    pub interface: Option<String>,
    /// Time between two advertisements. After three of them without one, another director takes over.
    #[serde(default = "advert_ms")]
    pub advert_ms: u64,
    /// Time that a director with a higher priority waits before it takes the addresses back: 5 s at least.
    #[serde(default = "preempt_delay_s")]
    pub preempt_delay_s: u32,
    /// Program that keepalived asks whether the director is ready.
    #[serde(default = "program")]
    pub program: PathBuf,
    /// Directors.
    #[serde(default, rename = "director")]
    pub directors: Vec<FailoverDirector>,
}

/// One of the directors.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailoverDirector {
    /// Name, as in its `[director]`.
    pub name: String,
    /// Own addresses, one of each family that the services have; advertisements go from one to the other.
    pub addresses: Vec<IpAddr>,
    /// Address of its HTTP, as in its `listen`.
    #[schemars(with = "String")]
    pub http: SocketAddr,
    /// Priority: the highest of the directors that are ready has the addresses. 62 to 254.
    pub priority: u8,
}

fn advert_ms() -> u64 {
    300
}

fn preempt_delay_s() -> u32 {
    5
}

fn program() -> PathBuf {
    PathBuf::from("/usr/bin/sheaf")
}

impl FailoverDirector {
    /// Returns its address of a family.
    pub(crate) fn address(&self, is_v4: bool) -> Option<IpAddr> {
        let mut all = self.addresses.iter().copied();
        all.find(|address| address.is_ipv4() == is_v4)
    }
}

impl FailoverConfig {
    /// Difference that a director loses which is not ready. Priorities are closer to each other than that.
    pub const UNREADY: u8 = 60;

    /// Returns the row of the director `name` and those of the others.
    ///
    /// # Errors
    ///
    /// [`GatewayError::NoDirector`] if there is none of the name.
    pub fn split(
        &self,
        name: &str,
    ) -> Result<(&FailoverDirector, Vec<&FailoverDirector>), GatewayError> {
        let own = self.directors.iter().find(|row| row.name == name);
        let own = own.ok_or_else(|| GatewayError::NoDirector {
            found: name.to_owned(),
            expected: self.directors.iter().map(|row| row.name.clone()).collect(),
        })?;
        let others = self.directors.iter().filter(|row| row.name != name);
        Ok((own, others.collect()))
    }

    /// Checks the table against the services.
    pub(crate) fn check(&self, services: &[ServiceConfig]) -> Result<(), GatewayError> {
        let wrong = |key, found: String, expected: &str| {
            Err(GatewayError::Failover {
                key,
                found,
                expected: expected.to_owned(),
            })
        };
        if self.router_id == 0 {
            return wrong("router_id", "0".to_owned(), "1 to 255");
        }
        if !(50..=ADVERT_MS_MAX).contains(&self.advert_ms) || !self.advert_ms.is_multiple_of(10) {
            let expected = "50 to 40950, in steps of 10";
            return wrong("advert_ms", self.advert_ms.to_string(), expected);
        }
        if !(PREEMPT_DELAY_S_MIN..=1000).contains(&self.preempt_delay_s) {
            let found = self.preempt_delay_s.to_string();
            return wrong("preempt_delay_s", found, "5 to 1000");
        }
        let program = self.program.display().to_string();
        if !self.program.is_absolute() || program.contains(|c: char| c.is_whitespace() || c == '"')
        {
            return wrong("program", program, "an absolute path without spaces");
        }
        if self.directors.len() < 2 {
            let found = self.directors.len().to_string();
            return wrong("[[failover.director]]", found, "two of them at least");
        }
        let names: BTreeSet<&str> = self.directors.iter().map(|row| row.name.as_str()).collect();
        let priorities: Vec<u8> = self.directors.iter().map(|row| row.priority).collect();
        if names.len() < self.directors.len() {
            return wrong("name", format!("{names:?}"), "names that differ");
        }
        let distinct: BTreeSet<u8> = priorities.iter().copied().collect();
        let span = distinct.last().zip(distinct.first());
        let is_in_range = |priority: &u8| (Self::UNREADY + 2..=254).contains(priority);
        if distinct.len() < priorities.len()
            || !priorities.iter().all(is_in_range)
            || span.is_some_and(|(most, least)| most - least >= Self::UNREADY)
        {
            let expected = "numbers from 62 to 254 that differ, by less than 60";
            return wrong("priority", format!("{priorities:?}"), expected);
        }
        for is_v4 in [true, false] {
            let mut all = services.iter().flat_map(|service| &service.addresses);
            if !all.any(|address| address.is_ipv4() == is_v4) {
                continue;
            }
            if let Some(row) = self
                .directors
                .iter()
                .find(|row| row.address(is_v4).is_none())
            {
                let family = if is_v4 { "IPv4" } else { "IPv6" };
                let found = format!("{:?} of {:?}", row.addresses, row.name);
                return wrong(
                    "addresses",
                    found,
                    &format!("one of {family}, as services have"),
                );
            }
        }
        Ok(())
    }
}
