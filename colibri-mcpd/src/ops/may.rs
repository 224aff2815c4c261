//! `colibri/propose-may`, and the check of the tools that a person names for a task: both speak
//! only of what that person may call.

use std::sync::Arc;

use colibri_api::{
    MayPattern, ProposeMayRequest, ProposeMayResponse, ProposedTool, first_sentence,
};
use colibri_json::Document;
use colibri_protocol::{Code, Failure, Feature, RpcError};
use serde_json::{Value, json};

use super::method::{DaemonMethod, MethodCall};
use super::status::CallerFacts;
use crate::catalog::Item;
use crate::relay::CallOutcome;
use crate::search::{first_word, object_words, word_forms};
use colibri_policy::{MayList, PatternScope};

/// The most tools that are proposed, and those for one kind of action in a sentence.
const MAX_PROPOSED: usize = 8;
const OF_ACTION: usize = 3;
/// The most sentences that are looked at.
const MAX_SENTENCES: usize = 32;
/// What tools do that change something, in the words of people and of tools; a line for each kind.
const ACTIONS: [&str; 8] = [
    "send pay payment refund transfer reimburse email mail message write tell notify inform reply forward answer",
    "create make add schedule book plan set write save put organize append insert",
    "update change adjust adjustment modify modification edit correct correction rename move reschedule postpone append",
    "delete deletion remove removal cancel cancellation drop erase discard",
    "share send give",
    "invite invitation add",
    "post publish send write",
    "reserve reservation book booking",
];

/// `colibri/propose-may`.
pub(super) struct ProposeMay;

impl DaemonMethod for ProposeMay {
    const NAME: &'static str = "colibri/propose-may";
    const STRICT: bool = true;
    type Parameters = ProposeMayRequest;

    fn start(asked: Self::Parameters, request: MethodCall) {
        tokio::spawn(async move {
            let daemon = request.daemon.clone();
            daemon
                .host
                .discovered(daemon.discover_ungated(&request.call))
                .await;
            let slot = daemon
                .searches
                .of(request.call.client.caller.uid, None)
                .await;
            request.finish_blocking(move |daemon, call| {
                let facts = CallerFacts::new(daemon.clone(), call.client.clone());
                let proposed = propose(&facts, &asked.text);
                drop(slot);
                match proposed {
                    Ok(proposed) => CallOutcome::result(json!(proposed).to_string().into_bytes()),
                    Err(failure) => CallOutcome::Failed(failure),
                }
            });
        });
    }
}

/// Reads a list of the tools that a task may have change something.
///
/// # Errors
/// -32602, with the first fault and its place.
pub(super) fn read(given: &Value) -> Result<MayList, RpcError> {
    let text = given.to_string();
    let document = Document::parse(text.as_bytes(), "may");
    let read = document.and_then(|document| MayList::read(&document.root(), PatternScope::Servers));
    read.map_err(|error| {
        let place = if error.path.is_empty() {
            "may".to_owned()
        } else {
            format!("may{}", error.path)
        };
        RpcError::invalid_params(format!("{place}: {}", error.message))
    })
}

