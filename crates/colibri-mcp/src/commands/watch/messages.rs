//! `colibri-mcp watch messages SERVER`: what the daemon and a server say to each other, as it
//! passes.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use colibri_api::{Direction, StreamEnded, TapFrame, WatchRequest, WatchSubscribed, WatchedServer};
use nix::sys::signal::Signal;
use serde_json::value::RawValue;

use super::print::{lagged, print};
use crate::commands::context::CommandContext;
use crate::commands::signals::on_signals;
use crate::connection::{RequestError, read};
use crate::failure::CommandError;
use crate::terminal;
use colibri_text::{counted, visible};

/// The longest time for the last lines once the watch is to end; standard output may be a pipe that
/// nobody reads.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The server, and how much of its messages is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchMessagesArguments {
    /// The server's id, as `colibri-mcp status` shows it
    server: String,
    /// Shows messages whole, not only their first 4 KiB
    #[arg(long)]
    full: bool,
}

#[derive(Debug, Default)]
struct Counts {
    shown: u64,
    dropped: u64,
}

/// Runs the command. Its last line says how many messages were shown.
pub(super) fn run(
    arguments: &WatchMessagesArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    let canceller = connection.canceller()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let told = interrupted.clone();
    on_signals(&[Signal::SIGINT, Signal::SIGTERM], move |_| {
        told.store(true, Ordering::SeqCst);
        // The daemon ends the watch with the connection.
        canceller.hang_up();
        std::thread::sleep(LAST_LINES);
        std::process::exit(0);
    })?;
    let params = WatchRequest::Messages {
        server: arguments.server.clone(),
        full: arguments.full,
    };
    let mut counts = Counts::default();
    let outcome = connection.listen("colibri/watch", &params, |_, name, params| {
        tell(name, params, context.json, &mut counts).map(ControlFlow::Continue)
    });
    let why = match outcome {
        Err(CommandError::Request(RequestError::Lost { .. }))
            if interrupted.load(Ordering::SeqCst) =>
        {
            "interrupted".to_owned()
        }
        Err(failure) => return Err(failure),
        Ok(None) => return Ok(()),
        Ok(Some(result)) => read::<StreamEnded>("colibri/watch", &result)?.ended,
    };
    eprintln!(
        "colibri-mcp: {}; {} messages shown, {} dropped",
        visible(&why),
        counts.shown,
        counts.dropped
    );
    Ok(())
}

/// Shows what the daemon tells. What is said of the watch itself goes to stderr, so that stdout has
/// frames alone; with `json`, everything goes to stdout.
fn tell(
    name: &str,
    params: &RawValue,
    json: bool,
    counts: &mut Counts,
) -> Result<(), CommandError> {
    match name {
        "colibri/frame" => {
            counts.shown += 1;
            let text = if json {
                String::new()
            } else {
                text(&read(name, params)?)
            };
            print(params, &text, json)
        }
        "colibri/dropped" => {
            let (text, dropped) = lagged(params, "messages")?;
            counts.dropped += dropped;
            print(params, &text, json)
        }
        "colibri/watching" => {
            let WatchSubscribed { server, .. } = read(name, params)?;
            let Some(WatchedServer {
                id,
                state,
                processes,
            }) = server
            else {
                return Ok(());
            };
            let text = format!(
                "colibri-mcp: watching {} ({state}, {}); what people say through it is shown, and that you look is on \
                 record; Ctrl-C ends it\n",
                visible(&id),
                counted(processes, "process")
            );
            // Nobody has to read it.
            let _ = io::stderr().write_all(text.as_bytes());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A head line that says which way, when and whose, and the message under it.
fn text(frame: &TapFrame) -> String {
    let arrow = match frame.direction {
        Direction::ToServer => "-->",
        Direction::FromServer => "<--",
    };
    let mut head = format!(
        "{} {arrow} process {}",
        terminal::clock(frame.time),
        frame.process
    );
    if let Some(id) = &frame.id {
        head.push_str(&format!("  id {}", visible(id.get())));
    }
    if let Some(client) = &frame.client {
        head.push_str(&format!(
            "  client {} uid {} id {}",
            client.connection,
            client.uid,
            visible(client.id.get())
        ));
    }
    let what = [
        Some(frame.kind.as_str()),
        frame.method.as_deref(),
        frame.tool.as_deref(),
    ];
    let what: Vec<_> = what
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    head.push_str(&format!("  {}", visible(&what.join(" "))));
    let length = terminal::bytes(frame.length);
    let length = if frame.cut {
        format!("{length}, cut")
    } else {
        length
    };
    format!("{head}  ({length})\n    {}", visible(&frame.frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_frame_is_shown_with_both_ids_and_nothing_a_terminal_acts_on() {
        let frame: TapFrame = serde_json::from_value(json!({
            "watch": 1, "time": 86_399_999_u64, "direction": "from-server", "process": 3, "pid": 41, "kind": "result",
            "id": 12, "client": { "connection": 7, "uid": 1001, "pid": null, "id": "a\u{1b}" }, "method": "tools/call",
            "tool": "echo\u{9b}", "length": 5000, "cut": true, "frame": "{\"x\":\"\u{1b}[2J\"}",
        }))
        .unwrap();
        assert_eq!(
            text(&frame),
            "23:59:59.999Z <-- process 3  id 12  client 7 uid 1001 id \"a\\u001b\"  result tools/call echo\\u{9b}  \
             (5,000 bytes, cut)\n    {\"x\":\"\\u{1b}[2J\"}"
        );
    }
}
