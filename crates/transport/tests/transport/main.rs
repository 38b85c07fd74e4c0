//! The transports as their users meet them: through the trait, and through the wire.

mod contract;
mod hostile;
mod space;
