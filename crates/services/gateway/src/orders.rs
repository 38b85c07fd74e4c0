//! Orders that outlive the director.

use serde::{Deserialize, Serialize};
use sheaf_serve::Order;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Orders that were carried out, by service, in their order. Those that a later one undoes are left out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Orders {
    services: BTreeMap<String, Vec<Order>>,
}

fn server(order: &Order) -> &str {
    match order {
        Order::Drain { server }
        | Order::Undrain { server }
        | Order::Weight { server, .. }
        | Order::Remove { server } => server,
        Order::Add { server } => &server.name,
    }
}

impl Orders {
    /// Reads the file; none yet is no order.
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn of(&self, service: &str) -> &[Order] {
        self.services
            .get(service)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Takes a further order. `is_configured` says that the server stands in the configuration.
    pub(crate) fn push(&mut self, service: &str, order: Order, is_configured: bool) {
        let orders = self.services.entry(service.to_owned()).or_default();
        let is_same = |old: &Order| {
            let both_drain = matches!(old, Order::Drain { .. } | Order::Undrain { .. })
                && matches!(order, Order::Drain { .. } | Order::Undrain { .. });
            let both_weight =
                matches!(old, Order::Weight { .. }) && matches!(order, Order::Weight { .. });
            let ends = matches!(order, Order::Remove { .. });
            server(old) == server(&order) && (both_drain || both_weight || ends)
        };
        orders.retain(|old| !is_same(old));
        let is_void = matches!(order, Order::Undrain { .. })
            || (matches!(order, Order::Remove { .. }) && !is_configured);
        if !is_void {
            orders.push(order);
        }
    }

    /// Writes the file: as a whole or not.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let mut part: PathBuf = path.to_owned();
        part.as_mut_os_string().push(".part");
        let mut file = File::create(&part)?;
        file.write_all(&serde_json::to_vec_pretty(self).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&part, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_that_are_undone_are_forgotten() {
        let mut orders = Orders::default();
        let name = |name: &str| name.to_owned();
        orders.push("files", Order::Drain { server: name("s1") }, true);
        let weight = |weight| Order::Weight {
            server: name("s2"),
            weight,
        };
        orders.push("files", weight(2.0), true);
        orders.push("files", weight(3.0), true);
        orders.push("files", Order::Undrain { server: name("s1") }, true);
        assert_eq!(orders.of("files"), [weight(3.0)]);
        orders.push("files", Order::Remove { server: name("s2") }, false);
        assert_eq!(orders.of("files"), []);
        orders.push("files", Order::Remove { server: name("s3") }, true);
        assert_eq!(
            orders.of("files").len(),
            1,
            "the configuration still has it"
        );
        let text = serde_json::to_string(&orders).expect("it is text");
        assert_eq!(
            serde_json::from_str::<Orders>(&text).expect("it was written so"),
            orders
        );
    }
}
