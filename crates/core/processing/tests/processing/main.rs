//! Whole pipelines under seeded streams: the accounting, shards and merger beside one pipeline, reloads, and the four
//! scenarios of the founding paper.

mod accounting;
mod bounds;
mod clocks;
mod correlation;
mod no_allocation;
mod reference;
mod reload;
mod scenarios;
mod sharding;
mod site;
mod stream;
