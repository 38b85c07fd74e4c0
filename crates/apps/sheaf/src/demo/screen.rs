//! Where the demo is shown: on a terminal, or as plain lines.

use super::plain::Plain;
#[cfg(feature = "tui")]
use super::view::View;
use super::watch::Watch;
use anyhow::Context as _;
#[cfg(feature = "tui")]
use std::io::IsTerminal as _;
use std::io::{self, Write};

/// One of the two ways to show a demo.
pub(crate) enum Screen {
    /// Redrawn in place.
    #[cfg(feature = "tui")]
    Terminal(Box<View>),
    /// Lines, to the standard output or error.
    Plain(Plain<Box<dyn Write>>),
    /// Nowhere: the pipe that took the lines is closed.
    Nowhere,
}

/// Whether the demo has a terminal with a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// There may be.
    There,
    /// The reader of the pipe is gone, as behind `head`.
    Gone,
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
        #[cfg(feature = "tui")]
        if wants_terminal && !to_stderr && std::io::stdout().is_terminal() {
            return Ok(Self::Terminal(Box::new(View::new(title, on_quit)?)));
        }
        #[cfg(not(feature = "tui"))]
        let _ = (wants_terminal, on_quit);
        let out: Box<dyn Write> = if to_stderr {
            Box::new(std::io::stderr())
        } else {
            Box::new(std::io::stdout())
        };
        Plain::new(out, title)
            .map(Self::Plain)
            .context("cannot write")
    }

    /// Shows what is new. Returns whether there is a reader.
    ///
    /// # Errors
    ///
    /// If it cannot be written to for another reason than a closed pipe.
    pub(crate) fn show(&mut self, watch: &Watch) -> anyhow::Result<Audience> {
        let outcome = match self {
            #[cfg(feature = "tui")]
            Self::Terminal(view) => view.show(watch),
            Self::Plain(plain) => plain.show(watch),
            Self::Nowhere => return Ok(Audience::Gone),
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                *self = Self::Nowhere;
                Ok(Audience::Gone)
            }
            outcome => outcome
                .context("cannot write what happens")
                .map(|()| Audience::There),
        }
    }
}
