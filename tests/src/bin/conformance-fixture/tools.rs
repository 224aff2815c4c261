//! Tools.

use crate::asking::Ask;
use crate::content::{Stop, audio, content, image, text};
use crate::resources::WATCHED;
use crate::server::{Caller, Server};
use crate::tasks::task_tools;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Between two messages of a tool that sends several: long enough that a client which reads them
/// late would be seen.
const PAUSE: Duration = Duration::from_millis(50);

impl Server {
    pub(crate) fn tools(&self) -> Vec<Value> {
        let plain = |name: &str, description: &str| json!({ "name": name, "description": description, "inputSchema": { "type": "object", "properties": {} } });
        let wants = |name: &str, argument: &str, description: &str| {
            let schema = json!({
                "type": "object",
                "properties": { argument: { "type": "string" } },
                "required": [argument],
            });
            json!({ "name": name, "description": description, "inputSchema": schema })
        };
        let changes = |name: &str, description: &str| {
            let schema =
                json!({ "type": "object", "properties": { "name": { "type": "string" } } });
            json!({ "name": name, "description": description, "inputSchema": schema })
        };
        let mut tools = vec![
            plain("test_simple_text", "Returns one text"),
            plain("test_image_content", "Returns one image"),
            plain("test_audio_content", "Returns one sound"),
            plain("test_embedded_resource", "Returns one embedded resource"),
            plain(
                "test_multiple_content_types",
                "Returns a text, an image and a resource",
            ),
            plain(
                "test_resource_links",
                "Returns links to a resource and to one of a template",
            ),
            json!({
                "name": "test_structured_content",
                "description": "Returns structured content",
                "inputSchema": { "type": "object" },
                "outputSchema": {
                    "type": "object",
                    "properties": { "temperature": { "type": "number" }, "place": { "type": "string" } },
                    "required": ["temperature"],
                },
            }),
            plain("test_error_handling", "Always fails"),
            plain(
                "test_tool_with_logging",
                "Logs three messages while it runs",
            ),
            plain(
                "test_logging_tool",
                "Logs a message if the request asks for log messages",
            ),
            json!({
                "name": "test_tool_with_progress",
                "description": "Reports progress three times, or as often as it is told",
                "inputSchema": { "type": "object", "properties": { "steps": { "type": "integer" } } },
            }),
            wants(
                "test_hold",
                "file",
                "Writes to a file that it was called, and that its call was cancelled",
            ),
            wants("test_sampling", "prompt", "Asks the client's model"),
            wants("test_elicitation", "message", "Asks the person"),
            plain(
                "test_elicitation_sep1034_defaults",
                "Asks the person, with defaults",
            ),
            plain(
                "test_elicitation_sep1330_enums",
                "Asks the person, with all forms of a choice",
            ),
            plain("test_elicitation_url", "Asks the person to open a URL"),
            wants(
                "test_url_required",
                "id",
                "Answers the first call for an id by the error that names a URL",
            ),
            plain("test_roots", "Asks for the client's roots"),
            plain(
                "test_missing_capability",
                "Needs the client's sampling capability",
            ),
            plain("test_streaming_elicitation", "Asks the person"),
            plain("test_input_required_result_elicitation", "Asks for a name"),
            plain("test_input_required_result_sampling", "Asks for a capital"),
            plain("test_input_required_result_list_roots", "Asks for roots"),
            plain(
                "test_input_required_result_request_state",
                "Asks with a state to bring back",
            ),
            plain(
                "test_input_required_result_multiple_inputs",
                "Asks for three things at once",
            ),
            plain(
                "test_input_required_result_multi_round",
                "Asks twice, one after the other",
            ),
            plain(
                "test_input_required_result_tampered_state",
                "Asks with a state to bring back",
            ),
            plain(
                "test_input_required_result_capabilities",
                "Asks for what the client can do",
            ),
            changes(
                "test_trigger_tool_change",
                "Adds or removes the tool test_extra_tool, or the one that it is told",
            ),
            changes(
                "test_trigger_prompt_change",
                "Adds or removes the prompt test_extra_prompt, or the one that it is told",
            ),
            changes(
                "test_trigger_resource_change",
                "Adds or removes the resource test://extra-resource, or the one that it is told",
            ),
            plain(
                "test_update_resource",
                "Says that test://watched-resource was updated",
            ),
            json!({
                "name": "test_header_parameter",
                "description": "Has an argument that HTTP mirrors in a header",
                "inputSchema": {
                    "type": "object",
                    "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
                    "required": ["region"],
                },
            }),
            json!({
                "name": "json_schema_2020_12_tool",
                "description": "Has an input schema that uses much of JSON Schema 2020-12",
                "inputSchema": schema_2020_12(),
            }),
        ];
        tools.extend(task_tools());
        tools.extend(
            self.extras("tools")
                .iter()
                .map(|name| plain(name, "Comes and goes")),
        );
        tools
    }