/// Checks a list against the rights of the person who gives it.
///
/// # Errors
/// A pattern fits no tool that they may call; the nearest is named. Or it fits one that they, its
/// server's entry or its contract may not have called.
pub(super) fn check(facts: &CallerFacts, may: &MayList) -> Result<Vec<MayPattern>, Failure> {
    let seen: Vec<&Arc<Item>> = facts
        .table()
        .offered(Feature::Tool)
        .filter(|item| facts.sees(item))
        .collect();
    let names: Vec<String> = seen.iter().map(|item| name(item)).collect();
    if let Some((pattern, near)) = may.unfit(&names) {
        let near = near
            .map(|near| format!("; did you mean \"{near}\"?"))
            .unwrap_or_default();
        let unseen: Vec<String> = facts
            .unseen()
            .into_iter()
            .map(|unseen| unseen.server)
            .collect();
        let unseen = match unseen.is_empty() {
            true => String::new(),
            false => format!(" (the tools of {} are not known yet)", unseen.join(", ")),
        };
        let why = format!("may: \"{pattern}\" fits no tool that you may call{unseen}{near}");
        return Err(Failure::new(Code::NoSuchTool, why)
            .advising("colibri-mcp tools shows the tools that there are"));
    }
    for pattern in may.patterns() {
        let one = MayList::new(vec![pattern.clone()]);
        let wider = |what: &str, whose: &str| {
            let why = format!(
                "may: \"{}\" is wider than your rights: {what} {whose}",
                pattern.tool()
            );
            Failure::new(Code::PolicyDenied, why)
                .advising("name only tools that you may call yourself")
        };
        for item in &seen {
            let (server, own) = (&item.server.spec.id, &*item.own);
            if !one.names(server, own) {
                continue;
            }
            if let Some(denied) = item.verdict().failure(server, Feature::Tool) {
                let rule = denied.rule.unwrap_or_default();
                return Err(wider(&name(item), &format!("is denied by {rule}")));
            }
            if item
                .server
                .spec
                .contract
                .as_ref()
                .is_some_and(|contract| !contract.may_change(server, own))
            {
                return Err(wider(
                    &name(item),
                    "is not what the contract of its server allows",
                ));
            }
        }
        // They are not named to those from whom policy hides them.
        let mut hidden = facts
            .table()
            .offered(Feature::Tool)
            .filter(|item| !facts.sees(item));
        if hidden.any(|item| one.names(&item.server.spec.id, &item.own)) {
            return Err(wider(
                "it fits tools",
                "that the client policy does not let you call",
            ));
        }
    }
    Ok(may.patterns().to_vec())
}

/// The tools that change something and do what a text says, the best of each kind of action in each
/// sentence: of several that do it, those alone whose names say to what, if the sentence has that
/// word.
fn propose(facts: &CallerFacts, text: &str) -> Result<ProposeMayResponse, Failure> {
    let changes = |item: &Arc<Item>| facts.is_usable(item) && !item.reads();
    let mut tools: Vec<Arc<Item>> = Vec::new();
    for sentence in sentences(text).take(MAX_SENTENCES) {
        let said = word_forms(sentence);
        for group in ACTIONS {
            if !group.split(' ').any(|word| said.contains(word)) {
                continue;
            }
            // Whoever says pay may mean a tool that sends.
            let found = facts.search(&format!("{group} {sentence}"))?;
            let does = |item: &&Arc<Item>| {
                first_word(&item.own)
                    .is_some_and(|first| group.split(' ').any(|word| word == first))
            };
            let mut able: Vec<_> = found
                .iter()
                .filter(|item| changes(item))
                .filter(does)
                .collect();
            let is_named = |item: &&Arc<Item>| {
                object_words(&item.own)
                    .iter()
                    .any(|word| said.contains(word))
            };
            if able.iter().any(is_named) {
                able.retain(is_named);
            }
            for item in able.into_iter().take(OF_ACTION) {
                if tools.len() < MAX_PROPOSED && !tools.iter().any(|known| Arc::ptr_eq(known, item))
                {
                    tools.push(item.clone());
                }
            }
        }
    }
    let tools = tools.iter().map(|item| ProposedTool {
        tool: name(item),
        description: first_sentence(&item.description()),
    });
    Ok(ProposeMayResponse {
        tools: tools.collect(),
        any_changes: facts.table().offered(Feature::Tool).any(changes),
    })
}

/// The sentences of a text. A mark within a name, a number or an address ends none.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split_inclusive(char::is_whitespace);
    let mut at = 0;
    let mut ends: Vec<usize> = Vec::new();
    for part in parts {
        at += part.len();
        if part.ends_with('\n') || part.trim_end().ends_with(['.', '!', '?', ';']) {
            ends.push(at);
        }
    }
    ends.push(text.len());
    let mut start = 0;
    ends.into_iter().filter_map(move |end| {
        let sentence = &text[start..end];
        start = end;
        (!sentence.trim().is_empty()).then_some(sentence)
    })
}

fn name(item: &Item) -> String {
    format!("{}/{}", item.server.spec.id, item.own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_within_a_word_ends_no_sentence() {
        let text = "Add it to the file 'list of 1.5.docx', then open www.a.example. Is it done? Tell bob@b.example\nnow";
        let found: Vec<&str> = sentences(text).map(str::trim).collect();
        let first = "Add it to the file 'list of 1.5.docx', then open www.a.example.";
        assert_eq!(found, [first, "Is it done?", "Tell bob@b.example", "now"]);
    }
}
