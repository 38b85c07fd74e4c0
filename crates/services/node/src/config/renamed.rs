//! Keys of earlier releases, and what they are called now.

/// Former and present name of every key that was renamed.
const RENAMED: [(&str, &str); 5] = [
    (
        "icn.scheduler.stale_ms",
        "icn.scheduler.unreachable_timeout_ms",
    ),
    ("icn.liveness.grace_ms", "icn.liveness.flp_grace_ms"),
    ("icn.liveness.dead_ms", "icn.liveness.epn_grace_ms"),
    ("epn.build.stale_ms", "epn.build.stf_timeout_ms"),
    ("epn.sink.call_back_ms", "epn.sink.reclaim_ms"),
];

/// Returns the present name of a key that an earlier release called `former`.
pub(super) fn present_name(former: &str) -> Option<&'static str> {
    let renamed = RENAMED.iter().find(|(name, _)| *name == former);
    renamed.map(|(_, present)| *present)
}

#[cfg(test)]
mod tests {
    use super::RENAMED;
    use crate::config::FarmConfig;
    use std::path::Path;

    #[test]
    fn a_former_key_is_refused_with_its_present_name() {
        for (former, present) in RENAMED {
            let kind = if former.starts_with("epn.sink.") {
                "epn.sink.kind = \"shm\"\nepn.sink.path = \"p\"\n"
            } else {
                "\n\n"
            };
            let parse = |key: &str| {
                let text = format!("{kind}{key} = 3000\n");
                FarmConfig::parse_for(&text, Path::new("f"), &[])
            };
            let expected = format!(
                "f:3: {former}: found a former name, expected the present one: {former} is now {present}"
            );
            assert_eq!(parse(former).unwrap_err().to_string(), expected);
            parse(present).unwrap_or_else(|error| panic!("{present}: {error}"));
        }
    }
}
