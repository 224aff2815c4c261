//! The result of a script for its client.

use std::sync::Arc;

use super::session::ScriptOutput;
use crate::relay::{Call, CallOutcome, Chain, exit};
use colibri_api::script::ScriptDone;
use colibri_protocol::AnswerBody;
use colibri_wire::json::string;
use serde_json::{Value, json};

/// The kinds of content blocks, each with the member that it must have.
const BLOCKS: [(&str, &str); 5] = [
    ("audio", "data"),
    ("image", "data"),
    ("resource", "resource"),
    ("resource_link", "uri"),
    ("text", "text"),
];

/// The outcome of a script that returned something. A result over the client's limit is stored:
/// this waits for the disk.
pub(super) fn returned(
    chain: &Arc<Chain>,
    call: &Call,
    done: &ScriptDone,
    output: &ScriptOutput,
) -> CallOutcome {
    let mut blocks = content(done.value.get());
    let printed = output.printed.trim_end();
    if !printed.is_empty() {
        blocks.push(text(&format!("[printed]\n{printed}")));
    }
    if done.unawaited > 0 {
        let mut note = format!(
            "[Colibri] The script did not wait for {} of its calls.",
            done.unawaited
        );
        if !output.cancelled.is_empty() {
            let names: Vec<_> = output
                .cancelled
                .iter()
                .take(8)
                .map(String::as_str)
                .collect();
            note.push_str(&format!(" Sent and cancelled: {}.", names.join(", ")));
        }
        note.push_str(" Await them all.");
        blocks.push(text(&note));
    }
    let (calls, failed, bytes) = (output.calls, output.failed, output.bytes);
    let meta =
        json!({ "org.colibri/script": { "calls": calls, "failed": failed, "bytes": bytes } });
    let result = format!("{{\"content\":[{}],\"_meta\":{meta}}}", blocks.join(","));
    let done = format!("the script ended, do not run it again: it made {calls} calls");
    let outcome = exit::fit(CallOutcome::result(result.into_bytes()), call);
    match outcome {
        CallOutcome::Own {
            answer: AnswerBody::Result(result),
            failed: false,
        } => chain.own_result(call, result, &done),
        outcome => outcome,
    }
}

/// The content blocks of a returned value: its own, if it is one or some, else its text.
fn content(value: &str) -> Vec<String> {
    let Ok(parsed) = serde_json::from_str::<Value>(value) else {
        return vec![text(value)];
    };
    match &parsed {
        Value::String(words) => vec![text(words)],
        Value::Array(blocks) if !blocks.is_empty() && blocks.iter().all(is_block) => {
            blocks.iter().map(Value::to_string).collect()
        }
        block if is_block(block) => vec![block.to_string()],
        _ => vec![text(value)],
    }
}

/// True if a value is a content block as MCP has it.
fn is_block(value: &Value) -> bool {
    let kind = BLOCKS.iter().find(|(kind, _)| value["type"] == *kind);
    kind.is_some_and(|(kind, member)| match *kind {
        "resource" => {
            value[member]["uri"].is_string()
                && (value[member]["text"].is_string() || value[member]["blob"].is_string())
        }
        "image" | "audio" => value[member].is_string() && value["mimeType"].is_string(),
        "resource_link" => value[member].is_string() && value["name"].is_string(),
        _ => value[member].is_string(),
    })
}

fn text(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", string(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_blocks_pass_and_all_else_is_text() {
        let image = r#"{"data":"aGk=","mimeType":"image/png","type":"image"}"#;
        assert_eq!(content(image), [image]);
        assert_eq!(content(&format!("[{image},{image}]")), [image, image]);
        for (value, words) in [
            (r#""a\nb""#, "a\\nb"),
            ("[1,2]", "[1,2]"),
            ("null", "null"),
            ("[]", "[]"),
            (r#"{"type":"image"}"#, r#"{\"type\":\"image\"}"#),
            (
                r#"{"type":"image","data":1,"mimeType":"a/b"}"#,
                r#"{\"type\":\"image\",\"data\":1,\"mimeType\":\"a/b\"}"#,
            ),
            (r#"{"type":"text"}"#, r#"{\"type\":\"text\"}"#),
        ] {
            assert_eq!(
                content(value),
                [format!(r#"{{"type":"text","text":"{words}"}}"#)],
                "{value}"
            );
        }
    }
}
