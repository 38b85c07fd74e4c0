//! HTTP to directors.

use anyhow::{Context as _, anyhow, bail};
use serde::de::DeserializeOwned;
use sheaf_gateway::{OrderRequest, Refusal, Status};
use sheaf_serve::{Explained, Flow, Order, Trial};
use std::net::SocketAddr;
use std::time::Duration;

/// Longest time of a question.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Directors that a command talks to.
pub(super) struct Directors {
    agent: ureq::Agent,
    addresses: Vec<SocketAddr>,
}

impl Directors {
    pub(super) fn new(addresses: &[SocketAddr]) -> Self {
        Self::within(addresses, TIMEOUT)
    }

    /// Returns directors that answer within a time or not at all.
    pub(super) fn within(addresses: &[SocketAddr], timeout: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .build();
        Self {
            agent: config.into(),
            addresses: addresses.to_vec(),
        }
    }

    /// Returns the state of each director.
    pub(super) fn status(&self) -> anyhow::Result<Vec<Status>> {
        let ask = |address: &SocketAddr| {
            let answer = self.agent.get(format!("http://{address}/status")).call();
            read(*address, answer)
        };
        self.addresses.iter().map(ask).collect()
    }

    /// Sends an order to each director. The first is asked for a trial before any is sent, so that an order that is
    /// refused changes nothing anywhere.
    pub(super) fn order(
        &self,
        service: &str,
        order: &Order,
        is_trial: bool,
    ) -> anyhow::Result<Vec<Trial>> {
        let mut trials = Vec::new();
        for is_trial in if is_trial {
            vec![true]
        } else {
            vec![true, false]
        } {
            trials.clear();
            for address in &self.addresses {
                let request = OrderRequest {
                    order: order.clone(),
                    is_trial,
                };
                let body = serde_json::to_vec(&request).context("cannot write the order")?;
                let url = format!("http://{address}/services/{service}/orders");
                let post = self
                    .agent
                    .post(url)
                    .header("Content-Type", "application/json");
                trials.push(read(*address, post.send(&body[..]))?);
            }
        }
        Ok(trials)
    }

    /// Asks the first director where a client goes.
    pub(super) fn explain(&self, service: &str, client: Flow) -> anyhow::Result<Explained> {
        let address = self.addresses.first().context("no director was named")?;
        let Flow {
            address: from,
            port,
        } = client;
        let url = format!("http://{address}/services/{service}/explain?address={from}&port={port}");
        read(*address, self.agent.get(url).call())
    }
}

fn read<T: DeserializeOwned>(
    address: SocketAddr,
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> anyhow::Result<T> {
    let mut answer =
        answer.map_err(|error| anyhow!("the director at {address} does not answer: {error}"))?;
    let status = answer.status();
    let text = answer.body_mut().read_to_string();
    let text = text.with_context(|| format!("the answer of the director at {address} is cut"))?;
    if status.is_success() {
        return serde_json::from_str(&text)
            .with_context(|| format!("{address} does not answer as a director"));
    }
    match serde_json::from_str::<Refusal>(&text) {
        Ok(refusal) => bail!("the director at {address} refuses: {}", refusal.error),
        Err(_) => bail!("{address} does not answer as a director: found status {status}"),
    }
}
