//! Gives the shared library the name that programs look for, `libsheaf.so.` and the major version of its ABI, and no
//! symbols but those of its header.

fn main() {
    let abi = std::fs::read_to_string("src/abi.rs").expect("the source of the ABI");
    let mut lines = abi.lines();
    let major = lines.find_map(|line| line.strip_prefix("pub const SHEAF_ABI_MAJOR: u32 = "));
    let major = major.and_then(|rest| rest.strip_suffix(';'));
    let major = major.expect("src/abi.rs says `pub const SHEAF_ABI_MAJOR: u32 = …;`");
    println!("cargo:rerun-if-changed=src/abi.rs");
    let arguments = [
        format!("-soname,libsheaf.so.{major}"),
        // Functions of C that crates below have for their own users.
        "--exclude-libs,ALL".to_owned(),
        "-z,start-stop-visibility=hidden".to_owned(),
    ];
    for argument in arguments {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
