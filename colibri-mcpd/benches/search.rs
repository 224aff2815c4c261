//! What finding a tool costs, and calling one through `colibri_call_tool` instead of by its name:
//! `cargo bench -p colibri-mcpd --bench search`.
//!
//! A daemon, its trail on, with one server of a thousand tools; one client with one call in flight,
//! so that each time is a whole one: from the bytes of the request to those of the answer. Both
//! ways of calling take turns in one run.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "support/echo.rs"]
mod echo;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Searches of each query, and calls of each way.
const SEARCHES: usize = 200;
const CALLS: usize = 20_000;

const QUERIES: [&str; 6] = [
    "delete a branch",
    "which files did somebody change last week",
    "send a message to everyone in the channel",
    "turn this spreadsheet into a chart with two columns and mail it to my accountant",
    "server",
    "how do I get all of the old invoices of a customer out of the archive, sorted by price and date, and saved as a \
     document that I can print and sign before the meeting on Monday morning with the lawyer and the bank",
];

const VERBS: [&str; 10] = [
    "get", "list", "create", "delete", "update", "search", "send", "move", "copy", "export",
];
const NOUNS: [&str; 20] = [
    "file", "branch", "commit", "issue", "message", "channel", "page", "table", "column", "chart",
    "user", "group", "event", "mailbox", "contact", "invoice", "customer", "document", "folder",
    "image",
];
const OF: [&str; 5] = ["repository", "workspace", "calendar", "archive", "database"];

/// A thousand tools, each with a description of some forty words.
fn tools() -> String {
    let mut tools = vec![echo::ECHO.to_owned()];
    for verb in VERBS {
        for (n, noun) in NOUNS.into_iter().enumerate() {
            for (m, of) in OF.into_iter().enumerate() {
                let (near, far) = (
                    NOUNS[(n + m + 1) % NOUNS.len()],
                    NOUNS[(n * 7 + m) % NOUNS.len()],
                );
                tools.push(format!(
                    r#"{{"name":"{verb}_{noun}_of_{of}","description":"Tries to {verb} the {noun} of a {of}. Use this where a {near} or a {far} is known by its id; the result has the {noun} with its name, size, owner and time of the last change. Fails where the {of} cannot be reached, or has no {near}.","inputSchema":{{"type":"object","properties":{{"{noun}_id":{{"type":"string"}},"{of}":{{"type":"string"}},"limit":{{"type":"integer"}}}}}}}}"#
                ));
            }
        }
    }
    tools.join(",")
}

/// A daemon, and the one connection to it.
struct Bench {
    daemon: Child,
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    line: String,
}

impl Bench {
    fn start(directory: &Path) -> Bench {
        let program = std::env::current_exe().unwrap().display().to_string();
        let registry =
            format!(r#"{{"servers":{{"s":{{"command":"{program}","args":["server"]}}}}}}"#);
        std::fs::write(directory.join("registry.json"), registry).unwrap();
        let socket = directory.join("socket");
        let daemon = Command::new(env!("CARGO_BIN_EXE_colibri-mcpd"))
            .arg("--socket")
            .arg(&socket)
            .arg("--external-config")
            .arg(directory.join("registry.json"))
            .arg("--state-dir")
            .arg(directory.join("state"))
            .args(["--external-call", "--allow-root", "--log-level", "error"])
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            sleep(Duration::from_millis(5));
        };
        let reader = BufReader::new(stream.try_clone().unwrap());
        let mut bench = Bench {
            daemon,
            stream,
            reader,
            line: String::new(),
        };
        let client = r#""capabilities":{},"clientInfo":{"name":"b","version":"1"}"#;
        bench.ask(
            "initialize",
            &format!(r#"{{"protocolVersion":"2025-11-25",{client}}}"#),
        );
        while !bench.ask("tools/list", "{}").contains("s__echo") {
            assert!(Instant::now() < until, "the server was not seen");
        }
        bench
    }

    fn ask(&mut self, method: &str, params: &str) -> &str {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}\n"
        );
        self.stream.write_all(line.as_bytes()).unwrap();
        self.line.clear();
        assert!(
            self.reader.read_line(&mut self.line).unwrap() > 0,
            "the daemon has gone"
        );
        &self.line
    }

    /// Calls a tool: how long that takes.
    fn call(&mut self, name: &str, arguments: &str, wanted: &str) -> f64 {
        let params = format!("{{\"name\":\"{name}\",\"arguments\":{arguments}}}");
        let start = Instant::now();
        let answer = self.ask("tools/call", &params);
        let time = start.elapsed().as_secs_f64() * 1e6;
        assert!(
            answer.contains(wanted) && !answer.contains("\"isError\":true"),
            "{name}: {answer}"
        );
        time
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.daemon.id().to_string())
            .status();
        let _ = self.daemon.wait();
    }
}

fn at(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == "server") {
        return echo::echo_server(&tools(), || ());
    }
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path());
    let query = |query: &str| format!("{{\"query\":\"{query}\"}}");
    let first = bench.call("colibri_find_tools", &query(QUERIES[0]), "s__delete_branch");
    println!(
        "the first search of 1,001 tools, which makes the index: {:.1} ms",
        first / 1e3
    );
    for words in QUERIES {
        let asked = query(words);
        let mut times: Vec<f64> = (0..SEARCHES)
            .map(|_| bench.call("colibri_find_tools", &asked, "s__"))
            .collect();
        times.sort_by(f64::total_cmp);
        let count = words.split(' ').count();
        let (half, most) = (at(&times, 0.5) / 1e3, at(&times, 0.99) / 1e3);
        println!("a search with {count:2} words: p50 {half:.3} ms, p99 {most:.3} ms (goal: 2 ms)");
    }
    let text = "x".repeat(64);
    let by_name = format!("{{\"text\":\"{text}\"}}");
    let through = format!("{{\"tool\":\"s__echo\",\"arguments\":{by_name}}}");
    let mut ways = [
        ("s__echo", by_name, Vec::new()),
        ("colibri_call_tool", through, Vec::new()),
    ];
    for turn in 0..CALLS + CALLS / 10 {
        for (name, arguments, times) in &mut ways {
            let time = bench.call(name, arguments, &text);
            // The first tenth warms up.
            if turn >= CALLS / 10 {
                times.push(time);
            }
        }
    }
    let halves = ways.map(|(name, _, mut times)| {
        times.sort_by(f64::total_cmp);
        println!(
            "{name}: p50 {:.2} us, p99 {:.2} us",
            at(&times, 0.5),
            at(&times, 0.99)
        );
        at(&times, 0.5)
    });
    println!(
        "through colibri_call_tool: {:+.2} us, {:.3} times the call by name (goal: +10 us)",
        halves[1] - halves[0],
        halves[1] / halves[0]
    );
}
