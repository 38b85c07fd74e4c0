//! Random numbers from the kernel, for names that must not be guessed or met twice.

/// Draws 128 random bits.
pub(crate) fn draw() -> u128 {
    let mut bytes = [0_u8; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    let got = rustix::rand::getrandom(&mut bytes, flags);
    // random(7): up to 256 bytes come whole, once the machine has gathered some at its start.
    assert_eq!(got, Ok(bytes.len()), "the kernel has random bytes");
    u128::from_ne_bytes(bytes)
}
