//! Published figures: Fajardo et al., J. Phys.: Conf. Ser. 1085 (2018) 032004, table 1.
//!
//! Two directors with IPVS in direct routing, six GridFTP servers of 10 Gbit/s each, `gfal-copy` into the null device,
//! clients on hosts of 1 Gbit/s.

use serde::Serialize;

/// Rates there ÷ rates here.
pub(super) const SCALE: f64 = 50.0;

/// Clients, average and largest throughput in Gbit/s.
const TABLE_1: [(u32, f64, f64); 5] = [
    (1000, 22.945, 32.934),
    (2000, 26.853, 34.211),
    (3000, 28.384, 37.190),
    (4000, 26.263, 36.328),
    (5000, 23.334, 37.076),
];

/// Figures of one number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Average throughput.
    pub gbit_per_s: f64,
    /// Largest throughput.
    pub gbit_per_s_max: f64,
}

impl Published {
    /// Returns the figures of `clients`, if there are some.
    pub(super) fn of(clients: u32) -> Option<Self> {
        let found = TABLE_1.iter().find(|(point, ..)| *point == clients);
        found.map(|&(_, gbit_per_s, gbit_per_s_max)| Self {
            gbit_per_s,
            gbit_per_s_max,
        })
    }
}
