//! Writes all that follows from the tables of messages: seeds into the corpus, test vectors, layouts on the page.
//!
//! `cargo run --profile ci -p sheaf-fuzz --example seeds`

use sheaf_fuzz::{seeds, tables};
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
    let root = seeds::folder().join("../..");
    for (path, text) in tables::vectors() {
        fs::write(root.join(path), text)?;
    }
    let page = root.join(tables::PAGE);
    let text = tables::with_layouts(&fs::read_to_string(&page)?);
    let text =
        text.ok_or_else(|| std::io::Error::other("the protocol page has no place for layouts"))?;
    fs::write(&page, text)?;
    println!("wrote the test vectors and the layouts of {}", tables::PAGE);
    Ok(())
}
