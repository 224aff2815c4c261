//! What a server may want of the client's side: in the legacy era by requests of its own, in the
//! modern one by an `input_required` result that the client answers when it calls again.

use crate::content::Stop;
use crate::server::{Caller, Server};
use serde_json::{Map, Value, json};
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a call waits for the client's answer to a request of ours.
const PATIENCE: Duration = Duration::from_secs(60);

/// One thing that is wanted, under the key that the modern era knows it by.
pub(crate) struct Ask {
    pub(crate) key: &'static str,
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

impl Ask {
    /// A form with these properties, all of them required.
    pub(crate) fn form(key: &'static str, message: &str, properties: Value) -> Self {
        let required: Vec<_> = properties
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        Self {
            key,
            method: "elicitation/create",
            params: json!({ "message": message, "requestedSchema": schema }),
        }
    }

    pub(crate) fn sampling(key: &'static str, prompt: &str) -> Self {
        let params = json!({
            "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }],
            "maxTokens": 100,
        });
        Self {
            key,
            method: "sampling/createMessage",
            params,
        }
    }

    pub(crate) fn roots(key: &'static str) -> Self {
        Self {
            key,
            method: "roots/list",
            params: json!({}),
        }
    }

    /// The capability that a client which can answer has declared.
    fn capability(&self) -> &'static str {
        match self.method {
            "elicitation/create" if self.params["mode"] == "url" => "elicitation.url",
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            _ => "roots",
        }
    }
}

/// Signs what a client carries back to us.
#[derive(Default)]
pub(crate) struct Secret(RandomState);

impl Secret {
    fn seal(&self, inner: &str) -> String {
        format!("{inner}.{:016x}", self.0.hash_one(inner))
    }

    /// What was sealed; none if the call brings no state, an error if it is not ours.
    pub(crate) fn open(&self, params: &Value) -> Result<Option<String>, Stop> {
        let Some(state) = params.get("requestState") else {
            return Ok(None);
        };
        let state = state.as_str().unwrap_or_default();
        match state.rsplit_once('.') {
            Some((inner, _)) if self.seal(inner) == state => Ok(Some(inner.to_owned())),
            _ => Err(Stop::error(-32602, "requestState is not as it was given")),
        }
    }

    /// A name that nobody guesses.
    pub(crate) fn name(&self, number: usize) -> String {
        format!("{number}-{:016x}", self.0.hash_one(("name", number)))
    }
}

impl Server {
    /// The client's answers to `asks`, by their keys. `state` is what a modern client has to bring
    /// back with them.
    pub(crate) fn inputs(
        &self,
        caller: &Caller,
        params: &Value,
        asks: Vec<Ask>,
        state: Option<&str>,
    ) -> Result<Map<String, Value>, Stop> {
        for ask in &asks {
            caller.require(ask.capability())?;
        }
        if !caller.modern {
            return self.ask_all(asks);
        }
        let came_back = state.is_none() || self.secret.open(params)?.is_some();
        let answer = |ask: &Ask| {
            params["inputResponses"]
                .get(ask.key)
                .filter(|answer| answer.is_object())
        };
        if came_back && asks.iter().all(|ask| answer(ask).is_some()) {
            let answers = asks
                .iter()
                .filter_map(|ask| Some((ask.key.to_owned(), answer(ask)?.clone())));
            return Ok(answers.collect());
        }
        let mut result =
            json!({ "resultType": "input_required", "inputRequests": requests(&asks) });
        if let Some(state) = state {
            result["requestState"] = json!(self.secret.seal(state));
        }
        Err(Stop::Input(result))
    }

    /// Sends the legacy client a request for each, then waits for all answers.
    fn ask_all(&self, asks: Vec<Ask>) -> Result<Map<String, Value>, Stop> {
        let mut waiting = Vec::new();
        for ask in asks {
            let (sender, receiver) = channel();
            let id = {
                let mut state = self.state();
                state.last_id += 1;
                let id = state.last_id;
                state.waiting.insert(id, sender);
                id
            };
            self.send(json!({ "id": id, "method": ask.method, "params": ask.params }));
            waiting.push((ask, id, receiver));
        }
        let mut answers = Map::new();
        for (ask, id, receiver) in waiting {
            let answer = receiver.recv_timeout(PATIENCE);
            self.state().waiting.remove(&id);
            let mut answer = answer.map_err(|_| {
                Stop::error(-32603, format!("the client did not answer {}", ask.method))
            })?;
            if let Some(text) = answer["error"]["message"].as_str() {
                let text = format!("the client refused {}: {text}", ask.method);
                return Err(Stop::Error(
                    -32603,
                    text,
                    Some(answer["error"]["code"].take()),
                ));
            }
            answers.insert(ask.key.into(), answer["result"].take());
        }
        Ok(answers)
    }
}

/// The map of a modern result or task.
pub(crate) fn requests(asks: &[Ask]) -> Map<String, Value> {
    let entry = |ask: &Ask| {
        (
            ask.key.to_owned(),
            json!({ "method": ask.method, "params": ask.params }),
        )
    };
    asks.iter().map(entry).collect()
}
