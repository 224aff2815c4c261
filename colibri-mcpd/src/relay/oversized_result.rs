//! Results over their limit: they are kept on the disk, and answered with how to read them.

use std::ops::Range;
use std::sync::Arc;

use super::call::{Call, Chain};
use super::call_outcome::{CallOutcome, ServerAnswer};
use super::cost::{self, AnswerLimit};
use super::exit;
use super::record;
use crate::results::{
    Media, MediaBytes, NotStored, ResultPiece, StoredResult, beginning, media, media_spans,
};
use colibri_protocol::{AnswerBody, Code, Failure, META_KEPT, Method};
use colibri_text::counted;
use colibri_wire::Json;
use colibri_wire::json::string;

/// The most bytes of a result that are told with its size.
const HEAD: usize = 2048;
/// The least and the most bytes of the text of a result that is kept, as its answer begins with it;
/// between them, half of its limit.
const BEGINNING: (u64, u64) = (2048, 16 << 10);
/// The most bytes of a server's `_meta` that such an answer repeats.
const META: usize = 2048;
/// The most bytes of such an answer beside its texts, images and structured content.
const AROUND: u64 = 4096;
/// A server's result over its limit.
pub struct OversizedResult {
    relayed: ServerAnswer,
    span: Range<usize>,
    limit: AnswerLimit,
}

/// The end of a call, unless that is a result over its limit.
///
/// # Errors
/// It is one, and has to be kept.
pub fn within_limit(
    call: &Call,
    outcome: CallOutcome,
) -> Result<CallOutcome, Box<OversizedResult>> {
    let CallOutcome::Relayed(relayed) = outcome else {
        return Ok(outcome);
    };
    let Some(limit) = cost::limit(call) else {
        return Ok(CallOutcome::Relayed(relayed));
    };
    let (Ok(span) | Err(span)) = relayed.outcome.clone();
    let is_result = relayed.outcome.is_ok() && !relayed.is_interim;
    let most = if is_result {
        limit.result
    } else {
        limit.unkept
    };
    if span.len() as u64 <= most || is_result && is_within(&relayed.frame[span.clone()], limit) {
        return Ok(CallOutcome::Relayed(relayed));
    }
    let over = OversizedResult {
        relayed,
        span,
        limit,
    };
    match is_result {
        true => Err(Box::new(over)),
        false => Ok(CallOutcome::Failed(over.refused(call))),
    }
}

/// True if it is images and the like that make a result long, and there is enough left for them.
fn is_within(result: &[u8], limit: AnswerLimit) -> bool {
    let media = MediaBytes::of(result);
    let (text, counted) = (result.len() - media.all, result.len() - media.uncounted);
    text as u64 <= limit.result && limit.whole.is_none_or(|whole| counted as u64 <= whole)
}

impl OversizedResult {
    fn result(&self) -> &[u8] {
        &self.relayed.frame[self.span.clone()]
    }

    /// The answer in place of a value that is no result.
    fn refused(&self, call: &Call) -> Failure {
        let (length, most, number) = (self.result().len(), self.limit.unkept, call.entry.number);
        let failure = match self.relayed.is_interim {
            true => {
                let message =
                    format!("what the server asks has {length} bytes, the limit is {most}");
                Failure::new(Code::ServerAnswerInvalid, message)
            }
            false => {
                let head = head(self.result());
                let message = format!(
                    "the server answered with an error of {length} bytes, the limit is {most}; trail record {number}; \
                     it begins: {head}"
                );
                Failure::new(Code::ResultTooLarge, message)
            }
        };
        failure.of_server(&*call.target.description().server)
    }

