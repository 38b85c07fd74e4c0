//! Names of metrics that an operator makes from the name of its input.

use sheaf_samples::{Labels, LabelsError, NAME};

/// Pattern such as `{name}_{function}`: each placeholder stands for a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(String);

impl Template {
    /// Returns the template `text`, whose placeholders are all in `known`.
    ///
    /// # Errors
    ///
    /// In words: what was found.
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Self, String> {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once('{') {
            let (word, after) = after
                .split_once('}')
                .ok_or_else(|| format!("{text:?} with an open brace"))?;
            if !known.contains(&word) {
                return Err(format!("{text:?} with {{{word}}}"));
            }
            rest = after;
        }
        if text.is_empty() {
            return Err("an empty name".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns whether the placeholder `word` occurs.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.0.contains(&format!("{{{word}}}"))
    }

    /// Returns the name with every placeholder replaced.
    pub(crate) fn fill(&self, words: &[(&str, &str)]) -> String {
        words.iter().fold(self.0.clone(), |text, (word, value)| {
            text.replace(&format!("{{{word}}}"), value)
        })
    }

    /// Returns `labels` under the name that follows from theirs.
    pub(crate) fn rename(&self, labels: &Labels) -> Result<Labels, LabelsError> {
        let name = labels.name().unwrap_or_default();
        labels.with(NAME, &self.fill(&[("name", name)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_and_unknown_ones_refused() {
        let template = Template::parse("{name}:{function}", &["name", "function"]).unwrap();
        assert!(template.has("function") && !template.has("host"));
        assert_eq!(
            template.fill(&[("name", "cpu"), ("function", "avg")]),
            "cpu:avg"
        );
        assert!(Template::parse("{host}_x", &["name"]).is_err());
        assert!(Template::parse("{name", &["name"]).is_err());
        assert!(Template::parse("", &[]).is_err());
    }
}
