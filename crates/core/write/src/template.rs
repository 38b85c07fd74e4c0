//! Names of files, by a template.
//!
//! A template such as `{project}.{run:08}.{stream}.b{block:05}.{node}.{seq:04}.{ext}` gives every file of a farm
//! another name, and names that sort by run, stream and block. Both are properties of the template, so they are checked
//! when it is read: every field that tells files apart is in it, and a dot, which no value may contain, stands between
//! two fields. A name can therefore be read back to the values that it was made of. `{ext}` tells the format of a
//! stream.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use thiserror::Error;

/// Largest width of a number in a name.
const WIDTH_MAX: usize = 20;
/// Most bytes of a template: a name with its values has to fit into the 255 bytes of a file system.
const TEMPLATE_MAX: usize = 120;
/// Most bytes of a project, a stream or a node in a name.
const WORD_MAX: usize = 32;

/// Values of a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName {
    /// Project, the same for all files of a farm.
    pub project: String,
    /// Number of the run.
    pub run: u64,
    /// Stream whose records are in the file.
    pub stream: String,
    /// Block of the run.
    pub block: u64,
    /// Node that writes it.
    pub node: String,
    /// Number of the file among those of one run, stream, block and node, from 0.
    pub seq: u64,
}

/// Field of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Project,
    Run,
    Stream,
    Block,
    Node,
    Seq,
    Ext,
}

impl Field {
    const ALL: [(&'static str, Self); 7] = [
        ("project", Self::Project),
        ("run", Self::Run),
        ("stream", Self::Stream),
        ("block", Self::Block),
        ("node", Self::Node),
        ("seq", Self::Seq),
        ("ext", Self::Ext),
    ];

    fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, field)| *field)
    }

    fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, field)| *field == self);
        found.map_or("", |(name, _)| *name)
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Run | Self::Block | Self::Seq)
    }

    /// Whether files could get one name without it: the project is the same for all, and a stream has one format.
    fn tells_files_apart(self) -> bool {
        !matches!(self, Self::Project | Self::Ext)
    }
}

/// Piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field { field: Field, width: usize },
}

/// Why a template is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// A brace without its partner, or a field that does not exist.
    #[error(
        "template `{template}`: found `{{{found}}}`, expected one of {{project}} {{run:WIDTH}} {{stream}} \
         {{block:WIDTH}} {{node}} {{seq:WIDTH}} {{ext}}, with a width of 1 to {WIDTH_MAX} for numbers alone"
    )]
    Field {
        /// The template.
        template: String,
        /// Text between the braces, or up to the end.
        found: String,
    },
    /// Two files could get one name, as a field is missing.
    #[error("template `{template}` lacks {{{missing}}}: two files could get one name")]
    NotUnique {
        /// The template.
        template: String,
        /// First field that is missing.
        missing: &'static str,
    },
    /// A field is in the template twice.
    #[error("template `{template}` has {{{field}}} twice")]
    Twice {
        /// The template.
        template: String,
        /// The field.
        field: &'static str,
    },
    /// Two fields without a dot between them: two files could get one name.
    #[error(
        "template `{template}`: no dot between {{{first}}} and {{{second}}}, so two files could get one name"
    )]
    NoDot {
        /// The template.
        template: String,
        /// The field in front.
        first: &'static str,
        /// The field behind it.
        second: &'static str,
    },
    /// A character that a name of a file may not have.
    #[error(
        "template `{template}` has {found:?}, expected letters, digits and `-_.+=`, not beginning with a dot"
    )]
    Character {
        /// The template.
        template: String,
        /// The character.
        found: char,
    },
    /// The name would be that of a file that is not closed yet.
    #[error("template `{template}` ends in `.part`, which files have while they are open")]
    Part {
        /// The template.
        template: String,
    },
    /// The template is empty or too long.
    #[error("template of {found} bytes, expected 1 to {TEMPLATE_MAX}")]
    Length {
        /// Bytes of the template.
        found: usize,
    },
    /// A project, stream or node with a name that cannot stand in a file name.
    #[error("found {what} `{found}`, expected 1 to {WORD_MAX} letters, digits, `-` and `_`")]
    Word {
        /// Word in question: `project`, `stream` or `node`.
        what: &'static str,
        /// The value found.
        found: String,
    },
}