    fn done(&self, call: &Call) -> &'static str {
        match (call.method, self.relayed.says_error) {
            (Some(Method::ToolsCall), false) => "the tool succeeded",
            (Some(Method::ToolsCall), true) => "the tool says that it failed",
            _ => "the server answered",
        }
    }

    /// The answer in place of the result, which its client would have had as `whole`: of a tool
    /// call its beginning, of anything else an error, since the reader of a part of a resource
    /// takes it for all of it.
    fn told(
        &self,
        call: &Call,
        whole: &[u8],
        kept: Result<&StoredResult, &NotStored>,
    ) -> CallOutcome {
        let part = match call.method {
            Some(Method::ToolsCall) => self.part(call, whole, kept),
            _ => None,
        };
        if let Some(part) = part {
            return CallOutcome::Own {
                answer: AnswerBody::Result(part),
                failed: self.relayed.says_error,
            };
        }
        let done = self.done(call);
        let failure = match call.method {
            Some(Method::ToolsCall) => {
                let done = format!("the call was carried out, do not make it again: {done}");
                let failure = told(call, (self.result(), &done), self.limit, kept);
                match kept {
                    Ok(_) => failure,
                    Err(_) => failure.advising(
                        "do not make the call again: it was carried out, its result alone is lost",
                    ),
                }
            }
            _ => told(call, (self.result(), done), self.limit, kept),
        };
        CallOutcome::Failed(match &call.deferred {
            Some(deferred) => failure.deferring((**deferred).clone()),
            None => failure,
        })
    }

    /// The beginning of a tool's result as a result of its own; `None`: it would have to have
    /// structured content, by the tool's schema, for which not enough is left of the budget.
    fn part(
        &self,
        call: &Call,
        whole: &[u8],
        kept: Result<&StoredResult, &NotStored>,
    ) -> Option<Vec<u8>> {
        let (text, result) = (
            std::str::from_utf8(whole).ok()?,
            Json::part(whole, 0..whole.len())?,
        );
        let mut left = self
            .limit
            .whole
            .map_or(u64::MAX, |whole| whole.saturating_sub(AROUND));
        let structured = match call.target.description().has_output_schema {
            true => result
                .get("structuredContent")
                .map(|structured| structured.text()),
            false => None,
        };
        let most = left.max(self.limit.result);
        let (structured, is_missing) = match structured {
            Some(structured) if structured.len() as u64 > most => (None, true),
            structured => (structured, false),
        };
        // Of a failure clients do not demand it.
        if is_missing && !self.relayed.says_error {
            return None;
        }
        left = left.saturating_sub(structured.map_or(0, str::len) as u64);
        let room = (self.limit.result / 2).clamp(BEGINNING.0, BEGINNING.1);
        let piece = beginning(text, room.min(left.max(BEGINNING.0)));
        let first = text_block(&piece.text);
        left = left.saturating_sub(first.len() as u64);
        let blocks = media(&result);
        let (passed, missing): (Vec<&Media<'_>>, Vec<_>) = blocks.iter().partition(|block| {
            let rest = block.counted.and_then(|counted| left.checked_sub(counted));
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        let note = self.note(call, whole.len(), (&passed, &missing), &piece, kept);
        let last = text_block(&note);
        let passed = passed.iter().map(|block| block.text);
        let content: Vec<&str> = [&*first]
            .into_iter()
            .chain(passed)
            .chain([&*last])
            .collect();
        let mut part = String::from("{");
        if call.version.is_modern() {
            part.push_str("\"resultType\":\"complete\",");
        }
        part.push_str(&format!("\"content\":[{}],", content.join(",")));
        if let Some(structured) = structured {
            part.push_str(&format!("\"structuredContent\":{structured},"));
        }
        if self.relayed.says_error {
            part.push_str("\"isError\":true,");
        }
        part.push_str(&format!(
            "\"_meta\":{{{}",
            stored(call, whole.len(), &piece, kept)
        ));
        let meta = result
            .get("_meta")
            .filter(|meta| meta.is_object() && meta.text().len() <= META);
        for member in meta.iter().flat_map(Json::members) {
            part.push_str(&format!(",{}:{}", member.key.text(), member.value.text()));
        }
        part.push_str("}}");
        Some(part.into_bytes())
    }

    /// The end of such an answer, for the model that reads it.
    fn note(
        &self,
        call: &Call,
        length: usize,
        (passed, missing): (&[&Media<'_>], &[&Media<'_>]),
        piece: &ResultPiece,
        kept: Result<&StoredResult, &NotStored>,
    ) -> String {
        let (done, AnswerLimit { result, of, .. }, number) =
            (self.done(call), self.limit, call.entry.number);
        let blocks = |count: usize| counted(count as u64, "data block");
        let media = match (passed, missing) {
            ([], []) => String::new(),
            (all, []) => format!(", and all its {}", blocks(all.len())),
            (_, [first, ..]) => {
                let (missing, place) = (blocks(missing.len()), first.place);
                format!(", {missing} not among it (\"block\":{place} is the first)")
            }
        };
        let above = match piece.next {
            Some(_) => "Above is its beginning",
            None => "Above is its text",
        };
        let mut note = format!(
            "[Colibri] {done}. Its result has {length} bytes, the limit is {result} ({of}); trail record {number}. \
             {above}{media}."
        );
        match (kept, piece.next) {
            (Ok(kept), Some(next)) => note.push_str(&format!(
                " All of it is kept for a day: read on with colibri_read_result \
                 {{\"handle\":\"{}\",\"lines\":1000,\"offset\":{next}}}, or what you need of it by pattern, json_pointer or \
                 block.",
                kept.handle
            )),
            (Ok(kept), None) => note.push_str(&format!(
                " All of it is kept for a day: colibri_read_result {{\"handle\":\"{}\",\"json_pointer\":\"\"}} reads its \
                 JSON, a longer json_pointer a value, block an image.",
                kept.handle
            )),
            (Err(why), _) => note.push_str(&format!(" The rest is not kept: {why}.")),
        }
        note.push_str(" The call is over: do not make it again for the rest.");
        if let Some(deferred) = &call.deferred {
            note.push_str(&format!(" {}", deferred.told));
        }
        note
    }
}

fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", string(text))
}

/// The members for programs in `_meta` of such an answer.
fn stored(
    call: &Call,
    length: usize,
    piece: &ResultPiece,
    kept: Result<&StoredResult, &NotStored>,
) -> String {
    let handle = kept.map_or_else(
        |_| String::new(),
        |kept| format!("\"handle\":\"{}\",", kept.handle),
    );
    let line = piece
        .next
        .map_or_else(String::new, |next| format!(",\"line\":{next}"));
    let deferred = call
        .deferred
        .as_ref()
        .and_then(|deferred| deferred.member());
    let deferred = deferred.map_or_else(String::new, |deferred| format!(",{deferred}"));
    format!("\"{META_KEPT}\":{{{handle}\"bytes\":{length}{line}{deferred}}}")
}

/// The beginning of a result, without the data of images and the like.
fn head(result: &[u8]) -> String {
    let (mut head, mut at) = (Vec::new(), 0);
    let spans = match MediaBytes::of(result).all {
        0 => Vec::new(),
        _ => {
            Json::part(result, 0..result.len()).map_or_else(Vec::new, |result| media_spans(&result))
        }
    };
    for span in spans {
        if head.len() > HEAD || span.start - at > HEAD {
            break;
        }
        head.extend_from_slice(&result[at..span.start]);
        head.extend_from_slice(format!("\"({} bytes)\"", span.len()).as_bytes());
        at = span.end;
    }
    head.extend_from_slice(&result[at..result.len().min(at + HEAD)]);
    head.truncate(HEAD);
    // It was valid before it was cut, perhaps within a character.
    let valid = std::str::from_utf8(&head).map_or_else(|error| error.valid_up_to(), str::len);
    String::from_utf8_lossy(&head[..valid]).into_owned()
}

