//! Tables of kinds: one line for each kind of source or sink.

/// One kind of source or sink, as help texts and reference pages show it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Name in farm files and on the command line.
    pub name: &'static str,
    /// Key of the one place that a sink needs on the command line, as in `--sink file:DIRECTORY`.
    pub place: Option<&'static str>,
    /// One line of help.
    pub help: &'static str,
    /// File that says more, from the root of the repository.
    pub page: Option<&'static str>,
    /// Returns the table of this kind with all defaults.
    pub defaults: fn() -> toml::Table,
}

impl Kind {
    /// Returns the kind as it stands on a command line: with its place, if it needs one, such as `file:DIRECTORY`.
    #[must_use]
    pub fn words(&self) -> String {
        match self.place {
            Some(place) => format!("{}:{}", self.name, place.to_uppercase()),
            None => self.name.to_owned(),
        }
    }
}

/// Returns a table with all defaults, as TOML.
pub(crate) fn defaults_of<T: Default + serde::Serialize>() -> toml::Table {
    toml::Table::try_from(T::default()).unwrap_or_default()
}

/// Returns the place or page in a line of a table, if there is one.
pub(crate) const fn first_of(texts: &[&'static str]) -> Option<&'static str> {
    match texts {
        [text, ..] => Some(*text),
        [] => None,
    }
}

/// Defines the configuration of a source or sink from its table of kinds: `Variant(Table) = "name", "help";`, with
/// `at "key"` behind the name if `--sink name:PLACE` sets that key, and `see "page"` behind the help if a page says
/// more. Help of the command line, the example of a farm file and the reference page follow.
macro_rules! kinds {
    (
        $(#[$about:meta])*
        $config:ident: $trait:ident {
            $($variant:ident($table:ty) = $name:literal $(at $place:literal)?, $help:literal $(see $page:literal)?;)+
        }
    ) => {
        $(#[$about])*
        #[serde(tag = "kind")]
        pub enum $config {
            $(
                #[doc = concat!("`", $name, "`: ", $help, ".")]
                #[serde(rename = $name)]
                $variant($table),
            )+
        }

        impl $config {
            /// All kinds, in the order of the reference page.
            pub const KINDS: &'static [$crate::kinds::Kind] = &[
                $($crate::kinds::Kind {
                    name: $name,
                    place: $crate::kinds::first_of(&[$($place)?]),
                    help: $help,
                    page: $crate::kinds::first_of(&[$($page)?]),
                    defaults: $crate::kinds::defaults_of::<$table>,
                },)+
            ];

            /// Returns the name in a farm file.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                }
            }

            /// Returns what the kind of this table does.
            pub(crate) fn table(&self) -> &dyn $trait {
                match self {
                    $(Self::$variant(table) => table,)+
                }
            }
        }
    };
}

pub(crate) use kinds;

#[cfg(test)]
mod tests {
    use crate::sink::SinkConfig;
    use crate::source::SourceConfig;

    const PAGE: &str = include_str!("../../../../docs/reference/config.md");

    /// Compares the table in `section` of the reference page with `kinds`.
    fn check(section: &str, kinds: &[super::Kind]) {
        let section = PAGE.split_once(section).expect("a section").1;
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section
            .lines()
            .filter(|line| line.starts_with("| `"))
            .skip(1);
        let rows: Vec<_> = rows
            .map(|row| {
                let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
                let help = cells.last().copied().unwrap_or_default();
                let help = help.split(", see [").next().unwrap_or_default();
                (cells[0].trim_matches('`'), help)
            })
            .collect();
        let expected: Vec<_> = kinds.iter().map(|kind| (kind.name, kind.help)).collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_reference_page_has_every_kind_with_its_help() {
        check("\n## `[flp.source]`\n", SourceConfig::KINDS);
        check("\n## `[epn.sink]`\n", SinkConfig::KINDS);
    }
}