    pub(crate) fn call(self: &Arc<Self>, caller: &Caller, params: &Value) -> Result<Value, Stop> {
        let name = params["name"].as_str().unwrap_or_default();
        if let Some(result) = self.call_as_task(caller, params)? {
            return Ok(result);
        }
        if let Some(result) = self.call_that_asks(caller, params)? {
            return Ok(result);
        }
        let argument = |key: &str| {
            params["arguments"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let changed = |usual: &str| {
            params["arguments"]["name"]
                .as_str()
                .unwrap_or(usual)
                .to_owned()
        };
        let result = match name {
            "test_simple_text" => text("This is a simple text response for testing."),
            "test_image_content" => content(json!([image()])),
            "test_audio_content" => content(json!([audio()])),
            "test_embedded_resource" => content(json!([{
                "type": "resource",
                "resource": {
                    "uri": "test://embedded-resource",
                    "mimeType": "text/plain",
                    "text": "This is an embedded resource content.",
                },
            }])),
            "test_multiple_content_types" => content(json!([
                { "type": "text", "text": "Multiple content types test:" },
                image(),
                {
                    "type": "resource",
                    "resource": {
                        "uri": "test://mixed-content-resource",
                        "mimeType": "application/json",
                        "text": "{\"test\":\"data\",\"value\":123}",
                    },
                },
            ])),
            "test_resource_links" => content(json!([
                { "type": "resource_link", "uri": "test://static-text", "name": "static-text", "mimeType": "text/plain" },
                { "type": "resource_link", "uri": "test://template/7/data", "name": "seven" },
            ])),
            "test_structured_content" => {
                let mut result = text("{\"temperature\":21.5,\"place\":\"here\"}");
                result["structuredContent"] = json!({ "temperature": 21.5, "place": "here" });
                result
            }
            "test_error_handling" => {
                let mut result = text("This tool intentionally returns an error for testing");
                result["isError"] = json!(true);
                result
            }
            "test_tool_with_logging" => {
                self.log(caller, "info", "Tool execution started");
                std::thread::sleep(PAUSE);
                self.log(caller, "info", "Tool processing data");
                std::thread::sleep(PAUSE);
                self.log(caller, "info", "Tool execution completed");
                text("Tool with logging executed successfully")
            }
            "test_logging_tool" => {
                self.log(caller, "info", "Asked for by the request's log level");
                text("Logging evaluated")
            }
            "test_tool_with_progress" => {
                let steps = params["arguments"]["steps"].as_u64();
                for step in 1..=steps.unwrap_or_default() {
                    self.progress(caller, step, steps.unwrap_or_default());
                }
                for progress in if steps.is_none() {
                    [0, 50, 100].as_slice()
                } else {
                    &[]
                } {
                    self.progress(caller, *progress, 100);
                    if *progress < 100 {
                        std::thread::sleep(PAUSE);
                    }
                }
                text("Tool with progress executed successfully")
            }
            "test_hold" => {
                let write = |text: &str| {
                    std::fs::write(argument("file"), text)
                        .map_err(|error| Stop::error(-32603, error.to_string()))
                };
                write("held\n")?;
                self.progress(caller, 1, 2);
                self.wait_for_cancellation(&caller.id);
                write("held\ncancelled\n")?;
                text("Nobody reads this")
            }
            "test_missing_capability" => {
                caller.require("sampling")?;
                text("The client has the sampling capability")
            }
            "test_trigger_tool_change" => {
                self.change("tools", changed("test_extra_tool"));
                text("The tool list has changed")
            }
            "test_trigger_prompt_change" => {
                self.change("prompts", changed("test_extra_prompt"));
                text("The prompt list has changed")
            }
            "test_trigger_resource_change" => {
                self.change("resources", changed("test://extra-resource"));
                text("The resource list has changed")
            }
            "test_update_resource" => {
                self.update(WATCHED);
                text("The resource was updated")
            }
            "test_header_parameter" => text(&format!("Region: {}", argument("region"))),
            "json_schema_2020_12_tool" => text("Called with arguments that match its schema"),
            "greet" => text(&format!("Hello, {}!", argument("name"))),
            _ if self.extras("tools").iter().any(|extra| extra == name) => {
                text("The extra tool answers")
            }
            _ => return Err(Stop::error(-32602, format!("Unknown tool: {name}"))),
        };
        Ok(result)
    }

    /// Calls a tool that wants something of the client's side; none if it is not one of them.
    fn call_that_asks(&self, caller: &Caller, params: &Value) -> Result<Option<Value>, Stop> {
        let name = params["name"].as_str().unwrap_or_default();
        let argument = |key: &str| {
            params["arguments"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let string = || json!({ "type": "string" });
        let ask = |asks, state| self.inputs(caller, params, asks, state);
        let said = match name {
            "test_sampling" => {
                let answers = ask(vec![Ask::sampling("sample", &argument("prompt"))], None)?;
                let said = answers["sample"]["content"]["text"]
                    .as_str()
                    .unwrap_or("nothing")
                    .to_owned();
                format!("LLM response: {said}")
            }
            "test_elicitation" | "test_streaming_elicitation" => {
                let field =
                    |description: &str| json!({ "type": "string", "description": description });
                let properties = json!({ "username": field("User's response"), "email": field("User's email address") });
                let answers = ask(
                    vec![Ask::form("form", &argument("message"), properties)],
                    None,
                )?;
                format!("User response: {}", answers["form"])
            }
            "test_elicitation_sep1034_defaults" => {
                let answers = ask(
                    vec![Ask::form("form", "Please check these", defaults())],
                    None,
                )?;
                completed(&answers["form"])
            }
            "test_elicitation_sep1330_enums" => {
                let answers = ask(vec![Ask::form("form", "Please choose", enums())], None)?;
                completed(&answers["form"])
            }
            "test_elicitation_url" => {
                let mut asked = Ask::form("url", "Please sign in", json!({}));
                asked.params = url("fixture-url");
                if caller.modern {
                    asked
                        .params
                        .as_object_mut()
                        .map(|params| params.remove("elicitationId"));
                }
                let answers = ask(vec![asked], None)?;
                if !caller.modern {
                    let params = json!({ "elicitationId": "fixture-url" });
                    self.notify("notifications/elicitation/complete", params);
                }
                format!("Opened: {}", answers["url"]["action"])
            }
            "test_url_required" => {
                let id = argument("id");
                if !caller.modern && self.state().asked_urls.insert(id.clone()) {
                    caller.require("elicitation.url")?;
                    let data = json!({ "elicitations": [url(&id)] });
                    return Err(Stop::Error(
                        -32042,
                        "A URL has to be opened first".into(),
                        Some(data),
                    ));
                }
                if caller.modern {
                    let mut asked = Ask::form("url", "Please sign in", json!({}));
                    asked.params = json!({ "mode": "url", "message": "Please sign in", "url": "https://127.0.0.1/sign-in" });
                    ask(vec![asked], None)?;
                }
                "The URL was opened".into()
            }
            "test_roots" | "test_input_required_result_list_roots" => {
                let answers = ask(vec![Ask::roots("client_roots")], None)?;
                format!("Roots: {}", answers["client_roots"]["roots"])
            }
            "test_input_required_result_elicitation" => {
                let asked = Ask::form(
                    "user_name",
                    "What is your name?",
                    json!({ "name": string() }),
                );
                let answers = ask(vec![asked], None)?;
                format!(
                    "Hello, {}!",
                    answers["user_name"]["content"]["name"]
                        .as_str()
                        .unwrap_or("nobody")
                )
            }
            "test_input_required_result_sampling" => {
                let asked = Ask::sampling("capital_question", "What is the capital of France?");
                let answers = ask(vec![asked], None)?;
                answers["capital_question"]["content"]["text"]
                    .as_str()
                    .unwrap_or("nothing")
                    .into()
            }
            "test_input_required_result_request_state"
            | "test_input_required_result_tampered_state" => {
                let asked = Ask::form(
                    "confirm",
                    "Please confirm",
                    json!({ "ok": { "type": "boolean" } }),
                );
                ask(vec![asked], Some(name))?;
                "state-ok".into()
            }
            "test_input_required_result_multiple_inputs" => {
                let asks = vec![
                    Ask::form(
                        "user_name",
                        "What is your name?",
                        json!({ "name": string() }),
                    ),
                    Ask::sampling("greeting", "Generate a greeting"),
                    Ask::roots("client_roots"),
                ];
                Value::Object(ask(asks, Some(name))?).to_string()
            }
            "test_input_required_result_multi_round" => {
                let state = self.secret.open(params)?.unwrap_or_default();
                let name = if let Some(name) = state.strip_prefix("second ") {
                    name.to_owned()
                } else {
                    let asked = Ask::form(
                        "step1",
                        "Step 1: What is your name?",
                        json!({ "name": string() }),
                    );
                    let answers = ask(vec![asked], Some("first"))?;
                    answers["step1"]["content"]["name"]
                        .as_str()
                        .unwrap_or("nobody")
                        .to_owned()
                };
                let asked = Ask::form(
                    "step2",
                    "Step 2: What is your favorite color?",
                    json!({ "color": string() }),
                );
                let answers = ask(vec![asked], Some(&format!("second {name}")))?;
                format!("{name} likes {}", answers["step2"]["content"]["color"])
            }
            "test_input_required_result_capabilities" => {
                let mut asks = Vec::new();
                if caller.require("sampling").is_ok() {
                    asks.push(Ask::sampling("sample", "Say something"));
                }
                if caller.require("elicitation").is_ok() {
                    asks.push(Ask::form(
                        "form",
                        "Say something",
                        json!({ "word": string() }),
                    ));
                }
                Value::Object(ask(asks, None)?).to_string()
            }
            _ => return Ok(None),
        };
        Ok(Some(text(&said)))
    }
}

fn completed(answer: &Value) -> String {
    let action = answer["action"].as_str().unwrap_or("none");
    format!(
        "Elicitation completed: action={action}, content={}",
        answer["content"]
    )
}

/// The params of an elicitation by URL, as 2025-11-25 has them.
fn url(id: &str) -> Value {
    json!({
        "mode": "url",
        "message": "Please sign in",
        "url": "https://127.0.0.1/sign-in",
        "elicitationId": id,
    })
}

/// The form of the suite's scenario `elicitation-sep1034-defaults`.
fn defaults() -> Value {
    json!({
        "name": { "type": "string", "description": "User name", "default": "John Doe" },
        "age": { "type": "integer", "description": "User age", "default": 30 },
        "score": { "type": "number", "description": "User score", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "description": "Verified", "default": true },
    })
}

/// The form of the suite's scenario `elicitation-sep1330-enums`.
fn enums() -> Value {
    let titled = json!([
        { "const": "value1", "title": "First" },
        { "const": "value2", "title": "Second" },
        { "const": "value3", "title": "Third" },
    ]);
    let options = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": { "type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"] },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    })
}

/// The schema of the suite's scenario `json-schema-2020-12`, keyword for keyword.
fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
