//! Which request is answered by what.

use crate::answer::Answer;
use crate::body::{Body, BodyError};
use crate::change;
use crate::dav;
use crate::get;
use crate::head::Head;
use crate::path::TreePath;
use crate::replica;
use crate::rights::{Need, Rights};
use crate::site::Site;
use crate::third_party;
use crate::tokens;
use crate::tree;
use std::sync::Arc;

/// Methods of a server that files are only read from.
const READING: &str = "GET, HEAD, OPTIONS, PROPFIND";
/// Methods of one that takes files.
const ALL: &str = "GET, HEAD, OPTIONS, PROPFIND, PUT, DELETE, COPY, MOVE, MKCOL, PROPPATCH";

/// Makes the answer to a request.
pub(crate) async fn respond(site: &Arc<Site>, head: &Head, body: &mut Body<'_>) -> Answer {
    let method = head.method();
    if method == "OPTIONS" {
        return options(site);
    }
    let path = match TreePath::of_target(head.target()) {
        Ok(path) => path,
        Err(error) => return Answer::refusal(400, error),
    };
    let rights = match &site.guard {
        None => None,
        Some(guard) => match guard.rights(head).await {
            Ok(rights) => Some(rights),
            Err(answer) => return answer,
        },
    };
    if let Some(front) = &site.front {
        return front
            .respond(
                (&site.counts, site.is_writable),
                head,
                &path,
                rights.as_deref(),
                body,
            )
            .await;
    }
    if let Some(rights) = &rights
        && let Err(answer) = allowed(site, rights, head, &path)
    {
        return answer;
    }
    match method {
        "GET" | "HEAD" => {
            let answer = get::answer(&site.tree, &path, head);
            if let Some(replicas) = site.replicas.as_ref().filter(|_| answer.status == 404) {
                let known = (&*site.tree, &site.sums, &site.counts);
                return replica::elsewhere(replicas, known, &path, head, answer).await;
            }
            let answer = change::with_checksum(site, &path, head, answer).await;
            match &site.replicas {
                None => answer,
                Some(replicas) => {
                    let known = (&*site.tree, &site.sums, site.tls.is_some());
                    replica::listed(replicas, known, &path, head, answer).await
                }
            }
        }
        // A whole tree could be without end for server and client (RFC 4918, section 9.1).
        "PROPFIND"
            if !head
                .get("depth")
                .is_some_and(|depth| ["0", "1"].contains(&depth.trim())) =>
        {
            Answer::refusal(403, "expected `Depth: 0` or `Depth: 1`")
        }
        "PROPFIND" => by_dav(site, head, &path, None, body).await,
        "COPY" if pushes(site, head) => transfer(site, head, &path, body).await,
        "PUT" | "DELETE" | "COPY" | "MOVE" | "MKCOL" | "PROPPATCH" if !site.is_writable => {
            Answer::refusal(405, "files here are only read").with("Allow", READING)
        }
        "PUT" => change::put(site, head, &path, body).await,
        "DELETE" => delete(site, head, &path, body).await,
        "COPY" | "MOVE" => transfer(site, head, &path, body).await,
        "MKCOL" | "PROPPATCH" => match change::check(site, &path, head) {
            Ok(_) => by_dav(site, head, &path, None, body).await,
            Err(answer) => answer,
        },
        other => {
            let allowed = if site.is_writable { ALL } else { READING };
            let found = format_args!("found the method {}", other.escape_debug()).to_string();
            Answer::refusal(501, found).with("Allow", allowed)
        }
    }
}

/// Refuses a request that the rights of its bearer do not include, at its path and at its destination.
fn allowed(site: &Site, rights: &Rights, head: &Head, path: &TreePath) -> Result<(), Answer> {
    let check = |need, path: &TreePath| match rights.allow(need, path) {
        true => Ok(()),
        false => Err(tokens::forbidden(need, path)),
    };
    // A file that is not there yet is made, one that is there is replaced.
    let write = |path: &TreePath| match site.tree.stat_name(path) {
        Err(tree::TreeError::NotFound) => Need::Create,
        _ => Need::Modify,
    };
    let destination = || {
        let destination = head.get("destination").unwrap_or_default();
        TreePath::of_target(destination).map_err(|error| Answer::refusal(400, error))
    };
    match head.method() {
        "PUT" | "MKCOL" => check(write(path), path),
        "DELETE" | "PROPPATCH" => check(Need::Modify, path),
        "COPY" if source(head).is_some() => check(write(path), path),
        "COPY"
            if !is_here(
                head.get("destination").unwrap_or_default(),
                head.get("host"),
            ) =>
        {
            check(Need::Read, path)
        }
        "COPY" => {
            check(Need::Read, path)?;
            let to = destination()?;
            check(write(&to), &to)
        }
        "MOVE" => {
            check(Need::Modify, path)?;
            let to = destination()?;
            check(write(&to), &to)
        }
        _ => check(Need::Read, path),
    }
}

