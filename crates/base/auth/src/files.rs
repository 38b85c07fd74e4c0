//! The files of certificates and keys: paths and permissions.

use crate::error::IdentityError;
use sheaf_protocol::NodeId;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Largest file that is read as a certificate or key, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// The permission bits of the group and of all others.
const OTHERS: u32 = 0o077;
/// The same without the right of the group to read.
const OTHERS_THAN_READERS: u32 = 0o037;
const ROOT: u32 = 0;

/// The files that a node needs to prove itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertFiles {
    /// The certificate of the node, as PEM.
    pub certificate: PathBuf,
    /// Private key, as PEM.
    pub key: PathBuf,
    /// The certificate of the farm's CA, as PEM.
    pub ca: PathBuf,
}

impl CertFiles {
    /// Name of the CA certificate in a directory.
    pub const CA_CERTIFICATE: &'static str = "ca.pem";
    /// Name of the CA's private key in a directory. Only the machine that issues certificates has it.
    pub const CA_KEY: &'static str = "ca.key";

    /// Creates the files of `node` in `directory`, as `sheaf cert issue` names them: `epn-3.pem`, `epn-3.key`,
    /// `ca.pem`.
    #[must_use]
    pub fn in_directory(directory: &Path, node: NodeId) -> Self {
        let stem = format!("{}-{}", node.role, node.index);
        Self {
            certificate: directory.join(format!("{stem}.pem")),
            key: directory.join(format!("{stem}.key")),
            ca: directory.join(Self::CA_CERTIFICATE),
        }
    }
}

/// Reads a file that may be readable by all.
pub(crate) fn read(path: &Path, what: &'static str) -> Result<String, IdentityError> {
    let (text, ..) = read_with_owner(path, what)?;
    Ok(text)
}

/// Reads a private key, unless others can do so too.
pub(crate) fn read_key(path: &Path) -> Result<String, IdentityError> {
    let (text, mode, owner) = read_with_owner(path, "private key")?;
    if !is_private(mode, owner, rustix::process::geteuid().as_raw()) {
        let path = path.to_owned();
        return Err(IdentityError::KeyOpenToOthers { path, mode });
    }
    Ok(text)
}

/// Returns whether a key with these permission bits is closed to other users. One of root may be readable by its group
/// too, if the reader is not root: so a secret of Kubernetes is mounted for a container that runs as a user.
fn is_private(mode: u32, owner: u32, reader: u32) -> bool {
    let is_lent = owner == ROOT && reader != ROOT && mode & OTHERS_THAN_READERS == 0;
    mode & OTHERS == 0 || is_lent
}

/// Returns the text of a file, its permission bits and its owner, of the same open file: a name may be given to another
/// one meanwhile.
fn read_with_owner(path: &Path, what: &'static str) -> Result<(String, u32, u32), IdentityError> {
    let failed = |source| IdentityError::Unreadable {
        what,
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    // What is not text is not PEM either; the search for the PEM block reports that.
    Ok((String::from_utf8_lossy(&bytes).into_owned(), mode, owner))
}

/// Makes `directory` for its owner alone, unless it is there.
pub(crate) fn make_directory(directory: &Path) -> Result<(), IdentityError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(directory)
        .map_err(|source| IdentityError::Unwritable {
            path: directory.to_owned(),
            source,
        })
}

/// Checks that none of `paths` exists.
pub(crate) fn check_absent(paths: &[&Path]) -> Result<(), IdentityError> {
    match paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(IdentityError::Exists {
            path: (*path).to_owned(),
        }),
        None => Ok(()),
    }
}

/// Writes a file with these permission bits from its first byte on. An old one is replaced whole or not at all.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<(), IdentityError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let draft = path.with_file_name(name);
    let outcome = write_new(&draft, text, mode).and_then(|()| fs::rename(&draft, path));
    outcome.map_err(|source| IdentityError::Unwritable {
        path: path.to_owned(),
        source,
    })
}

fn write_new(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    // What a crash has left may have other permissions.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.key");
        write(&path, "secret", 0o600).unwrap();
        assert_eq!(read_key(&path).unwrap(), "secret");
        for mode in [0o640, 0o604, 0o660, 0o777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read_key(&path).unwrap_err().to_string();
            let expected = format!("found mode {mode:04o}, expected 0600");
            assert!(error.contains(&expected), "{error}");
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn a_key_of_root_may_be_lent_to_a_group() {
        let (root, user, other) = (ROOT, 65532, 1000);
        for mode in [0o600, 0o400] {
            assert!(is_private(mode, user, user) && is_private(mode, root, root));
        }
        for mode in [0o440, 0o640] {
            assert!(is_private(mode, root, user));
            assert!(!is_private(mode, root, root), "root needs no group");
            assert!(!is_private(mode, user, user) && !is_private(mode, other, user));
        }
        for mode in [0o460, 0o444, 0o604, 0o650] {
            assert!(!is_private(mode, root, user), "{mode:04o}");
        }
    }

    #[test]
    fn a_file_is_replaced_with_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.key");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(
            check_absent(&[&path]),
            Err(IdentityError::Exists { .. })
        ));
        write(&path, "new", 0o600).unwrap();
        assert_eq!(read_key(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
