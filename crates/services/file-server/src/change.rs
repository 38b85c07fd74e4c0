//! Requests that change files: PUT, DELETE, COPY and MOVE of single files. Folders are left to [`crate::dav`].

use crate::answer::Answer;
use crate::body::{Body, BodyError};
use crate::condition::Outcome;
use crate::digest::Stated;
use crate::get::{conditions, refusal};
use crate::head::Head;
use crate::path::TreePath;
use crate::site::Site;
use crate::stating::{acceptable, want};
use crate::tree::{self, TreeError};
use crate::upload::{self, Upload};
use crate::watch::Phase;
use crate::writing::{WRITE_BYTES, Writing};
use rustix::fs::Stat;
use sheaf_write::Sums;
use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;

/// Returns the metadata of the file that has the name, if there is one.
fn standing(site: &Site, path: &TreePath) -> Result<Option<Stat>, TreeError> {
    match site.tree.stat_name(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(TreeError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks the conditions of a request against what has the name.
pub(crate) fn check(site: &Site, path: &TreePath, head: &Head) -> Result<Option<Stat>, Answer> {
    let stat = match standing(site, path) {
        Ok(stat) => stat,
        Err(error) => return Err(refusal(error)),
    };
    let version = stat.as_ref().map(tree::version);
    match conditions(head).check(version.as_ref(), false) {
        Outcome::Go | Outcome::NotModified => Ok(stat),
        Outcome::Failed => Err(Answer::refusal(412, "the file is another version")),
    }
}

/// Reason why an upload did not become a file.
#[derive(Debug, Error)]
enum PutError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("{name} of what came is {found:08x}, expected {stated:08x}")]
    Differs {
        name: &'static str,
        found: u32,
        stated: u32,
    },
    #[error("the server is about to end")]
    Ending,
}

impl PutError {
    fn answer(&self) -> Answer {
        let status = match self {
            Self::Body(_) => 400,
            Self::Tree(error) => error.status(),
            Self::Differs { .. } => 422,
            Self::Ending => 503,
        };
        let answer = Answer::refusal(status, self);
        if matches!(self, Self::Body(_)) {
            answer.closing()
        } else {
            answer
        }
    }
}

/// Takes a file.
pub(crate) async fn put(
    site: &Arc<Site>,
    head: &Head,
    path: &TreePath,
    body: &mut Body<'_>,
) -> Answer {
    let stated = match acceptable(head, path) {
        Ok(stated) => stated,
        Err(answer) => return answer,
    };
    let before = match check(site, path, head) {
        Ok(before) => before,
        Err(answer) => return answer,
    };
    if before.as_ref().is_some_and(tree::is_folder) {
        return Answer::refusal(405, "there is a folder with this name");
    }
    // A client that wants no other file replaced wants that also of one that comes meanwhile.
    let is_new = head
        .get("if-none-match")
        .is_some_and(|list| list.trim() == "*");
    match receive(site, path, body, &stated, is_new).await {
        Ok(sums) => {
            let status = if before.is_some() { 204 } else { 201 };
            let mut answer = Answer::new(status);
            if let Ok(stat) = site.tree.stat(path) {
                answer = answer.with("ETag", tree::version(&stat).etag);
            }
            let want = want(head).and_then(|want| want.header(&sums));
            match want {
                Some((name, value)) => answer.with(name, value),
                None => answer,
            }
        }
        Err(PutError::Tree(TreeError::NotFound)) => {
            Answer::refusal(409, "there is no folder for it")
        }
        Err(PutError::Tree(TreeError::Exists)) if is_new => {
            Answer::refusal(412, "there is such a file already")
        }
        Err(error) => error.answer(),
    }
}

/// Receives the body and gives it the name. The worker's thread reads, another one sums and writes.
async fn receive(
    site: &Arc<Site>,
    path: &TreePath,
    body: &mut Body<'_>,
    stated: &Stated,
    is_new: bool,
) -> Result<Sums, PutError> {
    let upload = Upload::begin(&site.tree, path)?;
    if body.stated().is_some_and(|bytes| !upload.has_room(bytes)) {
        return Err(TreeError::Full.into());
    }
    let mut writing = Writing::new(upload);
    let mut filling = Vec::with_capacity(WRITE_BYTES);
    loop {
        let got = body.fill(&mut filling, WRITE_BYTES).await?;
        if got == 0 {
            break;
        }
        site.counts.received.add(got as u64);
        filling = writing.write(filling).await?;
    }
    body.watched().enter(Phase::Working, Instant::now());
    let sums = writing.sums().await?;
    if let Some((name, found, stated)) = stated.first_difference(&sums) {
        return Err(PutError::Differs {
            name,
            found,
            stated,
        });
    }
    Ok(writing.finish(site.is_synced, is_new).await?)
}

/// Deletes a file.
pub(crate) async fn delete(site: &Arc<Site>, path: &TreePath) -> Answer {
    let (site, path) = (site.clone(), path.clone());
    // A large file takes the file system a while.
    let removed = tokio::task::spawn_blocking(move || site.tree.remove_file(&path)).await;
    done(&removed, 204)
}

/// Copies or moves a file, replacing a file at the destination in one step.
pub(crate) async fn transfer(
    site: &Arc<Site>,
    head: &Head,
    path: &TreePath,
    to: &TreePath,
) -> Answer {
    if path.as_str() == to.as_str() {
        return Answer::refusal(403, "source and destination are the same");
    }
    let exists = match standing(site, to) {
        Ok(stat) => stat.is_some(),
        Err(error) => return refusal(error),
    };
    let may_replace = head
        .get("overwrite")
        .is_none_or(|value| value.trim() != "F");
    if exists && !may_replace {
        return Answer::refusal(412, "there is something at the destination");
    }
    let is_move = head.method() == "MOVE";
    let (site, path, to) = (site.clone(), path.clone(), to.clone());
    let work = move || match is_move {
        true => site.tree.rename(&path, &to, !may_replace),
        false => upload::copy(&site.tree, &path, &to, site.is_synced, !may_replace),
    };
    let answer = done(
        &tokio::task::spawn_blocking(work).await,
        if exists { 204 } else { 201 },
    );
    match answer.status {
        // The source is there, so the folder of the destination is not.
        404 => Answer::refusal(409, "there is no folder for it"),
        409 => Answer::refusal(412, "there is something at the destination"),
        _ => answer,
    }
}

fn done(result: &Result<Result<(), TreeError>, tokio::task::JoinError>, status: u16) -> Answer {
    match result {
        Ok(Ok(())) => Answer::new(status),
        Ok(Err(error)) => refusal(*error),
        Err(_) => PutError::Ending.answer(),
    }
}

/// Adds the checksum that a client wants to an answer with a file.
pub(crate) async fn with_checksum(
    site: &Arc<Site>,
    path: &TreePath,
    head: &Head,
    answer: Answer,
) -> Answer {
    let Some(want) = want(head) else {
        return answer;
    };
    let Some(file) = answer.content.file() else {
        return answer;
    };
    let known = site.sums.known(&site.tree, path, file);
    let sums = match known {
        Some(sums) => Some(sums),
        None => {
            let file = file.try_clone();
            let site = site.clone();
            let taken = tokio::task::spawn_blocking(move || site.sums.take(&file?));
            taken.await.ok().and_then(Result::ok)
        }
    };
    match sums.and_then(|sums| want.header(&sums)) {
        Some((name, value)) => answer.with(name, value),
        None => answer,
    }
}
