//! Comparison of the certificate of a peer with the node that is expected.

use sheaf_protocol::{NodeId, Role};
use sheaf_transport::{ConnId, Transport};

/// Why the peer at the other end of `conn` is not `expected`, as its certificate says; `None` if it is, or if the
/// connection proves nothing.
pub(crate) fn denial<T: Transport>(
    transport: &T,
    conn: ConnId,
    expected: NodeId,
) -> Option<String> {
    let found = transport.identity(conn)?;
    (found.node != expected)
        .then(|| format!("found the certificate of {found}, expected that of {expected}"))
}

/// As [`denial`], where any node of a role will do.
pub(crate) fn role_denial<T: Transport>(
    transport: &T,
    conn: ConnId,
    expected: Role,
) -> Option<String> {
    let found = transport.identity(conn)?;
    (found.node.role != expected)
        .then(|| format!("found the certificate of {found}, expected that of an {expected}"))
}
