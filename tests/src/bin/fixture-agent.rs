//! An agent without a model: it takes tasks at its door and does what their descriptions say, well
//! or badly.
//!
//! ```text
//! fixture-agent --dir DIR --as NAME [--tool TOOL] [--tasks N]
//! ```
//!
//! A description is JSON, `{"do": WHAT, "ms": N}`: it works for so long, calls TOOL where one is
//! named, and then
//!
//! - `finish`: finishes the task;
//! - `twice`: finishes it on two connections at once, each with a result of its own;
//! - `old`: first tries to finish it under claims that are not in force, and a task that is not its
//!   own;
//! - `again`: finishes it, and tries to finish it again, to fail it and to give it back;
//! - `greedy`: finishes it, and asks on two connections at once for a task each, which it notes
//!   (`"step": "next"`);
//! - `fail`, `release`: fails it, gives it back;
//! - `crash`, `leave`, `hang`: dies, ends well without a word, or does nothing any more until it is
//!   ended.
//!
//! Any other description is one to be finished. A result is `{"task", "claim", "nonce"}`, the nonce
//! never used before. Each order is a line of `DIR/NAME.orders` before it is given (`"step":
//! "try"`) and after its answer (`told`: it is done; `refused`), so that what the daemon has
//! recorded can be held against what it said it had. On standard output it writes events as `pi`
//! does. After N tasks it ends, and otherwise only when its door does.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::exit;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use colibri_tests::{Client, LEGACY, text_of};
use serde_json::{Value, json};

/// Exit status when the door is gone: nothing went wrong here.
const NO_DOOR: i32 = 3;
/// Between two questions for a task where there is none.
const PAUSE: Duration = Duration::from_millis(30);

struct Agent {
    socket: String,
    orders: File,
    tool: Option<String>,
}

/// A connection to the door.
struct Door<'a> {
    agent: &'a Agent,
    client: Client,
}

fn main() {
    let (mut directory, mut name, mut tool, mut tasks) =
        (".".to_owned(), "agent".to_owned(), None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        match arg.as_str() {
            "--dir" => directory = value,
            "--as" => name = value,
            "--tool" => tool = Some(value),
            "--tasks" => tasks = value.parse::<u64>().ok(),
            other => {
                eprintln!("unknown argument {other}");
                exit(64);
            }
        }
    }
    let path = format!("{directory}/{name}.orders");
    let orders = File::options().create(true).append(true).open(&path);
    let agent = Agent {
        socket: std::env::var("COLIBRI_MCP_SOCKET").unwrap_or_default(),
        orders: orders.unwrap_or_else(|error| {
            eprintln!("{path}: {error}");
            exit(73)
        }),
        tool,
    };
    event(&json!({ "type": "session", "id": nonce() }));
    let mut door = agent.connect();
    let mut done = 0;
    while tasks.is_none_or(|most| done < most) {
        let next = door.call("colibri_next_task", json!({}));
        let task = &next["structuredContent"]["task"];
        if next["isError"] == true {
            eprintln!("no task: {}", text_of(&next));
        }
        let (Some(id), Some(claim)) = (task["id"].as_u64(), task["claim"].as_u64()) else {
            sleep(PAUSE);
            continue;
        };
        event(&json!({ "type": "turn_start", "task": id }));
        door.work(id, claim, task["description"].as_str().unwrap_or_default());
        event(&json!({ "type": "agent_end", "task": id }));
        done += 1;
    }
}

/// Writes an event. Whether anybody reads it must not matter.
fn event(event: &Value) {
    let _ = writeln!(std::io::stdout(), "{event}");
}

/// A word that nobody has said before.
fn nonce() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}-{count}", now.as_nanos(), std::process::id())
}