fn options(site: &Site) -> Answer {
    let (allowed, class) = if site.is_writable {
        (ALL, "1")
    } else {
        (READING, "1")
    };
    Answer::new(200)
        .with("Allow", allowed)
        .with("DAV", class)
        .with("Accept-Ranges", "bytes")
}

async fn by_dav(
    site: &Arc<Site>,
    head: &Head,
    path: &TreePath,
    destination: Option<&TreePath>,
    body: &mut Body<'_>,
) -> Answer {
    if path.is_hidden() || destination.is_some_and(TreePath::is_hidden) {
        return match head.method() {
            "PROPFIND" => get::refusal(tree::TreeError::NotFound),
            _ => get::refusal(tree::TreeError::Denied),
        };
    }
    match body.whole(dav::BODY_BYTES_MAX).await {
        Ok(xml) => {
            let now = std::time::Instant::now();
            body.watched().enter(crate::watch::Phase::Working, now);
            site.dav.answer(head, path, destination, xml).await
        }
        Err(error @ BodyError::TooLong(_)) => Answer::refusal(413, error),
        Err(error) => Answer::refusal(400, error).closing(),
    }
}

async fn delete(site: &Arc<Site>, head: &Head, path: &TreePath, body: &mut Body<'_>) -> Answer {
    match change::check(site, path, head) {
        Err(answer) => answer,
        Ok(Some(stat)) if !tree::is_folder(&stat) && !path.is_folder => {
            change::delete(site, path).await
        }
        Ok(_) if path.split().is_none() => {
            Answer::refusal(403, "this is the folder that is served")
        }
        Ok(_) => by_dav(site, head, path, None, body).await,
    }
}

async fn transfer(site: &Arc<Site>, head: &Head, path: &TreePath, body: &mut Body<'_>) -> Answer {
    if let Some(source) = source(head) {
        return match change::check(site, path, head) {
            Ok(_) => third_party::pull(site, head, path, source),
            Err(answer) => answer,
        };
    }
    let Some(destination) = head.get("destination") else {
        return Answer::refusal(400, "expected one header `Destination`");
    };
    if !is_here(destination, head.get("host")) {
        return match head.method() {
            "COPY" if site.peers.is_some() => third_party::push(site, head, path, destination),
            _ => Answer::refusal(502, "the destination is another server"),
        };
    }
    let to = match TreePath::of_target(destination) {
        Ok(to) => to,
        Err(error) => return Answer::refusal(400, error),
    };
    let from = match change::check(site, path, head) {
        Ok(from) => from,
        Err(answer) => return answer,
    };
    let is_file = from.is_some_and(|stat| !tree::is_folder(&stat)) && !path.is_folder;
    let onto_folder = site.tree.stat(&to).is_ok_and(|stat| tree::is_folder(&stat));
    if is_file && !onto_folder && !to.is_folder {
        change::transfer(site, head, path, &to).await
    } else {
        by_dav(site, head, path, Some(&to), body).await
    }
}

/// Returns whether a COPY only reads here, which a server without uploads does as well.
fn pushes(site: &Site, head: &Head) -> bool {
    let destination = head.get("destination").unwrap_or_default();
    site.peers.is_some()
        && source(head).is_none()
        && destination.contains("://")
        && !is_here(destination, head.get("host"))
}

/// Server and path that a COPY is to pull from.
fn source(head: &Head) -> Option<&str> {
    head.get("source").filter(|_| head.method() == "COPY")
}

/// Returns whether a destination is at this server, by the name that the client has for it.
fn is_here(destination: &str, host: Option<&str>) -> bool {
    let Some((_, rest)) = destination.split_once("://") else {
        return destination.starts_with('/');
    };
    let authority = rest.split('/').next().unwrap_or_default();
    host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
}

#[cfg(test)]
mod tests {
    use super::is_here;

    #[test]
    fn a_destination_is_here_by_the_name_of_the_host() {
        let here = |destination| is_here(destination, Some("Store.example:8443"));
        assert!(here("/a") && here("https://store.EXAMPLE:8443/a"));
        for destination in [
            "https://store.example/a",
            "https://other:8443/a",
            "a",
            "://",
        ] {
            assert!(!here(destination), "{destination}");
        }
        assert!(!is_here("https://store/a", None));
    }
}
