//! Labels of a server's tools, as its entry has them: which of them only read, what their results
//! are, and which arguments say where something goes.

use std::sync::Arc;

use colibri_json::{DocumentError, Object, ValueCursor, nearest};
use colibri_registry::value::unique;
use colibri_text::{Pattern, brief};
use colibri_wire::Json;

/// The most arguments of one tool that are destinations.
const MAX_ARGUMENTS: usize = 32;

/// The labels of one entry: `reads`, `flow` and `sinks`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlowLabels {
    reads: Vec<Label>,
    untrusted: Vec<Label>,
    private: Vec<Label>,
    sinks: Vec<(Label, Vec<String>)>,
    /// True if the entry says anything of results or destinations.
    is_labelled: bool,
}

/// A pattern on tools, and its place in the file.
#[derive(Debug, Clone)]
struct Label {
    pattern: Pattern,
    place: Arc<DocumentError>,
}

/// Where it stands makes no other label of it: an entry that moved in its file is the same.
impl PartialEq for Label {
    fn eq(&self, other: &Label) -> bool {
        self.pattern == other.pattern
    }
}

/// The labels of one tool of an entry that has any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolLabels {
    /// True if others may have written what it returns.
    pub untrusted: bool,
    /// True if what it returns is not for everybody.
    pub private: bool,
    /// The arguments that say where something goes.
    pub sinks: Vec<String>,
}

impl FlowLabels {
    /// Reads `reads`, `flow` and `sinks` of an entry.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn read(keys: &Object<'_>) -> Result<FlowLabels, DocumentError> {
        let list = |keys: &Object<'_>, key: &str| {
            let list = keys.read(key, |list| unique(list, label))?;
            Ok(list.unwrap_or_default())
        };
        let mut labels = FlowLabels {
            reads: list(keys, "reads")?,
            is_labelled: keys.get("flow").is_some() || keys.get("sinks").is_some(),
            ..FlowLabels::default()
        };
        if let Some(flow) = keys.get("flow") {
            let flow = flow.object(&["untrusted", "private"])?;
            labels.untrusted = list(&flow, "untrusted")?;
            labels.private = list(&flow, "private")?;
        }
        if let Some(sinks) = keys.get("sinks") {
            for sink in sinks.members()? {
                let arguments = unique(&sink.value, argument)?;
                if arguments.is_empty() || arguments.len() > MAX_ARGUMENTS {
                    return Err(sink.value.error("must name 1 to 32 arguments of the tool"));
                }
                let pattern = pattern(sink.key).ok_or_else(|| sink.key_error(WRONG_PATTERN))?;
                let place = Arc::new(sink.key_error(String::new()));
                labels.sinks.push((Label { pattern, place }, arguments));
            }
        }
        Ok(labels)
    }

    /// True if the entry says anything of results or destinations.
    pub fn is_labelled(&self) -> bool {
        self.is_labelled
    }

    /// True if a tool is listed as one that only reads.
    pub fn reads(&self, tool: &str) -> bool {
        fits(&self.reads, tool)
    }

    /// The labels of a tool; `None`: the entry says nothing of results and destinations.
    pub fn of_tool(&self, tool: &str) -> Option<Arc<ToolLabels>> {
        let sinks = self
            .sinks
            .iter()
            .filter(|(label, _)| label.pattern.matches(tool));
        self.is_labelled.then(|| {
            Arc::new(ToolLabels {
                untrusted: fits(&self.untrusted, tool),
                private: fits(&self.private, tool),
                sinks: sinks.flat_map(|(_, arguments)| arguments.clone()).collect(),
            })
        })
    }

    /// The labels of what a server has besides tools: nothing says who wrote it.
    pub fn of_others(&self) -> Option<Arc<ToolLabels>> {
        self.is_labelled.then(|| {
            Arc::new(ToolLabels {
                untrusted: true,
                private: !self.private.is_empty(),
                sinks: Vec::new(),
            })
        })
    }

    /// The first label that is about no tool of the server, or about no argument of it. `tools` are
    /// their names and definitions.
    pub fn unfit<'d>(
        &self,
        tools: impl Iterator<Item = (&'d str, &'d [u8])> + Clone,
    ) -> Option<DocumentError> {
        let of_tools = [&self.reads, &self.untrusted, &self.private]
            .into_iter()
            .flatten();
        let labels = of_tools.map(|label| (label, &[][..]));
        let sinks = self
            .sinks
            .iter()
            .map(|(label, arguments)| (label, &arguments[..]));
        labels.chain(sinks).find_map(|(label, arguments)| {
            let mut fitting = tools
                .clone()
                .filter(|(name, _)| label.pattern.matches(name))
                .peekable();
            if fitting.peek().is_none() {
                let names: Vec<&str> = tools.clone().map(|(name, _)| name).collect();
                let why = format!("{} is no tool of this server", label.pattern);
                return Some(label.error(why, nearest(label.pattern.as_str(), &names)));
            }
            let known: Vec<String> = fitting
                .filter_map(|(_, definition)| properties(definition))
                .flatten()
                .collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let unknown = arguments
                .iter()
                .find(|argument| !known.contains(&argument.as_str()))?;
            let why = format!(
                "{} has no argument \"{}\"",
                label.pattern,
                brief(unknown, 40)
            );
            Some(label.error(why, nearest(unknown, &known)))
        })
    }
}

