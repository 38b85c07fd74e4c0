//! The library as programs in C and C++ find it: installed, compiled against, linked, run in farms of real processes.

mod fairmq;
mod farm;
mod installed;
#[path = "../../../tests/farm/machine.rs"]
mod machine;
mod package;

use farm::Farm;
use installed::{HERE, Language, compile, library, prefix, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags of a program that finds faults of memory, and what is never defined.
const SANITIZED: [&str; 3] = [
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];
/// Flags under which an example has no warning.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(HERE).join(path)).expect(path)
}

/// Returns the names of all functions of the header, in its order.
fn functions(header: &str) -> Vec<&str> {
    let code = header.lines().filter(|line| !line.starts_with("//"));
    let heads = code.filter_map(|line| line.split_once('('));
    let names = heads.filter_map(|(head, _)| head.rsplit([' ', '*']).next());
    names.filter(|name| name.starts_with("sheaf_")).collect()
}

#[test]
fn the_header_is_that_of_the_source() {
    let here = Path::new(HERE);
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("a configuration");
    let sources = ["abi", "status", "source", "consumer", "tf", "file"];
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources {
        builder = builder.with_src(here.join(format!("src/{source}.rs")));
    }
    let mut written = Vec::new();
    builder.generate().expect("a header").write(&mut written);
    let written = String::from_utf8(written).expect("UTF-8");
    let place = here.join("include/sheaf.h");
    if std::env::var_os("SHEAF_WRITE_HEADER").is_some() {
        fs::write(&place, &written).expect("the header");
    }
    assert!(
        text("include/sheaf.h") == written,
        "{} is not that of the source: run SHEAF_WRITE_HEADER=1 cargo test -p sheaf-c, and look at what has changed: a \
         function that went away or has other arguments needs a new SHEAF_ABI_MAJOR, a new one a SHEAF_ABI_MINOR",
        place.display()
    );
}

#[test]
fn each_function_says_which_threads_may_call_it() {
    let header = text("include/sheaf.h");
    let functions = functions(&header);
    assert!(functions.len() > 20, "{functions:?}");
    for function in functions {
        let declared = |chunk: &&str| {
            let code = chunk.lines().filter(|line| !line.starts_with("//"));
            code.into_iter()
                .any(|line| line.contains(&format!("{function}(")))
        };
        let comment = header.split("\n\n").find(declared).expect("a function");
        assert!(comment.contains("// Threads: "), "{function}: {comment}");
    }
}

#[test]
fn the_library_has_the_functions_of_the_header_and_no_others() {
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library()));
    let mut found: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    found.sort_unstable();
    let header = text("include/sheaf.h");
    let mut expected = functions(&header);
    expected.sort_unstable();
    assert_eq!(found, expected);
    let dynamic = run(Command::new("readelf").arg("-d").arg(library()));
    assert!(dynamic.contains("soname: [libsheaf.so.1]"), "{dynamic}");
}

#[test]
fn the_examples_have_no_warning() {
    for (source, language) in [
        ("source.c", Language::C),
        ("consumer.c", Language::C),
        ("source.cpp", Language::Cpp),
        ("consumer.cpp", Language::Cpp),
    ] {
        for compiler in language.compilers() {
            let path = format!("{HERE}/../../examples/c/{source}");
            let lines = fs::read_to_string(&path)
                .expect("an example")
                .lines()
                .count();
            assert!(lines <= 65, "{source} has {lines} lines");
            compile(compiler, language, Path::new(&path), &STRICT);
        }
    }
    for header in ["sheaf.h", "sheaf.hpp"] {
        let compilers = [("g++", "-std=c++17"), ("clang++", "-std=c++20")];
        for (compiler, standard) in compilers {
            let mut command = Command::new(compiler);
            command
                .args(STRICT)
                .args([standard, "-fsyntax-only", "-x", "c++"]);
            run(command.arg(prefix().join("include").join(header)));
        }
    }
}

#[test]
fn the_blocks_of_the_guide_have_no_warning() {
    let guide = text("../../docs/how-to/c.md");
    let folder = tempfile::tempdir().expect("a folder");
    let mut blocks = 0;
    for (language, begin) in [(Language::C, "```c\n"), (Language::Cpp, "```cpp\n")] {
        for block in guide.split(begin).skip(1) {
            let (code, _) = block.split_once("```").expect("an end");
            let source = folder.path().join("block");
            fs::write(&source, code).expect("a source");
            for compiler in language.compilers() {
                installed::look_at(compiler, language, &source, &STRICT);
            }
            blocks += 1;
        }
    }
    assert_eq!(blocks, 4);
}

