//! The tools that may change something: patterns on server and tool, with the values that arguments
//! may have.

use colibri_api::{MayCalls, MayPattern};
use colibri_json::{DocumentError, ValueCursor, nearest};
use colibri_registry::value::unique;
use colibri_text::Pattern;
use colibri_wire::Json;
use colibri_wire::json::JsonKind;
use serde_json::Value;

/// The most bytes of a pattern.
const MAX_PATTERN: usize = 256;
/// The most bytes of a value of an argument.
const MAX_VALUE: usize = 1024;
/// The most characters of a list in a message.
const MAX_SHOWN: usize = 200;

/// A list of the tools that may change something; what it does not name waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct MayList {
    patterns: Vec<MayPattern>,
    compiled: Vec<CompiledPattern>,
}

#[derive(Debug, Clone, PartialEq)]
struct CompiledPattern {
    server: Pattern,
    tool: Pattern,
    arguments: Vec<(String, Vec<Value>)>,
}

/// The names of a file's patterns: of tools of any server, or of one server's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternScope {
    /// `SERVER/TOOL`.
    Servers,
    /// `TOOL`.
    OneServer,
}

impl MayList {
    /// The list of these patterns, which were read by [`MayList::read`] or come from a store that
    /// holds only such.
    pub fn new(patterns: Vec<MayPattern>) -> MayList {
        let compiled = patterns.iter().map(|pattern| {
            let (server, tool) = pattern
                .tool()
                .split_once('/')
                .unwrap_or(("*", pattern.tool()));
            CompiledPattern {
                server: Pattern::new(server),
                tool: Pattern::new(tool),
                arguments: pattern
                    .arguments()
                    .map(|(name, of)| (name.clone(), of.clone()))
                    .collect(),
            }
        });
        MayList {
            compiled: compiled.collect(),
            patterns,
        }
    }

    /// Reads a list of patterns.
    ///
    /// # Errors
    /// No list, a pattern twice, one that names no server and tool, an argument with values that
    /// are no scalars.
    pub fn read(cursor: &ValueCursor<'_>, scope: PatternScope) -> Result<MayList, DocumentError> {
        Ok(MayList::new(unique(cursor, |item| pattern(item, scope))?))
    }

    /// The patterns as they were written.
    pub fn patterns(&self) -> &[MayPattern] {
        &self.patterns
    }

    /// True if a tool may change something with these arguments, which are JSON text. Of two
    /// members with one name both must have an allowed value.
    pub(crate) fn allows(&self, server: &str, tool: &str, arguments: &[u8]) -> bool {
        let arguments = Json::part(arguments, 0..arguments.len());
        let fits = |pattern: &&CompiledPattern| pattern.names(server, tool);
        let has = |pattern: &CompiledPattern| {
            let mut needed = pattern.arguments.iter();
            needed.all(|(name, values)| {
                arguments.is_some_and(|arguments| has_only(arguments, name, values))
            })
        };
        self.compiled.iter().filter(fits).any(has)
    }

    /// True if a pattern names a tool, with whatever arguments.
    pub fn names(&self, server: &str, tool: &str) -> bool {
        self.compiled
            .iter()
            .any(|pattern| pattern.names(server, tool))
    }

    /// The first pattern that fits none of these tools, each as `SERVER/TOOL`, and the nearest of
    /// them.
    pub fn unfit<'p>(&'p self, tools: &[String]) -> Option<(&'p str, Option<String>)> {
        let known = |pattern: &CompiledPattern| {
            let mut split = tools.iter().filter_map(|tool| tool.split_once('/'));
            split.any(|(server, tool)| pattern.names(server, tool))
        };
        let (unfit, _) = self
            .patterns
            .iter()
            .zip(&self.compiled)
            .find(|(_, pattern)| !known(pattern))?;
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        Some((
            unfit.tool(),
            nearest(unfit.tool(), &tools).map(str::to_owned),
        ))
    }

    /// The list in a sentence: `mail/send_*, files/write`.
    pub(crate) fn shown(&self) -> String {
        if self.patterns.is_empty() {
            return "nothing".to_owned();
        }
        let patterns: Vec<String> = self.patterns.iter().map(MayPattern::to_string).collect();
        colibri_text::brief(&patterns.join(", "), MAX_SHOWN)
    }
}

