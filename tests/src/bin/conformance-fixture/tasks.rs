//! The tasks extension (SEP-2663), and the tools that become tasks where the client speaks it.
//! Elsewhere they answer when they are done.

use crate::asking::{Ask, requests};
use crate::content::{Stop, content, text};
use crate::server::{Caller, Server, State, TASKS};
use serde_json::{Map, Value, json};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long a task says that it is kept. It is kept as long as the process.
const TTL_MS: u64 = 60_000;

pub(crate) struct Task {
    status: &'static str,
    created: String,
    updated: String,
    /// What its end brings with it: `result` or `error`.
    outcome: Option<(&'static str, Value)>,
    /// What it waits for, by key.
    pending: Map<String, Value>,
    answers: Map<String, Value>,
}

impl Task {
    fn ended(&self) -> bool {
        !matches!(self.status, "working" | "input_required")
    }

    fn detailed(&self, id: &str) -> Value {
        let mut task = json!({
            "taskId": id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": TTL_MS,
            "pollIntervalMs": 100,
        });
        if self.status == "input_required" {
            task["inputRequests"] = json!(self.pending);
        }
        if let Some((key, value)) = &self.outcome {
            task[key] = value.clone();
        }
        task
    }
}

/// Whether a tool becomes a task where that can be.
fn supports_tasks(name: &str) -> bool {
    matches!(
        name,
        "slow_compute"
            | "failing_job"
            | "protocol_error_job"
            | "confirm_delete"
            | "multi_input"
            | "test_tool_with_task"
    )
}

pub(crate) fn task_tools() -> Vec<Value> {
    let tool = |name: &str, description: &str, properties: Value| {
        let schema = json!({ "type": "object", "properties": properties });
        json!({ "name": name, "description": description, "inputSchema": schema })
    };
    let string = json!({ "type": "string" });
    vec![
        tool("greet", "Says hello at once", json!({ "name": string })),
        tool(
            "slow_compute",
            "Takes some seconds",
            json!({ "seconds": { "type": "number" }, "label": string }),
        ),
        tool(
            "failing_job",
            "Fails after a while; only as a task",
            json!({}),
        ),
        tool(
            "protocol_error_job",
            "Ends with a protocol error",
            json!({}),
        ),
        tool(
            "confirm_delete",
            "Asks the person before it goes on",
            json!({ "filename": string }),
        ),
        tool("multi_input", "Asks the person twice at once", json!({})),
        tool(
            "test_tool_with_task",
            "Asks the person, then becomes a task",
            json!({}),
        ),
    ]
}

impl Server {
    /// Calls a tool of [`task_tools`]; none if it is not one of them.
    pub(crate) fn call_as_task(
        self: &Arc<Self>,
        caller: &Caller,
        params: &Value,
    ) -> Result<Option<Value>, Stop> {
        let name = params["name"].as_str().unwrap_or_default();
        if !supports_tasks(name) {
            return Ok(None);
        }
        let who = if name == "test_tool_with_task" {
            let ask = Ask::form(
                "user_name",
                "What is your name?",
                json!({ "name": { "type": "string" } }),
            );
            let answers = self.inputs(caller, params, vec![ask], Some("tool-with-task"))?;
            answers["user_name"]["content"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        } else {
            String::new()
        };
        if !caller.speaks_tasks() {
            if name == "failing_job" && caller.modern {
                return Err(caller.lacks(TASKS, json!({ "extensions": { TASKS: {} } })));
            }
            let ask = |asks| self.inputs(caller, params, asks, None);
            let wait = |time| {
                std::thread::sleep(time);
                true
            };
            return self.job(name, &who, params, ask, wait).map(Some);
        }
        let now = now();
        let mut state = self.state();
        let id = self.secret.name(state.tasks.len());
        let task = Task {
            status: "working",
            created: now.clone(),
            updated: now,
            outcome: None,
            pending: Map::new(),
            answers: Map::new(),
        };
        let mut result = task.detailed(&id);
        result["resultType"] = json!("task");
        state.tasks.insert(id.clone(), task);
        drop(state);
        let (server, name, params) = (Arc::clone(self), name.to_owned(), params.clone());
        std::thread::spawn(move || server.run(&id, &name, &who, &params));
        Ok(Some(result))
    }

    /// What a job does, however it asks and waits. `wait` says whether to go on.
    fn job(
        &self,
        name: &str,
        who: &str,
        params: &Value,
        ask: impl Fn(Vec<Ask>) -> Result<Map<String, Value>, Stop>,
        wait: impl Fn(Duration) -> bool,
    ) -> Result<Value, Stop> {
        let confirm = json!({ "confirm": { "type": "boolean" } });
        let arguments = &params["arguments"];
        let result = match name {
            "slow_compute" => {
                let seconds = arguments["seconds"]
                    .as_f64()
                    .unwrap_or(1.0)
                    .clamp(0.0, 600.0);
                wait(Duration::from_secs_f64(seconds));
                text(&format!("{} computed for {seconds} s", arguments["label"]))
            }
            "failing_job" => {
                wait(Duration::from_millis(300));
                let mut result = text("This job fails intentionally for testing");
                result["isError"] = json!(true);
                result
            }
            "protocol_error_job" => {
                return Err(Stop::error(-32603, "This job ends with a protocol error"));
            }
            "confirm_delete" => {
                let message = format!("Delete {}?", arguments["filename"]);
                let answers = ask(vec![Ask::form("confirm", &message, confirm)])?;
                text(&format!(
                    "Confirmed: {}",
                    answers["confirm"]["content"]["confirm"]
                ))
            }
            "multi_input" => {
                let first = Ask::form("first", "The first?", confirm.clone());
                let answers = ask(vec![first, Ask::form("second", "The second?", confirm)])?;
                content(json!([{ "type": "text", "text": Value::Object(answers).to_string() }]))
            }
            _ => text(&format!("Hello, {who}, from a task")),
        };
        Ok(result)
    }

    /// Runs a task to its end.
    fn run(&self, id: &str, name: &str, who: &str, params: &Value) {
        let ask = |asks: Vec<Ask>| {
            self.change_task(id, |task| {
                task.pending = requests(&asks);
                task.status = "input_required";
            });
            self.wait_for_task(id, None, |task| task.pending.is_empty());
            let answers = self.state().tasks[id].answers.clone();
            Ok(answers)
        };
        let wait = |time| self.wait_for_task(id, Some(time), |_| false);
        let outcome = match self.job(name, who, params, ask, wait) {
            Ok(mut result) | Err(Stop::Input(mut result)) => {
                // The result of a task is one of its version, wherever it stands (2026-07-28,
                // basic, "Results").
                result["resultType"] = json!("complete");
                ("completed", ("result", result))
            }
            Err(Stop::Error(code, message, _)) => (
                "failed",
                ("error", json!({ "code": code, "message": message })),
            ),
        };
        self.change_task(id, |task| {
            task.status = outcome.0;
            task.outcome = Some(outcome.1);
        });
    }

    /// Waits until a task has ended, until `until`, or that long; whether the task is still on.
    fn wait_for_task(
        &self,
        id: &str,
        time: Option<Duration>,
        until: impl Fn(&Task) -> bool,
    ) -> bool {
        let deadline = time.map(|time| Instant::now() + time);
        let mut state = self.state();
        loop {
            let task = &state.tasks[id];
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if task.ended() || until(task) || left == Some(Duration::ZERO) {
                return !task.ended();
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Changes a task that has not ended, and tells whoever waits for it or listens.
    fn change_task(&self, id: &str, change: impl FnOnce(&mut Task)) {
        let mut state = self.state();
        self.change_task_in(&mut state, id, change);
    }

    fn change_task_in(&self, state: &mut State, id: &str, change: impl FnOnce(&mut Task)) {
        let Some(task) = state.tasks.get_mut(id).filter(|task| !task.ended()) else {
            return;
        };
        change(task);
        task.updated = now();
        let told = task.detailed(id);
        self.tell_of_task(state, id, told);
        self.changed.notify_all();
    }

    /// Answers `tasks/get`, `tasks/update` and `tasks/cancel`.
    pub(crate) fn task(
        &self,
        caller: &Caller,
        method: &str,
        params: &Value,
    ) -> Result<Value, Stop> {
        if !caller.speaks_tasks() {
            return Err(caller.lacks(TASKS, json!({ "extensions": { TASKS: {} } })));
        }
        let id = params["taskId"].as_str().unwrap_or_default();
        let mut state = self.state();
        let Some(task) = state.tasks.get(id) else {
            return Err(Stop::error(-32602, format!("no task {id:?}")));
        };
        match method {
            "tasks/get" => return Ok(task.detailed(id)),
            "tasks/cancel" => self.change_task_in(&mut state, id, |task| task.status = "cancelled"),
            _ => {
                let answers = params["inputResponses"]
                    .as_object()
                    .cloned()
                    .unwrap_or_default();
                self.change_task_in(&mut state, id, |task| {
                    for (key, answer) in answers {
                        if task.pending.remove(&key).is_some() {
                            task.answers.insert(key, answer);
                        }
                    }
                    if task.pending.is_empty() {
                        task.status = "working";
                    }
                });
            }
        }
        Ok(json!({}))
    }
}

/// The time, as ISO 8601.
fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
