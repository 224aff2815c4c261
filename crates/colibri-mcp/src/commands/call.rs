//! `colibri-mcp call SERVER TOOL`: calls a tool, shows its progress, prints its answer.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use ratatui::crossterm::terminal::size;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::context::CommandContext;
use super::missing;
use super::signals::on_signals;
use super::tool_list::{OWN, ToolDefinition, exposed, of_server};
use crate::connection::{
    Canceller, DaemonConnection, RequestError, RequestProgress, ToolCallResult, unreadable,
};
use crate::failure::CommandError;
use colibri_protocol::Code;
use colibri_text::{visible, visible_lines};

/// The tool, and its arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct CallToolArguments {
    /// The server's id, as `colibri-mcp status` shows it; `colibri` for Colibri's own tools
    server: String,
    /// The tool's name, as `colibri-mcp tools SERVER` shows it
    tool: String,
    /// Arguments as KEY=VALUE; the tool's schema says what is a number, a boolean or JSON
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// All arguments as one JSON object; `-` reads it from stdin
    #[arg(long, value_name = "JSON", conflicts_with = "pairs")]
    args: Option<String>,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &CallToolArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    cancel_on_signals(connection.canceller()?)?;
    let whole = match &arguments.args {
        Some(text) => Some(json_object(text)?),
        None => None,
    };
    let given = match whole {
        Some(whole) => whole,
        None if arguments.pairs.is_empty() => json_object("{}")?,
        // Text that is no JSON is a string whatever the schema says: nothing is asked, and nothing
        // recorded, for it.
        None if arguments.pairs.iter().all(|pair| is_text(pair)) => {
            typed(&arguments.pairs, &Value::Null)?
        }
        None => {
            let tool = definition(&mut connection, arguments, context)?;
            typed(&arguments.pairs, &tool.input_schema)?
        }
    };
    let mut bar = Bar::new();
    let result = call(
        &mut connection,
        &arguments.server,
        &arguments.tool,
        &given,
        &mut |progress| bar.show(progress),
    );
    bar.finish();
    let result = result?;
    // Only a hint: a hosted server can write the same into its own results.
    if result.is_error
        && result.own_code.as_deref() == Some(Code::NoSuchTool.name())
        && let Some(why) =
            missing::tool(&mut connection, &arguments.server, &arguments.tool, context)?
    {
        return Err(why);
    }
    print_result(&result, context)
}

/// Calls one of Colibri's own tools and prints its result, with progress on the way.
pub(super) fn call_own(
    tool: &str,
    given: &RawValue,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let mut connection = context.connect()?;
    cancel_on_signals(connection.canceller()?)?;
    let mut bar = Bar::new();
    let result = call(&mut connection, OWN, tool, given, &mut |progress| {
        bar.show(progress)
    });
    bar.finish();
    print_result(&result?, context)
}

/// Prints a result; one that reports an error is a failure.
fn print_result(result: &ToolCallResult, context: &CommandContext) -> Result<(), CommandError> {
    context.print(&result.raw, || {
        visible_lines(&result.readable())
            .trim_end_matches('\n')
            .to_owned()
    })?;
    if result.is_error {
        Err(CommandError::ToolError)
    } else {
        Ok(())
    }
}

/// Calls a tool of a server, or one of Colibri's own.
pub(crate) fn call(
    connection: &mut DaemonConnection,
    server: &str,
    tool: &str,
    arguments: &RawValue,
    on_progress: &mut dyn FnMut(&RequestProgress),
) -> Result<ToolCallResult, RequestError> {
    if server == OWN {
        return connection.call_tool(tool, arguments, on_progress);
    }
    #[derive(Serialize)]
    struct Outer<'a> {
        server: &'a str,
        tool: &'a str,
        arguments: &'a RawValue,
    }
    let outer = to_raw_value(&Outer {
        server,
        tool,
        arguments,
    })
    .map_err(|error| unreadable("tools/call", error))?;
    connection.call_tool("colibri_external_mcp_call_tool", &outer, on_progress)
}

/// A tool's definition. A name that is not there fails with the reason.
fn definition(
    connection: &mut DaemonConnection,
    arguments: &CallToolArguments,
    context: &CommandContext,
) -> Result<ToolDefinition, CommandError> {
    let CallToolArguments { server, tool, .. } = arguments;
    let listed = if server == OWN {
        exposed(connection, true)
    } else {
        of_server(connection, server)
    };
    let otherwise = match listed {
        Ok((tools, _)) => match tools.into_iter().find(|listed| listed.name == *tool) {
            Some(found) => return Ok(found),
            None => CommandError::Machine(format!(
                "the tools of {server} changed just now: call again"
            )),
        },
        // So it is said of a server that is not there; what is asked next says more.
        Err(error @ RequestError::Tool(_)) => error.into(),
        Err(error) => return Err(error.into()),
    };
    Err(missing::tool(connection, server, tool, context)?.unwrap_or(otherwise))
}