impl Label {
    fn error(&self, why: String, near: Option<&str>) -> DocumentError {
        let near = near.map(|near| format!("; did you mean \"{}\"?", brief(near, 80)));
        DocumentError {
            message: format!("{why}{}", near.unwrap_or_default()),
            ..(*self.place).clone()
        }
    }
}

/// The names of a tool's arguments.
fn properties(definition: &[u8]) -> Option<Vec<String>> {
    let schema = Json::part(definition, 0..definition.len())?.get("inputSchema")?;
    let names = schema.get("properties")?.members();
    Some(
        names
            .filter_map(|member| Some(member.key.as_str()?.into_owned()))
            .collect(),
    )
}

fn fits(labels: &[Label], tool: &str) -> bool {
    labels.iter().any(|label| label.pattern.matches(tool))
}

const WRONG_PATTERN: &str = "a pattern must have 1 to 256 bytes, and no control character";

fn pattern(text: &str) -> Option<Pattern> {
    let is_legal = (1..=256).contains(&text.len()) && !text.chars().any(char::is_control);
    is_legal.then(|| Pattern::new(text))
}

fn label(cursor: &ValueCursor<'_>) -> Result<Label, DocumentError> {
    Ok(Label {
        pattern: pattern(cursor.text()?).ok_or_else(|| cursor.error(WRONG_PATTERN))?,
        place: Arc::new(cursor.error(String::new())),
    })
}

fn argument(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    match cursor.text()? {
        name if (1..=128).contains(&name.len()) => Ok(name.to_owned()),
        _ => Err(cursor.error("an argument's name must have 1 to 128 bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_json::Document;

    fn read(text: &str) -> Result<FlowLabels, String> {
        let document = Document::parse(text.as_bytes(), "r.json").unwrap();
        let keys = document.root().object(&["reads", "flow", "sinks"]).unwrap();
        FlowLabels::read(&keys).map_err(|error| error.to_string())
    }

    const TOOLS: [(&str, &[u8]); 2] = [
        ("read_inbox", br#"{"inputSchema":{"properties":{"n":{}}}}"#),
        (
            "send_email",
            br#"{"inputSchema":{"properties":{"recipients":{},"cc":{}}}}"#,
        ),
    ];

    #[test]
    fn labels_are_of_tools_by_patterns() {
        let labels = read(
            r#"{"reads":["read_*"],"flow":{"untrusted":["read_*"],"private":["*"]},"sinks":{"send_*":["recipients","cc"]}}"#,
        )
        .unwrap();
        assert!(labels.reads("read_inbox") && !labels.reads("send_email"));
        let of = |tool| (*labels.of_tool(tool).unwrap()).clone();
        assert_eq!(
            (of("read_inbox").untrusted, of("read_inbox").private),
            (true, true)
        );
        assert_eq!(
            (of("send_email").untrusted, of("send_email").sinks.len()),
            (false, 2)
        );
        assert_eq!(labels.unfit(TOOLS.into_iter()), None);
        let reads = read(r#"{"reads":["read_*"]}"#).unwrap();
        assert!(reads.of_tool("read_inbox").is_none() && reads.of_others().is_none());
        assert!(labels.of_others().unwrap().untrusted);
    }

    #[test]
    fn a_label_about_nothing_is_named_with_its_place_and_the_nearest() {
        for (text, wanted) in [
            (
                "{\n \"flow\":{\"untrusted\":[\"read_inbx\"]}}",
                "r.json:2:23: flow.untrusted[0]: \"read_inbx\" is no tool of this server; did you mean \"read_inbox\"?",
            ),
            (
                r#"{"sinks":{"send_email":["recipients","ccc"]}}"#,
                "\"send_email\" has no argument \"ccc\"; did you mean \"cc\"?",
            ),
            (
                r#"{"reads":["xylophone"]}"#,
                "\"xylophone\" is no tool of this server",
            ),
        ] {
            let error = read(text)
                .unwrap()
                .unfit(TOOLS.into_iter())
                .unwrap()
                .to_string();
            assert!(
                error.ends_with(wanted) || error.contains(wanted),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, wanted) in [
            (r#"{"flow":["x"]}"#, "object"),
            (r#"{"flow":{"untrustd":[]}}"#, "untrusted"),
            (r#"{"flow":{"untrusted":"x"}}"#, "array"),
            (r#"{"reads":[""]}"#, "pattern"),
            (r#"{"reads":["a","a"]}"#, "twice"),
            (r#"{"sinks":{"a":[]}}"#, "1 to 32"),
            (r#"{"sinks":{"":["a"]}}"#, "pattern"),
            (r#"{"sinks":{"a":"b"}}"#, "array"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
