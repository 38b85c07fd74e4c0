//! Questions on a terminal. They go to the standard error: the standard output is for results.

use anyhow::Context as _;
use std::io::{self, BufRead as _, Write as _};

/// Asks until the answer is a number from 1 to 512; an empty one is `usual`.
pub(super) fn number(what: &str, usual: u16) -> anyhow::Result<u16> {
    loop {
        let answer = line(&format!("{what} [{usual}]: "))?;
        match answer.parse() {
            _ if answer.is_empty() => return Ok(usual),
            Ok(number) if (1..=512).contains(&number) => return Ok(number),
            _ => eprintln!("found {answer:?}, expected a number from 1 to 512"),
        }
    }
}

/// Asks for a word; an empty answer is `usual`. What it means is checked with all others.
pub(super) fn word(what: &str, kinds: &str, usual: &str) -> anyhow::Result<String> {
    let answer = line(&format!(
        "{what}: KIND or KIND:PLACE, one of {kinds} [{usual}]: "
    ))?;
    Ok(match answer.is_empty() {
        true => usual.to_owned(),
        false => answer,
    })
}

fn line(question: &str) -> anyhow::Result<String> {
    let mut error = io::stderr().lock();
    write!(error, "{question}")
        .and_then(|()| error.flush())
        .context("cannot write to the terminal")?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match read.context("cannot read the answer")? {
        0 => anyhow::bail!("the input has ended: nothing was written"),
        _ => Ok(answer.trim().to_owned()),
    }
}
