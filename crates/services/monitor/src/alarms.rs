//! Alarms of the collector: the thread, the sockets and the files around the pure crate `sheaf-alarms`.
//!
//! | thread | what it does |
//! | --- | --- |
//! | `alarms` | takes samples and sources as they arrive, goes on every 100 ms, hands out what follows (`turn.rs`) |
//! | `rules` | runs the queries of late rules over the store (`rules.rs`) |
//! | `notify-N` | delivers notifications, one at a time for each receiver (`deliver.rs`) |
//! | `state` | writes the state to the disk (`saved.rs`) |
//! | `orders` | gives orders to the farm, one after the other (`orders.rs`) |

mod begin;
mod deliver;
mod desk;
mod export;
mod inbox;
mod orders;
mod past;
mod rules;
mod saved;
mod settings;
mod sources;
mod tap;
mod turn;

pub use begin::AlarmsHandle;
pub(crate) use begin::{Begin, Running};
pub(crate) use desk::Desk;
pub(crate) use export::all as metrics;
pub use orders::FarmOrders;
pub use settings::{AlarmsSettings, MailSettings, MailTls};
pub(crate) use sources::Reports;
pub(crate) use tap::Tap;
