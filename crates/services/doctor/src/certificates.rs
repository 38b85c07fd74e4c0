//! Certificates of this machine, and until when they are valid.

use crate::check::Case;
use crate::finding::Verdict;
use sheaf_auth::{Certificate, Moment};
use sheaf_protocol::Role;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Days that a certificate is to be valid for.
const DAYS_MIN: u64 = 30;

/// Judges each certificate that is there.
pub(crate) fn judge(case: &Case<'_>) -> Vec<Verdict> {
    let security = &case.farm.security;
    if !security.has_certificates() {
        return vec![Verdict::ok("the farm file has none")];
    }
    let roles = case.question.roles.iter().chain([&Role::Operator]);
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    for node in roles.flat_map(|role| case.farm.nodes(*role)) {
        if let Some(of_node) = security.files(node) {
            files.insert(of_node.certificate, node.to_string());
            files.insert(of_node.ca, "ca".to_owned());
        }
    }
    let here: Vec<Verdict> = files
        .into_iter()
        .filter(|(path, _)| path.exists())
        .map(|(path, name)| of_file(&path, &name, Moment::now()))
        .collect();
    match here.is_empty() {
        true => vec![
            Verdict::wrong("none of them is on this machine", "those of its nodes")
                .mended_by("sheaf cert issue NODE, where the CA is, and copy NODE.pem, NODE.key and ca.pem here"),
        ],
        false => here,
    }
}

fn of_file(path: &Path, name: &str, now: Moment) -> Verdict {
    let mend = match name {
        "ca" => {
            "sheaf cert init --force, and new certificates for all nodes (docs/how-to/security.md)"
                .to_owned()
        }
        node => format!("sheaf cert issue {node} --force, and restart the node"),
    };
    let verdict = match Certificate::load(path) {
        Err(error) => Verdict::wrong(error.to_string(), "a certificate").mended_by(mend),
        Ok(certificate) => {
            let validity = certificate.validity;
            let days = now.until(validity.not_after).as_secs() / 86_400;
            let found = format!("{}: until {}", path.display(), validity.not_after);
            match certificate.check_validity(now) {
                Err(_) => Verdict::wrong(format!("{found}, and it is {now}"), "one that is valid")
                    .mended_by(mend),
                Ok(()) if days < DAYS_MIN => Verdict::advice(
                    format!("{found}, {days} days"),
                    format!("{DAYS_MIN} days or more"),
                )
                .mended_by(mend),
                Ok(()) => Verdict::ok(found),
            }
        }
    };
    verdict.at(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use sheaf_auth::{Authority, CertFiles, Validity};
    use sheaf_protocol::{EpnId, NodeId};

    #[test]
    fn certificates_that_end_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new("north", Validity::of_days(400)).expect("a CA");
        let node = NodeId::from(EpnId(3));
        let files = CertFiles::in_directory(folder.path(), node);
        let pem = authority
            .issue(node, Validity::of_days(90))
            .expect("a certificate");
        pem.save(&files, false).expect("files");
        let now = Moment::now();
        for (days, expected) in [
            (0, State::Ok),
            (59, State::Ok),
            (61, State::Advice),
            (91, State::Wrong),
        ] {
            let verdict = of_file(&files.certificate, "epn:3", now.plus_days(days));
            assert_eq!(verdict.state, expected, "{days}: {verdict:?}");
        }
        let verdict = of_file(&files.key, "epn:3", now);
        assert_eq!(verdict.state, State::Wrong, "{verdict:?}");
    }
}
