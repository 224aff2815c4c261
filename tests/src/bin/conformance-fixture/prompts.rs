//! Prompts.

use crate::asking::Ask;
use crate::content::{Stop, image};
use crate::server::{Caller, Server};
use serde_json::{Value, json};

impl Server {
    pub(crate) fn prompts(&self) -> Vec<Value> {
        let argument = |name: &str| json!({ "name": name, "description": format!("The {name}"), "required": true });
        let prompt = |name: &str, description: &str, arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(|name| argument(name)).collect();
            let mut prompt = json!({ "name": name, "description": description });
            if !arguments.is_empty() {
                prompt["arguments"] = json!(arguments);
            }
            prompt
        };
        let mut prompts = vec![
            prompt("test_simple_prompt", "Has no arguments", &[]),
            prompt(
                "test_prompt_with_arguments",
                "Has two arguments",
                &["arg1", "arg2"],
            ),
            prompt(
                "test_prompt_with_embedded_resource",
                "Embeds a resource",
                &["resourceUri"],
            ),
            prompt("test_prompt_with_image", "Shows an image", &[]),
            prompt(
                "test_input_required_result_prompt",
                "Asks the person first",
                &[],
            ),
        ];
        prompts.extend(
            self.extras("prompts")
                .iter()
                .map(|name| prompt(name, "Comes and goes", &[])),
        );
        prompts
    }

    pub(crate) fn prompt(&self, caller: &Caller, params: &Value) -> Result<Value, Stop> {
        let name = params["name"].as_str().unwrap_or_default();
        let argument = |key: &str| params["arguments"][key].as_str().unwrap_or_default();
        let text = |text: String| json!({ "type": "text", "text": text });
        let messages = match name {
            "test_simple_prompt" => vec![text("This is a simple prompt for testing.".into())],
            "test_prompt_with_arguments" => vec![text(format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                argument("arg1"),
                argument("arg2")
            ))],
            "test_prompt_with_embedded_resource" => vec![
                json!({
                    "type": "resource",
                    "resource": {
                        "uri": argument("resourceUri"),
                        "mimeType": "text/plain",
                        "text": "Embedded resource content for testing.",
                    },
                }),
                text("Please process the embedded resource above.".into()),
            ],
            "test_prompt_with_image" => {
                vec![image(), text("Please analyze the image above.".into())]
            }
            "test_input_required_result_prompt" => {
                let properties = json!({ "context": { "type": "string" } });
                let ask = Ask::form(
                    "user_context",
                    "What context should the prompt use?",
                    properties,
                );
                let answers = self.inputs(caller, params, vec![ask], None)?;
                let context = &answers["user_context"]["content"]["context"];
                vec![text(format!("Prompt in the context of {context}"))]
            }
            _ if self.extras("prompts").iter().any(|extra| extra == name) => {
                vec![text("The extra prompt".into())]
            }
            _ => return Err(Stop::error(-32602, format!("Unknown prompt: {name}"))),
        };
        let messages: Vec<_> = messages
            .into_iter()
            .map(|content| json!({ "role": "user", "content": content }))
            .collect();
        Ok(json!({ "description": "A prompt for testing", "messages": messages }))
    }
}