impl CompiledPattern {
    fn names(&self, server: &str, tool: &str) -> bool {
        self.server.matches(server) && self.tool.matches(tool)
    }
}

/// True if an argument has only these values; none of them: it must be left out.
fn has_only(arguments: Json<'_>, name: &str, values: &[Value]) -> bool {
    let given = || {
        arguments
            .members()
            .filter(|member| member.key.is_string(name))
    };
    let is_missing = given().all(|member| member.value.kind() == JsonKind::Null);
    match is_missing {
        true => values.is_empty(),
        false => given().all(|member| is_one_of(member.value, values)),
    }
}

fn is_one_of(given: Json<'_>, values: &[Value]) -> bool {
    match given.kind() {
        JsonKind::Array => given.elements().all(|element| is_one_of(element, values)),
        JsonKind::String => values.iter().filter_map(Value::as_str).any(|value| {
            let given = given.as_str();
            given.is_some_and(|given| Pattern::new(value).matches(&given))
        }),
        JsonKind::Object | JsonKind::Null => false,
        _ => serde_json::from_str::<Value>(given.text()).is_ok_and(|given| values.contains(&given)),
    }
}

fn pattern(cursor: &ValueCursor<'_>, scope: PatternScope) -> Result<MayPattern, DocumentError> {
    if !cursor.is_object() {
        return tool(cursor, scope).map(MayPattern::Tools);
    }
    let keys = cursor.object(&["tool", "where"])?;
    let mut calls = MayCalls {
        tool: tool(keys.need("tool")?, scope)?,
        arguments: std::collections::BTreeMap::new(),
    };
    for argument in keys.need("where")?.members()? {
        let values = unique(&argument.value, value)?;
        calls.arguments.insert(argument.key.to_owned(), values);
    }
    match calls.arguments.is_empty() {
        true => Err(keys
            .need("where")?
            .error("names no argument; write the tool alone instead")),
        false => Ok(MayPattern::Calls(calls)),
    }
}

fn tool(cursor: &ValueCursor<'_>, scope: PatternScope) -> Result<String, DocumentError> {
    let text = cursor.text()?;
    if text.len() > MAX_PATTERN || text.chars().any(char::is_control) {
        return Err(cursor.error("a pattern must have 1 to 256 bytes, and no control character"));
    }
    let of_server =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'*');
    let is_legal = match (scope, text.split_once('/')) {
        (PatternScope::Servers, Some((server, tool))) => {
            !server.is_empty() && server.bytes().all(of_server) && !tool.is_empty()
        }
        (PatternScope::Servers, None) => false,
        (PatternScope::OneServer, _) => !text.is_empty(),
    };
    match (is_legal, scope) {
        (true, PatternScope::Servers) => Ok(text.to_owned()),
        // A server's own tool may have a slash in its name.
        (true, PatternScope::OneServer) => Ok(format!("*/{text}")),
        (false, _) => Err(cursor.error(
            "must be SERVER/TOOL, each a name or a pattern with *, for example mail/send_*",
        )),
    }
}

