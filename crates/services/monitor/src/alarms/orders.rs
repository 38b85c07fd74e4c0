//! Orders of alarms to the farm, given by a thread of their own: a farm that does not answer holds up no alarm.

use super::inbox::{Inbox, Outcome};
use sheaf_alarms::Order;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Way to the farm, for orders of alarms: the one of `sheaf ctl`, or that of a test.
///
/// # Contract
///
/// - an order that was given may come again after a crash; giving it again changes nothing;
/// - it answers within some seconds, and blocks no longer.
pub trait FarmOrders: Send {
    /// Gives `order`, which is no dry run; returns what the farm answered.
    ///
    /// # Errors
    ///
    /// Why the farm did not carry it out.
    fn give(&mut self, order: &Order) -> Result<String, String>;
}

/// Gives orders until there will be no more.
pub(super) fn run(orders: &Receiver<Order>, farm: Option<Box<dyn FarmOrders>>, inbox: &Arc<Inbox>) {
    let mut farm = farm;
    while let Ok(order) = orders.recv() {
        let result = match &mut farm {
            Some(farm) => farm.give(&order),
            None => Err("this collector knows no farm, expected a farm file".to_owned()),
        };
        inbox.report(Outcome::Ordered {
            id: order.id,
            result,
        });
    }
}
