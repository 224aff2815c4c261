//! A body held against the table of its interface, value by value.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Range;

use colibri_json::{JsonReader, ValueKind};
use colibri_text::brief;

use super::api::{ModelRequestKind, fits};
use super::grammar::{BodyMember, BodyShape, Grammar, Variant};
use super::inline;
use super::names::{judge_model, model_label};
use super::peek::{TYPE, type_of};
use super::refusal::{BodyRefusal, needs, refused, wrong};
use super::stream_options::{StreamOptions, TopMembers, usage_of};
use crate::rules::{ModelAllow, ModelPermissions};

/// The most values and keys of a body.
const MAX_VALUES: usize = 500_000;
/// The most steps of a path that a refusal shows.
const MAX_STEPS: usize = 16;
/// Keys of a JSON Schema that refer to another one.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The facts about a body that the relay has to know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyFacts {
    /// True if it holds documents, sound or films, of which a few bytes may be many tokens.
    pub has_documents: bool,
    /// The most tokens of an answer, if the request says so.
    pub maximum: Option<u64>,
    /// The number of answers.
    pub copies: u64,
    /// The pictures in the body.
    pub pictures: u64,
    /// The model that is asked, as a label.
    pub model: Option<String>,
    /// Bytes of the data of pictures, documents, sound and films.
    pub inline: u64,
    /// Text that is put into the body: it replaces the bytes of its range.
    pub splices: Vec<(Range<usize>, &'static str)>,
}

enum WalkStep<'t> {
    Key(Cow<'t, str>),
    Index(usize),
}

/// The references that a JSON value may hold.
#[derive(Clone, Copy, PartialEq)]
enum References {
    /// Any: it is no schema.
    Any,
    /// Those of a whole schema.
    Whole,
    /// Those of a part of a schema, which must not say that it stands at another address.
    Part,
}

/// A body that is read.
pub(super) struct Judge<'t> {
    reader: JsonReader<'t>,
    grammar: &'static Grammar,
    permits: &'t ModelPermissions,
    asks: ModelRequestKind,
    path: Vec<WalkStep<'t>>,
    values: usize,
    pub(super) facts: BodyFacts,
    pub(super) top: TopMembers,
}

impl<'t> Judge<'t> {
    pub(super) fn new(
        reader: JsonReader<'t>,
        grammar: &'static Grammar,
        permits: &'t ModelPermissions,
        asks: ModelRequestKind,
    ) -> Judge<'t> {
        Judge {
            reader,
            grammar,
            permits,
            asks,
            path: Vec::new(),
            values: 0,
            facts: BodyFacts {
                copies: 1,
                ..BodyFacts::default()
            },
            top: TopMembers::default(),
        }
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// Why it stopped; [`Judge::place`] says where.
    pub(super) fn body(&mut self) -> Result<(), BodyRefusal> {
        let shape = match self.asks {
            ModelRequestKind::Count => self.grammar.count,
            ModelRequestKind::Generate | ModelRequestKind::List => self.grammar.answer,
        };
        if self.reader.kind()? != ValueKind::Object {
            return wrong("must be an object");
        }
        self.top.begins = self.reader.at() + 1;
        self.top.is_empty = true;
        self.value(shape)?;
        Ok(self.reader.end()?)
    }