/// The text of `--args`, which must be an object.
fn json_object(text: &str) -> Result<Box<RawValue>, CommandError> {
    let mut piped = String::new();
    let text = if text == "-" {
        io::stdin()
            .read_to_string(&mut piped)
            .map_err(|error| CommandError::Usage(format!("--args -: {error}")))?;
        piped.as_str()
    } else {
        text
    };
    let raw = RawValue::from_string(text.trim().to_owned())
        .map_err(|error| CommandError::Usage(format!("--args is not JSON: {error}")))?;
    // One line a message: JSON may hold newlines only outside of strings, where they mean nothing.
    let raw = if raw.get().contains(['\n', '\r']) {
        RawValue::from_string(raw.get().replace(['\n', '\r'], " "))
            .map_err(|error| CommandError::Usage(error.to_string()))?
    } else {
        raw
    };
    if raw.get().starts_with('{') {
        Ok(raw)
    } else {
        Err(CommandError::Usage(
            "--args must be a JSON object".to_owned(),
        ))
    }
}

/// `KEY=VALUE` pairs as an object. Numbers keep their digits: they are never parsed into a float.
fn typed(pairs: &[String], schema: &Value) -> Result<Box<RawValue>, CommandError> {
    let mut object = BTreeMap::new();
    for pair in pairs {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            CommandError::Usage(format!("{pair:?} is not KEY=VALUE (for JSON, use --args)"))
        })?;
        let types = types(&schema["properties"][key]);
        let value = typed_value(value, &types).ok_or_else(|| {
            let types = types.join(" or ");
            CommandError::Usage(format!("{key}={value:?}: the tool's schema wants {types}"))
        })?;
        if object.insert(key, value).is_some() {
            return Err(CommandError::Usage(format!(
                "{key} is given twice; a list is written {key}='[1,2]'"
            )));
        }
    }
    to_raw_value(&object).map_err(|error| CommandError::Usage(error.to_string()))
}

/// True if the value of a pair can be nothing but a string. Without a value it is wrong, which
/// needs no schema either.
fn is_text(pair: &str) -> bool {
    pair.split_once('=')
        .is_none_or(|(_, value)| serde_json::from_str::<serde::de::IgnoredAny>(value).is_err())
}

/// The JSON types that a property's schema allows, as far as `type`, `anyOf`, `oneOf`, `const` and
/// `enum` say.
fn types(schema: &Value) -> Vec<String> {
    let mut found = match &schema["type"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many
            .iter()
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    };
    for key in ["anyOf", "oneOf"] {
        if let Some(alternatives) = schema[key].as_array() {
            found.extend(alternatives.iter().flat_map(types));
        }
    }
    if found.is_empty() {
        let values = schema["enum"]
            .as_array()
            .cloned()
            .or_else(|| schema.get("const").map(|value| vec![value.clone()]));
        found.extend(values.unwrap_or_default().iter().map(|value| {
            let name = match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            name.to_owned()
        }));
    }
    found
}

/// A value as the narrowest of the allowed types that it fits; a string where the schema says
/// nothing.
fn typed_value(text: &str, types: &[String]) -> Option<Box<RawValue>> {
    let allows = |name: &str| types.iter().any(|one| one == name);
    let string = || to_raw_value(text).ok();
    let raw = RawValue::from_string(text.to_owned())
        .ok()
        .filter(|raw| raw.get() == text);
    let fitting = raw.filter(|raw| match raw.get().as_bytes()[0] {
        b't' | b'f' => allows("boolean"),
        b'n' => allows("null"),
        b'{' => allows("object"),
        b'[' => allows("array"),
        b'"' => false,
        _ => allows("number") || allows("integer") && !text.contains(['.', 'e', 'E']),
    });
    match fitting {
        Some(raw) => Some(raw),
        None if types.is_empty() || allows("string") => string(),
        None => None,
    }
}

/// From now on SIGINT and SIGTERM cancel the call at the server and end this process with 128 and
/// the signal's number.
fn cancel_on_signals(mut canceller: Canceller) -> Result<(), CommandError> {
    on_signals(&[Signal::SIGINT, Signal::SIGTERM], move |signal| {
        // If the daemon is gone there is nothing left to cancel.
        let _ = canceller.cancel();
        eprintln!("\ncolibri-mcp: cancelled");
        std::process::exit(128 + signal as i32);
    })
}

/// A progress bar on stderr, once there is progress and if somebody can see it.
struct Bar {
    visible: bool,
    drawn: Option<Instant>,
}

/// Characters of the bar.
const STEPS: usize = 30;
/// The shortest interval between two drawings.
const PAUSE: Duration = Duration::from_millis(50);

impl Bar {
    fn new() -> Bar {
        Bar {
            visible: io::stderr().is_terminal(),
            drawn: None,
        }
    }

