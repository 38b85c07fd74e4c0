//! Properties that clients give to files (RFC 4918, section 4), kept in an extended attribute of the file.

use dav_server::fs::DavProp;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;

const ATTRIBUTE: &str = "user.sheaf.properties";
/// Largest attribute of Linux (xattr(7)); file systems may have room for less.
const BYTES_MAX: usize = 64 << 10;

/// Property as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Property {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Element with the value.
    xml: String,
}

impl Property {
    fn is_named(&self, other: &DavProp) -> bool {
        let of_none = |namespace: &Option<String>| namespace.clone().unwrap_or_default();
        self.name == other.name && of_none(&self.namespace) == of_none(&other.namespace)
    }
}

impl From<Property> for DavProp {
    fn from(property: Property) -> Self {
        Self {
            name: property.name,
            prefix: property.prefix,
            namespace: property.namespace,
            xml: Some(property.xml.into_bytes()),
        }
    }
}

/// Reads the properties of a file.
pub(crate) fn read(file: &File) -> Vec<DavProp> {
    load(file).into_iter().map(DavProp::from).collect()
}

/// Sets and removes properties, all of them or none; `true` sets.
///
/// # Errors
///
/// That of the file system: no room, or no attributes at all.
pub(crate) fn change(file: &File, changes: &[(bool, DavProp)]) -> Result<(), Errno> {
    let mut all = load(file);
    for (is_set, property) in changes {
        all.retain(|known| !known.is_named(property));
        if *is_set {
            let xml = property.xml.clone().unwrap_or_default();
            all.push(Property {
                name: property.name.clone(),
                prefix: property.prefix.clone(),
                namespace: property.namespace.clone(),
                xml: String::from_utf8(xml).map_err(|_| Errno::INVAL)?,
            });
        }
    }
    store(file, &all)
}

/// Copies the properties of one file to another, as far as there is room.
pub(crate) fn copy(from: &File, to: &File) {
    let all = load(from);
    if !all.is_empty() {
        // A copy without them is a copy of the bytes all the same.
        let _ = store(to, &all);
    }
}

fn load(file: &File) -> Vec<Property> {
    let mut room = vec![0; BYTES_MAX];
    let length = fgetxattr(file, ATTRIBUTE, &mut room[..]);
    // None, or what another program has put there.
    length.map_or_else(
        |_| Vec::new(),
        |length| serde_json::from_slice(&room[..length]).unwrap_or_default(),
    )
}

fn store(file: &File, all: &[Property]) -> Result<(), Errno> {
    if all.is_empty() {
        return match rustix::fs::fremovexattr(file, ATTRIBUTE) {
            Err(Errno::NODATA) => Ok(()),
            other => other,
        };
    }
    let text = serde_json::to_vec(all).map_err(|_| Errno::INVAL)?;
    fsetxattr(file, ATTRIBUTE, &text, XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(namespace: Option<&str>, name: &str, xml: &str) -> DavProp {
        DavProp {
            name: name.to_owned(),
            prefix: None,
            namespace: namespace.map(str::to_owned),
            xml: Some(xml.as_bytes().to_vec()),
        }
    }

    #[test]
    fn properties_are_known_by_namespace_and_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("a")).unwrap();
        let shown = |file: &File| {
            let all = read(file)
                .into_iter()
                .map(|one| String::from_utf8(one.xml.unwrap()).unwrap());
            all.collect::<Vec<_>>().join(" ")
        };
        let changes = [
            (true, property(Some("n"), "a", "<a>1</a>")),
            (true, property(None, "a", "<a>2</a>")),
            (true, property(Some("n"), "a", "<a>3</a>")),
        ];
        change(&file, &changes).unwrap();
        assert_eq!(shown(&file), "<a>2</a> <a>3</a>");
        let other = File::create(folder.path().join("b")).unwrap();
        copy(&file, &other);
        let gone = [
            (false, property(None, "a", "")),
            (false, property(None, "none", "")),
        ];
        change(&file, &gone).unwrap();
        assert_eq!(
            (shown(&file).as_str(), shown(&other).as_str()),
            ("<a>3</a>", "<a>2</a> <a>3</a>")
        );
        change(&file, &[(false, property(Some("n"), "a", ""))]).unwrap();
        change(&file, &[(false, property(Some("n"), "a", ""))]).unwrap();
        assert_eq!(shown(&file), "");
        let large = "x".repeat(100_000);
        assert!(change(&file, &[(true, property(None, "a", &large))]).is_err());
    }
}
