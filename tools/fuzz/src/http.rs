//! Target for the bytes of clients of the file server.

/// A request with its body.
pub fn http_request(bytes: &[u8]) {
    sheaf_file_server::check_request(bytes);
}
