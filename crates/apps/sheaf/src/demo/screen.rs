//! Where a farm is shown: on a terminal, or as plain lines.

use super::plain::Plain;
#[cfg(feature = "tui")]
use super::view::{Deed, Look, View};
use super::watch::Watch;
use anyhow::Context as _;
#[cfg(feature = "tui")]
use std::io::IsTerminal as _;
use std::io::{self, Write};

/// One of the two ways to show a farm.
pub(crate) enum Screen {
    /// Redrawn in place.
    #[cfg(feature = "tui")]
    Terminal(Box<View>),
    /// Lines, to the standard output or error.
    Plain(Plain<Box<dyn Write>>),
    /// Nowhere: the pipe that took the lines is closed.
    Nowhere,
}

/// Whether the farm has a terminal with a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// There may be.
    There,
    /// The reader of the pipe is gone, as behind `head`.
    Gone,
}

impl Screen {
    /// The terminal if there is one that can be drawn on, and it is wanted. `on_quit` is called when its user has seen
    /// enough.
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
        if wants_terminal && !to_stderr && has_terminal() {
            let on_deed = move |deed| {
                if deed == Deed::Quit {
                    on_quit();
                }
            };
            return Ok(Self::Terminal(Box::new(View::new(
                Look::new(title),
                on_deed,
            )?)));
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

    /// The terminal with a look of the user's own, if it can be drawn on. `on_deed` is called with what the user wants.
    ///
    /// # Errors
    ///
    /// If it cannot be written to.
    #[cfg(feature = "tui")]
    pub(crate) fn with_orders(
        title: &str,
        wants_terminal: bool,
        on_deed: impl Fn(Deed) + Send + 'static,
    ) -> anyhow::Result<Self> {
        if wants_terminal && has_terminal() {
            let look = Look::new(title).with_orders();
            return Ok(Self::Terminal(Box::new(View::new(look, on_deed)?)));
        }
        let out: Box<dyn Write> = Box::new(std::io::stdout());
        Plain::new(out, title)
            .map(Self::Plain)
            .context("cannot write")
    }

    /// Returns whether lines are written.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
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

/// Returns whether the standard output is a terminal that can be drawn on.
#[cfg(feature = "tui")]
fn has_terminal() -> bool {
    let term = std::env::var_os("TERM");
    std::io::stdout().is_terminal() && can_draw(term.as_deref())
}

/// Returns whether a terminal of this kind has a cursor that can be moved.
#[cfg(feature = "tui")]
fn can_draw(term: Option<&std::ffi::OsStr>) -> bool {
    term.is_none_or(|term| !term.is_empty() && term != "dumb")
}

#[cfg(all(test, feature = "tui"))]
mod tests {
    use super::can_draw;

    #[test]
    fn a_dumb_terminal_gets_lines() {
        let draws = |term: &str| can_draw(Some(term.as_ref()));
        assert_eq!(
            ["dumb", "", "xterm", "linux"].map(draws),
            [false, false, true, true]
        );
        assert!(can_draw(None));
    }
}