fn value(cursor: &ValueCursor<'_>) -> Result<Value, DocumentError> {
    if cursor.is_string() {
        return match cursor.string()? {
            text if text.len() > MAX_VALUE => {
                Err(cursor.error("a value must have at most 1,024 bytes"))
            }
            text => Ok(Value::from(text)),
        };
    }
    match serde_json::from_slice(cursor.raw()) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value),
        _ => Err(cursor.error("must be a string, a number, true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_json::Document;

    fn read(text: &str) -> Result<MayList, String> {
        let text = format!("{{\"may\":{text}}}");
        let document = Document::parse(text.as_bytes(), "m").unwrap();
        let keys = document.root().object(&["may"]).unwrap();
        MayList::read(keys.get("may").unwrap(), PatternScope::Servers)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_servers_and_tools() {
        let may = read(r#"["mail/send_*","git*/commit"]"#).unwrap();
        for (server, tool, allowed) in [
            ("mail", "send_email", true),
            ("mail", "delete_email", false),
            ("mail2", "send_email", false),
            ("github", "commit", true),
            ("github", "commit/all", false),
        ] {
            assert_eq!(may.allows(server, tool, b"{}"), allowed, "{server}/{tool}");
        }
        assert!(!read("[]").unwrap().allows("mail", "send", b"{}"));
        assert_eq!(may.shown(), "mail/send_*, git*/commit");
        assert_eq!(read("[]").unwrap().shown(), "nothing");
    }

    #[test]
    fn arguments_have_only_the_values_that_are_named() {
        let may = read(
            r#"[{"tool":"mail/send","where":{"to":["a@example.org","*@example.com"],"cc":[],"n":[1],"now":[true]}}]"#,
        )
        .unwrap();
        let given = |to: &str| format!(r#"{{"to":{to},"n":1,"now":true}}"#);
        for to in [
            r#""a@example.org""#,
            r#"["b@example.com","\u0061@example.org"]"#,
            "[]",
            r#"["a@example.org"],"cc":null"#,
        ] {
            assert!(may.allows("mail", "send", given(to).as_bytes()), "{to}");
        }
        for to in [
            r#""b@example.org""#,
            r#"["a@example.org","b@example.org"]"#,
            r#""a@example.org","to":"b@example.org""#,
            r#""a@example.org","cc":"a@example.org""#,
            r#"{"x":"a@example.org"}"#,
            r#"["a@example.org",null]"#,
            "null",
            "1",
        ] {
            assert!(!may.allows("mail", "send", given(to).as_bytes()), "{to}");
        }
        for arguments in [
            r#"{"to":"a@example.org","n":1}"#,
            r#"{"to":"a@example.org","n":"1","now":true}"#,
            r#"{"to":"a@example.org","n":2,"now":true}"#,
            "[]",
            "",
        ] {
            assert!(
                !may.allows("mail", "send", arguments.as_bytes()),
                "{arguments}"
            );
        }
    }

    #[test]
    fn a_pattern_that_fits_nothing_is_named_with_the_nearest_tool() {
        let tools = ["mail/send_email".to_owned(), "files/write".to_owned()];
        let unfit = |text: &str| {
            let may = read(text).unwrap();
            may.unfit(&tools)
                .map(|(pattern, near)| (pattern.to_owned(), near))
        };
        assert_eq!(unfit(r#"["mail/*","*/write"]"#), None);
        assert_eq!(
            unfit(r#"["mail/*","mail/sned_email"]"#),
            Some((
                "mail/sned_email".to_owned(),
                Some("mail/send_email".to_owned())
            ))
        );
        assert_eq!(
            unfit(r#"["browser/click_at_once"]"#),
            Some(("browser/click_at_once".to_owned(), None))
        );
    }

    #[test]
    fn mistakes_are_named_in_their_place() {
        for (text, wanted) in [
            (r#"["send"]"#, "SERVER/TOOL"),
            (r#"["Mail/send"]"#, "SERVER/TOOL"),
            (r#"["mail/"]"#, "SERVER/TOOL"),
            (r#"["mail/a","mail/a"]"#, "twice"),
            (r#"{"mail":"a"}"#, "array"),
            (r#"[{"tool":"mail/a"}]"#, "where"),
            (r#"[{"tool":"mail/a","where":{}}]"#, "names no argument"),
            (r#"[{"tool":"mail/a","where":{"x":"y"}}]"#, "array"),
            (
                r#"[{"tool":"mail/a","where":{"x":[{}]}}]"#,
                "a string, a number",
            ),
            (r#"[{"tool":"mail/a","were":{}}]"#, "where"),
        ] {
            let error = read(text).unwrap_err();
            assert!(
                error.contains(wanted) && error.contains("may"),
                "{text}: {error}"
            );
        }
    }
}
