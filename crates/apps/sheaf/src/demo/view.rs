//! A farm on a terminal: the screen, its keys, and how the user looks at the farm.
//!
//! `look` knows what the user has chosen by keys, `draw` draws the farm accordingly, `nodes` its table, `past` the
//! last minutes. The demo shows its own farm, `sheaf top` any farm that runs.

mod draw;
mod look;
mod nodes;
mod past;
#[cfg(test)]
mod tests;

pub(crate) use look::{Deed, Look};

use super::watch::Watch;
use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread that reads keys looks whether it should end.
const KEY_POLL: Duration = Duration::from_millis(50);

/// A terminal in its alternate screen. It is as it was before when this is dropped, and after a panic.
pub(crate) struct View {
    terminal: DefaultTerminal,
    look: Arc<Mutex<Look>>,
    /// The farm when the user paused the view.
    frozen: Option<Watch>,
    is_over: Arc<AtomicBool>,
    keys: Option<JoinHandle<()>>,
}

impl View {
    /// Takes the terminal. `on_deed` is called with what the user wants done; Ctrl-C no longer makes a signal.
    ///
    /// # Errors
    ///
    /// What the terminal gives.
    pub(crate) fn new(look: Look, on_deed: impl Fn(Deed) + Send + 'static) -> anyhow::Result<Self> {
        // Its panic hook restores the terminal before the message is printed.
        let terminal = ratatui::try_init().context("cannot use the terminal")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let look = Arc::new(Mutex::new(look));
        let (seen, looked) = (is_over.clone(), look.clone());
        let keys = std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || {
                while !seen.load(Ordering::Relaxed) {
                    if !event::poll(KEY_POLL).unwrap_or(false) {
                        continue;
                    }
                    let Ok(Event::Key(key)) = event::read() else {
                        continue;
                    };
                    let deed = lock(&looked).handle_key(key);
                    deed.into_iter().for_each(&on_deed);
                }
            })
            .inspect_err(|_| ratatui::restore())?;
        Ok(Self {
            terminal,
            look,
            frozen: None,
            is_over,
            keys: Some(keys),
        })
    }

    /// Draws the farm as it is, or as it was when the user paused the view.
    ///
    /// # Errors
    ///
    /// What the terminal gives.
    pub(crate) fn show(&mut self, watch: &Watch) -> io::Result<()> {
        let mut look = lock(&self.look);
        if !look.is_paused() {
            self.frozen = None;
        } else if self.frozen.is_none() {
            self.frozen = Some(watch.clone());
        }
        let watch = self.frozen.as_ref().unwrap_or(watch);
        self.terminal
            .draw(|frame| draw::draw(frame, &mut look, watch))?;
        Ok(())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(keys) = self.keys.take() {
            // A thread that has panicked has said so.
            let _ = keys.join();
        }
        ratatui::restore();
    }
}

/// A panic while the lock was held has changed nothing that matters: the poison is ignored.
fn lock(look: &Mutex<Look>) -> MutexGuard<'_, Look> {
    look.lock().unwrap_or_else(PoisonError::into_inner)
}
