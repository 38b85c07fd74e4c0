//! A readout in Rust: gives the STFs of one FLP to a farm whose file has `flp.source.kind = "program"`.
//!
//!     cargo run --example readout -p sheaf-node -- farm.toml 0 1000

use sheaf_node::config::FarmConfig;
use sheaf_node::readout::{Patience, Readout, ReadoutOptions};
use sheaf_protocol::{FlpId, PayloadFormat, TfId};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [farm, flp, tfs] = &words[..] else {
        return Err("expected FARM FLP TFS".into());
    };
    let config = FarmConfig::load(farm.as_ref())?;
    let flp = FlpId(flp.parse()?);
    let mut readout = Readout::start(config, flp, ReadoutOptions::default())?;
    for tf in 0..tfs.parse()? {
        // What the detector has: a header and some samples, one behind the other.
        let (header, samples) = (u64::to_le_bytes(tf), vec![tf as u8; 100_000]);
        let parts = [&header[..], &samples];
        // Waits while the farm takes nothing, and as long as this says so.
        let mut goes_on = || true;
        let forever = Patience::new(None, &mut goes_on);
        readout.send(TfId(tf), PayloadFormat::Opaque, &parts, forever)?;
    }
    // Waits until each STF is decided: built into a TF, or counted as lost with the reason.
    readout.close(Patience::new(None, &mut || true))?;
    println!("sent {tfs} STFs");
    Ok(())
}
