//! Work on the store of a running collector that an operator asks for: a check, a copy.

use super::answer::{Refused, data};
use super::ask::apart;
use super::params::Params;
use crate::shared::Shared;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use sheaf_sample_store::{Disk, StoreError};
use std::sync::Arc;

/// Folder of copies below that of the store.
const SNAPSHOTS: &str = "snapshots";
/// Longest name of a copy.
const NAME_MAX: usize = 100;

type Asked = State<Arc<Shared>>;

/// `/api/store/check`: the report as JSON.
pub(super) async fn check(
    State(shared): Asked,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), b"");
    let is_repairing = params.get("repair") == Some("1");
    let report = on_disk(&shared, move |disk| disk.fsck(is_repairing)).await?;
    Ok(data(serde_json::json!({
        "ok": report.is_clean(),
        "series": report.series,
        "chunks": report.chunks,
        "samples": report.samples,
        "buckets_compared": report.buckets_compared,
        "log_groups": report.log_groups,
        "log_bytes_damaged": report.log_bytes_damaged,
        "damaged": report.damaged,
        "overlapping": report.overlapping,
        "wrong_buckets": report.wrong_buckets,
        "unnamed": report.unnamed,
        "repaired": report.repaired,
    })))
}

/// `/api/store/snapshot`: copies the store to `snapshots/NAME` in its folder.
pub(super) async fn snapshot(
    State(shared): Asked,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), b"");
    let name = params.get("name").unwrap_or_default().to_owned();
    if !is_name(&name) {
        return Err(Refused::bad(format!(
            "parameter \"name\": found {name:?}, expected 1 to {NAME_MAX} letters, digits, - and _"
        )));
    }
    let folder = shared.config.data.join(SNAPSHOTS);
    let path = folder.join(&name);
    let to = path.clone();
    on_disk(&shared, move |disk| {
        std::fs::create_dir_all(&folder).map_err(|source| StoreError::Io {
            what: format!("create {}", folder.display()),
            source,
        })?;
        disk.snapshot(&to)
    })
    .await?;
    Ok(data(serde_json::json!({ "folder": path })))
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Runs `work` on the store in a thread that may wait for the disk.
async fn on_disk<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce(&Disk) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Refused> {
    let Some(disk) = shared.kept.disk.clone() else {
        return Err(Refused::bad(
            "the store is in memory, expected one in a folder (monitor.data)",
        ));
    };
    apart(move || {
        work(&disk).map_err(|error| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Refused::of(status, "internal", error.to_string())
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_no_paths() {
        assert!(is_name("before-upgrade_2"));
        for name in ["", "..", "a/b", "a b", &"x".repeat(101)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
