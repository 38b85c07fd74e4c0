//! Names of the disks of one node in file names: files of all disks may meet in one place.

use sheaf_protect::protect;
use thiserror::Error;

/// Why disks cannot be named: two of them have files of one name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("two directories have files of `{name}`, expected files of a disk of its own in each")]
pub struct SharedName {
    /// The name.
    pub name: String,
}

/// Returns the `{node}` of the file names of each disk of `node`. A disk that has files keeps the name that they have
/// (`found`), wherever it stands in the list; a new one gets the first name that is free: `NODE`, `NODE-d1`, `NODE-d2`
/// and so on. So no two files of a node have one name, whichever disk they were written to.
///
/// # Errors
///
/// [`SharedName`] if two disks have files of the same name.
pub fn disk_nodes(node: &str, found: &[Option<String>]) -> Result<Vec<String>, SharedName> {
    let name_of = |number: usize| match number {
        0 => node.to_owned(),
        number => format!("{node}-d{number}"),
    };
    let all: Vec<String> = (0..2 * found.len()).map(name_of).collect();
    // Files of another node are none of this one, and do not name its disk.
    let number_of = |name: &String| {
        let number = name.strip_prefix(node)?.strip_prefix("-d");
        number?.parse::<u32>().ok()
    };
    let known = |name: &Option<String>| {
        let name = name.clone();
        name.filter(|name| name == node || number_of(name).is_some())
    };
    let known: Vec<Option<String>> = found.iter().map(known).collect();
    for (at, name) in known.iter().enumerate() {
        if let Some(name) = name
            && known[..at].contains(&Some(name.clone()))
        {
            return Err(SharedName { name: name.clone() });
        }
    }
    let mut free = all.iter().filter(|name| {
        let is_taken = known.iter().flatten().any(|other| other == *name);
        !is_taken
    });
    let named = known.iter().map(|name| match name {
        Some(name) => name.clone(),
        None => {
            let next = free.next().expect("there are twice as many names as disks");
            protect!(NamesApart, next.clone(), else node.to_owned())
        }
    });
    Ok(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: &[&str], expected: &[&str]) {
        let found: Vec<Option<String>> = found
            .iter()
            .map(|name| (!name.is_empty()).then(|| (*name).to_owned()))
            .collect();
        let named = disk_nodes("epn-0", &found);
        let text = match &named {
            Ok(names) => names.iter().map(String::as_str).collect(),
            Err(error) => vec![error.name.as_str()],
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn new_disks_are_numbered_and_the_first_has_the_name_of_the_node() {
        check(&["", "", ""], &["epn-0", "epn-0-d1", "epn-0-d2"]);
    }

    #[test]
    fn disks_keep_their_names_when_the_list_changes() {
        check(&["epn-0-d1", "epn-0"], &["epn-0-d1", "epn-0"]);
        check(
            &["", "epn-0", "epn-0-d2"],
            &["epn-0-d1", "epn-0", "epn-0-d2"],
        );
        check(&["epn-0-d9"], &["epn-0-d9"]);
        check(&["epn-01"], &["epn-0"]);
        check(&["epn-7", "epn-0"], &["epn-0-d1", "epn-0"]);
    }

    #[test]
    fn a_folder_that_was_copied_is_refused() {
        check(&["epn-0", "epn-0"], &["epn-0"]);
        let two = [Some("epn-0".to_owned()), Some("epn-0".to_owned())];
        assert!(disk_nodes("epn-0", &two).is_err());
    }
}
