//! The cost of a call and its payer: counted once, as it leaves.

use std::sync::Arc;
use std::time::Duration;

use super::call::Call;
use super::exit::{ClientMessage, ExitAnswer};
use colibri_api::{CostDay, CostSum};
use colibri_policy::{FieldFact, ResultFacts};
use colibri_protocol::Method;
use colibri_store::cost_ledger::{CostLedger, CostLine, Payer};
use colibri_text::label;

/// The most bytes of a model's name.
const MAX_MODEL: usize = 128;
/// The record by which a tool's contract says that a call of it is one of a model.
const MODEL_CALL: &str = "model_call";

/// The method under which calls of scripts are counted.
const IN_SCRIPTS: &str = "script";

/// Counts a call that took so long, and of whose answer so many bytes were queued for its client.
pub fn charge(
    ledger: &CostLedger,
    call: &Call,
    answer: &ExitAnswer,
    took: Duration,
    queued: usize,
) {
    let payer = payer(call);
    let cost = CostSum {
        calls: 1,
        errors: (!answer.success).into(),
        bytes_in: call.frame.len() as u64,
        bytes_out: queued as u64,
        microseconds: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        ..CostSum::default()
    };
    ledger.count(&payer, line(call), &cost);
    if let ClientMessage::Page(_, page) = &answer.message
        && queued > 0
    {
        ledger.count_list(&payer, page.listed());
    }
}

/// Counts what a model was asked in a call, by what the contract of its server has recorded of the
/// result: as soon as that is here, whatever its client gets of it.
pub fn model(ledger: &CostLedger, call: &Call, facts: &ResultFacts<'_>) {
    if facts.event != MODEL_CALL {
        return;
    }
    let mut cost = CostSum {
        model_requests: 1,
        ..CostSum::default()
    };
    let mut model: Option<Arc<str>> = None;
    for (name, fact) in &facts.fields {
        match (*name, fact) {
            ("tokens_in", FieldFact::Number(tokens)) => cost.tokens_in = *tokens,
            ("tokens_out", FieldFact::Number(tokens)) => cost.tokens_out = *tokens,
            ("tokens_cached", FieldFact::Number(tokens)) => cost.tokens_cached = *tokens,
            ("tokens_cache_write", FieldFact::Number(tokens)) => cost.tokens_cache_write = *tokens,
            ("model", FieldFact::Text(name)) => model = Some(label(name, MAX_MODEL).into()),
            _ => {}
        }
    }
    let payer = Payer {
        model: model.as_ref().filter(|model| !model.is_empty()),
        ..payer(call)
    };
    ledger.count(&payer, line(call), &cost);
}

fn payer(call: &Call) -> Payer<'_> {
    Payer {
        day: CostDay::of(call.time),
        uid: call.client.caller.uid,
        agent: call.client.door.as_ref().map(|door| &door.agent),
        client: call.client_info.as_ref().map(|info| &info.name),
        task: call.task(),
        model: None,
    }
}

/// The ledger line of a call.
fn line(call: &Call) -> CostLine<'_> {
    let described = call.target.description();
    let operation = Some(&*described.operation).filter(|_| described.is_named);
    let (method, tool) = match call.method {
        // No model reads it: only what the script returns.
        Some(Method::ToolsCall) if call.client.outer.is_some() => {
            (IN_SCRIPTS, operation.unwrap_or_default())
        }
        Some(method @ Method::ToolsCall) => (method.as_str(), operation.unwrap_or_default()),
        Some(method) => (method.as_str(), ""),
        None => (operation.unwrap_or("other"), ""),
    };
    CostLine {
        server: &described.server,
        method,
        tool,
    }
}