/// Checks that `word` can stand in a file name as the field `what`.
///
/// # Errors
///
/// [`TemplateError::Word`] if it is empty, too long or has other characters than letters, digits, `-` and `_`.
pub fn check_word(what: &'static str, word: &str) -> Result<(), TemplateError> {
    if is_word(word) {
        return Ok(());
    }
    Err(TemplateError::Word {
        what,
        found: word.to_owned(),
    })
}

fn is_word(word: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=WORD_MAX).contains(&word.len()) && word.chars().all(is_allowed)
}

/// Template of file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
    /// Value of `{ext}` by stream, of those that have another one than [`Template::EXTENSION`].
    extensions: BTreeMap<String, String>,
}

impl Template {
    /// Template of a farm file that names none.
    pub const DEFAULT: &'static str =
        "{project}.{run:08}.{stream}.b{block:05}.{node}.{seq:04}.{ext}";
    /// Value of `{ext}` of streams for which no other is given.
    pub const EXTENSION: &'static str = "tf";

    /// Reads a template.
    ///
    /// # Errors
    ///
    /// [`TemplateError`], before any file has a name.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let template = || text.to_owned();
        if !(1..=TEMPLATE_MAX).contains(&text.len()) {
            return Err(TemplateError::Length { found: text.len() });
        }
        let pieces = pieces_of(text)?;
        check_fields(text, &pieces)?;
        let is_allowed =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '=');
        for (at, piece) in pieces.iter().enumerate() {
            let Piece::Text(literal) = piece else {
                continue;
            };
            let strange = literal.chars().find(|c| !is_allowed(*c));
            let dot = (at == 0 && literal.starts_with('.')).then_some('.');
            if let Some(found) = strange.or(dot) {
                return Err(TemplateError::Character {
                    template: template(),
                    found,
                });
            }
        }
        if text.ends_with(".part") {
            return Err(TemplateError::Part {
                template: template(),
            });
        }
        Ok(Self {
            text: template(),
            pieces,
            extensions: BTreeMap::new(),
        })
    }

    /// Gives streams other values of `{ext}` than [`EXTENSION`](Self::EXTENSION): words as [`check_word`] wants them.
    #[must_use]
    pub fn with_extensions(mut self, extensions: BTreeMap<String, String>) -> Self {
        self.extensions = extensions;
        self
    }

    /// Returns whether names have the field `{ext}`.
    #[must_use]
    pub fn has_extension(&self) -> bool {
        let is_it =
            |piece: &Piece| matches!(piece, Piece::Field { field, .. } if *field == Field::Ext);
        self.pieces.iter().any(is_it)
    }

    /// Returns the template as it was read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name with `values`, which have words as [`check_word`] wants them.
    #[must_use]
    pub fn name(&self, values: &FileName) -> String {
        let found = self.extensions.get(&values.stream);
        self.name_with(values, found.map_or(Self::EXTENSION, String::as_str))
    }

    /// Returns the name with `values` and this value of `{ext}`.
    fn name_with(&self, values: &FileName, extension: &str) -> String {
        let mut name = String::with_capacity(self.text.len() + 16);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Field { field, width } => {
                    let mut number = |value: u64| {
                        // Writing to a String cannot fail.
                        let _ = write!(name, "{value:0width$}");
                    };
                    match field {
                        Field::Project => name.push_str(&values.project),
                        Field::Stream => name.push_str(&values.stream),
                        Field::Node => name.push_str(&values.node),
                        Field::Run => number(values.run),
                        Field::Block => number(values.block),
                        Field::Seq => number(values.seq),
                        Field::Ext => name.push_str(extension),
                    }
                }
            }
        }
        name
    }

    /// Reads the values of a name that this template has made, with any `{ext}`: a stream may have had another format.
    /// `None` for any other name.
    #[must_use]
    pub fn read(&self, name: &str) -> Option<FileName> {
        let mut values = FileName {
            project: String::new(),
            run: 0,
            stream: String::new(),
            block: 0,
            node: String::new(),
            seq: 0,
        };
        let mut extension = Self::EXTENSION;
        let mut rest = name;
        for (at, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                Piece::Field { field, .. } => {
                    // The text up to the next field has a dot, and a value has none.
                    let end = match self.pieces.get(at + 1) {
                        Some(Piece::Text(text)) => rest.find(text.as_str())?,
                        Some(Piece::Field { .. }) | None => rest.len(),
                    };
                    let (value, behind) = rest.split_at(end);
                    rest = behind;
                    let is_fit = if field.is_number() {
                        value.bytes().all(|b| b.is_ascii_digit())
                    } else {
                        is_word(value)
                    };
                    if !is_fit {
                        return None;
                    }
                    match field {
                        Field::Project => value.clone_into(&mut values.project),
                        Field::Stream => value.clone_into(&mut values.stream),
                        Field::Node => value.clone_into(&mut values.node),
                        Field::Run => values.run = value.parse().ok()?,
                        Field::Block => values.block = value.parse().ok()?,
                        Field::Seq => values.seq = value.parse().ok()?,
                        Field::Ext => extension = value,
                    }
                }
            }
        }
        // A number may stand with fewer digits than the template gives it: such a name is of another template.
        let is_own = rest.is_empty() && self.name_with(&values, extension) == name;
        is_own.then_some(values)
    }
}

