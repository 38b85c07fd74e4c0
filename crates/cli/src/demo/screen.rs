//! Where the demo is shown: on a terminal, or as plain lines.

use super::plain::Plain;
use super::view::View;
use super::watch::Watch;
use anyhow::Context as _;
use std::io::{IsTerminal as _, Write};

/// One of the two ways to show a demo.
pub(crate) enum Screen {
    /// Redrawn in place.
    Terminal(Box<View>),
    /// Lines, to the standard output or error.
    Plain(Plain<Box<dyn Write>>),
}

impl Screen {
    /// The terminal if there is one and it is wanted. `on_quit` is called when its user has seen enough.
    ///
    /// # Errors
    ///
    /// If it cannot be written to.
    pub(crate) fn new(
        title: &str,
        wants_terminal: bool,
        to_stderr: bool,
        on_quit: impl Fn() + Send + 'static,
    ) -> anyhow::Result<Self> {
        if wants_terminal && !to_stderr && std::io::stdout().is_terminal() {
            return Ok(Self::Terminal(Box::new(View::new(title, on_quit)?)));
        }
        let out: Box<dyn Write> = if to_stderr {
            Box::new(std::io::stderr())
        } else {
            Box::new(std::io::stdout())
        };
        Plain::new(out, title)
            .map(Self::Plain)
            .context("cannot write")
    }

    /// Shows what is new.
    ///
    /// # Errors
    ///
    /// If it cannot be written to, such as a pipe that nobody reads any more.
    pub(crate) fn show(&mut self, watch: &Watch) -> anyhow::Result<()> {
        match self {
            Self::Terminal(view) => view.show(watch),
            Self::Plain(plain) => plain.show(watch),
        }
        .context("cannot write")
    }
}
