//! What the FLP promises, event by event.