/// The answer in place of a result over its limit, with the action taken.
fn told(
    call: &Call,
    (whole, done): (&[u8], &str),
    limit: AnswerLimit,
    kept: Result<&StoredResult, &NotStored>,
) -> Failure {
    let (length, head, number) = (whole.len(), head(whole), call.entry.number);
    let AnswerLimit { result, of, .. } = limit;
    let size = format!("{done}; its result has {length} bytes, the limit is {result} ({of})");
    let has_text = std::str::from_utf8(whole)
        .is_ok_and(|whole| !beginning(whole, HEAD as u64).text.is_empty());
    let first = if has_text {
        "\"lines\":1000"
    } else {
        "\"block\":0"
    };
    match kept {
        Ok(kept) => Failure::new(
            Code::ResultTooLarge,
            format!(
                "{size}; all of it is kept for a day under the handle {}; trail record {number}; it begins: {head}",
                kept.handle
            ),
        )
        .keeping(kept.handle.to_string(), kept.bytes)
        .advising(format!(
            "read it with colibri_read_result {{\"handle\":\"{}\",{first}}}, or what you need of it by pattern, \
             json_pointer or block",
            kept.handle
        )),
        Err(why) => Failure::new(
            Code::ResultTooLarge,
            format!("{size}, and it is not kept: {why}; trail record {number}; it begins: {head}"),
        ),
    }
}

impl Chain {
    /// Keeps the result of a call, away from the threads that serve clients, and ends the call when
    /// that is done.
    pub(super) fn keep(self: &Arc<Chain>, mut call: Box<Call>, over: Box<OversizedResult>) {
        // Whatever becomes of it, it did what it did.
        if let Some(facts) = record::facts(&call, &over.relayed)
            && let Err(failure) = record::held_back(&self.recorder, &call, &facts)
        {
            return self.finish(vec![(call, CallOutcome::Failed(failure))]);
        }
        // As long as it waits for the disk, it is its client's like all that is queued.
        let length = over.relayed.frame.len();
        if !call.client.outbox.hold(length) {
            let outcome = over.told(&call, over.result(), Err(&NotStored::Busy));
            return self.finish(vec![(call, outcome)]);
        }
        call.request.held += length;
        let chain = self.clone();
        tokio::spawn(async move {
            let turn = chain.results.turn(call.client.owner()).await;
            tokio::task::spawn_blocking(move || {
                let outcome = match call.client.is_cancelled(&call.id) {
                    true => CallOutcome::Cancelled,
                    false => chain.kept(&call, &over),
                };
                drop(turn);
                chain.finish(vec![(call, outcome)]);
            });
        });
    }

    /// The answer to a call whose result is stored now, or is not.
    fn kept(&self, call: &Call, over: &OversizedResult) -> CallOutcome {
        match exit::result_for(call, &over.relayed, &over.span) {
            Ok(result) => self.put(call, &result, |kept| over.told(call, &result, kept)),
            Err(failure) => {
                CallOutcome::Failed(failure.of_server(&*call.target.description().server))
            }
        }
    }

    /// A tool's result of ours that is made of what others wrote, and kept like servers' results
    /// where the client's cost mode does not let it pass: an error says so, since a part would not
    /// fit the tool's schema, and says what was `done` that must not be done twice. Waits for the
    /// disk.
    pub(crate) fn own_result(&self, call: &Call, result: Vec<u8>, done: &str) -> CallOutcome {
        let Some(limit) = cost::limit(call).filter(|limit| result.len() as u64 > limit.result)
        else {
            return CallOutcome::result(result);
        };
        let told = |kept: Result<&StoredResult, &NotStored>| {
            let what = (&result[..], done);
            CallOutcome::Failed(told(call, what, limit, kept))
        };
        match cost::is_spent(call) {
            true => told(Err(&NotStored::Unreadable)),
            false => self.put(call, &result, told),
        }
    }

    fn put(
        &self,
        call: &Call,
        result: &[u8],
        told: impl Fn(Result<&StoredResult, &NotStored>) -> CallOutcome,
    ) -> CallOutcome {
        let owner = call.client.owner();
        match self.results.keep(&owner, result) {
            Err(why) => told(Err(&why)),
            Ok(kept) => {
                // What nobody is told of is nobody's: who has cancelled, or an agent whose results
                // were just forgotten.
                let is_told = match call.client.is_cancelled(&call.id) {
                    true => Err(told(Err(&NotStored::Cancelled))),
                    false => record::kept(&self.recorder, call, &kept).map_err(CallOutcome::Failed),
                };
                if is_told.is_err() {
                    self.results.remove(&owner, &kept);
                }
                is_told.map_or_else(|outcome| outcome, |()| told(Ok(&kept)))
            }
        }
    }
}
