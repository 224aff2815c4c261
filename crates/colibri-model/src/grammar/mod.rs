//! The contents of requests as data, at every depth: a table for each interface. A thing that is
//! not in its table is refused, since it may be a way out that nobody thought of yet.
//!
//! The tables were held against the published interfaces and the providers' own libraries of
//! November 2026 (`anthropic` 2.12, `openai` 3.54, `google-genai` 3.4), and against what the agents
//! of `tests/agents` send.

mod anthropic;
mod chat;
mod gemini;
mod responses;
mod shape;

pub(super) use shape::{BodyMember, BodyShape, Grammar, Variant};

use crate::rules::ModelApi as Api;

/// The table of an interface.
pub(super) fn grammar(api: Api) -> &'static Grammar {
    match api {
        Api::Anthropic => &anthropic::GRAMMAR,
        Api::OpenAiResponses => &responses::GRAMMAR,
        Api::OpenAiChat => &chat::GRAMMAR,
        Api::Gemini => &gemini::GRAMMAR,
    }
}
