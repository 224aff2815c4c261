//! Text with gaps: `${env:TOKEN}`, `${input:key}`, `${user_config.dir}`, `{port}`, each as its
//! source writes it.

use std::collections::BTreeMap;

/// The known values of gaps, by key; several values where a gap takes several.
pub type TemplateValues = BTreeMap<String, Vec<String>>;

/// A part of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// As it stands.
    Text(String),
    /// The value of this key; without one, its own default.
    Gap {
        /// The key.
        key: String,
        /// The text there if nobody gives another.
        default: Option<String>,
    },
}

/// Text with gaps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template(pub Vec<TemplatePart>);

impl From<&str> for Template {
    /// Text without gaps, whatever stands in it.
    fn from(text: &str) -> Template {
        Template(vec![TemplatePart::Text(text.to_owned())])
    }
}

impl Template {
    /// One gap and nothing else.
    pub fn gap(key: impl Into<String>) -> Template {
        let (key, default) = (key.into(), None);
        Template(vec![TemplatePart::Gap { key, default }])
    }

    /// Reads text in which `open`…`close` is a gap if `known` finds a piece for what stands
    /// between; else it stays as it is.
    pub fn read(
        text: &str,
        open: &str,
        close: char,
        known: impl Fn(&str) -> Option<TemplatePart>,
    ) -> Template {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(open) {
            let (before, after) = (&rest[..at], &rest[at + open.len()..]);
            plain.push_str(before);
            let inner = after
                .find(close)
                .map(|end| (&after[..end], &after[end + close.len_utf8()..]));
            match inner.and_then(|(name, behind)| Some((known(name)?, behind))) {
                Some((piece, behind)) => {
                    match piece {
                        TemplatePart::Text(text) => plain.push_str(&text),
                        gap @ TemplatePart::Gap { .. } => {
                            if !plain.is_empty() {
                                pieces.push(TemplatePart::Text(std::mem::take(&mut plain)));
                            }
                            pieces.push(gap);
                        }
                    }
                    rest = behind;
                }
                None => {
                    plain.push_str(open);
                    rest = after;
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() || pieces.is_empty() {
            pieces.push(TemplatePart::Text(plain));
        }
        Template(pieces)
    }

    /// The same with neighbouring texts as one.
    #[must_use]
    pub fn joined(self) -> Template {
        let mut parts: Vec<TemplatePart> = Vec::new();
        for part in self.0 {
            match (parts.last_mut(), part) {
                (Some(TemplatePart::Text(before)), TemplatePart::Text(text)) => {
                    before.push_str(&text)
                }
                (_, part) => parts.push(part),
            }
        }
        Template(parts)
    }

    /// The text before the first gap.
    pub fn beginning(&self) -> &str {
        match self.0.first() {
            Some(TemplatePart::Text(text)) => text,
            _ => "",
        }
    }

    /// The text, if there is no gap.
    pub fn plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The keys of its gaps.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            TemplatePart::Text(_) => None,
            TemplatePart::Gap { key, .. } => Some(key.as_str()),
        })
    }

    /// The text with its gaps filled; the key of the first that nobody knows.
    ///
    /// # Errors
    /// That key.
    pub fn fill(&self, answers: &TemplateValues) -> Result<String, &str> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                TemplatePart::Text(part) => text.push_str(part),
                TemplatePart::Gap { key, default } => match (answers.get(key), default) {
                    (Some(values), _) => text.push_str(&values.join(",")),
                    (None, Some(default)) => text.push_str(default),
                    (None, None) => return Err(key),
                },
            }
        }
        Ok(text)
    }

    /// The same for an argument: one that is a gap and nothing else becomes as many as there are
    /// answers.
    ///
    /// # Errors
    /// The key of the first gap that nobody knows.
    pub fn fill_all(&self, answers: &TemplateValues) -> Result<Vec<String>, &str> {
        match self.0.as_slice() {
            [TemplatePart::Gap { key, .. }] if answers.contains_key(key) => {
                Ok(answers[key].clone())
            }
            _ => self.fill(answers).map(|text| vec![text]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Template {
        Template::read(text, "${", '}', |name| {
            let (key, default) = match name.split_once(":-") {
                Some((key, default)) => (key, Some(default.to_owned())),
                None => (name, None),
            };
            let key = key.strip_prefix("env:")?.to_owned();
            Some(TemplatePart::Gap { key, default })
        })
    }

    #[test]
    fn gaps_are_filled_and_all_else_stays() {
        let template = read("Bearer ${env:T} ${x} $${env:U:-u}${");
        assert_eq!(template.keys().collect::<Vec<_>>(), ["T", "U"]);
        assert_eq!(template.fill(&TemplateValues::new()), Err("T"));
        let answers = TemplateValues::from([("T".to_owned(), vec!["t".to_owned()])]);
        assert_eq!(template.fill(&answers).unwrap(), "Bearer t ${x} $u${");
        assert_eq!(read("").plain(), Some(""));
    }

    #[test]
    fn an_argument_that_is_a_gap_takes_several() {
        let answers =
            TemplateValues::from([("D".to_owned(), vec!["/a".to_owned(), "/b".to_owned()])]);
        assert_eq!(read("${env:D}").fill_all(&answers).unwrap(), ["/a", "/b"]);
        assert_eq!(read("-d${env:D}").fill_all(&answers).unwrap(), ["-d/a,/b"]);
        assert_eq!(read("x").fill_all(&answers).unwrap(), ["x"]);
    }

    proptest! {
        #[test]
        fn text_without_known_gaps_stays(text in any::<String>()) {
            let template = Template::read(&text, "${", '}', |_| None);
            prop_assert_eq!(template.plain(), Some(text.as_str()));
        }
    }
}
