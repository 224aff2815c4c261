//! The parts of a modern HTTP request that header fields repeat for intermediaries (2026-07-28,
//! basic/transports/streamable-http, "Request Metadata"). Header and body must agree.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::method::Method;
use super::request::META_PROTOCOL_VERSION;
use super::rpc_error::{HEADER_MISMATCH, RpcError};
use colibri_text::brief;
use colibri_wire::Json;
use colibri_wire::json::JsonKind;

/// The deepest nesting of a tool's schema that is searched for annotations.
const MAX_DEPTH: usize = 32;
/// The most arguments that a call repeats in header fields, the most bytes of a field's name, and
/// the most bytes of the keys that lead to an argument. Without these limits a server could make
/// its list many times larger.
const MAX_FIELDS: usize = 32;
const MAX_NAME: usize = 128;
const MAX_PATH: usize = 256;

/// Compares a request with its header fields. `field` yields a field by its name in lower case.
///
/// # Errors
/// -32020
pub fn compare_request<'h>(
    method: &str,
    params: Option<Json<'_>>,
    field: impl Fn(&str) -> Option<&'h [u8]>,
) -> Result<(), RpcError> {
    let declared = declared_version(params);
    // A body without a version is no mismatch: the request is refused for that elsewhere.
    if let Some(declared) = declared {
        compare_text(
            "mcp-protocol-version",
            &declared,
            field("mcp-protocol-version"),
            false,
        )?;
    }
    compare_text("mcp-method", method, field("mcp-method"), false)?;
    match named(method, params) {
        Some(name) => compare_text("mcp-name", &name, field("mcp-name"), true),
        None => Ok(()),
    }
}

/// The name or URI that a request is about, as `Mcp-Name` has it.
fn named<'a>(method: &str, params: Option<Json<'a>>) -> Option<Cow<'a, str>> {
    params?.get(Method::parse(method)?.subject_key()?)?.as_str()
}

/// The version that a request declares. Only modern requests declare one.
pub fn declared_version<'a>(params: Option<Json<'a>>) -> Option<Cow<'a, str>> {
    params?.get("_meta")?.get(META_PROTOCOL_VERSION)?.as_str()
}

/// The header fields of a modern request, by their names in lower case. `arguments` are the
/// mirrored arguments of the called tool.
pub fn request_fields(
    method: &str,
    params: Option<Json<'_>>,
    arguments: &[MirroredArgument],
) -> Vec<(String, String)> {
    let mut fields = vec![("mcp-method".to_owned(), encode(method))];
    if let Some(version) = declared_version(params) {
        fields.push(("mcp-protocol-version".to_owned(), encode(&version)));
    }
    if let Some(name) = named(method, params) {
        fields.push(("mcp-name".to_owned(), encode(&name)));
    }
    let given = params.and_then(|params| params.get("arguments"));
    fields.extend(
        arguments
            .iter()
            .filter_map(|mirrored| mirrored.field(given)),
    );
    fields
}

/// An argument of a tool that is mirrored in a header field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredArgument {
    /// The name of the field, in lower case.
    field: String,
    /// The keys that lead to the argument.
    path: Vec<String>,
}

impl MirroredArgument {
    /// The mirrored arguments of a tool's definition: those with `x-mcp-header` in `inputSchema`
    /// that a chain of `properties` reaches.
    pub fn of_tool(definition: Json<'_>) -> Vec<MirroredArgument> {
        let mut found = Vec::new();
        if let Some(schema) = definition.get("inputSchema") {
            gather(schema, &mut Vec::new(), &mut found);
        }
        found
    }

    /// Checks the `x-mcp-header` annotations of a tool's definition (2026-07-28, server/tools,
    /// `x-mcp-header`).
    ///
    /// # Errors
    /// The violation; such a tool must not be listed.
    pub fn check_tool(definition: Json<'_>) -> Result<(), String> {
        match definition.get("inputSchema") {
            Some(schema) => check(schema, true, 0, &mut BTreeSet::new()),
            None => Ok(()),
        }
    }

