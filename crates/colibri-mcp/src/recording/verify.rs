//! Whether a session happened as a recording says: each pair against its records in the trail.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use super::file::{RecordedMessage, RecordedPair, Recording, RecordingHead, SEAL, tools_of};
use crate::commands::context::CommandContext;
use crate::connection::{DaemonConnection, Hello};
use crate::failure::CommandError;
use crate::records::{self, NamedWitnesses, at};
use colibri_text::{counted, hex, visible};
use colibri_trail::{ContentDigest, DigestAlgorithm, RecordFilter, directory, prove, show};

/// Digest and length of arguments or of an answer, as a record has them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecordedDigest {
    sha256: Option<String>,
    blake3: Option<String>,
    length: u64,
}

impl RecordedDigest {
    fn is_of(&self, bytes: &[u8]) -> bool {
        let found = ContentDigest::of(bytes);
        let digest = match found.algorithm {
            DigestAlgorithm::Sha256 => &self.sha256,
            DigestAlgorithm::Blake3 => &self.blake3,
        };
        self.length == found.length && digest.as_deref() == Some(&hex(&found.digest))
    }
}

/// A call in the trail: its `enter` record, and the output of its `exit`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TrailCall {
    pub(super) pid: Option<u32>,
    continues: Option<u64>,
    method: String,
    name: Option<String>,
    args: RecordedDigest,
    tracestate: Option<String>,
    #[serde(skip)]
    exit: Option<(u64, RecordedDigest)>,
}

impl TrailCall {
    /// True if the answer that left had this digest.
    pub(super) fn has_output(&self, bytes: &[u8]) -> bool {
        self.exit
            .as_ref()
            .is_some_and(|(_, output)| output.is_of(bytes))
    }

    /// True if this may be the call of a recorded request.
    fn is_of(&self, pair: &RecordedPair) -> bool {
        let Ok(request) = serde_json::from_str::<RecordedMessage<'_>>(pair.request.get()) else {
            return false;
        };
        let named = ["name", "uri"]
            .iter()
            .find_map(|key| request.params.get(key)?.as_str());
        request.method.as_deref() == Some(&self.method)
            && (self.name.is_none() || self.name.as_deref() == named)
            && self.args.is_of(arguments(pair).as_bytes())
    }
}

/// The arguments of a request as the trail digests them.
fn arguments(pair: &RecordedPair) -> String {
    #[derive(Deserialize)]
    struct ArgumentsRequest<'a> {
        #[serde(borrow)]
        params: Option<ArgumentsParams<'a>>,
    }
    #[derive(Deserialize)]
    struct ArgumentsParams<'a> {
        #[serde(borrow)]
        arguments: Option<&'a serde_json::value::RawValue>,
    }
    let request: Option<ArgumentsRequest<'_>> = serde_json::from_str(pair.request.get()).ok();
    let arguments = request.and_then(|request| request.params?.arguments);
    arguments.map_or("{}", |raw| raw.get()).to_owned()
}

/// Calls of the trail, by the number of their last `enter` record.
#[derive(Debug, Default)]
pub(super) struct TrailCalls(BTreeMap<u64, TrailCall>);

impl TrailCalls {
    /// Reads the calls that are wanted.
    pub(super) fn read(
        &mut self,
        dir: &Path,
        since: Option<String>,
        mut is_wanted: impl FnMut(&TrailCall) -> bool,
    ) -> io::Result<()> {
        #[derive(Deserialize)]
        struct Exit {
            enter: u64,
            #[serde(default)]
            output: RecordedDigest,
        }
        let filter = RecordFilter {
            since,
            ..RecordFilter::default()
        };
        show(dir, &filter, None, &mut |record| {
            if record.kind == "enter"
                && let Ok(call) = serde_json::from_str::<TrailCall>(record.rec)
                && is_wanted(&call)
            {
                if let Some(before) = call.continues {
                    self.0.remove(&before);
                }
                self.0.insert(record.n, call);
            } else if record.kind == "exit"
                && let Ok(exit) = serde_json::from_str::<Exit>(record.rec)
                && let Some(call) = self.0.get_mut(&exit.enter)
            {
                call.exit = Some((record.n, exit.output));
            }
            ControlFlow::Continue(())
        })
    }
}

/// The first call that a pair may be and that no other pair is.
pub(super) fn find_record<'a>(
    calls: &'a TrailCalls,
    pair: &RecordedPair,
    taken: &BTreeSet<u64>,
) -> Option<(u64, &'a TrailCall)> {
    let calls = calls.0.iter().map(|(number, call)| (*number, call));
    let mut free = calls.filter(|(number, _)| !taken.contains(number));
    free.find(|(_, call)| call.is_of(pair))
}

