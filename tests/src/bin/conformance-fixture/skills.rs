//! The skill of the fixture (SEP-2640).

use crate::content::Stop;
use crate::server::{Caller, cached};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const URI: &str = "skill://acme/pdf-processing/SKILL.md";

/// Its files: URI, type and text.
pub(crate) const FILES: [(&str, &str, &str); 2] = [
    (
        URI,
        "text/markdown",
        "---\nname: pdf-processing\ndescription: Fills and joins PDF documents\nmetadata:\n  version: \"2.1.0\"\n---\nRead references/FORMS.md.\n",
    ),
    (
        "skill://acme/pdf-processing/references/FORMS.md",
        "text/markdown",
        "A form has fields.\n",
    ),
];

pub(crate) fn entry() -> Value {
    let resources = FILES.map(|(uri, _, text)| {
        let digest: String = Sha256::digest(text)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        json!({ "uri": uri, "digest": format!("sha256:{digest}"), "size": text.len() })
    });
    json!({
        "uri": URI,
        "frontmatter": {
            "name": "pdf-processing",
            "description": "Fills and joins PDF documents",
            "metadata": { "version": "2.1.0" },
        },
        "resources": resources,
    })
}

pub(crate) fn resource() -> Value {
    json!({
        "uri": URI,
        "name": "pdf-processing",
        "description": "Fills and joins PDF documents",
        "mimeType": "text/markdown",
    })
}

pub(crate) fn get(caller: &Caller, params: &Value) -> Result<Value, Stop> {
    match params["uri"] == URI {
        true => Ok(answer(caller, json!({ "skill": entry() }))),
        false => Err(Stop::error(-32602, "no such skill")),
    }
}

pub(crate) fn directory(caller: &Caller, params: &Value) -> Result<Value, Stop> {
    let child = |uri: &str, kind: &str| json!({ "uri": uri, "name": uri.rsplit('/').next(), "mimeType": kind });
    let root = "skill://acme/pdf-processing";
    let references = format!("{root}/references");
    let children = match params["uri"].as_str() {
        Some("skill://acme") => vec![child(root, "inode/directory")],
        Some(uri) if uri == root => vec![
            child(URI, "text/markdown"),
            child(&references, "inode/directory"),
        ],
        Some(uri) if uri == references => vec![child(FILES[1].0, "text/markdown")],
        _ => return Err(Stop::error(-32602, "no such directory")),
    };
    Ok(answer(caller, json!({ "resources": children })))
}

fn answer(caller: &Caller, result: Value) -> Value {
    if caller.modern {
        cached(result)
    } else {
        result
    }
}
