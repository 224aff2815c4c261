//! What a modern request over HTTP says twice: in its body, and in header fields for who is between (2026-07-28,
//! basic/transports/streamable-http, "Request Metadata"). Both have to say the same.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::request::META_PROTOCOL_VERSION;
use super::rpc_error::{HEADER_MISMATCH, RpcError};
use colibri_text::brief;
use colibri_wire::Json;
use colibri_wire::json::Kind;

/// How deep the schema of a tool is looked through for what it mirrors.
const MAX_DEPTH: usize = 32;

/// Compares what a request says of itself with its header fields, which `field` yields by their names in lower case.
///
/// # Errors
/// -32020
pub fn compare_request<'h>(
    method: &str,
    params: Option<Json<'_>>,
    field: impl Fn(&str) -> Option<&'h [u8]>,
) -> Result<(), RpcError> {
    let declared = params.and_then(|params| params.get("_meta")?.get(META_PROTOCOL_VERSION)?.as_str());
    // What the body lacks is no mismatch: it is refused for that.
    if let Some(declared) = declared {
        compare_text("mcp-protocol-version", &declared, field("mcp-protocol-version"), false)?;
    }
    compare_text("mcp-method", method, field("mcp-method"), false)?;
    let named = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return Ok(()),
    };
    match params.and_then(|params| params.get(named)?.as_str()) {
        Some(name) => compare_text("mcp-name", &name, field("mcp-name"), true),
        None => Ok(()),
    }
}

/// An argument of a tool that is mirrored in a header field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// The name of the field, in lower case.
    field: String,
    /// The keys that lead to the argument.
    path: Vec<String>,
}

impl Mirrored {
    /// What a tool's definition mirrors: `x-mcp-header` of the properties of its `inputSchema` that a chain of
    /// `properties` reaches.
    pub fn of_tool(definition: Json<'_>) -> Vec<Mirrored> {
        let mut found = Vec::new();
        if let Some(schema) = definition.get("inputSchema") {
            gather(schema, &mut Vec::new(), &mut found);
        }
        found
    }

    /// Compares the argument with its field. One that is not there, or null, has none.
    ///
    /// # Errors
    /// -32020
    pub fn compare<'h>(
        &self,
        arguments: Option<Json<'_>>,
        field: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> Result<(), RpcError> {
        let argument = self.path.iter().try_fold(arguments, |value, key| Some(value?.get(key)));
        let argument = argument.flatten().filter(|value| value.kind() != Kind::Null);
        let said = field(&self.field);
        let Some(argument) = argument else {
            return match said {
                Some(_) => Err(mismatch(format!(
                    "the header {} is there, and the argument {} is not",
                    self.field,
                    self.path.join(".")
                ))),
                None => Ok(()),
            };
        };
        match argument.kind() {
            Kind::String => compare_text(&self.field, &argument.as_str().unwrap_or_default(), said, true),
            Kind::Number => {
                let text = decode(&self.field, said)?;
                if text == argument.text() || same_number(&text, argument.text()) {
                    return Ok(());
                }
                Err(differs(&self.field, &text, argument.text()))
            }
            _ => compare_text(&self.field, argument.text(), said, true),
        }
    }
}

fn gather(schema: Json<'_>, path: &mut Vec<String>, found: &mut Vec<Mirrored>) {
    let Some(properties) = schema.get("properties").filter(|_| path.len() < MAX_DEPTH) else {
        return;
    };
    for member in properties.members() {
        let Some(key) = member.key.as_str() else { continue };
        path.push(key.into_owned());
        if let Some(name) = member.value.get("x-mcp-header").and_then(|name| name.as_str()) {
            found.push(Mirrored {
                field: format!("mcp-param-{}", name.to_ascii_lowercase()),
                path: path.clone(),
            });
        }
        gather(member.value, path, found);
        path.pop();
    }
}

