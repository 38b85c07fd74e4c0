//! An analysis in Rust: takes the TFs of an EPN whose farm file has `epn.sink.kind = "shm"`, where they lie.
//!
//!     cargo run --example analysis -p sheaf-node -- /run/sheaf/epn-0

use sheaf_node::consume::{Consumer, Next, faults};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("expected PATH")?;
    let mut consumer = Consumer::connect(path.as_ref(), Duration::from_secs(5))?;
    let (mut tfs, mut bytes, mut damaged) = (0, 0, 0);
    loop {
        match consumer.next(None)? {
            Next::Tf(tf) => {
                tfs += 1;
                bytes += tf.bytes();
                // The CRC-32C of every payload again.
                damaged += faults(&tf).len();
                // Dropped, its memory goes back to the EPN.
            }
            Next::Nothing => {}
            Next::End => break,
        }
    }
    println!("{tfs} TFs, {bytes} bytes, {damaged} damaged");
    Ok(())
}
