//! The folder of a run on a host: made empty before it, removed with all processes behind it.

use super::{MARK, RUN, Session, SessionError, script};

/// Kills all processes of a host, and removes what a run has there.
///
/// # Errors
///
/// All of [`SessionError`].
pub fn end_run(session: &Session) -> Result<(), SessionError> {
    let words = [session.host().folder.as_str(), MARK, RUN];
    session.run("end a run", &script(END_RUN), &words).map(drop)
}

/// Makes an empty folder for a run.
///
/// # Errors
///
/// All of [`SessionError`].
pub fn begin_run(session: &Session) -> Result<(), SessionError> {
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
