//! An emulated machine with one of Debian's kernels for clouds, for what the kernel of this machine does not have:
//! IPVS, the age of Linux 6.1, and TLS.
//!
//! The guest has no disk and no network card: a file system in memory holds this test program, the binary, the tools
//! of networks, and the kernel modules that tests need. It runs one test of this program and prints to its serial port.

use crate::harness::{PROGRAM, farm_turn};
use sheaf_testbed::tool;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time of a guest: software emulation, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(900);
/// Tools that run outside of the guest, with their packages of Debian.
const TOOLS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("cpio", "cpio"),
];
/// Programs that the guest gets beside those of the tests.
const PROGRAMS: [&str; 5] = ["sh", "ip", "tc", "nft", "busybox"];
/// A kernel that `scripts/setup.sh guest` fetches.
pub(crate) struct Kernel {
    /// Folder in the cache of Sheaf.
    folder: &'static str,
    /// Modules, beside those that they need.
    modules: &'static [&'static str],
    /// Memory of the machine, for the emulator.
    memory: &'static [&'static str],
}

/// 3 GiB in one place.
const PLAIN_MEMORY: [&str; 2] = ["-m", "3072"];

/// Kernel of this release of Debian.
pub(crate) const RELEASE: Kernel = Kernel {
    folder: "guest-kernel",
    modules: &[
        "veth",
        "bridge",
        "tcp_diag",
        "nf_tables",
        "ip_vs",
        "ip_vs_mh",
        "sch_ingress",
        "cls_bpf",
    ],
    memory: &PLAIN_MEMORY,
};

/// The same kernel on a machine with two memory nodes, each with one processor.
pub(crate) const TWO_SIDES: Kernel = Kernel {
    folder: "guest-kernel",
    modules: &[],
    memory: &[
        "-m",
        "3072",
        "-object",
        "memory-backend-ram,size=1536M,id=left",
        "-object",
        "memory-backend-ram,size=1536M,id=right",
        "-numa",
        "node,memdev=left,cpus=0",
        "-numa",
        "node,memdev=right,cpus=1",
    ],
};

/// Kernel that changes the keys of TLS sessions, which Linux 6.14 and later do.
pub(crate) const LATER: Kernel = Kernel {
    folder: "guest-kernel-6.18",
    modules: &["tls", "gcm", "ghash-generic", "ctr", "aesni_intel"],
    memory: &PLAIN_MEMORY,
};

/// Word before the exit status of the test, on the serial port.
const END: &str = "GUEST-ENDS-WITH";
/// Variable that tests in the guest find.
const MARK: &str = "SHEAF_TEST_GUEST";

/// Whether this is the guest, which is slow.
pub(crate) fn is_here() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Program of the plane `tc`, where `make bpf` puts it.
pub(crate) fn bpf_program() -> PathBuf {
    let target = Path::new(PROGRAM).ancestors().nth(2).expect("target");
    target.join("bpf/sheaf-direct.bpf.o")
}

/// Ends the emulator when dropped.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kernel of a guest, unpacked.
pub(crate) struct Guest {
    kernel: &'static Kernel,
    image: PathBuf,
    root: PathBuf,
    version: String,
}

