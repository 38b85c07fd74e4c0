//! Writes the seeds into the corpus: `cargo run --profile ci -p sheaf-fuzz --example seeds`.

use sheaf_fuzz::seeds;
use std::fs;

fn main() -> std::io::Result<()> {
    let corpus = seeds::folder().join("corpus");
    let seeds = seeds::all()?;
    for seed in &seeds {
        let folder = corpus.join(seed.target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(&seed.name), &seed.bytes)?;
    }
    println!("wrote {} seeds into {}", seeds.len(), corpus.display());
    Ok(())
}
