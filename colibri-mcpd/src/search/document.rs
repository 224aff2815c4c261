//! The searched parts of a tool.

use std::collections::HashSet;

use super::words::words;
use crate::catalog::Item;
use colibri_api::first_sentence;
use colibri_store::FIELDS;
use colibri_wire::Json;

/// The most bytes of a text of a definition that are searched: one that names everything is not to
/// be found by all.
const MAX_TEXT: usize = 4 << 10;
/// The most parameters whose names are searched.
const MAX_PARAMETERS: usize = 100;
/// The depth to which objects in objects are searched for parameters.
const MAX_DEPTH: usize = 4;

/// The words of a tool in the order of the index's fields: server, name, title, description,
/// parameters, summary. What has no summary has its description's first sentence for one.
pub(super) fn fields(item: &Item, summary: Option<&str>) -> [String; FIELDS] {
    let definition = Json::part(&item.raw, 0..item.raw.len());
    let text = |key: &str| definition.and_then(|definition| definition.get(key)?.as_str());
    let mut parameters = Vec::new();
    if let Some(schema) = definition.and_then(|definition| definition.get("inputSchema")) {
        add_parameters(schema, MAX_DEPTH, &mut parameters);
    }
    [
        split(&item.server.spec.id),
        split(&item.own),
        split(&text("title").unwrap_or_default()),
        split(&item.description()),
        split(&parameters.join(" ")),
        split(&summary.map_or_else(|| first_sentence(&item.description()), str::to_owned)),
    ]
}

fn add_parameters(schema: Json<'_>, depth: usize, found: &mut Vec<String>) {
    for part in schema.members() {
        if part.key.is_string("properties") {
            for property in part.value.members() {
                if found.len() >= MAX_PARAMETERS {
                    return;
                }
                found.extend(property.key.as_str().map(std::borrow::Cow::into_owned));
                if depth > 0 && property.value.is_object() {
                    add_parameters(property.value, depth - 1, found);
                }
            }
        } else if depth > 0 && part.key.is_string("items") {
            add_parameters(part.value, depth - 1, found);
        }
    }
}

/// The words of a text's beginning, as the index takes them: each once, since saying it often makes
/// no tool better.
fn split(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut words = words(&text[..end]);
    let mut seen = HashSet::new();
    words.retain(|word| seen.insert(word.clone()));
    words.join(" ")
}
