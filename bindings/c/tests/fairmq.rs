//! The devices of examples/fairmq, between devices of FairMQ's own, where FairMQ is.

use crate::farm::Farm;
use crate::installed::{HERE, prefix, run};
use std::path::{Path, PathBuf};
use std::process::Command;

const TFS: u32 = 200;

#[test]
fn tfs_go_from_fairmq_to_fairmq_through_a_farm() {
    let test = "tfs_go_from_fairmq_to_fairmq_through_a_farm";
    let Some(fairmq) = std::env::var_os("SHEAF_FAIRMQ_PREFIX").map(PathBuf::from) else {
        println!("{test} skipped: SHEAF_FAIRMQ_PREFIX is not set; tools/fairmq.sh builds FairMQ");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let built = folder.path().join("built");
    let mut configure = Command::new("cmake");
    configure
        .arg("-S")
        .arg(format!("{HERE}/../../examples/fairmq"));
    configure.arg("-B").arg(&built).arg(format!(
        "-DCMAKE_PREFIX_PATH={};{}",
        prefix().display(),
        fairmq.display()
    ));
    run(&mut configure);
    run(Command::new("cmake").arg("--build").arg(&built));

    let farm = Farm::limited(Some(TFS), 1, 1, "");
    let farm_file = farm.file();
    let address = farm.address(0);
    let place = |name: &str| format!("ipc://{}/{name}", folder.path().display());
    let (stfs, tfs) = (place("stfs"), place("tfs"));
    let device = |program: &Path, channel: &str, more: &[&str]| {
        let name = program.file_name().expect("a name").to_string_lossy();
        let mut words = vec!["--id", &name, "--channel-config", channel];
        words.extend("--control static --color false --transport zeromq".split(' '));
        words.extend(more);
        farm.launch(program, &words)
    };
    let iterations = (TFS - 1).to_string();
    let sink = device(
        &fairmq.join("bin/fairmq-sink"),
        &format!("name=data,type=pull,method=bind,address={tfs}"),
        &["--multipart", "true", "--max-iterations", &iterations],
    );
    let processing = device(
        &built.join("sheaf-fairmq-processing"),
        &format!("name=data,type=push,method=connect,address={tfs}"),
        &["--epn", &address],
    );
    let readout = device(
        &built.join("sheaf-fairmq-readout"),
        &format!("name=data,type=pull,method=bind,address={stfs}"),
        &["--farm", &farm_file, "--events", "flp-0.events", "--count"],
    );
    let sampler = device(
        &fairmq.join("bin/fairmq-bsampler"),
        &format!("name=data,type=push,method=connect,address={stfs}"),
        &["--msg-size", "100000", "--max-iterations", &iterations],
    );
    for program in [sampler, processing, sink] {
        program.end();
    }
    // A readout waits for data until its run control ends it.
    readout.interrupt();
    readout.end();
    farm.stop();
    let books = farm.verify(&[]);
    assert!(books.contains(&format!("\"complete\":{TFS},")), "{books}");
}
