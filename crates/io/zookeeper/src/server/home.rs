//! Where Java and the jars of ZooKeeper are on this machine.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The jars that `scripts/setup.sh` fetches, with their sums.
const JARS: &str = include_str!("../../jars.sha256");

/// The version of [`JARS`].
const VERSION: &str = "3.9.5";

/// Debian's package `zookeeper`. Its manifest pulls in most of what it needs.
const DEBIAN: &str = "/usr/share/java/zookeeper.jar";

/// Missing item.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HomeError {
    /// `SHEAF_ZOOKEEPER_HOME` is not the folder of a ZooKeeper.
    #[error(
        "SHEAF_ZOOKEEPER_HOME is {found}, expected a folder with zookeeper-*.jar in it or in its lib"
    )]
    NotThere {
        /// Path in the variable.
        found: String,
    },
    /// No jars anywhere.
    #[error(
        "no ZooKeeper server on this machine: found neither {cache} nor {DEBIAN}; run scripts/setup.sh zookeeper, \
         or name a folder with its jars in SHEAF_ZOOKEEPER_HOME"
    )]
    NoJars {
        /// The folder that was looked into.
        cache: String,
    },
    /// No Java.
    #[error(
        "no Java on this machine, which ZooKeeper servers need: neither JAVA_HOME nor PATH has it; on Debian: \
         apt-get install default-jre-headless"
    )]
    NoJava,
    /// The servers are too old to be asked for TLS here.
    #[error("Debian's ZooKeeper lacks jars for TLS; run scripts/setup.sh zookeeper for {VERSION}")]
    NoTls,
}

/// A Java and the jars of a ZooKeeper.
#[derive(Clone, Debug)]
pub struct Home {
    java: PathBuf,
    class_path: OsString,
    version: String,
}

impl Home {
    /// Looks in `SHEAF_ZOOKEEPER_HOME`, in the cache that `scripts/setup.sh` fills
    /// (`~/.cache/sheaf/zookeeper-3.9.5`), and for Debian's package, in this order.
    ///
    /// # Errors
    ///
    /// [`HomeError`] names what is missing and what to do.
    pub fn find() -> Result<Self, HomeError> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let cache = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")))
            .unwrap_or_default()
            .join(format!("sheaf/zookeeper-{VERSION}"));
        let (class_path, version) = match set("SHEAF_ZOOKEEPER_HOME") {
            Some(named) => in_folder(Path::new(&named)).ok_or_else(|| HomeError::NotThere {
                found: named.to_string_lossy().into_owned(),
            })?,
            None => in_cache(&cache)
                .or_else(of_debian)
                .ok_or_else(|| HomeError::NoJars {
                    cache: cache.display().to_string(),
                })?,
        };
        let java_home = set("JAVA_HOME").map(|home| Path::new(&home).join("bin"));
        let path = set("PATH").unwrap_or_default();
        let mut folders = java_home.into_iter().chain(env::split_paths(&path));
        let java =
            folders.find_map(|folder| Some(folder.join("java")).filter(|java| java.is_file()));
        Ok(Self {
            java: java.ok_or(HomeError::NoJava)?,
            class_path,
            version,
        })
    }

    /// As [`find`](Self::find), for tests: where it fails, the test says on the standard error that it is skipped.
    ///
    /// # Panics
    ///
    /// In CI (`CI` is set to `true`), where every test has to run.
    #[must_use]
    pub fn for_tests() -> Option<Self> {
        match Self::find() {
            Ok(home) => Some(home),
            Err(error) if env::var_os("CI").is_some_and(|ci| ci == "true") => {
                panic!("a test that needs ZooKeeper cannot run: {error}")
            }
            Err(error) => {
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    /// The version, such as `3.9.5`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn java(&self) -> &Path {
        &self.java
    }

    pub(super) fn class_path(&self) -> &OsStr {
        &self.class_path
    }

    pub(super) fn is_older_than_3_9(&self) -> bool {
        let mut parts = self
            .version
            .split('.')
            .map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (3u32, 9u32)
    }
}

/// The names of the files of the list.
fn jar_names() -> impl Iterator<Item = &'static str> {
    let lines = JARS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit('/').next())
}

/// Every jar of the list has to be there: `setup.sh` renames a file only when its sum is right.
fn in_cache(cache: &Path) -> Option<(OsString, String)> {
    let jars: Vec<_> = jar_names().map(|name| cache.join(name)).collect();
    if !jars.iter().all(|jar| jar.is_file()) {
        return None;
    }
    Some((env::join_paths(jars).ok()?, VERSION.to_owned()))
}

fn in_folder(folder: &Path) -> Option<(OsString, String)> {
    for folder in [folder.to_owned(), folder.join("lib")] {
        let names = fs::read_dir(&folder).into_iter().flatten().flatten();
        let versions = names.filter_map(|entry| version_of(&entry.file_name().to_string_lossy()));
        if let Some(version) = versions.max() {
            // Java reads an asterisk as all jars of the folder.
            return Some((folder.join("*").into_os_string(), version));
        }
    }
    None
}

/// `3.9.5` of `zookeeper-3.9.5.jar`; nothing of `zookeeper-jute-3.9.5.jar`.
fn version_of(name: &str) -> Option<String> {
    let version = name.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
    let is_version = version.starts_with(|c: char| c.is_ascii_digit());
    is_version.then(|| version.to_owned())
}

fn of_debian() -> Option<(OsString, String)> {
    let jar = fs::canonicalize(DEBIAN).ok()?;
    let version = version_of(&jar.file_name()?.to_string_lossy()).unwrap_or_else(|| "3.8.0".into());
    let netty = [
        "codec",
        "resolver",
        "transport",
        "handler",
        "buffer",
        "common",
    ]
    .map(|part| PathBuf::from(format!("/usr/share/java/netty-{part}.jar")));
    let all = [PathBuf::from(DEBIAN)].into_iter().chain(netty);
    let path =
        env::join_paths(all.chain([PathBuf::from("/usr/share/java/slf4j-simple.jar")])).ok()?;
    Some((path, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_the_server_and_what_it_stands_on() {
        let names: Vec<_> = jar_names().collect();
        assert!(names.contains(&"zookeeper-3.9.5.jar"), "{names:?}");
        assert!(names.iter().all(|name| name.ends_with(".jar")), "{names:?}");
        for line in JARS.lines().filter(|line| !line.starts_with('#')) {
            let (sum, path) = line.split_once("  ").expect("sum and path");
            assert_eq!((sum.len(), path.starts_with('/')), (64, false), "{line}");
        }
    }

    #[test]
    fn a_folder_of_a_release_is_understood_and_an_empty_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(in_folder(folder.path()), None);
        let lib = folder.path().join("lib");
        fs::create_dir(&lib).unwrap();
        for name in ["zookeeper-3.8.6.jar", "zookeeper-jute-3.8.6.jar"] {
            fs::write(lib.join(name), "").unwrap();
        }
        let (class_path, version) = in_folder(folder.path()).unwrap();
        assert_eq!(class_path, lib.join("*").into_os_string());
        assert_eq!(version, "3.8.6");
        assert!(in_cache(&lib).is_none());
    }
}
