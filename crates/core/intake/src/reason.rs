//! Reasons why a good sample is refused: a closed list.

use std::fmt;

/// Defines [`Reason`] from its table: variant, name, what was found, what an operator does about it.
macro_rules! reasons {
    ($($reason:ident = $name:literal, $found:literal, $advice:literal;)+) => {
        /// Reason why a sample that could be read is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(
                #[doc = concat!("`", $name, "`: ", $found, ".")]
                $reason,
            )+
        }

        impl Reason {
            /// All reasons, in the order of the table.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$reason),+];

            /// Returns the name in metrics, logs and documents, such as `"too-old"`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)+
                }
            }

            /// Returns a description of the sample, as on the reference page.
            #[must_use]
            pub fn found(self) -> &'static str {
                match self {
                    $(Self::$reason => $found,)+
                }
            }

            /// Returns what an operator does about it.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$reason => $advice,)+
                }
            }
        }
    };
}

reasons! {
    TooOld = "too-old",
        "a time more than `past_max_s` ago",
        "look at the clock of the source, and at what it keeps back";
    TooNew = "too-new",
        "a time more than `future_max_s` ahead",
        "look at the clock of the source, and at the precision that it states";
    LabelsLimit = "labels-limit",
        "a series with more than `labels_max` labels",
        "send fewer tags";
    LabelTooLong = "label-too-long",
        "a name or value of a label beyond `label_bytes_max`",
        "send shorter tags: texts belong into logs";
    SeriesLimit = "series-limit",
        "a new series of a source that has `series_per_source_max`; new ones are refused for `cut_off_s`",
        "look for a tag with ever new values at the source";
    SeriesRate = "series-rate",
        "a new series of a source whose burst is used up; new ones are refused for `cut_off_s`",
        "look for a tag with ever new values at the source";
    CutOff = "cut-off",
        "a new series of a source that is cut off",
        "as of `series-limit` and `series-rate`";
    TableFull = "table-full",
        "a new series beyond `series_max` of all sources",
        "raise the limit, or run a second collector";
    SourceLimit = "source-limit",
        "a new source beyond `sources_max` while none is idle, or beyond `sources_per_address_max` of its sender",
        "raise the limit, or look who sends under ever new names";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
