//! placeholder
/// x
pub struct Control;
/// x
pub struct Envelope;
