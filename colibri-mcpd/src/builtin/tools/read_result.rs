//! `colibri_read_result`.

use super::super::arguments::{ArgumentError, name, whole};
use super::super::summary::unwritable;
use super::prelude::*;
use crate::results::{PieceRequest, PieceSelector, ResultPiece};
use serde_json::value::to_raw_value;

/// The most characters of a handle: what is none is looked for, too.
const MAX_HANDLE: usize = 100;
/// The most characters of a JSON pointer or a pattern.
const MAX_SELECTOR: usize = 1000;
/// The most bytes of a stored result that are read at once.
const MOST_READ: u64 = 64 << 10;
/// The most bytes of an answer with a piece of one that are not the piece's.
const AROUND_PIECE: u64 = 256;

/// The arguments of `colibri_read_result`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadResult {
    /// From the answer.
    #[serde(deserialize_with = "name::<_, _, 0, MAX_HANDLE>")]
    #[schemars(length(max = MAX_HANDLE))]
    handle: String,
    /// The most lines.
    #[serde(default, deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 1, max = u32::MAX))]
    lines: Option<u32>,
    /// The first line, or byte of the JSON.
    #[serde(default, deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(range(min = 0, max = u32::MAX))]
    offset: u64,
    /// The most bytes; alone, of the JSON.
    #[serde(default, deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 1, max = u32::MAX))]
    length: Option<u32>,
    /// Only this value, as /structuredContent/rows/0.
    #[serde(default, deserialize_with = "name::<_, _, 0, MAX_SELECTOR>")]
    #[schemars(with = "String", length(max = MAX_SELECTOR))]
    json_pointer: Option<String>,
    /// Only lines that match this regex.
    #[serde(default, deserialize_with = "name::<_, _, 1, MAX_SELECTOR>")]
    #[schemars(with = "String", length(min = 1, max = MAX_SELECTOR))]
    pattern: Option<String>,
    /// Only this block, such as an image.
    #[serde(default, deserialize_with = "whole::<_, _, 0, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 0, max = u32::MAX))]
    block: Option<u32>,
}

impl BuiltinTool for ReadResult {
    const NAME: &'static str = "colibri_read_result";
    const TITLE: &'static str = "Read a stored result";
    const DESCRIPTION: &'static str = "Reads a stored result: its text from line offset on, or a part. Its last line names the next offset.";
    const ACCESS: Access = Access::Read;
    const RULES: BuiltinRules = BuiltinRules::READING_RESULTS.always_listed();
    const ANSWER_SCHEMA: Option<fn() -> Value> = None;

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let (results, limit) = context.results;
        if let Some(place) = self.block {
            let most = limit.and_then(|limit| limit.whole).unwrap_or(u64::MAX);
            if (self.lines, self.length, &self.json_pointer, &self.pattern)
                != (None, None, &None, &None)
            {
                return Err(ArgumentError(
                    "block cannot be given with lines, length, json_pointer or pattern".to_owned(),
                )
                .into());
            }
            // The block as its server wrote it.
            let block = results.block(context.owner, &self.handle, place as usize, most)?;
            return Ok(ToolOutcome::of(format!("{{\"content\":[{block}]}}")));
        }
        let (handle, request) = piece(self, limit.map(|limit| limit.result))?;
        show_piece(&results.read(context.owner, &handle, &request)?)
    }
}

/// The handle, and the piece under it. Everything that can be wrong with the arguments is found before the lookup.
fn piece(asked: ReadResult, limit: Option<u64>) -> Result<(String, PieceRequest), ArgumentError> {
    let wrong = |name: &'static str| {
        move |why: anyhow::Error| ArgumentError(format!("argument {name} {why:#}"))
    };
    let what = match (asked.lines, asked.json_pointer, asked.pattern) {
        (None, None, None) if asked.length.is_none() => PieceSelector::All,
        (None, None, None) => PieceSelector::Json,
        (Some(lines), None, None) => PieceSelector::Lines(lines.into()),
        (None, Some(pointer), None) => {
            PieceSelector::value(&pointer).map_err(wrong("json_pointer"))?
        }
        (None, None, Some(pattern)) => {
            PieceSelector::matching(&pattern).map_err(wrong("pattern"))?
        }
        _ => {
            let why = "only one of lines, json_pointer and pattern can be given";
            return Err(ArgumentError(why.to_owned()));
        }
    };
    let request = PieceRequest {
        offset: asked.offset,
        most: asked
            .length
            .map_or(MOST_READ, |length| MOST_READ.min(length.into())),
        room: limit.map_or(u64::MAX, |limit| limit.saturating_sub(AROUND_PIECE)),
        what,
    };
    Ok((asked.handle, request))
}

/// The answer with a piece as it is, and then where the next begins. `_meta` has that for programs.
fn show_piece(piece: &ResultPiece) -> Result<ToolOutcome, Failure> {
    let text = to_raw_value(&piece.text).map_err(unwritable)?;
    let more = piece.next.map(|next| {
        format!(
            ",{{\"type\":\"text\",\"text\":\"[Colibri] More follows at offset {next}.\"}}],\
             \"_meta\":{{\"org.colibri/next\":{next}}}}}"
        )
    });
    let more = more.as_deref().unwrap_or("]}");
    Ok(ToolOutcome::of(format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}{more}"
    )))
}
