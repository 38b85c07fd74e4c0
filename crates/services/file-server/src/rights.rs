//! Rights of the bearer of a token: scopes of the WLCG profile (version 1.2, section 4), each with a path.

use crate::path::TreePath;

/// Right that a request needs at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Read files and lists.
    Read,
    /// Make files that are not there yet.
    Create,
    /// Replace, move and delete.
    Modify,
}

/// Scopes and the needs that each satisfies.
const SCOPES: [(&str, &[Need]); 4] = [
    ("storage.read", &[Need::Read]),
    // Reading, with the right to have a file brought from tape.
    ("storage.stage", &[Need::Read]),
    ("storage.create", &[Need::Create]),
    ("storage.modify", &[Need::Create, Need::Modify]),
];

/// Rights of one token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(Vec<(&'static [Need], TreePath)>);

impl Rights {
    /// Reads the claim `scope`, such as `storage.read:/ storage.modify:/run3`. Scopes without a path, or with one that
    /// is none, give no right.
    pub(crate) fn of_scope(scope: &str) -> Self {
        let rights = scope.split(' ').filter_map(|one| {
            let (name, path) = one.split_once(':')?;
            let (_, needs) = SCOPES.iter().find(|(known, _)| *known == name)?;
            Some((
                *needs,
                TreePath::of_target(path)
                    .ok()
                    .filter(|_| path.starts_with('/'))?,
            ))
        });
        Self(rights.collect())
    }

    /// Returns whether they satisfy `need` at `path`.
    pub(crate) fn allow(&self, need: Need, path: &TreePath) -> bool {
        let mut rights = self.0.iter();
        rights.any(|(needs, at)| needs.contains(&need) && at.contains(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_holds_below_its_path() {
        let rights = Rights::of_scope("openid storage.read:/run3 storage.create:/run3/new/");
        let check = |need, path: &str, expected: bool| {
            let at = TreePath::of_target(path).expect("a path");
            assert_eq!(rights.allow(need, &at), expected, "{need:?} {path}");
        };
        check(Need::Read, "/run3", true);
        check(Need::Read, "/run3/a/b", true);
        check(Need::Read, "/run33", false);
        check(Need::Read, "/", false);
        check(Need::Create, "/run3/new/a", true);
        check(Need::Create, "/run3/a", false);
        check(Need::Modify, "/run3/new/a", false);
        let all = Rights::of_scope("storage.modify:/");
        let root = TreePath::of_target("/any").expect("a path");
        assert!(all.allow(Need::Modify, &root) && all.allow(Need::Create, &root));
        assert!(!all.allow(Need::Read, &root));
    }

    #[test]
    fn scopes_without_a_good_path_give_nothing() {
        for scope in [
            "",
            "storage.read",
            "storage.read:",
            "storage.read:run3",
            "storage.read:/../x",
            "storage.write:/",
            "storage.read:http://h/",
            "STORAGE.READ:/",
        ] {
            assert_eq!(Rights::of_scope(scope), Rights::default(), "{scope}");
        }
    }
}
