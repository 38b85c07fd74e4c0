//! Sessions whose records the kernel protects. Most kernels at hand cannot do it, so the whole runs in a guest, among
//! the tests of farms.

use crate::{authority, encrypted, nobody_at, tls_of};
use sheaf_transport::contract::{Pair, check, check_kernel_tls};
use sheaf_transport::tcp::KernelTls;
use sheaf_transport::{Limits, Tcp, TcpConfig};

#[test]
fn sessions_of_the_kernel_keep_the_contract() {
    match KernelTls::On.decide() {
        (true, _) => check_kernel_tls(),
        (false, reason) => eprintln!("skipped: kernel TLS: {reason}"),
    }
}

#[test]
fn sessions_that_change_keys_all_the_time_keep_the_contract() {
    let limits = Limits {
        head_bytes_max: 1 << 20,
        body_bytes_max: 3 << 20,
    };
    let authority = authority();
    let endpoint = |node| {
        let config = TcpConfig {
            limits,
            kernel_tls: KernelTls::Off,
            records_per_key_max: Some(40),
            ..TcpConfig::default()
        };
        Tcp::with_security(
            config,
            crate::arena(64 << 20),
            encrypted(tls_of(&authority, node)),
        )
        .unwrap()
    };
    check(|| Pair {
        client: endpoint("flp:0"),
        server: endpoint("epn:0"),
        address: "127.0.0.1:0".to_owned(),
        absent: nobody_at("127.0.0.1"),
        limits,
        held_bytes_max: (8 + 2 * 4 + 2 * 4 + 1) << 20,
    });
}
