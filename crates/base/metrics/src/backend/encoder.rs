//! Points turned into payloads: what all formats have in common.

use crate::batch::Identity;
use crate::derive::Field;

/// Takes a payload that is complete, with the number of samples in it.
pub(crate) type Carry<'a> = &'a mut dyn FnMut(&[u8], usize);

/// Format of a back end. Payloads are bounded; a point is never split over two of them.
pub(crate) trait Encoder: Send {
    /// Adds a point, and delivers the payload that it no longer fits into. Returns the samples of the point that the
    /// format cannot carry, which are left out.
    fn push(&mut self, series: &Identity, at_ms: i64, fields: &[Field], carry: Carry<'_>) -> usize;

    /// Makes room for `points` points of few labels: the payload that is begun is delivered if they might not fit.
    fn make_room(&mut self, points: usize, carry: Carry<'_>);

    /// Samples in the payload that is begun.
    fn pending(&self) -> usize;

    /// Delivers the payload that is begun.
    fn flush(&mut self, carry: Carry<'_>);
}
