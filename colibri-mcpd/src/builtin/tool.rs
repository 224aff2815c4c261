//! A tool of Colibri itself: its definition, and the rules that the relay keeps for its calls.

use bytes::Bytes;
use colibri_api::schema::of_arguments;
use colibri_protocol::lists::definition_edits;
use colibri_protocol::{Failure, Feature, Version};
use colibri_wire::Json;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::arguments::read;
use super::context::BuiltinContext;
use super::summary::ToolOutcome;
use crate::relay::{ConfirmRule, FreeUse};
use colibri_policy::Gate;

/// The keywords of a schema that only bound a value.
const BOUNDS: [&str; 8] = [
    "additionalProperties",
    "maxItems",
    "maxLength",
    "maximum",
    "minLength",
    "minimum",
    "pattern",
    "uniqueItems",
];

/// The hints that are as a client takes them where they are not given (schema.ts, ToolAnnotations), but for the one that
/// has it ask.
const DEFAULT_HINTS: [(&str, bool); 3] = [
    ("idempotentHint", false),
    ("openWorldHint", true),
    ("readOnlyHint", false),
];

/// A tool that the daemon answers itself. The type holds the arguments of a call.
pub(super) trait BuiltinTool: DeserializeOwned + JsonSchema {
    /// The tool's name.
    const NAME: &'static str;
    /// The title that clients show.
    const TITLE: &'static str;
    /// The description that models read.
    const DESCRIPTION: &'static str;
    /// The effect of a call.
    const ACCESS: Access;
    /// The rules that the relay keeps for its calls.
    const RULES: BuiltinRules = BuiltinRules::STORED;
    /// The schema of the structured content; `None`: it answers with other people's words alone.
    const ANSWER_SCHEMA: Option<fn() -> Value>;

    /// Answers a call. The gate was checked before.
    ///
    /// # Errors
    /// Why it is not carried out.
    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure>;
}

/// The effect of a tool on the world; decides gate and annotations.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// Looks only.
    Read,
    /// Adds something.
    Add,
    /// Takes or gives up a task; agents may, for tasks of their own.
    Work,
    /// Replaces a setting; twice is the same as once.
    Set,
    /// Does whatever an external tool does.
    External,
}

/// The rules that the relay keeps for the calls of a tool.
#[derive(Debug, Clone, Copy)]
pub struct BuiltinRules {
    /// The slots among which a call waits for its own.
    pub slots: ToolSlots,
    /// The use of it where no budget is left, or nothing can be recorded.
    pub free: FreeUse,
    /// The bound of its answers.
    pub bound: AnswerBound,
    /// The calls of it that a person has to allow first.
    pub confirm: Option<ConfirmRule>,
    /// True if it is listed to a client that finds tools instead of being listed them.
    pub always_listed: bool,
}

/// The slots among which a call waits for its own: one user does not have all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolSlots {
    /// It waits for the disk on a thread, of which there are few.
    Disk,
    /// All tools of all servers may have to be looked at, and servers that were never seen started.
    Catalog,
    /// It reads a stored result, which may take a while and some memory.
    Results,
}

/// The bound of a tool's answers by the caller's cost mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerBound {
    /// There is none.
    Never,
    /// Those to an agent whose budget is spent: a tool that is free for it is no way around its budget.
    WithoutBudget,
    /// All of them.
    Always,
}

impl BuiltinRules {
    /// Those of a tool that reads or changes the store.
    pub(super) const STORED: BuiltinRules = BuiltinRules {
        slots: ToolSlots::Disk,
        free: FreeUse {
            by_agents: false,
            by_people: true,
            unrecorded: false,
        },
        bound: AnswerBound::Never,
        confirm: None,
        always_listed: false,
    };

    /// Those of a tool that looks at the tools of all servers.
    pub(super) const CATALOG: BuiltinRules = BuiltinRules {
        slots: ToolSlots::Catalog,
        ..BuiltinRules::STORED
    };

    /// Those of a tool that brings what servers answered.
    pub(super) const READING_RESULTS: BuiltinRules = BuiltinRules {
        slots: ToolSlots::Results,
        free: FreeUse {
            by_agents: false,
            by_people: false,
            unrecorded: false,
        },
        ..BuiltinRules::STORED
    };

    /// The same, free for an agent whose budget is spent: it can end its task, and see how it stands.
    pub(super) const fn free_for_agents(mut self) -> BuiltinRules {
        self.free.by_agents = true;
        self
    }

    /// The same, answered where nothing can be recorded.
    pub(super) const fn unrecorded(mut self) -> BuiltinRules {
        self.free.unrecorded = true;
        self
    }

    /// The same, listed to a client that finds tools instead of being listed them.
    pub(super) const fn always_listed(mut self) -> BuiltinRules {
        self.always_listed = true;
        self
    }

    /// The same with bounded answers.
    pub(super) const fn bounded(mut self, bound: AnswerBound) -> BuiltinRules {
        self.bound = bound;
        self
    }
}