    /// The place where it stopped: a JSON pointer.
    pub(super) fn place(&self) -> String {
        let mut text = String::from("body ");
        let first = self.path.len().saturating_sub(MAX_STEPS);
        if first > 0 {
            text.push('…');
        }
        for step in &self.path[first..] {
            match step {
                WalkStep::Key(key) => {
                    let key = brief(key, 64).replace('~', "~0").replace('/', "~1");
                    let _ = write!(text, "/{key}");
                }
                WalkStep::Index(index) => {
                    let _ = write!(text, "/{index}");
                }
            }
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn count(&mut self) -> Result<(), BodyRefusal> {
        self.values += 1;
        match self.values > MAX_VALUES {
            true => wrong(format!("over {MAX_VALUES} values and keys")),
            false => Ok(()),
        }
    }

    fn has_one_of(&self, needed: &[ModelAllow]) -> bool {
        needed
            .iter()
            .any(|needed| self.permits.allow.contains(needed))
    }

    fn value(&mut self, shape: BodyShape) -> Result<(), BodyRefusal> {
        self.count()?;
        let kind = self.reader.kind()?;
        self.shaped(kind, shape)
    }

    /// A value of this kind that is to have this shape.
    fn shaped(&mut self, kind: ValueKind, shape: BodyShape) -> Result<(), BodyRefusal> {
        match (shape, kind) {
            (BodyShape::OneOf(shapes), _) => match shapes.iter().find(|shape| shape.can_be(kind)) {
                Some(shape) => self.shaped(kind, *shape),
                None => wrong(shape.expected()),
            },
            (BodyShape::Must(_), ValueKind::Null) if !self.has_one_of(&[ModelAllow::Stored]) => {
                refused(needs(
                    &[ModelAllow::Stored],
                    "without it this names something that the provider keeps",
                ))
            }
            (BodyShape::Must(shape), _) => self.shaped(kind, *shape),
            (BodyShape::Needs(needed, shape), _) => match self.has_one_of(needed) {
                true => self.shaped(kind, *shape),
                false => self.nothing(kind, needed),
            },
            (BodyShape::Store, ValueKind::Null | ValueKind::Bool) => {
                let start = self.reader.at();
                self.shaped(
                    kind,
                    BodyShape::Needs(&[ModelAllow::Stored], &BodyShape::Flag),
                )?;
                self.top.stores = Some((start..self.reader.at(), kind == ValueKind::Null));
                Ok(())
            }
            (BodyShape::StreamOptions(members), ValueKind::Null | ValueKind::Object) => {
                self.stream_options(kind, members)
            }
            (_, ValueKind::Null) => Ok(self.reader.null()?),
            (BodyShape::Json, _) => self.json(kind, References::Any),
            (BodyShape::Schema, _) => self.json(kind, References::Whole),
            (BodyShape::Text, ValueKind::String) => Ok(self.reader.pass_string()?),
            (BodyShape::Number, ValueKind::Number) => Ok(self.reader.number().map(drop)?),
            (BodyShape::Flag, ValueKind::Bool) => Ok(self.reader.boolean().map(drop)?),
            (BodyShape::Stream, ValueKind::Bool) => {
                let streams = self.reader.boolean()?;
                self.top.streams |= streams && self.path.len() == 1;
                Ok(())
            }
            (BodyShape::Maximum, ValueKind::Number) => self.maximum(),
            (BodyShape::Copies, ValueKind::Number) => {
                let copies = self.number()?;
                self.facts.copies = self.facts.copies.max(copies);
                Ok(())
            }
            (
                BodyShape::Word(..)
                | BodyShape::Base64
                | BodyShape::DataUrl
                | BodyShape::Inline
                | BodyShape::MediaType
                | BodyShape::Model,
                ValueKind::String,
            ) => {
                let start = self.reader.at();
                let text = self.reader.string()?;
                self.text(&text, shape, self.reader.at() - start)
            }
            (BodyShape::List(shape), ValueKind::Array) => self.list(|judge| judge.value(*shape)),
            (BodyShape::Object(members), ValueKind::Object) => self.object(members, false),
            (BodyShape::Tagged(variants), ValueKind::Object) => self.tagged(variants),
            (BodyShape::Map(shape), ValueKind::Object) => self.map(|judge, _| judge.value(*shape)),
            _ => wrong(shape.expected()),
        }
    }

    fn list(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), BodyRefusal>,
    ) -> Result<(), BodyRefusal> {
        self.reader.enter()?;
        let mut index = 0;
        while self.reader.element(index == 0)? {
            self.path.push(WalkStep::Index(index));
            element(self)?;
            self.path.pop();
            index += 1;
        }
        Ok(())
    }

    /// An object with keys of the agent's choice.
    fn map(
        &mut self,
        mut value: impl FnMut(&mut Self, &str) -> Result<(), BodyRefusal>,
    ) -> Result<(), BodyRefusal> {
        let mut seen = HashSet::new();
        self.reader.enter()?;
        while let Some((_, key)) = self.reader.key(seen.is_empty())? {
            self.count()?;
            self.path.push(WalkStep::Key(key.clone()));
            self.reader.colon()?;
            value(self, &key)?;
            if !seen.insert(key) {
                return wrong("this key stands twice in its object");
            }
            self.path.pop();
        }
        Ok(())
    }

    /// An object with these keys, and with `type` where that was looked at.
    fn object(
        &mut self,
        members: &'static [BodyMember],
        is_tagged: bool,
    ) -> Result<(), BodyRefusal> {
        let is_top = self.path.is_empty();
        // A bit for each of the members; `type` has the last one.
        let mut seen = 0_u64;
        let mut first = true;
        self.reader.enter()?;
        while let Some((_, key)) = self.reader.key(first)? {
            first = false;
            self.count()?;
            let at = members
                .iter()
                .position(|(name, _)| self.grammar.is_key(name, &key));
            let is_type = is_tagged && at.is_none() && key == TYPE;
            self.path.push(WalkStep::Key(key));
            if is_top {
                self.top.is_empty = false;
            }
            let bit = match at {
                Some(at) => 1 << at,
                None if is_type => 1 << 63,
                None => {
                    return refused("this relay does not know the key, and so does not pass it");
                }
            };
            if seen & bit != 0 {
                return wrong("this key stands twice in its object");
            }
            seen |= bit;
            self.reader.colon()?;
            match at {
                Some(at) => self.value(members[at].1)?,
                // The kind of it is known.
                None => self.value(BodyShape::Text)?,
            }
            self.path.pop();
        }
        let missing = members
            .iter()
            .enumerate()
            .find(|(at, (_, shape))| matches!(shape, BodyShape::Must(_)) && seen & (1 << at) == 0);
        match missing {
            Some((_, (name, _))) if !self.has_one_of(&[ModelAllow::Stored]) => refused(needs(
                &[ModelAllow::Stored],
                &format!("without {name} it names something that the provider keeps"),
            )),
            _ => Ok(()),
        }
    }

    /// An object whose `type` says what it is.
    fn tagged(&mut self, variants: &'static [Variant]) -> Result<(), BodyRefusal> {
        let tag = type_of(self.reader.clone())?;
        let found = variants.iter().find(|(tags, _)| match &tag {
            Some(tag) => tags
                .iter()
                .any(|known| !known.is_empty() && fits(known, tag)),
            None => tags.contains(&""),
        });
        let (shape, needed) = match found {
            Some((_, BodyShape::Needs(needed, shape))) => (**shape, *needed),
            Some((_, shape)) => (*shape, &[][..]),
            None => {
                self.path.push(WalkStep::Key(TYPE.into()));
                return match tag {
                    Some(tag) => refused(format!(
                        "this relay does not know {}, and so does not pass it",
                        brief(&tag, 64)
                    )),
                    None => {
                        refused("is missing, and without it this relay does not know what this is")
                    }
                };
            }
        };
        if !needed.is_empty() && !self.has_one_of(needed) {
            self.path.push(WalkStep::Key(TYPE.into()));
            let what = format!(
                "{} has the provider do more than answer",
                brief(tag.as_deref().unwrap_or(""), 64)
            );
            return refused(needs(needed, &what));
        }
        match shape {
            BodyShape::Object(members) => self.object(members, true),
            _ => self.shaped(ValueKind::Object, shape),
        }
    }

    /// The `stream_options` of chat completions.
    fn stream_options(
        &mut self,
        kind: ValueKind,
        members: &'static [BodyMember],
    ) -> Result<(), BodyRefusal> {
        let start = self.reader.at();
        let found = match kind {
            ValueKind::Object => {
                // Read twice: here for what it says, then as everything is.
                let peek = self.reader.clone();
                self.object(members, false)?;
                usage_of(peek)?
            }
            _ => {
                self.reader.null()?;
                StreamOptions::Null
            }
        };
        self.top.options = Some((start..self.reader.at(), found));
        Ok(())
    }

    /// A text in which more than words for the model may stand, of so many bytes.
    fn text(&mut self, text: &str, shape: BodyShape, bytes: usize) -> Result<(), BodyRefusal> {
        match shape {
            BodyShape::Word(known, needing) => {
                let needed = needing
                    .iter()
                    .find(|(word, _)| fits(word, text))
                    .map(|(_, allow)| *allow);
                if known.iter().any(|word| fits(word, text))
                    || needed.is_some_and(|allow| self.has_one_of(&[allow]))
                {
                    return Ok(());
                }
                let word = brief(text, 64);
                match needed {
                    Some(allow) => refused(needs(
                        &[allow],
                        &format!("{word} has the provider do more, or charge more"),
                    )),
                    None => refused(format!(
                        "this relay does not know {word}, and so does not pass it"
                    )),
                }
            }
            BodyShape::Model => {
                if let [WalkStep::Key(_)] = &*self.path {
                    self.facts.model = Some(model_label(text));
                }
                judge_model(text, self.permits).or_else(refused)
            }
            BodyShape::MediaType => match inline::MediaType::of(text) {
                Some(media) => {
                    self.facts.has_documents |= media == inline::MediaType::Document;
                    Ok(())
                }
                None => refused("this relay does not know the media type, and so does not pass it"),
            },
            BodyShape::DataUrl | BodyShape::Inline => match inline::data_url(text) {
                Some(inline::MediaType::Picture) => {
                    self.data(bytes);
                    Ok(())
                }
                Some(inline::MediaType::Document) => {
                    self.facts.has_documents = true;
                    self.data(bytes);
                    Ok(())
                }
                None if matches!(shape, BodyShape::Inline) && inline::is_base64(text) => {
                    // The kind of data is nowhere said.
                    self.facts.has_documents = true;
                    self.data(bytes);
                    Ok(())
                }
                None => self.address(
                    "it is no data: URL of a known media type, and the provider would fetch it",
                ),
            },
            _ if inline::is_base64(text) => {
                self.data(bytes);
                Ok(())
            }
            _ => wrong("must be base64"),
        }
    }

    fn data(&mut self, bytes: usize) {
        self.facts.pictures += 1;
        self.facts.inline += bytes as u64;
    }

    fn address(&self, why: &str) -> Result<(), BodyRefusal> {
        match self.has_one_of(&[ModelAllow::Urls]) {
            true => Ok(()),
            false => refused(needs(&[ModelAllow::Urls], why)),
        }
    }

    /// A value that is not allowed and therefore must be null, false or empty.
    fn nothing(&mut self, kind: ValueKind, needed: &[ModelAllow]) -> Result<(), BodyRefusal> {
        let is_nothing = match kind {
            ValueKind::Null => self.reader.null().map(|()| true)?,
            ValueKind::Bool => !self.reader.boolean()?,
            ValueKind::String => self.reader.string()?.is_empty(),
            ValueKind::Array => {
                self.reader.enter()?;
                !self.reader.element(true)?
            }
            ValueKind::Object | ValueKind::Number => false,
        };
        match is_nothing {
            true => Ok(()),
            false => refused(needs(
                needed,
                "it has the provider run, fetch, look up or keep something, or charge more",
            )),
        }
    }

    fn maximum(&mut self) -> Result<(), BodyRefusal> {
        // 0 is none at all, for some.
        let maximum = Some(self.number()?).filter(|number| *number > 0);
        self.facts.maximum = self.facts.maximum.max(maximum);
        Ok(())
    }

    fn number(&mut self) -> Result<u64, BodyRefusal> {
        match self.reader.number()?.parse() {
            Ok(number) => Ok(number),
            Err(_) => wrong("must be a whole number in digits alone"),
        }
    }

    /// JSON in which no key stands twice.
    fn json(&mut self, kind: ValueKind, references: References) -> Result<(), BodyRefusal> {
        let inner = match references {
            References::Whole => References::Part,
            same => same,
        };
        let value = |judge: &mut Self| {
            judge.count()?;
            let kind = judge.reader.kind()?;
            judge.json(kind, inner)
        };
        match kind {
            ValueKind::Null => Ok(self.reader.null()?),
            ValueKind::Bool => Ok(self.reader.boolean().map(drop)?),
            ValueKind::Number => Ok(self.reader.number().map(drop)?),
            ValueKind::String => Ok(self.reader.pass_string()?),
            ValueKind::Array => self.list(value),
            ValueKind::Object => self.map(|judge, key| {
                let refers = references != References::Any && REFERENCES.contains(&key);
                let is_elsewhere = references == References::Part && key == "$id";
                if (refers || is_elsewhere) && judge.reader.kind()? == ValueKind::String {
                    judge.count()?;
                    let text = judge.reader.string()?;
                    return match text.is_empty() || refers && text.starts_with('#') {
                        true => Ok(()),
                        false => judge.address(
                            "a schema refers to what is not in it, which some would fetch",
                        ),
                    };
                }
                value(judge)
            }),
        }
    }
}