/// Compares a value of the body with what its field says, which may be encoded if `may_be_encoded`.
fn compare_text(name: &str, value: &str, said: Option<&[u8]>, may_be_encoded: bool) -> Result<(), RpcError> {
    let text = if may_be_encoded {
        decode(name, said)?
    } else {
        String::from_utf8_lossy(said.ok_or_else(|| missing(name))?)
    };
    if text == value {
        Ok(())
    } else {
        Err(differs(name, &text, value))
    }
}

/// The value of a field: plain text, or Base64 of UTF-8 between markers.
fn decode<'h>(name: &str, said: Option<&'h [u8]>) -> Result<Cow<'h, str>, RpcError> {
    let said = said.ok_or_else(|| missing(name))?;
    let bad = |what: &str| mismatch(format!("the header {name} {what}"));
    let encoded = said
        .strip_prefix(b"=?base64?")
        .and_then(|said| said.strip_suffix(b"?="));
    if let Some(encoded) = encoded {
        let bytes = STANDARD
            .decode(encoded)
            .map_err(|_| bad("is no Base64 between its markers"))?;
        return match String::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Owned(text)),
            Err(_) => Err(bad("is no UTF-8 in Base64")),
        };
    }
    match std::str::from_utf8(said) {
        Ok(text) if text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e)) => Ok(Cow::Borrowed(text)),
        _ => Err(bad(
            "has a character that stands in no header: encode it as =?base64?…?=",
        )),
    }
}

/// Whether two texts are one whole number: 42 is 42.0.
fn same_number(one: &str, other: &str) -> bool {
    let whole = |text: &str| {
        let (digits, zeros) = text.split_once('.').unwrap_or((text, "0"));
        let plain = !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0');
        digits.parse::<i64>().ok().filter(|_| plain)
    };
    whole(one).is_some_and(|one| Some(one) == whole(other))
}

fn missing(name: &str) -> RpcError {
    mismatch(format!("the header {name} is missing"))
}

fn differs(name: &str, said: &str, value: &str) -> RpcError {
    let (said, value) = (brief(said, 100), brief(value, 100));
    mismatch(format!("the header {name} says \"{said}\", the body \"{value}\""))
}

