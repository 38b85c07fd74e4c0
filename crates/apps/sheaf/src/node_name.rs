//! Names of nodes on the command line: `icn:0`, `flp:12`, `epn:3`, `writer:0`.

use sheaf_protocol::{EpnId, NodeId, Role};

/// Reads the name of an ICN, FLP, EPN or writer.
///
/// # Errors
///
/// The text found and the text expected, for clap to print.
pub(crate) fn parse(text: &str) -> Result<NodeId, String> {
    let expected = || format!("found node `{text}`, expected icn:N, flp:N, epn:N or writer:N");
    let (role, index) = text.split_once(':').ok_or_else(expected)?;
    let role = match role {
        "icn" => Role::Icn,
        "flp" => Role::Flp,
        "epn" => Role::Epn,
        "writer" => Role::Writer,
        _ => return Err(expected()),
    };
    let index = index.parse().map_err(|_| expected())?;
    Ok(NodeId { role, index })
}

/// Reads the name of an EPN.
///
/// # Errors
///
/// The text found and the text expected, for clap to print.
pub(crate) fn parse_epn(text: &str) -> Result<EpnId, String> {
    match parse(text) {
        Ok(NodeId {
            role: Role::Epn,
            index,
        }) => Ok(EpnId(index)),
        _ => Err(format!("found `{text}`, expected epn:N, such as epn:3")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epn_is_read_or_named() {
        assert_eq!(parse_epn("epn:3"), Ok(EpnId(3)));
        for wrong in ["flp:3", "epn", "epn:x", "epn:-1", "3", "epn:70000"] {
            let error = parse_epn(wrong).unwrap_err();
            assert!(error.contains("expected epn:N"), "{wrong}: {error}");
        }
    }
}