/// The room that answers the call of a tool.
#[derive(Debug, Clone, Copy)]
pub enum BuiltinRoute {
    /// The tool's own file.
    Here(fn(Option<&[u8]>, &BuiltinContext<'_>) -> Result<ToolOutcome, Failure>),
    /// The relay, after `parse_external_call`.
    Relay,
    /// Whoever answers for the tool that it names, after `parse_named_call`.
    Named,
    /// The room `scripts/`, after `parse_run_script`.
    Script,
}

/// One entry of `tools/list`.
#[derive(Debug)]
pub struct BuiltinDefinition {
    /// The tool's name.
    pub name: &'static str,
    /// The gate that its calls need. It is listed while the gate is closed, too.
    pub gate: Gate,
    /// The gate that its calls need at an agent socket; `None`: no agent has it.
    pub at_door: Option<Gate>,
    /// The room that answers its calls.
    pub route: BuiltinRoute,
    /// The rules that the relay keeps for its calls.
    pub rules: BuiltinRules,
    /// The entry's raw JSON, on one line.
    pub json: Box<[u8]>,
    /// The same without what is said of the answer.
    brief: Value,
}

impl BuiltinDefinition {
    /// The definition of a tool that the daemon answers itself.
    pub(super) fn of<T: BuiltinTool>() -> BuiltinDefinition {
        let (schema, route) = (
            T::ANSWER_SCHEMA.map(|schema| schema()),
            BuiltinRoute::Here(answer::<T>),
        );
        let texts = [T::NAME, T::TITLE, T::DESCRIPTION];
        BuiltinDefinition::new(
            texts,
            (route, T::ACCESS, T::RULES),
            of_arguments::<T>(),
            schema,
        )
    }

    /// A definition with this name, title and description.
    pub(super) fn new(
        [name, title, description]: [&'static str; 3],
        (route, access, rules): (BuiltinRoute, Access, BuiltinRules),
        mut input: Value,
        output: Option<Value>,
    ) -> BuiltinDefinition {
        let (gate, annotations) = access.gate();
        let properties = input.get_mut("properties").and_then(Value::as_object_mut);
        // An argument that may be left out is not null.
        for property in properties.into_iter().flat_map(serde_json::Map::values_mut) {
            if let Some(property) = property.as_object_mut() {
                property.retain(|word, value| word != "default" || !value.is_null());
            }
        }
        let mut json = json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": input,
            "annotations": annotations,
        });
        let brief = brief(json.clone());
        if let Some(output) = output {
            json["outputSchema"] = output;
        }
        BuiltinDefinition {
            name,
            gate,
            at_door: match access {
                Access::Read | Access::External => Some(gate),
                Access::Work => Some(Gate::None),
                Access::Add | Access::Set => None,
            },
            route,
            rules,
            json: json.to_string().into_bytes().into_boxed_slice(),
            brief,
        }
    }

    /// The entry for a client of this version.
    pub fn listed(&self, version: Version) -> Bytes {
        for_version(&self.json, version)
    }

    /// The same without what is said of the answer, which is most of it, and with more in its description.
    pub(crate) fn listed_briefly(&self, version: Version, more: &str) -> Bytes {
        let mut brief = self.brief.clone();
        let description = brief["description"].as_str().unwrap_or_default();
        brief["description"] = json!(format!("{description}{more}"));
        for_version(brief.to_string().as_bytes(), version)
    }
}

/// A definition without what a model can do without: the bounds of arguments, which the error for a value beyond them
/// names, hints that have their default, and a second name of the tool.
fn brief(mut definition: Value) -> Value {
    if let Some(members) = definition.as_object_mut() {
        members.remove("title");
    }
    without_bounds(&mut definition["inputSchema"]);
    if let Some(hints) = definition["annotations"].as_object_mut() {
        hints.retain(|hint, value| !DEFAULT_HINTS.contains(&(hint, value == true)));
    }
    definition
}

fn without_bounds(schema: &mut Value) {
    let Some(words) = schema.as_object_mut() else {
        return;
    };
    words.retain(|word, _| !BOUNDS.contains(&word.as_str()));
    if let Some(items) = words.get_mut("items") {
        without_bounds(items);
    }
    if let Some(properties) = words.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(without_bounds);
    }
}

/// A definition in our newest version for a client of this version.
fn for_version(raw: &[u8], version: Version) -> Bytes {
    let json = Json::part(raw, 0..raw.len());
    let edits =
        json.map(|json| definition_edits(Feature::Tool, json, (Version::LATEST, version), None));
    Bytes::from(edits.unwrap_or_default().apply(raw))
}

impl Access {
    /// The gate in front of a tool, and the annotations of its definition.
    fn gate(self) -> (Gate, Value) {
        match self {
            Access::Read => (
                Gate::None,
                json!({"readOnlyHint": true, "openWorldHint": false}),
            ),
            Access::Add | Access::Work => (
                Gate::Write,
                json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": false, "openWorldHint": false}),
            ),
            Access::Set => (
                Gate::Write,
                json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false}),
            ),
            Access::External => (
                Gate::External,
                json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true}),
            ),
        }
    }
}

fn answer<T: BuiltinTool>(
    arguments: Option<&[u8]>,
    context: &BuiltinContext<'_>,
) -> Result<ToolOutcome, Failure> {
    read::<T>(arguments)?.answer(context)
}
