//! Questions of a director to the agent of a server.

use crate::agent::{Answer, CheckHere, Checked};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Longest time of a question.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Largest answer: a million connections.
const ANSWER_MAX: u64 = 64 << 20;

/// Client of one agent for one service.
#[derive(Debug)]
pub(crate) struct AgentClient {
    agent: ureq::Agent,
    url: String,
}

impl AgentClient {
    pub(crate) fn new(address: SocketAddr, addresses: &[IpAddr], port: u16) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .build();
        let mut url = format!("http://{address}/connections?port={port}");
        for address in addresses {
            let _ = write!(url, "&address={address}"); // Writing to a string cannot fail.
        }
        Self {
            agent: config.into(),
            url,
        }
    }

    /// Asks once.
    ///
    /// # Errors
    ///
    /// Why there is no answer, in words.
    pub(crate) fn ask(&self) -> Result<Answer, String> {
        let mut answer = self
            .agent
            .get(&self.url)
            .call()
            .map_err(|error| error.to_string())?;
        let body = answer.body_mut().with_config().limit(ANSWER_MAX);
        let text = body.read_to_string().map_err(|error| error.to_string())?;
        serde_json::from_str(&text)
            .map_err(|error| format!("the agent has not answered as one: {error}"))
    }
}

/// Client of one agent for checks of its server at the virtual addresses.
#[derive(Debug)]
pub(crate) struct CheckClient {
    agent: ureq::Agent,
    url: String,
    order: CheckHere,
}

impl CheckClient {
    pub(crate) fn new(address: SocketAddr, order: CheckHere) -> Self {
        let all = u32::try_from(order.addresses.len()).unwrap_or(u32::MAX);
        let checks = Duration::from_millis(order.timeout_ms).saturating_mul(all);
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT + checks))
            .build();
        Self {
            agent: config.into(),
            url: format!("http://{address}/check"),
            order,
        }
    }

    /// Lets the agent check its server. Returns `Ok` with the fault that it found first.
    ///
    /// # Errors
    ///
    /// Why there is no answer, in words.
    pub(crate) fn check(&self) -> Result<Option<String>, String> {
        let body = serde_json::to_string(&self.order).map_err(|error| error.to_string())?;
        let request = self
            .agent
            .post(&self.url)
            .header("Content-Type", "application/json");
        let mut answer = request.send(body).map_err(|error| error.to_string())?;
        let body = answer.body_mut().with_config().limit(ANSWER_MAX);
        let text = body.read_to_string().map_err(|error| error.to_string())?;
        let checked: Checked = serde_json::from_str(&text)
            .map_err(|error| format!("the agent has not answered as one: {error}"))?;
        Ok(checked.fault)
    }
}
