//! The relay's additions to a body.

use std::ops::Range;

use colibri_json::{JsonReader, ValueKind};
use hyper::StatusCode;

use super::peek::skip;
use super::refusal::{BodyRefusal, ModelRefusal, wrong};
use crate::rules::{ModelAllow, ModelApi, ModelPermissions};

/// The members of a body that the relay adds to.
#[derive(Default)]
pub(super) struct TopMembers {
    /// Behind the brace that begins the body.
    pub(super) begins: usize,
    pub(super) is_empty: bool,
    pub(super) streams: bool,
    /// The place of the value of `store`, and whether it is null.
    pub(super) stores: Option<(Range<usize>, bool)>,
    /// The place of `stream_options`, and what they say.
    pub(super) options: Option<(Range<usize>, StreamOptions)>,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum StreamOptions {
    Null,
    /// Without `include_usage`; whether there is nothing else either.
    Without(bool),
    Usage(bool),
}

impl TopMembers {
    /// Has the provider tell its counts, and keep nothing.
    pub(super) fn splice(
        self,
        api: ModelApi,
        permits: &ModelPermissions,
        splices: &mut Vec<(Range<usize>, &'static str)>,
    ) -> Result<(), ModelRefusal> {
        let begins = self.begins..self.begins;
        match api {
            // Without a word it keeps them.
            ModelApi::OpenAiResponses if !permits.allow.contains(&ModelAllow::Stored) => {
                match self.stores {
                    None if self.is_empty => splices.push((begins, "\"store\":false")),
                    None => splices.push((begins, "\"store\":false,")),
                    Some((span, true)) => splices.push((span, "false")),
                    Some((_, false)) => {}
                }
            }
            ModelApi::OpenAiChat if self.streams => match self.options {
                None if self.is_empty => {
                    splices.push((begins, "\"stream_options\":{\"include_usage\":true}"))
                }
                None => splices.push((begins, "\"stream_options\":{\"include_usage\":true},")),
                Some((span, StreamOptions::Null)) => {
                    splices.push((span, "{\"include_usage\":true}"))
                }
                Some((span, StreamOptions::Without(is_empty))) => {
                    let at = span.start + 1;
                    let text = if is_empty {
                        "\"include_usage\":true"
                    } else {
                        "\"include_usage\":true,"
                    };
                    splices.push((at..at, text));
                }
                Some((_, StreamOptions::Usage(true))) => {}
                Some((_, StreamOptions::Usage(false))) => {
                    return Err(ModelRefusal::new(
                        StatusCode::FORBIDDEN,
                        "body /stream_options/include_usage: must not be false, since the tokens of this agent are \
                         counted",
                    ));
                }
            },
            _ => {}
        }
        Ok(())
    }
}

/// The `include_usage` of an object that begins here, whose keys are known.
pub(super) fn usage_of(mut reader: JsonReader<'_>) -> Result<StreamOptions, BodyRefusal> {
    let mut first = true;
    reader.enter()?;
    while let Some((_, key)) = reader.key(first)? {
        first = false;
        reader.colon()?;
        if key == "include_usage" && reader.kind()? == ValueKind::Bool {
            return Ok(StreamOptions::Usage(reader.boolean()?));
        }
        if key == "include_usage" {
            return wrong("include_usage must be true or false");
        }
        skip(&mut reader)?;
    }
    Ok(StreamOptions::Without(first))
}
