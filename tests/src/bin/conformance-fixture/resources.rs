//! Resources and templates.

use crate::asking::Ask;
use crate::content::{PNG, Stop};
use crate::server::{Caller, Server, cached};
use crate::skills;
use serde_json::{Value, json};

pub(crate) const TEMPLATE: &str = "test://template/{id}/data";
/// The resource that clients subscribe to.
pub(crate) const WATCHED: &str = "test://watched-resource";

impl Server {
    pub(crate) fn resources(&self) -> Vec<Value> {
        let mut resources = vec![
            json!({
                "uri": "test://static-text",
                "name": "static-text",
                "title": "A text",
                "description": "A text that never changes",
                "mimeType": "text/plain",
                "size": 48,
                "annotations": { "audience": ["user", "assistant"], "priority": 0.5 },
            }),
            json!({
                "uri": "test://static-binary",
                "name": "static-binary",
                "description": "A picture that never changes",
                "mimeType": "image/png",
                "icons": [{ "src": format!("data:image/png;base64,{PNG}"), "mimeType": "image/png" }],
            }),
            json!({ "uri": WATCHED, "name": "watched-resource", "description": "Is updated by test_update_resource" }),
            json!({ "uri": "test://example-resource", "name": "example-resource", "description": "For embedding" }),
            json!({ "uri": "test://wants-input", "name": "wants-input", "description": "Asks the person before it is read" }),
        ];
        resources.push(skills::resource());
        let extra =
            |uri: String| json!({ "uri": uri, "name": "extra", "description": "Comes and goes" });
        resources.extend(self.extras("resources").into_iter().map(extra));
        let many = (0..self.many)
            .map(|number| json!({ "uri": format!("test://many/{number:04}"), "name": "many" }));
        resources.extend(many);
        resources
    }

    pub(crate) fn templates(&self) -> Vec<Value> {
        vec![
            json!({
                "uriTemplate": TEMPLATE,
                "name": "template",
                "description": "Data for an id",
                "mimeType": "application/json",
            }),
            json!({ "uriTemplate": "test://other/{+path}", "name": "other", "description": "Any path" }),
        ]
    }

    pub(crate) fn read(&self, caller: &Caller, params: &Value) -> Result<Value, Stop> {
        let uri = params["uri"]
            .as_str()
            .ok_or_else(|| Stop::error(-32602, "params lack uri"))?;
        let text = |kind: &str, text: String| json!({ "uri": uri, "mimeType": kind, "text": text });
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let of_skill = skills::FILES.into_iter().find(|(of, ..)| *of == uri);
        let contents = match uri {
            _ if of_skill.is_some() => {
                of_skill.map_or(Value::Null, |(_, kind, content)| text(kind, content.into()))
            }
            "test://static-text" => text(
                "text/plain",
                "This is the content of the static text resource.".into(),
            ),
            "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
            WATCHED => text("text/plain", "Watched".into()),
            "test://example-resource" => text("text/plain", "An example".into()),
            _ if self.extras("resources").iter().any(|extra| extra == uri) => {
                text("text/plain", "Extra".into())
            }
            "test://wants-input" => {
                let ask = Ask::form(
                    "reader",
                    "Who reads?",
                    json!({ "name": { "type": "string" } }),
                );
                let answers = self.inputs(caller, params, vec![ask], None)?;
                text(
                    "text/plain",
                    format!("Read by {}", answers["reader"]["content"]["name"]),
                )
            }
            _ => match (id, uri.strip_prefix("test://other/")) {
                (Some(id), _) => text(
                    "application/json",
                    json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") })
                        .to_string(),
                ),
                (None, Some(path)) => text("text/plain", format!("Path: {path}")),
                (None, None) => {
                    let code = if caller.modern { -32602 } else { -32002 };
                    return Err(Stop::Error(
                        code,
                        "Resource not found".into(),
                        Some(json!({ "uri": uri })),
                    ));
                }
            },
        };
        let result = json!({ "contents": [contents] });
        Ok(if caller.modern {
            cached(result)
        } else {
            result
        })
    }
}
