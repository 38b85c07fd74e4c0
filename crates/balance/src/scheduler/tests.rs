//! What the scheduler promises, event by event.
