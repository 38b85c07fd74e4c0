//! Tests of the registry and the verdict log against the model of ZooKeeper, in virtual time.

mod contract;
mod ledger;
mod registry;
