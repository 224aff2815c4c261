//! The inmate as an MCP server, so that its words can be tried through a daemon: each call of its
//! tool `run` starts it again with these words, below itself and with the same rights. Its tool
//! `echo` answers with its text, and is measured.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::say;

/// Answers requests of the legacy era until stdin ends.
pub(crate) fn serve() {
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let id = &message["id"];
        if id.is_null() {
            continue;
        }
        let mut answer = match message["method"].as_str().unwrap() {
            "initialize" => json!({ "result": {
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "inmate", "version": "1" } } }),
            "tools/list" => {
                let tool =
                    |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
                json!({ "result": { "tools": [tool("run"), tool("echo")] } })
            }
            "tools/call" => {
                let arguments = &message["params"]["arguments"];
                let text = match message["params"]["name"].as_str().unwrap() {
                    "echo" => arguments["text"].as_str().unwrap().to_owned(),
                    _ => run(arguments),
                };
                json!({ "result": { "content": [{ "type": "text", "text": text }] } })
            }
            _ => json!({ "error": { "code": -32601, "message": "no such method" } }),
        };
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = id.clone();
        say(&answer.to_string());
    }
}

/// Runs the words, and tells what it said: all, or the first line where `leave` is true, after
/// which it goes on.
fn run(arguments: &Value) -> String {
    let words: Vec<&str> = arguments["words"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    // A word that is a path is another program: one with the set-user-ID bit, for instance.
    let mut command = match words[0].starts_with('/') {
        true => Command::new(words[0]),
        false => crate::me(),
    };
    let skipped = usize::from(words[0].starts_with('/'));
    command
        .args(&words[skipped..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return format!("not started: {error}"),
    };
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    if arguments["leave"] == true {
        output.read_line(&mut text).unwrap();
    } else {
        output.read_to_string(&mut text).unwrap();
        let _ = child.wait();
    }
    text
}