/// The first thing in a recording that is not as the trail has it.
fn contradiction(recording: &Recording, calls: &TrailCalls) -> Option<String> {
    let mut taken = BTreeSet::new();
    for (at, pair) in recording.pairs.iter().enumerate() {
        let Some(number) = pair.record else { continue };
        let wrong = |what: &str| {
            Some(format!(
                "request {} of the recording: {what} record {number}",
                at + 1
            ))
        };
        let Some(call) = calls.0.get(&number) else {
            return wrong("the trail has no such call as");
        };
        if !taken.insert(number) {
            return wrong("another one has the same");
        }
        if call.pid != Some(recording.head.pid) || !call.is_of(pair) {
            return wrong("it is another than the one in");
        }
        let answered = pair
            .digest_of
            .map(|part| pair.answer.as_deref().and_then(|answer| part.of(answer)));
        if answered.is_some_and(|text| !text.is_some_and(|text| call.has_output(text.as_bytes()))) {
            return wrong("its answer is another than the one that belongs to");
        }
    }
    None
}

/// The tools whose definitions are others than when the recording was made. Of a server of which
/// none were known then, none have changed.
fn changed_tools(
    head: &RecordingHead,
    context: &CommandContext,
) -> Result<Vec<String>, CommandError> {
    let hello = Hello {
        read_only: true,
        only: Some(head.server.clone()),
    };
    let now =
        DaemonConnection::open_as(&context.place, &hello)?.request("tools/list", &json!({}))?;
    let (then, now) = (tools_of(&head.tools)?, tools_of(&now)?);
    if then.is_empty() {
        return Ok(Vec::new());
    }
    let only_in = |one: &[(String, serde_json::Value)], other: &[(String, serde_json::Value)]| {
        let missing = one.iter().filter(|tool| !other.contains(tool));
        missing
            .map(|(name, _)| name.clone())
            .collect::<BTreeSet<_>>()
    };
    Ok(only_in(&then, &now)
        .union(&only_in(&now, &then))
        .cloned()
        .collect())
}

/// `record --verify FILE`: says whether a session happened as the recording says. With `proof` the
/// proofs of its records follow.
///
/// # Errors
/// It did not, the trail is damaged or another one, the server's definitions changed since, or a
/// file cannot be read.
pub(crate) fn verify(
    file: &Path,
    proof: bool,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let recording = Recording::read(file)?;
    let refused = |what: String| {
        Err(CommandError::Contradicted(format!(
            "{}: {what}",
            file.display()
        )))
    };
    let Some(origin) = &recording.head.trail else {
        return refused(
            "it names no records: it was made where the trail could not be read".to_owned(),
        );
    };
    let state_dir = context.state_dir(None)?;
    let key = records::verifier(&state_dir)?;
    let here = key.as_ref().map_or("none", |key| key.name());
    if here != origin {
        return refused(format!(
            "it is of the trail {}, and the one here is {here}",
            visible(origin)
        ));
    }
    let report = records::report(&state_dir, None, &NamedWitnesses::default(), key.as_ref())?;
    if !report.is_sound() {
        return refused("the trail is damaged: run `colibri-mcp trail verify`".to_owned());
    }
    let dir = directory(&state_dir);
    let mut calls = TrailCalls::default();
    let sealed = format!("{SEAL}={}", recording.sha256);
    let pid = Some(recording.head.pid);
    let read = calls.read(&dir, None, |call| call.pid == pid);
    read.map_err(at(&dir))?;
    let is_seal = |call: &TrailCall| call.tracestate.as_deref() == Some(&sealed);
    let Some(seal) = calls
        .0
        .iter()
        .find_map(|(number, call)| is_seal(call).then_some(*number))
    else {
        return refused(
            "no record of the trail seals it: it was edited after it was made".to_owned(),
        );
    };
    if let Some(what) = contradiction(&recording, &calls) {
        return refused(what);
    }
    let changed = changed_tools(&recording.head, context)?;
    if !changed.is_empty() {
        let server = visible(&recording.head.server);
        return refused(format!(
            "it happened so, but definitions of {server} changed since: {}",
            visible(&changed.join(", "))
        ));
    }
    let named: Vec<u64> = recording
        .pairs
        .iter()
        .filter_map(|pair| pair.record)
        .collect();
    writeln!(
        out,
        "{}: it happened so: {}, {} in the trail, sealed by record {seal}",
        file.display(),
        counted(recording.pairs.len() as u64, "request"),
        named.len()
    )?;
    if proof {
        let exits = named
            .iter()
            .filter_map(|number| Some(calls.0.get(number)?.exit.as_ref()?.0));
        let numbers: BTreeSet<u64> = named.iter().copied().chain(exits).chain([seal]).collect();
        for number in numbers {
            writeln!(
                out,
                "\n{}",
                prove(&dir, number, None)?.to_string().trim_end()
            )?;
        }
    }
    Ok(())
}
