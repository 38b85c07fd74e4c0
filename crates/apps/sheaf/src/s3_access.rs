//! Server and keys of S3, as commands and the environment name them.

use sheaf_ship::{S3Access, S3Keys};
use std::path::PathBuf;

/// Returns server and keys of S3: those that were named, and else those of the environment.
pub(crate) fn s3_access(
    endpoint: &Option<String>,
    region: &Option<String>,
    credentials: &Option<PathBuf>,
) -> S3Access {
    let keys = variable(&["AWS_ACCESS_KEY_ID"]).zip(variable(&["AWS_SECRET_ACCESS_KEY"]));
    let of_environment = || variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
    let region_there = || variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
    S3Access {
        endpoint: endpoint.clone().or_else(of_environment),
        region: region.clone().or_else(region_there),
        keys: keys.map(|(id, secret)| S3Keys {
            id,
            secret,
            session_token: variable(&["AWS_SESSION_TOKEN"]),
        }),
        credentials_file: credentials.clone(),
        part_bytes: None,
    }
}

/// Reads the first of some variables of the environment that is not empty.
fn variable(names: &[&str]) -> Option<String> {
    let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
    values.find(|value| !value.is_empty())
}