    fn argument<'a>(&self, arguments: Option<Json<'a>>) -> Option<Json<'a>> {
        let argument = self
            .path
            .iter()
            .try_fold(arguments, |value, key| Some(value?.get(key)));
        argument
            .flatten()
            .filter(|value| value.kind() != JsonKind::Null)
    }

    /// The header field for this argument, if there is one.
    fn field(&self, arguments: Option<Json<'_>>) -> Option<(String, String)> {
        let argument = self.argument(arguments)?;
        let text = argument.as_str().unwrap_or(Cow::Borrowed(argument.text()));
        Some((self.field.clone(), encode(&text)))
    }

    /// Compares the argument with its field. A missing or null argument must have no field.
    ///
    /// # Errors
    /// -32020
    pub fn compare<'h>(
        &self,
        arguments: Option<Json<'_>>,
        field: impl Fn(&str) -> Option<&'h [u8]>,
    ) -> Result<(), RpcError> {
        let argument = self.argument(arguments);
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
            JsonKind::String => compare_text(
                &self.field,
                &argument.as_str().unwrap_or_default(),
                said,
                true,
            ),
            JsonKind::Number => {
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

fn gather(schema: Json<'_>, path: &mut Vec<String>, found: &mut Vec<MirroredArgument>) {
    let Some(properties) = schema.get("properties").filter(|_| path.len() < MAX_DEPTH) else {
        return;
    };
    for member in properties.members() {
        let Some(key) = member.key.as_str() else {
            continue;
        };
        path.push(key.into_owned());
        let is_short =
            path.iter().map(String::len).sum::<usize>() <= MAX_PATH && found.len() < MAX_FIELDS;
        if let Some(name) = member
            .value
            .get("x-mcp-header")
            .and_then(|name| name.as_str())
            && is_short
            && name.len() <= MAX_NAME
        {
            found.push(MirroredArgument {
                field: format!("mcp-param-{}", name.to_ascii_lowercase()),
                path: path.clone(),
            });
        }
        gather(member.value, path, found);
        path.pop();
    }
}

/// Keywords of JSON Schema whose value is a schema or a list of schemas, and those whose value maps
/// names to schemas.
const SCHEMAS: [&str; 17] = [
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "dependencies",
];
const SCHEMAS_BY_NAME: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];

/// Checks the annotations of a schema and of all schemas below it. `reached` is true if only
/// `properties` lead to it.
fn check(
    schema: Json<'_>,
    reached: bool,
    depth: usize,
    seen: &mut BTreeSet<String>,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    for member in schema.members() {
        let Some(key) = member.key.as_str() else {
            continue;
        };
        let below = |value: Json<'_>, reached, seen: &mut BTreeSet<String>| {
            check(value, reached, depth + 1, seen)
        };
        if key == "x-mcp-header" {
            check_annotation(schema, member.value, reached && depth > 0, seen)?;
        } else if SCHEMAS_BY_NAME.contains(&&*key) {
            for member in member.value.members() {
                below(member.value, reached && key == "properties", seen)?;
            }
        } else if SCHEMAS.contains(&&*key) {
            below(member.value, false, seen)?;
            for element in member.value.elements() {
                below(element, false, seen)?;
            }
        }
    }
    Ok(())
}

fn check_annotation(
    schema: Json<'_>,
    name: Json<'_>,
    reached: bool,
    seen: &mut BTreeSet<String>,
) -> Result<(), String> {
    let shown = brief(name.text(), 100);
    let wrong = |what: &str| Err(format!("its x-mcp-header {shown} {what}"));
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let Some(name) = name.as_str() else {
        return wrong("is no string");
    };
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(token) {
        return wrong("is no name of a header");
    }
    if !reached {
        return wrong("stands where no chain of properties leads");
    }
    let kind = schema.get("type").and_then(|kind| kind.as_str());
    if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
        return wrong("is at a property that is no string, integer or boolean");
    }
    if !seen.insert(name.to_ascii_lowercase()) {
        return wrong("stands twice (case does not count)");
    }
    if seen.len() > MAX_FIELDS {
        return wrong(&format!(
            "is one too many: a call repeats {MAX_FIELDS} arguments at most"
        ));
    }
    Ok(())
}

