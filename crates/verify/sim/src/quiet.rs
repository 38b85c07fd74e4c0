//! Panics of simulated nodes: caught and reported as violations, not printed by the thousand.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    static TEXT: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Does `work`; a panic is returned as its text and place.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                return usual(info);
            }
            let place = info
                .location()
                .map_or_else(String::new, |place| format!(" at {place}"));
            TEXT.set(Some(format!("{}{place}", text_of(info.payload()))));
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_QUIET.set(was_quiet);
    outcome.map_err(|payload| {
        TEXT.take()
            .unwrap_or_else(|| text_of(payload.as_ref()).to_owned())
    })
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("something that is no text")
}