/// Cuts a template at its braces.
fn pieces_of(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let refused = |found: &str| TemplateError::Field {
        template: text.to_owned(),
        found: found.to_owned(),
    };
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (literal, behind) = rest.split_at(at);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.to_owned()));
        }
        let inner = behind.strip_prefix('{').ok_or_else(|| refused(behind))?;
        let (inside, behind) = inner.split_once('}').ok_or_else(|| refused(inner))?;
        let (name, width) = match inside.split_once(':') {
            Some((name, width)) => (name, Some(width)),
            None => (inside, None),
        };
        let field = Field::named(name).ok_or_else(|| refused(inside))?;
        let width = match width {
            None => 0,
            Some(digits) if field.is_number() => digits
                .parse()
                .ok()
                .filter(|width| (1..=WIDTH_MAX).contains(width))
                .ok_or_else(|| refused(inside))?,
            Some(_) => return Err(refused(inside)),
        };
        pieces.push(Piece::Field { field, width });
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

/// Checks that the fields of a template tell files apart.
fn check_fields(text: &str, pieces: &[Piece]) -> Result<(), TemplateError> {
    let template = || text.to_owned();
    let count = |wanted: Field| {
        let fields = pieces
            .iter()
            .filter(|piece| matches!(piece, Piece::Field { field, .. } if *field == wanted));
        fields.count()
    };
    for (name, field) in Field::ALL {
        match count(field) {
            0 if field.tells_files_apart() => {
                return Err(TemplateError::NotUnique {
                    template: template(),
                    missing: name,
                });
            }
            0 | 1 => {}
            _ => {
                return Err(TemplateError::Twice {
                    template: template(),
                    field: name,
                });
            }
        }
    }
    let mut last: Option<Field> = None;
    let mut has_dot = true;
    for piece in pieces {
        match piece {
            Piece::Text(text) => has_dot |= text.contains('.'),
            Piece::Field { field, .. } => {
                if let Some(first) = last.filter(|_| !has_dot) {
                    return Err(TemplateError::NoDot {
                        template: template(),
                        first: first.name(),
                        second: field.name(),
                    });
                }
                last = Some(*field);
                has_dot = false;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(seq: u64) -> FileName {
        FileName {
            project: "data26".to_owned(),
            run: 4711,
            stream: "physics".to_owned(),
            block: 12,
            node: "epn-3".to_owned(),
            seq,
        }
    }

    #[test]
    fn a_name_has_its_values_and_gives_them_back() {
        let template = Template::parse(Template::DEFAULT).expect("the default is good");
        let name = template.name(&values(7));
        assert_eq!(name, "data26.00004711.physics.b00012.epn-3.0007.tf");
        assert_eq!(template.read(&name), Some(values(7)));
    }

    #[test]
    fn the_extension_follows_the_stream() {
        let extensions = [("raw-0".to_owned(), "raw".to_owned())];
        let template = Template::parse(Template::DEFAULT).expect("the default is good");
        let template = template.with_extensions(extensions.into());
        let raw = FileName {
            stream: "raw-0".to_owned(),
            ..values(7)
        };
        let name = template.name(&raw);
        assert_eq!(name, "data26.00004711.raw-0.b00012.epn-3.0007.raw");
        assert_eq!(template.read(&name), Some(raw.clone()));
        // Left by a life in which the stream had another format.
        let former = name.replace("0007.raw", "0007.stf");
        assert_eq!(template.read(&former), Some(raw));
        assert!(template.name(&values(0)).ends_with(".0000.tf"));
        assert!(template.has_extension());
        let plain = Template::parse("{run}.{stream}.{block}.{node}.{seq}.tf").expect("good");
        assert!(!plain.has_extension());
    }

    #[test]
    fn names_of_others_are_not_read() {
        let template = Template::parse(Template::DEFAULT).expect("the default is good");
        for name in [
            "",
            "data26.00004711.physics.b00012.epn-3.0007",
            "data26.00004711.physics.b00012.epn-3.0007.tf.part",
            "data26.4711.physics.b00012.epn-3.0007.tf",
            "data26.00004711.phy sics.b00012.epn-3.0007.tf",
            "data26.00004711.physics.00012.epn-3.0007.tf",
            "data26.99999999999999999999999.physics.b00012.epn-3.0007.tf",
            "data26.00004711.physics.b00012.epn-3.0007.t f",
        ] {
            assert_eq!(template.read(name), None, "{name}");
        }
    }

    #[test]
    fn templates_that_could_name_two_files_alike_are_refused() {
        let refusal = |text: &str| Template::parse(text).expect_err(text).to_string();
        for (text, part) in [
            ("{run}.{stream}.{block}.{node}.tf", "lacks {seq}"),
            (
                "{run}.{stream}.{block}{node}.{seq}",
                "no dot between {block} and {node}",
            ),
            (
                "{run}.{stream}-{block}.{node}.{seq}",
                "no dot between {stream} and {block}",
            ),
            ("{run}.{stream}.{block}.{node}.{seq}.{run}", "{run} twice"),
            (
                "{run}.{stream}.{block}.{node}.{seq}{ext}",
                "no dot between {seq} and {ext}",
            ),
            ("{run}.{stream}.{block}.{node}.{seq}/x", "'/'"),
            (".{run}.{stream}.{block}.{node}.{seq}", "'.'"),
            ("{run}.{stream}.{block}.{node}.{seq}.part", ".part"),
            ("{run:0}.{stream}.{block}.{node}.{seq}", "`{run:0}`"),
            ("{run:21}.{stream}.{block}.{node}.{seq}", "`{run:21}`"),
            ("{stream:3}.{run}.{block}.{node}.{seq}", "`{stream:3}`"),
            ("{date}.{run}.{stream}.{block}.{node}.{seq}", "`{date}`"),
            ("{run.{stream}", "`{run.{stream}`"),
            ("run}", "`{}}`"),
            ("", "template of 0 bytes"),
        ] {
            assert!(refusal(text).contains(part), "{text}: {}", refusal(text));
        }
    }

    #[test]
    fn words_with_dots_or_slashes_are_refused() {
        for word in ["", "a.b", "a/b", "ä", "012345678901234567890123456789012"] {
            assert!(check_word("stream", word).is_err(), "{word}");
        }
        check_word("stream", "Physics_main-1").expect("letters, digits, - and _");
    }

    proptest! {
        #[test]
        fn two_files_have_two_names(
            one in (0u64..2000, 0u64..200_000, 0u64..20_000, "[a-z0-9_-]{1,8}", "[a-z0-9_-]{1,8}"),
            other in (0u64..2000, 0u64..200_000, 0u64..20_000, "[a-z0-9_-]{1,8}", "[a-z0-9_-]{1,8}"),
        ) {
            let template = Template::parse("{run:02}.{stream}.b{block:03}.{node}.{seq:02}").expect("good");
            let file = |it: &(u64, u64, u64, String, String)| FileName {
                project: String::new(),
                run: it.0,
                block: it.1,
                seq: it.2,
                stream: it.3.clone(),
                node: it.4.clone(),
            };
            let (one, other) = (file(&one), file(&other));
            prop_assert_eq!(one == other, template.name(&one) == template.name(&other));
            prop_assert_eq!(template.read(&template.name(&one)), Some(one));
        }
    }
}