    fn show(&mut self, progress: &RequestProgress) {
        // Whole, and also where nobody can see a bar: whoever waits should know for what.
        if let (Some(_), Some(message)) = (&progress.meta.approval, &progress.message) {
            self.finish();
            eprintln!("colibri-mcp: {}", visible(message));
            return;
        }
        if !self.visible || self.drawn.is_some_and(|drawn| drawn.elapsed() < PAUSE) {
            return;
        }
        self.drawn = Some(Instant::now());
        let bar = format!(
            "[{:-<STEPS$}] {}",
            "#".repeat(position(progress)),
            message(progress)
        );
        // A line that is broken could not be erased again.
        let columns = size().map_or(80, |(columns, _)| usize::from(columns));
        Bar::write(
            &bar.chars()
                .take(columns.saturating_sub(1))
                .collect::<String>(),
        );
    }

    fn finish(&self) {
        if self.drawn.is_some() {
            Bar::write("");
        }
    }

    /// Writes over the line (ECMA-48: CR, EL). Who does not read it misses nothing that matters.
    fn write(text: &str) {
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }
}

/// The position of the bar; its start if the tool does not say how much there is to do.
fn position(progress: &RequestProgress) -> usize {
    let share = progress
        .total
        .filter(|total| *total > 0.0)
        .map_or(0.0, |total| progress.progress / total);
    (share.clamp(0.0, 1.0) * STEPS as f64) as usize
}

fn message(progress: &RequestProgress) -> String {
    let mut text = match progress.total {
        Some(total) => format!("{}/{total}", progress.progress),
        None => progress.progress.to_string(),
    };
    if let Some(message) = &progress.message {
        text.push(' ');
        text.extend(visible(message).chars().take(40));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn typed_text(pairs: &[&str], schema: Value) -> Result<String, String> {
        let pairs: Vec<_> = pairs.iter().map(|pair| pair.to_string()).collect();
        typed(&pairs, &schema)
            .map(|raw| raw.get().to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn only_what_could_be_json_needs_the_schema() {
        for (pair, text) in [
            ("a=hello", true),
            ("a=", true),
            ("a=1x", true),
            ("a", true),
            ("a=1", false),
            ("a=true", false),
            ("a={}", false),
        ] {
            assert_eq!(is_text(pair), text, "{pair}");
        }
    }

    #[test]
    fn values_are_typed_by_the_schema() {
        let schema = json!({"properties": {
            "n": {"type": "integer"}, "f": {"type": "number"}, "b": {"type": "boolean"}, "s": {"type": "string"},
            "o": {"type": ["object", "null"]}, "a": {"type": "array"}, "e": {"enum": [1, 2]},
            "m": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "u": {}}});
        let pairs = [
            "n=123456789012345678901234567890",
            "f=1.50",
            "b=true",
            "s=12",
            "o={\"x\":1}",
            "a=[1,\"2\"]",
            "e=2",
            "m=null",
            "u=7",
            "other==a=b",
        ];
        let expected = concat!(
            r#"{"a":[1,"2"],"b":true,"e":2,"f":1.50,"m":null,"n":123456789012345678901234567890,"#,
            r#""o":{"x":1},"other":"=a=b","s":"12","u":"7"}"#
        );
        assert_eq!(typed_text(&pairs, schema).unwrap(), expected);
    }

    #[test]
    fn values_that_do_not_fit_are_refused_with_the_type() {
        let schema = json!({"properties": {"n": {"type": "integer"}, "b": {"type": "boolean"}}});
        for (pair, word) in [
            ("n=x", "integer"),
            ("n=1.5", "integer"),
            ("n=", "integer"),
            ("b=yes", "boolean"),
            ("n", "KEY=VALUE"),
        ] {
            let error = typed_text(&[pair], schema.clone()).unwrap_err();
            assert!(error.contains(word), "{pair}: {error}");
        }
        assert!(
            typed_text(&["b=true", "b=false"], schema)
                .unwrap_err()
                .contains("twice")
        );
    }

    #[test]
    fn whole_arguments_are_an_object_on_one_line() {
        assert_eq!(
            json_object("{\n \"a\": \"b\\n\"\n}").unwrap().get(),
            "{  \"a\": \"b\\n\" }"
        );
        assert!(json_object("[1]").is_err());
        assert!(json_object("{").is_err());
    }

    #[test]
    fn progress_beyond_its_bounds_moves_nothing_beyond_the_bar() {
        let at = |progress, total| {
            position(&RequestProgress {
                progress,
                total,
                ..RequestProgress::default()
            })
        };
        assert_eq!(
            (at(2.0, Some(4.0)), at(9.0, Some(3.0)), at(-1.0, Some(3.0))),
            (15, STEPS, 0)
        );
        assert_eq!(
            (at(5.0, None), at(1.0, Some(0.0)), at(f64::NAN, Some(1.0))),
            (0, 0, 0)
        );
        let odd = RequestProgress {
            progress: 1.0,
            message: Some(format!("\x1b]0;x\x07{}", "y".repeat(999))),
            ..RequestProgress::default()
        };
        assert!(message(&odd).starts_with("1 \\u{1b}") && message(&odd).len() < 60);
    }
}