fn mismatch(what: String) -> RpcError {
    RpcError::new(HEADER_MISMATCH, format!("header mismatch: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::parse(text.as_bytes()).unwrap()
    }

    fn compared(method: &str, params: &str, fields: &[(&str, &str)]) -> Result<(), i64> {
        let field = |name: &str| {
            let found = fields.iter().find(|(field, _)| *field == name);
            found.map(|(_, value)| value.as_bytes())
        };
        compare_request(method, Some(json(params)), field).map_err(|error| error.code)
    }

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;

    #[test]
    fn a_request_says_the_same_twice() {
        let version = ("mcp-protocol-version", "2026-07-28");
        let call = ("mcp-method", "tools/call");
        let with = |rest: &str| format!("{{{META}{rest}}}");
        for (method, params, fields, good) in [
            (
                "tools/list",
                with(""),
                vec![version, ("mcp-method", "tools/list")],
                true,
            ),
            ("tools/list", with(""), vec![version], false),
            ("tools/list", with(""), vec![("mcp-method", "tools/list")], false),
            (
                "tools/list",
                with(""),
                vec![version, ("mcp-method", "Tools/List")],
                false,
            ),
            (
                "tools/list",
                with(""),
                vec![("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/list")],
                false,
            ),
            (
                "tools/call",
                with(r#","name":"a""#),
                vec![version, call, ("mcp-name", "a")],
                true,
            ),
            (
                "tools/call",
                with(r#","name":"\u0061""#),
                vec![version, call, ("mcp-name", "a")],
                true,
            ),
            ("tools/call", with(r#","name":"a""#), vec![version, call], false),
            (
                "tools/call",
                with(r#","name":"a""#),
                vec![version, call, ("mcp-name", "A")],
                false,
            ),
            (
                "tools/call",
                with(r#","name":"é""#),
                vec![version, call, ("mcp-name", "=?base64?w6k=?=")],
                true,
            ),
            (
                "tools/call",
                with(r#","name":"é""#),
                vec![version, call, ("mcp-name", "=?base64?w6k?=")],
                false,
            ),
            (
                "tools/call",
                with(r#","name":"é""#),
                vec![version, call, ("mcp-name", "é")],
                false,
            ),
            (
                "resources/read",
                with(r#","uri":"x:y""#),
                vec![version, ("mcp-method", "resources/read"), ("mcp-name", "x:y")],
                true,
            ),
            (
                "resources/read",
                with(r#","uri":"x:y""#),
                vec![version, ("mcp-method", "resources/read"), ("mcp-name", "x:z")],
                false,
            ),
            (
                "tasks/get",
                with(r#","taskId":"7""#),
                vec![version, ("mcp-method", "tasks/get"), ("mcp-name", "7")],
                true,
            ),
            (
                "tasks/cancel",
                with(r#","taskId":"7""#),
                vec![version, ("mcp-method", "tasks/cancel")],
                false,
            ),
        ] {
            let expected = if good { Ok(()) } else { Err(HEADER_MISMATCH) };
            assert_eq!(
                compared(method, &params, &fields),
                expected,
                "{method} {params} {fields:?}"
            );
        }
    }

    #[test]
    fn arguments_are_mirrored_where_properties_alone_lead() {
        let definition = r##"{"name":"t","inputSchema":{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "where":{"type":"object","properties":{"zone":{"type":"integer","x-mcp-header":"Zone"}}},
            "dry":{"type":"boolean","x-mcp-header":"Dry"},
            "list":{"type":"array","items":{"properties":{"a":{"x-mcp-header":"A"}}}},
            "other":{"oneOf":[{"properties":{"b":{"x-mcp-header":"B"}}}]}}}}"##;
        let mirrored = Mirrored::of_tool(json(definition));
        let fields: Vec<_> = mirrored.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(fields, ["mcp-param-region", "mcp-param-zone", "mcp-param-dry"]);
        let check = |which: usize, arguments: &str, said: Option<&str>| {
            let one = &mirrored[which];
            one.compare(Some(json(arguments)), |_| said.map(str::as_bytes)).is_ok()
        };
        for (which, arguments, said, good) in [
            (0, r#"{"region":"us-west1"}"#, Some("us-west1"), true),
            (0, r#"{"region":"us-west1"}"#, Some("us-east1"), false),
            (0, r#"{"region":"us-west1"}"#, None, false),
            (0, r#"{"region":"Hello"}"#, Some("=?base64?SGVsbG8=?="), true),
            (0, r#"{"region":"Hello"}"#, Some("=?base64?SGVsbG8?="), false),
            (0, r#"{"region":"Hello"}"#, Some("=?base64?SGVs!!!bG8=?="), false),
            (
                0,
                r#"{"region":"=?BASE64?SGVsbG8=?="}"#,
                Some("=?BASE64?SGVsbG8=?="),
                true,
            ),
            (0, r#"{"region":""}"#, Some(""), true),
            (0, r#"{"region":null}"#, None, true),
            (0, r#"{"region":null}"#, Some("null"), false),
            (0, "{}", None, true),
            (0, "{}", Some("us-west1"), false),
            (1, r#"{"where":{"zone":42}}"#, Some("42"), true),
            (1, r#"{"where":{"zone":42}}"#, Some("42.0"), true),
            (1, r#"{"where":{"zone":42.0}}"#, Some("42"), true),
            (1, r#"{"where":{"zone":-7}}"#, Some("-7"), true),
            (1, r#"{"where":{"zone":42}}"#, Some("43"), false),
            (1, r#"{"where":{"zone":42}}"#, Some("42.5"), false),
            (1, r#"{"where":{}}"#, None, true),
            (1, r#"{"where":7}"#, None, true),
            (2, r#"{"dry":true}"#, Some("true"), true),
            (2, r#"{"dry":true}"#, Some("True"), false),
        ] {
            assert_eq!(check(which, arguments, said), good, "{arguments} {said:?}");
        }
        assert!(Mirrored::of_tool(json("{}")).is_empty());
    }
}