/// A value in the form that a header field may have.
fn encode(value: &str) -> String {
    let plain = value
        .bytes()
        .all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let padded = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    let like_encoded = value.starts_with("=?base64?") && value.ends_with("?=");
    match plain && !padded && !like_encoded {
        true => value.to_owned(),
        false => format!("=?base64?{}?=", STANDARD.encode(value)),
    }
}

/// Compares a value of the body with the value of its field, which may be encoded if
/// `may_be_encoded`.
fn compare_text(
    name: &str,
    value: &str,
    said: Option<&[u8]>,
    may_be_encoded: bool,
) -> Result<(), RpcError> {
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

/// The decoded value of a field: plain text, or Base64 of UTF-8 between markers.
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
        Ok(text) if text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e)) => {
            Ok(Cow::Borrowed(text))
        }
        _ => Err(bad(
            "has a character that stands in no header: encode it as =?base64?…?=",
        )),
    }
}

/// True if two texts are the same whole number: 42 is 42.0.
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
    mismatch(format!(
        "the header {name} says \"{said}\", the body \"{value}\""
    ))
}

fn mismatch(what: String) -> RpcError {
    RpcError::new(HEADER_MISMATCH, format!("header mismatch: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::json;

    #[test]
    fn a_definition_does_not_become_many_times_larger_than_it_is() {
        let annotated = |at: usize, name: &str| {
            format!(r#""p{at}":{{"type":"string","x-mcp-header":"{name}{at}"}}"#)
        };
        let many: Vec<String> = (0..2000).map(|at| annotated(at, "N")).collect();
        let tool = |properties: &str| {
            format!(r#"{{"name":"t","inputSchema":{{"properties":{{{properties}}}}}}}"#)
        };
        let flat = tool(&many.join(","));
        assert_eq!(MirroredArgument::of_tool(json(&flat)).len(), MAX_FIELDS);
        assert!(
            MirroredArgument::check_tool(json(&flat))
                .unwrap_err()
                .contains("one too many")
        );
        // One long key above all arguments is part of the path of each.
        let long = "k".repeat(1 << 16);
        let below = tool(&format!(
            r#""{long}":{{"properties":{{{}}}}}"#,
            many.join(",")
        ));
        assert!(MirroredArgument::of_tool(json(&below)).is_empty());
        let named = tool(&annotated(0, &long));
        assert!(
            MirroredArgument::of_tool(json(&named)).is_empty()
                && MirroredArgument::check_tool(json(&named)).is_err()
        );
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
            (
                "tools/list",
                with(""),
                vec![("mcp-method", "tools/list")],
                false,
            ),
            (
                "tools/list",
                with(""),
                vec![version, ("mcp-method", "Tools/List")],
                false,
            ),
            (
                "tools/list",
                with(""),
                vec![
                    ("mcp-protocol-version", "2025-11-25"),
                    ("mcp-method", "tools/list"),
                ],
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
            (
                "tools/call",
                with(r#","name":"a""#),
                vec![version, call],
                false,
            ),
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
                vec![
                    version,
                    ("mcp-method", "resources/read"),
                    ("mcp-name", "x:y"),
                ],
                true,
            ),
            (
                "resources/read",
                with(r#","uri":"x:y""#),
                vec![
                    version,
                    ("mcp-method", "resources/read"),
                    ("mcp-name", "x:z"),
                ],
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
        let mirrored = MirroredArgument::of_tool(json(definition));
        let fields: Vec<_> = mirrored.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(
            fields,
            ["mcp-param-region", "mcp-param-zone", "mcp-param-dry"]
        );
        let check = |which: usize, arguments: &str, said: Option<&str>| {
            let one = &mirrored[which];
            one.compare(Some(json(arguments)), |_| said.map(str::as_bytes))
                .is_ok()
        };
        for (which, arguments, said, good) in [
            (0, r#"{"region":"us-west1"}"#, Some("us-west1"), true),
            (0, r#"{"region":"us-west1"}"#, Some("us-east1"), false),
            (0, r#"{"region":"us-west1"}"#, None, false),
            (
                0,
                r#"{"region":"Hello"}"#,
                Some("=?base64?SGVsbG8=?="),
                true,
            ),
            (
                0,
                r#"{"region":"Hello"}"#,
                Some("=?base64?SGVsbG8?="),
                false,
            ),
            (
                0,
                r#"{"region":"Hello"}"#,
                Some("=?base64?SGVs!!!bG8=?="),
                false,
            ),
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
        assert!(MirroredArgument::of_tool(json("{}")).is_empty());
    }

    #[test]
    fn what_a_request_says_in_fields_is_what_is_compared() {
        let tool = json(
            r#"{"inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"},
            "deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},
            "off":{"type":"boolean","x-mcp-header":"Off"},"no":{"type":"string","x-mcp-header":"No"}}}}"#,
        );
        assert_eq!(MirroredArgument::check_tool(tool), Ok(()));
        let mirrored = MirroredArgument::of_tool(tool);
        for (region, field) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            let params = format!(
                r#"{{"name":"t","arguments":{{"region":"{region}","deep":{{"n":42}},"off":false,"no":null}},{META}}}"#
            );
            let fields = request_fields("tools/call", Some(json(&params)), &mirrored);
            let get = |name: &str| {
                fields
                    .iter()
                    .find(|(field, _)| field == name)
                    .map(|(_, value)| value.as_str())
            };
            assert_eq!(get("mcp-param-region"), Some(field));
            assert_eq!(
                (get("mcp-param-n"), get("mcp-param-off")),
                (Some("42"), Some("false"))
            );
            assert_eq!((get("mcp-name"), get("mcp-param-no")), (Some("t"), None));
            let field = |name: &str| get(name).map(str::as_bytes);
            assert_eq!(
                compare_request("tools/call", Some(json(&params)), field),
                Ok(())
            );
            for mirrored in &mirrored {
                assert_eq!(
                    mirrored.compare(json(&params).get("arguments"), field),
                    Ok(())
                );
            }
        }
    }

    #[test]
    fn a_tool_that_mirrors_what_it_may_not_is_refused() {
        let at = |schema: &str| {
            MirroredArgument::check_tool(json(&format!(r#"{{"inputSchema":{schema}}}"#)))
        };
        let property =
            |annotated: &str| at(&format!(r#"{{"properties":{{"a":{{{annotated}}}}}}}"#));
        assert_eq!(
            property(r#""type":"string","x-mcp-header":"A-b_1""#),
            Ok(())
        );
        // A property's name, a value and an example are no annotations.
        assert_eq!(
            at(
                r#"{"properties":{"x-mcp-header":{"type":"string"}},"default":{"x-mcp-header":""}}"#
            ),
            Ok(())
        );
        for (annotated, why) in [
            (
                r#""type":"string","x-mcp-header":"""#,
                "no name of a header",
            ),
            (
                r#""type":"string","x-mcp-header":"a b""#,
                "no name of a header",
            ),
            (
                r#""type":"string","x-mcp-header":"a\r\nb""#,
                "no name of a header",
            ),
            (
                r#""type":"string","x-mcp-header":"ä""#,
                "no name of a header",
            ),
            (r#""type":"string","x-mcp-header":7"#, "no string"),
            (
                r#""type":"number","x-mcp-header":"A""#,
                "no string, integer or boolean",
            ),
            (
                r#""type":"object","x-mcp-header":"A""#,
                "no string, integer or boolean",
            ),
            (
                r#""type":["string","null"],"x-mcp-header":"A""#,
                "no string, integer or boolean",
            ),
            (r#""x-mcp-header":"A""#, "no string, integer or boolean"),
            (
                r#""type":"array","items":{"type":"string","x-mcp-header":"A"}"#,
                "no chain",
            ),
            (
                r#""anyOf":[{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}]"#,
                "no chain",
            ),
        ] {
            assert!(
                property(annotated).unwrap_err().contains(why),
                "{annotated}"
            );
        }
        for (schema, why) in [
            (r#"{"type":"string","x-mcp-header":"A"}"#, "no chain"),
            (
                r#"{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}"#,
                "no chain",
            ),
            (
                r#"{"if":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}}"#,
                "no chain",
            ),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
                "twice",
            ),
        ] {
            assert!(at(schema).unwrap_err().contains(why), "{schema}");
        }
    }
}
