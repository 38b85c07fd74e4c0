//! Addresses on the command line.

use sheaf_node::config::{NODE_ADDRESS, is_address, is_node_address};

/// Reads HOST:PORT.
///
/// # Errors
///
/// The text found and the text expected, for clap to print.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    if is_address(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "found `{text}`, expected HOST:PORT, such as 127.0.0.1:7000"
        ))
    }
}

/// Reads HOST:PORT or `unix:PATH`.
///
/// # Errors
///
/// The text found and the text expected, for clap to print.
pub(crate) fn parse_node(text: &str) -> Result<String, String> {
    if is_node_address(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("found `{text}`, expected {NODE_ADDRESS}"))
    }
}
