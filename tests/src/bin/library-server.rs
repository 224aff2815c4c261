//! A server that has what a file says, and answers as it says:
//!
//! ```text
//! library-server --dir DIR --as NAME [--speak VERSION]
//! ```
//!
//! `DIR/NAME.json` is an object, read anew for each request: `capabilities`; a member for each
//! method, whose value is the result; for a method that names something, `METHOD NAME`
//! (`resources/read file:///a`); `error METHOD NAME` for an error; `silent METHOD NAME` for no
//! answer at all. What it has no answer to is -32601. Each line that it reads goes to
//! `DIR/NAME.record` as it came. It shares no code with the daemon, and changes no byte of a
//! result.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::exit;

use serde_json::Value;
use serde_json::value::RawValue;

/// The version of the modern era.
const MODERN: &str = "2026-07-28";

fn main() {
    let (mut directory, mut name, mut version) =
        (PathBuf::from("."), String::new(), "2025-11-25".to_owned());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        match arg.as_str() {
            "--dir" => directory = value.into(),
            "--as" => name = value,
            "--speak" => version = value,
            _ => exit(64),
        }
    }
    let file = |what: &str| directory.join(format!("{name}.{what}"));
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let record = File::options()
            .create(true)
            .append(true)
            .open(file("record"));
        if record
            .and_then(|mut record| writeln!(record, "{line}"))
            .is_err()
        {
            exit(74);
        }
        let Ok(request) = serde_json::from_str::<BTreeMap<String, &RawValue>>(&line) else {
            continue;
        };
        let (Some(id), Some(method)) = (request.get("id"), request.get("method")) else {
            continue;
        };
        let method: String = serde_json::from_str(method.get()).unwrap_or_default();
        let params: Value = request
            .get("params")
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        let said = std::fs::read_to_string(file("json")).unwrap_or_default();
        let said: BTreeMap<String, &RawValue> = serde_json::from_str(&said).unwrap_or_default();
        let Some(outcome) = answer(&said, &method, &params, &version) else {
            continue;
        };
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{},{outcome}}}", id.get());
        if written.and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// The outcome; `None`: it does not answer.
fn answer(
    said: &BTreeMap<String, &RawValue>,
    method: &str,
    params: &Value,
    version: &str,
) -> Option<String> {
    let capabilities = said
        .get("capabilities")
        .map_or("{\"tools\":{}}", |raw| raw.get());
    let modern = version == MODERN;
    match method {
        "initialize" if !modern => {
            return Some(format!(
                "\"result\":{{\"protocolVersion\":\"{version}\",\"capabilities\":{capabilities},\
                 \"serverInfo\":{{\"name\":\"library\",\"version\":\"1\"}}}}"
            ));
        }
        "server/discover" if modern => {
            return Some(format!(
                "\"result\":{{\"resultType\":\"complete\",\"supportedVersions\":[\"{MODERN}\"],\
                 \"capabilities\":{capabilities},\"ttlMs\":1000,\"cacheScope\":\"private\"}}"
            ));
        }
        _ => {}
    }
    let of = [
        &params["name"],
        &params["uri"],
        &params["ref"]["name"],
        &params["ref"]["uri"],
    ];
    let of = of.into_iter().find_map(Value::as_str).unwrap_or_default();
    let named = format!("{method} {of}");
    if said.contains_key(&format!("silent {named}")) {
        return None;
    }
    if let Some(error) = said.get(&format!("error {named}")) {
        return Some(format!("\"error\":{}", error.get()));
    }
    Some(match said.get(&named).or_else(|| said.get(method)) {
        Some(result) => format!("\"result\":{}", result.get()),
        None => "\"error\":{\"code\":-32601,\"message\":\"no such method\"}".to_owned(),
    })
}