impl Agent {
    fn connect(&self) -> Door<'_> {
        let Ok(stream) = UnixStream::connect(&self.socket) else {
            eprintln!("no door at {}", self.socket);
            exit(NO_DOOR)
        };
        let mut door = Door {
            agent: self,
            client: Client::over(stream),
        };
        let client = json!({ "name": "fixture-agent", "version": "1" });
        door.ask(
            "initialize",
            json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client }),
        );
        door.client.notify("notifications/initialized", json!({}));
        door
    }

    /// Notes an order. One write, so that no other line gets into it.
    fn note(&self, step: &str, tool: &str, order: &Value) {
        let line =
            json!({ "step": step, "order": tool, "arguments": order, "pid": std::process::id() });
        if let Err(error) = (&self.orders).write_all(format!("{line}\n").as_bytes()) {
            eprintln!("an order is not noted: {error}");
            exit(74);
        }
    }
}

impl Door<'_> {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.client.request(method, params);
        loop {
            let Some(line) = self.client.read_lossy() else {
                eprintln!("the door is closed");
                exit(NO_DOOR)
            };
            match serde_json::from_slice::<Value>(&line) {
                Ok(mut message) if message["id"] == id && message.get("method").is_none() => {
                    if message.get("error").is_some() {
                        eprintln!("{method}: {message}");
                    }
                    return message["result"].take();
                }
                _ => {}
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
    }

    /// Gives an order. Whether it was carried out.
    fn order(&mut self, tool: &str, order: Value) -> bool {
        self.agent.note("try", tool, &order);
        let result = self.call(tool, order.clone());
        let told = result["structuredContent"]["task"].is_object() && result["isError"] != true;
        self.agent
            .note(if told { "told" } else { "refused" }, tool, &order);
        told
    }

    fn finish(&mut self, task: u64, claim: u64) -> bool {
        let result = json!({ "task": task, "claim": claim, "nonce": nonce() });
        self.order(
            "colibri_finish_task",
            json!({ "task": task, "claim": claim, "result": result }),
        )
    }

    fn work(&mut self, task: u64, claim: u64, description: &str) {
        let what: Value = serde_json::from_str(description).unwrap_or_default();
        let agent = self.agent;
        self.call(
            "colibri_start_task",
            json!({ "task": task, "claim": claim }),
        );
        sleep(Duration::from_millis(what["ms"].as_u64().unwrap_or(0)));
        if let Some(tool) = &agent.tool {
            self.call(tool, json!({ "task": task }));
        }
        let given =
            json!({ "task": task, "claim": claim, "reason": format!("as task {task} says") });
        match what["do"].as_str().unwrap_or("finish") {
            "twice" => {
                let other = agent.connect();
                at_once([self, &mut { other }], |door| door.finish(task, claim));
            }
            "old" => {
                for (task, claim) in [
                    (task, claim - 1),
                    (task, claim + 1),
                    (task + 1, claim),
                    (task, claim << 20),
                ] {
                    self.finish(task, claim);
                }
                self.finish(task, claim);
            }
            "again" => {
                self.finish(task, claim);
                self.finish(task, claim);
                self.order("colibri_fail_task", given.clone());
                self.order("colibri_release_task", given);
            }
            "greedy" => {
                self.finish(task, claim);
                let other = agent.connect();
                let ask = |door: &mut Door<'_>| door.call("colibri_next_task", json!({}));
                let given = at_once([self, &mut { other }], ask);
                let given = given.map(|given| given["structuredContent"]["task"]["id"].clone());
                agent.note(
                    "next",
                    "colibri_next_task",
                    &json!({ "after": task, "given": given }),
                );
            }
            "fail" => drop(self.order("colibri_fail_task", given)),
            "release" => drop(self.order("colibri_release_task", given)),
            "crash" => std::process::abort(),
            "leave" => exit(0),
            "hang" => loop {
                sleep(Duration::from_secs(3600));
            },
            _ => drop(self.finish(task, claim)),
        }
    }
}

/// Does something at two connections at the same moment.
fn at_once<T: Send>(doors: [&mut Door<'_>; 2], work: impl Fn(&mut Door<'_>) -> T + Sync) -> [T; 2] {
    let barrier = Barrier::new(2);
    let at = |door: &mut Door<'_>| {
        barrier.wait();
        work(door)
    };
    let [one, other] = doors;
    scope(|scope| {
        let other = scope.spawn(|| at(other));
        [at(one), other.join().unwrap_or_else(|_| exit(70))]
    })
}
