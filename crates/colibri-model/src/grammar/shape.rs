//! The words in which the tables of the interfaces are written.

use colibri_json::ValueKind;

use crate::rules::ModelAllow as Allow;

/// The form of a value at one place of a body. `null` may stand everywhere: it is the same as
/// nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BodyShape {
    /// Words for the model, and names that mean something within the request alone. No provider
    /// acts on them.
    Text,
    /// One of the first words, or one of the second ones where the entry allows what stands beside
    /// it. A `*` stands for the rest of a word.
    Word(&'static [&'static str], &'static [(&'static str, Allow)]),
    /// A number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Data as base64.
    Base64,
    /// Data as a `data:` URL; another URL needs [`Allow::Urls`].
    DataUrl,
    /// Data as base64 or as a `data:` URL; another URL needs [`Allow::Urls`].
    Inline,
    /// The media type of data beside it.
    MediaType,
    /// A JSON Schema: its references stay within it.
    Schema,
    /// Any JSON: arguments and answers of the agent's own tools, or something that the entry allows
    /// as a whole.
    Json,
    /// An object with these keys.
    Object(&'static [BodyMember]),
    /// An object whose key `type` says which of these it is.
    Tagged(&'static [Variant]),
    /// An object with keys of the agent's choice.
    Map(&'static BodyShape),
    /// A list.
    List(&'static BodyShape),
    /// The first of these that such a value can be.
    OneOf(&'static [BodyShape]),
    /// Only where the entry allows one of these; `false`, `""` and `[]` pass without.
    Needs(&'static [Allow], &'static BodyShape),
    /// A member that must be there, since its object would otherwise name something that the
    /// provider keeps.
    Must(&'static BodyShape),
    /// The name of a model.
    Model,
    /// The most tokens of an answer.
    Maximum,
    /// The number of answers.
    Copies,
    /// `stream`.
    Stream,
    /// `store` of responses, which are stored unless it says no.
    Store,
    /// `stream_options` of chat completions, which are counted only where they say so.
    StreamOptions(&'static [BodyMember]),
}

impl BodyShape {
    /// True if a value of this kind can have this shape.
    pub(crate) fn can_be(self, kind: ValueKind) -> bool {
        match self {
            BodyShape::OneOf(shapes) => shapes.iter().any(|shape| shape.can_be(kind)),
            BodyShape::Must(shape) | BodyShape::Needs(_, shape) => shape.can_be(kind),
            BodyShape::Json | BodyShape::Schema => true,
            _ => kind == ValueKind::Null || self.kind().0 == kind,
        }
    }

    /// The kind of its values, and what that is called, where it has one.
    fn kind(self) -> (ValueKind, &'static str) {
        match self {
            BodyShape::Number | BodyShape::Maximum | BodyShape::Copies => {
                (ValueKind::Number, "a number")
            }
            BodyShape::Flag | BodyShape::Stream | BodyShape::Store => {
                (ValueKind::Bool, "true or false")
            }
            BodyShape::List(_) => (ValueKind::Array, "a list"),
            BodyShape::Object(_)
            | BodyShape::Tagged(_)
            | BodyShape::Map(_)
            | BodyShape::StreamOptions(_) => (ValueKind::Object, "an object"),
            BodyShape::Must(shape) | BodyShape::Needs(_, shape) => shape.kind(),
            _ => (ValueKind::String, "text"),
        }
    }

    /// The refusal of a value of another kind.
    pub(crate) fn expected(self) -> String {
        let names: Vec<&str> = match self {
            BodyShape::OneOf(shapes) => shapes.iter().map(|shape| shape.kind().1).collect(),
            shape => vec![shape.kind().1],
        };
        format!("must be {}", names.join(" or "))
    }
}

/// A key and its value. Keys are written with underscores.
pub(crate) type BodyMember = (&'static str, BodyShape);

/// Values of `type`, and what the object then is: an [`BodyShape::Object`] (`type` need not be
/// among its keys) or [`BodyShape::Json`], or one of these in [`BodyShape::Needs`]. The empty text
/// stands for an object without `type`.
pub(crate) type Variant = (&'static [&'static str], BodyShape);

/// The bodies of one interface.
pub(crate) struct Grammar {
    /// The body of a request for an answer.
    pub(crate) answer: BodyShape,
    /// The body of a request for a count of tokens.
    pub(crate) count: BodyShape,
    /// True if a key `some_key` may also be written `someKey`, as the JSON of Protocol Buffers has
    /// it.
    pub(crate) has_camel_case: bool,
    /// The most tokens that one picture is to the model.
    pub(crate) picture_tokens: u64,
}

impl Grammar {
    /// True if this key is the one that the table calls `name`.
    pub(crate) fn is_key(&self, name: &str, key: &str) -> bool {
        name == key || self.has_camel_case && is_camel_case(name, key)
    }
}

/// True if `key` is `name` as the JSON of Protocol Buffers also has it: without underscores, a
/// capital behind each.
fn is_camel_case(name: &str, key: &str) -> bool {
    let mut key = key.chars();
    let mut is_capital = false;
    for letter in name.chars() {
        if letter == '_' {
            is_capital = true;
            continue;
        }
        let wanted = if is_capital {
            letter.to_ascii_uppercase()
        } else {
            letter
        };
        is_capital = false;
        if key.next() != Some(wanted) {
            return false;
        }
    }
    key.next().is_none()
}
