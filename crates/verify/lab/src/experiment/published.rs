//! Published figures of servers behind one address: Fajardo et al., J. Phys.: Conf. Ser. 1085 (2018) 032004, table 1.
//!
//! Two directors with IPVS in direct routing, six GridFTP servers of 10 Gbit/s each, `gfal-copy` into the null device,
//! clients on hosts of 1 Gbit/s. Nothing is published of failures, times of transfers, or the spread over the servers.

use sheaf_sim::serving::{Method, Serving};

/// Clients, average and largest throughput in Gbit/s.
const TABLE_1: [(u32, [f64; 2]); 5] = [
    (1000, [22.945, 32.934]),
    (2000, [26.853, 34.211]),
    (3000, [28.384, 37.190]),
    (4000, [26.263, 36.328]),
    (5000, [23.334, 37.076]),
];
/// Servers there, and the rate of the cable of each in Mbit/s.
const SERVERS: (u32, f64) = (6, 10_000.0);

/// Average and largest rate of the downloads of `serving` in Gbit/s, if they were published.
pub(super) fn gbit_per_s(serving: &Serving) -> Option<[f64; 2]> {
    let found = TABLE_1
        .iter()
        .find(|(clients, _)| *clients == serving.clients);
    let is_theirs = serving.method == Method::Get && serving.fault.is_none() && serving.drains == 0;
    let servers = (serving.servers, serving.server_mbit * serving.scale);
    found
        .filter(|_| is_theirs && servers == SERVERS)
        .map(|(_, rates)| *rates)
}

/// Points of the published average rate over the number of clients.
#[must_use]
pub fn points() -> [(f64, f64); 5] {
    TABLE_1.map(|(clients, [average, _])| (clients.into(), average))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_figures::peak::Peak;

    #[test]
    fn only_downloads_of_six_servers_of_ten_gbit_were_published() {
        let serving = Serving::default();
        assert_eq!(gbit_per_s(&serving), Some([22.945, 32.934]));
        for other in [
            Serving {
                clients: 1500,
                ..serving.clone()
            },
            Serving {
                method: Method::Put,
                ..serving.clone()
            },
            Serving {
                servers: 5,
                ..serving.clone()
            },
            Serving {
                scale: 10.0,
                ..serving.clone()
            },
        ] {
            assert_eq!(gbit_per_s(&other), None, "{other:?}");
        }
    }

    #[test]
    fn the_published_rates_are_largest_near_three_thousand_clients() {
        let peak = Peak::of(&points()).expect("five points");
        assert!((2900.0..3100.0).contains(&peak.at), "{}", peak.at);
        assert!(
            (15.0..19.0).contains(&peak.fall_percent),
            "{}",
            peak.fall_percent
        );
    }
}
