//! The folder of a run on a host: made empty before it, removed with all processes behind it.

use super::{MARK, RUN, Session, script};
use crate::error::LabError;

/// Kills all processes of a host, and removes what a run has there.
pub(crate) fn end_run(session: &Session) -> Result<(), LabError> {
    let words = [session.host().folder.as_str(), MARK, RUN];
    session.run("end a run", &script(END_RUN), &words).map(drop)
}

/// Makes an empty folder for a run; gives its path.
pub(crate) fn begin_run(session: &Session) -> Result<(), LabError> {
    let words = [session.host().folder.as_str(), MARK, RUN];
    session
        .run("make room for a run", BEGIN_RUN, &words)
        .map(drop)
}

/// `$1` is the folder, `$2` the mark, `$3` that of the run.
const BEGIN_RUN: &str = r#"
set -e
[ -e "$1/$2" ]
rm -rf "$1/$3"
mkdir "$1/$3"
"#;

const END_RUN: &str = r#"
[ -e "$folder/$2" ] || exit 0
end_all
rm -rf "$folder/$3"
"#;
