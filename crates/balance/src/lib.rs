//! The brain of the ICN: load view, policies, refusals, scheduler, the books.
