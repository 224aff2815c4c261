//! `colibri-mcp notices`: what happens, told as it does.

use std::ops::ControlFlow;

use colibri_api::{NoticeNotification, NoticesLagged, StreamEnded};
use serde_json::json;
use serde_json::value::RawValue;

use super::context::CommandContext;
use crate::connection::read;
use crate::failure::CommandError;
use crate::terminal;
use colibri_text::visible;

/// Runs the command until it is interrupted, or the daemon ends it.
pub(crate) fn run(context: &CommandContext) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    let ended = connection.listen("colibri/watch-notices", &json!({}), |_, name, params| {
        tell(name, params, context.json).map(ControlFlow::Continue)
    })?;
    if let Some(result) = ended {
        let why = read::<StreamEnded>("colibri/watch-notices", &result)?.ended;
        eprintln!("colibri-mcp: {}", visible(&why));
    }
    Ok(())
}

fn tell(name: &str, params: &RawValue, json: bool) -> Result<(), CommandError> {
    let text = match name {
        "colibri/notice" => {
            let NoticeNotification { notice, .. } = read(name, params)?;
            let time = terminal::clock(notice.time);
            let facts = terminal::details(&notice.facts);
            format!("{time}  {} {}", notice.event, visible(&facts))
        }
        "colibri/notices-dropped" => {
            let NoticesLagged { notices, .. } = read(name, params)?;
            format!("-- {notices} notices came faster than they could be shown")
        }
        _ => return Ok(()),
    };
    match json {
        true => terminal::print(&colibri_text::json(params.get())),
        false => terminal::print(&text),
    }
}
