//! The server that the official conformance suite and the era matrix are pointed at: an MCP server
//! over stdio with every feature that a server can have, in the era its first argument names:
//! `legacy` (the `initialize` handshake, up to 2025-11-25) or `modern` (`_meta` on each request,
//! 2026-07-28). `--page N` cuts its lists into pages, `--many N` adds resources to fill them.
//!
//! It is a test's peer, so it shares no code with the daemon: plain blocking reads, one thread a
//! call, and the protocol written out again by hand. Two mistakes would have to be made twice to go
//! unseen.
//!
//! Names and texts are those that the suite's scenarios ask for. What asks the client's side does
//! so in both eras: by requests in the legacy one, by `input_required` in the modern one.

mod asking;
mod content;
mod prompts;
mod resources;
mod server;
mod skills;
mod tasks;
mod tools;

use serde_json::{Value, json};
use server::Server;
use std::io::{self, BufRead};
use std::sync::Arc;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let usage =
        || io::Error::other("usage: conformance-fixture legacy|modern [--page N] [--many N]");
    let [era, options @ ..] = arguments.as_slice() else {
        return Err(usage());
    };
    let (mut page, mut many) = (usize::MAX, 0);
    for option in options.chunks(2) {
        match option {
            ["--page", number] => page = number.parse().map_err(|_| usage())?,
            ["--many", number] => many = number.parse().map_err(|_| usage())?,
            _ => return Err(usage()),
        }
    }
    let modern = match *era {
        "legacy" => false,
        "modern" => true,
        _ => return Err(usage()),
    };
    let server = Arc::new(Server::new(modern, page, many));
    for line in io::stdin().lock().lines() {
        match serde_json::from_str::<Value>(&line?) {
            Ok(message) if message.is_object() => server.take(message),
            _ => server
                .send(json!({ "id": null, "error": { "code": -32700, "message": "Parse error" } })),
        }
    }
    server.wait_for_cancelled();
    Ok(())
}