impl Guest {
    /// Finds what a guest needs; the reason if something is not there.
    pub(crate) fn find(kernel: &'static Kernel) -> Result<Self, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("the guest is an x86-64 machine, and so has to be this".to_owned());
        }
        for (tool, package) in TOOLS {
            if tool::find(tool).is_none() {
                return Err(format!(
                    "{tool} is not there; on Debian: apt-get install {package}"
                ));
            }
        }
        let given = std::env::var_os("SHEAF_GUEST_KERNEL");
        let root = match given.filter(|_| kernel.folder == RELEASE.folder) {
            Some(root) => PathBuf::from(root),
            None => cache().join("sheaf").join(kernel.folder),
        };
        let versions = fs::read_dir(root.join("lib/modules"));
        let mut versions = versions.into_iter().flatten().flatten();
        let version = versions.next().ok_or_else(|| {
            let root = root.display();
            format!("no kernel is in {root}; scripts/setup.sh guest fetches Debian's for clouds")
        })?;
        let version = version.file_name().to_string_lossy().into_owned();
        let image = root.join(format!("boot/vmlinuz-{version}"));
        match image.is_file() {
            true => Ok(Self {
                kernel,
                image,
                root,
                version,
            }),
            false => Err(format!("{} is not there", image.display())),
        }
    }

    /// Runs a test of this program that is ignored elsewhere in a guest with `kernel`, for the test `of`: in CI it has
    /// to run.
    pub(crate) fn run_or_skip(kernel: &'static Kernel, of: &str, test: &str) {
        match Self::find(kernel) {
            Ok(guest) => {
                let _turn = farm_turn();
                println!("{}", guest.run_test(test));
            }
            Err(why) => {
                let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
                assert!(!is_ci, "{of} must run in CI: {why}");
                eprintln!("{of} skipped: {why}");
            }
        }
    }

    /// Runs a test of this program that is ignored elsewhere. Returns what it has printed.
    ///
    /// # Panics
    ///
    /// Panics if the test fails.
    #[track_caller]
    pub(crate) fn run_test(&self, test: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = folder.path().join("memory.cpio");
        self.pack(&folder.path().join("root"), &memory, test);
        let console = folder.path().join("console");
        let output = File::create(&console).expect("the file is made");
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
            .args(self.kernel.memory)
            .args(["-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-serial", "stdio", "-kernel"])
            .arg(&self.image)
            .arg("-initrd")
            .arg(&memory)
            .args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"])
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a descriptor"))
            .stderr(output);
        let mut emulator = Emulator(command.spawn().expect("the emulator starts"));
        let began = Instant::now();
        let text = || {
            let bytes = fs::read(&console).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        while emulator.0.try_wait().expect("it is waited for").is_none() {
            let text = text();
            assert!(began.elapsed() < PATIENCE, "not in {PATIENCE:?}:\n{text}");
            std::thread::park_timeout(Duration::from_millis(200));
        }
        let text = text();
        let is_passed = text.contains(&format!("{END} 0")) && text.contains("1 passed; 0 failed");
        assert!(is_passed, "the test failed in the guest:\n{text}");
        text
    }

    /// Packs the file system of the guest.
    fn pack(&self, root: &Path, memory: &Path, test: &str) {
        for folder in ["dev", "proc", "sys", "run", "tmp", "modules"] {
            fs::create_dir_all(root.join(folder)).expect("the folder is made");
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir_all(root.join("usr").join(name)).expect("the folder is made");
            symlink(Path::new("usr").join(name), root.join(name)).expect("the link is made");
        }
        let this = std::env::current_exe().expect("the path of this program");
        let mut files = vec![this.clone(), PathBuf::from(PROGRAM)];
        files.extend(PROGRAMS.map(|name| tool::find(name).expect("it was found before")));
        for file in files {
            for library in libraries(&file) {
                copy(&library, root);
            }
            copy(&file, root);
        }
        let program = bpf_program();
        if program.is_file() {
            copy(&program, root);
        }
        let mut load = String::new();
        for module in self.modules() {
            let name = module.file_name().expect("a file").to_string_lossy();
            let target = root.join("modules").join(name.trim_end_matches(".xz"));
            if name.ends_with(".xz") {
                let output = File::create(&target).expect("the file is made");
                let mut unpack = Command::new("busybox");
                let unpack = unpack.arg("xzcat").arg(&module).stdout(output).status();
                assert!(unpack.expect("busybox runs").success(), "{name}");
            } else {
                fs::copy(&module, &target).expect("the module is copied");
            }
            let name = name.trim_end_matches(".xz");
            load += &format!("busybox insmod /modules/{name}\n");
        }
        let init = format!(
            "#!/bin/sh\n\
             export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ TMPDIR=/tmp CI=1 {MARK}=1\n\
             busybox mount -t proc proc /proc\nbusybox mount -t sysfs sys /sys\n\
             busybox mount -t devtmpfs dev /dev\nbusybox mount -t tmpfs run /run\n\
             busybox mount -t tmpfs tmp /tmp\n{load}ip link set lo up\nulimit -n 16384\n\
             {} --exact {test} --ignored --nocapture\n\
             echo {END} $?\nbusybox poweroff -f\n",
            this.display()
        );
        let path = root.join("init");
        fs::write(&path, init).expect("the file is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is a program");
        let output = File::create(memory).expect("the file is made");
        let pack = Command::new("sh")
            .args(["-c", "find . | cpio -o -H newc --quiet"])
            .current_dir(root)
            .stdout(output)
            .status();
        assert!(pack.expect("cpio runs").success(), "cpio failed");
    }

    /// Returns the files of the modules in an order in which they can be loaded.
    fn modules(&self) -> Vec<PathBuf> {
        let depmod = Command::new("depmod")
            .arg("-b")
            .args([self.root.as_os_str(), OsStr::new(&self.version)])
            .status();
        assert!(depmod.expect("depmod runs").success(), "depmod failed");
        let mut files = Vec::new();
        for module in self.kernel.modules {
            let output = Command::new("modprobe")
                .arg("-d")
                .arg(&self.root)
                .args(["-S", &self.version, "--show-depends", module])
                .output()
                .expect("modprobe runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && !text.is_empty(), "{module}");
            let paths = text.lines().filter_map(|line| line.strip_prefix("insmod "));
            for path in paths.map(|path| PathBuf::from(path.trim())) {
                if !files.contains(&path) {
                    files.push(path);
                }
            }
        }
        files
    }
}

fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from)
}

/// Returns the libraries of a program; none of one that is linked statically.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}

/// Copies a file to the same path below `root`.
fn copy(file: &Path, root: &Path) {
    let target = root.join(file.strip_prefix("/").expect("an absolute path"));
    let folder = target.parent().expect("a folder");
    fs::create_dir_all(folder).expect("the folder is made");
    fs::copy(file, &target).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
