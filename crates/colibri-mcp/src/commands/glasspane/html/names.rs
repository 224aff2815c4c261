//! Names on the page: each stands there once, and is meant by its place.

use std::collections::HashMap;

use colibri_text::brief;

/// The most characters of a name.
pub(super) const NAME: usize = 120;

/// A name: its place in a [`NameTable`].
pub(super) type Name = usize;

/// Names that have been made visible and are bounded.
#[derive(Debug, Clone, Default)]
pub(super) struct NameTable {
    names: Vec<String>,
    places: HashMap<String, Name>,
}

impl NameTable {
    /// The place of a name, which is added where it is new.
    pub(super) fn place(&mut self, text: &str) -> Name {
        self.add(brief(text, NAME))
    }

    /// The place of a sentence, which may be longer.
    pub(super) fn sentence(&mut self, text: &str) -> Name {
        self.add(brief(text, 4 * NAME))
    }

    fn add(&mut self, text: String) -> Name {
        let names = &mut self.names;
        *self.places.entry(text).or_insert_with_key(|text| {
            names.push(text.clone());
            names.len() - 1
        })
    }

    /// All names, by their places.
    pub(super) fn into_names(self) -> Vec<String> {
        self.names
    }
}
