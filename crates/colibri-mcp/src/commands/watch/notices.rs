//! `colibri-mcp watch notices`: what happens, told as it does.

use std::ops::ControlFlow;

use colibri_api::{NoticeNotification, WatchRequest};
use serde_json::value::RawValue;

use super::print::{explain_end, lagged, print};
use crate::commands::context::CommandContext;
use crate::connection::read;
use crate::failure::CommandError;
use crate::terminal;
use colibri_text::visible;

/// Runs the command.
pub(super) fn run(context: &CommandContext) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    let ended = connection.listen(
        "colibri/watch",
        &WatchRequest::Notices,
        |_, name, params| tell(name, params, context.json).map(ControlFlow::Continue),
    )?;
    explain_end(ended.as_deref())
}

fn tell(name: &str, params: &RawValue, json: bool) -> Result<(), CommandError> {
    let text = match name {
        "colibri/notice" => {
            let NoticeNotification { notice, .. } = read(name, params)?;
            let time = terminal::clock(notice.time);
            let facts = terminal::details(&notice.facts);
            format!("{time}  {} {}", notice.event, visible(&facts))
        }
        "colibri/dropped" => lagged(params, "notices")?.0,
        _ => return Ok(()),
    };
    print(params, &text, json)
}