#[test]
fn cmake_finds_the_library_and_a_program_can_hold_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let built = folder.path().join("built");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(format!("{HERE}/../../examples/c"));
    configure.arg("-B").arg(&built);
    run(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    run(Command::new("cmake").arg("--build").arg(&built));
    for name in ["source_c", "consumer_c", "source_cpp", "consumer_cpp"] {
        let output = Command::new(built.join(name)).output().expect(name);
        assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
    }
    // The static library: the program runs where nothing is installed.
    let alone = installed::link_static(&Path::new(HERE).join("tests/version.c"), folder.path());
    let told = run(Command::new(alone).env_clear());
    assert_eq!(told, format!("{} 65536\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_uses_have_their_status_and_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let farm = |name: &str, source: &str| {
        let text = format!(
            "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"127.0.0.1:1\"\n\
             [flp]\nhold_bytes = 67108864\nstf_bytes_max = 4194304\n[flp.source]\nkind = \"{source}\"\n"
        );
        fs::write(folder.path().join(name), text).expect("a farm file");
    };
    farm("program.toml", "program");
    farm("generator.toml", "generator");
    fs::write(folder.path().join("broken.toml"), "[run]\nflps = \"two\"\n").expect("a farm file");
    fs::write(folder.path().join("no.tfs"), [7; 100]).expect("a file");
    let c = compile(
        "gcc",
        Language::C,
        &Path::new(HERE).join("tests/wrong.c"),
        &SANITIZED,
    );
    let cpp = compile(
        "g++",
        Language::Cpp,
        &Path::new(HERE).join("tests/wrong.cpp"),
        &SANITIZED,
    );
    for program in [c, cpp] {
        let told = run(Command::new(program).arg(folder.path()));
        assert!(told.ends_with("all as expected\n"), "{told}");
    }
}

#[test]
fn a_readout_and_an_analysis_in_c_lose_nothing() {
    let farm = Farm::start(1, 2, "");
    let source = farm.program(
        "source.c",
        Language::C,
        &[&farm.file(), "400", "flp-0.events"],
    );
    let consumers =
        [0, 1].map(|epn| farm.program("consumer.c", Language::C, &[&farm.address(epn)]));
    assert_eq!(source.end(), "sent 400 STFs");
    farm.stop();
    let mut tfs = 0;
    for consumer in consumers {
        let told = consumer.end();
        let words: Vec<&str> = told.split(' ').collect();
        let [
            taken,
            "TFs,",
            bytes,
            "bytes,",
            "0",
            "incomplete,",
            "0",
            "damaged",
        ] = words[..]
        else {
            panic!("{told}");
        };
        let number = |word: &str| word.parse::<u64>().expect("a number");
        assert_eq!(number(bytes), number(taken) * 100_008);
        tfs += number(taken);
    }
    assert_eq!(tfs, 400);
    let books = farm.verify(&[]);
    assert!(books.contains("\"announced\":400"), "{books}");
}

#[test]
fn a_paced_readout_and_a_trigger_in_cpp_share_a_farm() {
    let more = "[icn.scheduler]\nmode = \"paced\"\npaced_rate_hz = 500.0\n\
                [epn.sink.write]\ndirectory = \"written\"\nfree_min_mib = 0\n\
                [[epn.sink.write.stream]]\nname = \"loud\"\ntags = [\"loud\"]\n\
                [[epn.sink.write.stream]]\nname = \"made\"\nproduct = true\n";
    let farm = Farm::limited(Some(600), 2, 1, more);
    let consumer = farm.program("consumer.cpp", Language::Cpp, &[&farm.address(0), "200"]);
    let sources =
        ["0", "1"].map(|flp| farm.program("source.cpp", Language::Cpp, &[&farm.file(), flp]));
    for source in sources {
        assert_eq!(source.end(), "sent 600 STFs");
    }
    farm.stop();
    assert_eq!(consumer.end(), "600 TFs, 400 loud");
    // A file of TFs again, in C++ as well.
    let loud = written(farm.folder(), "loud");
    let reader = compile(
        "g++",
        Language::Cpp,
        &Path::new(HERE).join("tests/read.cpp"),
        &SANITIZED,
    );
    let told = run(Command::new(reader).args(loud));
    assert_eq!(told, "400 TFs from 200 to 599, 80000000 bytes\n");
    let bytes = written(farm.folder(), "made").into_iter().map(fs::metadata);
    let bytes: u64 = bytes.map(|file| file.expect("a file").len()).sum();
    assert!(bytes > 400 * 2, "{bytes} bytes of products");
}

/// Returns the files of a stream below `folder`.
fn written(folder: &Path, stream: &str) -> Vec<PathBuf> {
    let mut folders = vec![folder.join("written")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.retain(|path| path.to_string_lossy().contains(stream));
    files.sort();
    files
}

#[test]
fn a_dead_epn_does_not_end_a_readout() {
    let mut farm = Farm::start(1, 2, "");
    let source = farm.program(
        "source.c",
        Language::C,
        &[&farm.file(), "20000", "flp-0.events"],
    );
    let consumers =
        [0, 1].map(|epn| farm.program("consumer.c", Language::C, &[&farm.address(epn)]));
    farm.await_built();
    farm.kill_epn();
    assert_eq!(source.end(), "sent 20000 STFs");
    farm.stop();
    for consumer in consumers {
        consumer.end();
    }
    let books = farm.verify(&["--allow-abandoned"]);
    assert!(books.contains("\"announced\":20000"), "{books}");
}

#[test]
fn an_interrupt_ends_the_examples() {
    // Its other FLP never comes: nothing is built, nothing decided.
    let farm = Farm::start(2, 1, "");
    let consumer = farm.program("consumer.c", Language::C, &[&farm.address(0)]);
    consumer.await_handler(true);
    consumer.interrupt();
    assert_eq!(consumer.end(), "0 TFs, 0 bytes, 0 incomplete, 0 damaged");
    let source = farm.program("source.c", Language::C, &[&farm.file(), "1000000"]);
    source.await_handler(true);
    source.interrupt();
    source.await_handler(false);
    source.interrupt();
    source.await_interrupted();
}
