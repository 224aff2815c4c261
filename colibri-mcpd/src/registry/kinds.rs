//! Kinds of events: tables from the shape of a line that an agent writes to what it says of the
//! agent's state. The known ones stand in `kinds.json`; an entry may have one of its own, in the
//! same form.

use std::sync::{Arc, LazyLock};

use colibri_api::AgentState;
use colibri_json::{Document, DocumentError, ValueCursor};

use colibri_text::Pattern;

/// The tables of the agents that are known.
const TABLES: &str = include_str!("kinds.json");

static KNOWN: LazyLock<Vec<(String, Arc<AgentKind>)>> = LazyLock::new(|| {
    let tables = Document::parse(TABLES.as_bytes(), "kinds.json").and_then(|document| {
        let members = document.root().members()?;
        let read = members
            .iter()
            .map(|of| Ok((of.key.to_owned(), Arc::new(table(&of.value)?))));
        read.collect()
    });
    tables.unwrap_or_default()
});

/// The keys of a table that name a state, as they are asked: the gravest first.
const STATES: [(&str, AgentState); 5] = [
    ("error", AgentState::Error),
    ("done", AgentState::Done),
    ("blocked", AgentState::Blocked),
    ("working", AgentState::Working),
    ("idle", AgentState::Idle),
];
/// Shapes of one state in a table of an entry.
const MAX_SHAPES: usize = 64;

/// The meaning of the lines of one kind of agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentKind {
    /// The places of the agent's own name of its session: the first of these that is there, in the
    /// first line that has a shape of the table.
    pub session_id: Vec<Path>,
    /// The places of an error's reason, likewise.
    pub reason: Vec<Path>,
    /// The meaning of a line of this shape; the first that fits counts.
    pub shapes: Vec<(LineShape, AgentState)>,
}

/// Keys from the top of a line to a value.
pub type Path = Vec<String>;

/// The required members of a line of this shape.
#[derive(Debug, Clone, PartialEq)]
pub struct LineShape(pub Vec<(Path, MemberPattern)>);

/// The required form of one member.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberPattern {
    /// Text that fits a pattern.
    Text(Pattern),
    /// Yes or no.
    Flag(bool),
}

/// Reads the value of `events`: the name of a known table, or a table.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub(super) fn events(cursor: &ValueCursor<'_>) -> Result<Arc<AgentKind>, DocumentError> {
    if !cursor.is_string() {
        return table(cursor).map(Arc::new);
    }
    let name = cursor.text()?;
    match KNOWN.iter().find(|(known, _)| known == name) {
        Some((_, kind)) => Ok(kind.clone()),
        None => {
            let names: Vec<_> = KNOWN.iter().map(|(name, _)| name.as_str()).collect();
            Err(cursor.error(format!(
                "must be one of {}, or a table of its own",
                names.join(", ")
            )))
        }
    }
}

fn table(cursor: &ValueCursor<'_>) -> Result<AgentKind, DocumentError> {
    let keys = cursor.object(&[
        "session_id",
        "reason",
        "idle",
        "working",
        "blocked",
        "done",
        "error",
    ])?;
    let paths = |list: &ValueCursor<'_>| {
        list.array()?
            .iter()
            .map(|item| path(item, item.text()?))
            .collect()
    };
    let mut kind = AgentKind {
        session_id: keys.read("session_id", paths)?.unwrap_or_default(),
        reason: keys.read("reason", paths)?.unwrap_or_default(),
        shapes: Vec::new(),
    };
    for (key, state) in STATES {
        let Some(list) = keys.get(key) else { continue };
        let shapes = list.array()?;
        if shapes.len() > MAX_SHAPES {
            return Err(list.error(format!("has over {MAX_SHAPES} shapes")));
        }
        for item in shapes {
            kind.shapes.push((shape(&item)?, state));
        }
    }
    Ok(kind)
}

fn shape(cursor: &ValueCursor<'_>) -> Result<LineShape, DocumentError> {
    let members = cursor.members()?;
    if members.is_empty() {
        return Err(
            cursor.error("a shape without members fits every line: name what the line must have")
        );
    }
    let read = members.iter().map(|member| {
        let wanted = match member.value.is_string() {
            true => MemberPattern::Text(Pattern::new(member.value.text()?)),
            false => MemberPattern::Flag(member.value.boolean()?),
        };
        Ok((path(&member.value, member.key)?, wanted))
    });
    read.collect::<Result<_, _>>().map(LineShape)
}

/// `error.message` is the member `message` of the member `error`.
fn path(cursor: &ValueCursor<'_>, text: &str) -> Result<Path, DocumentError> {
    let keys: Path = text.split('.').map(str::to_owned).collect();
    if keys.len() > 8 || keys.iter().any(String::is_empty) {
        return Err(cursor.error("must be names of members, at most 8, with a dot between them"));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Arc<AgentKind>, String> {
        let document = Document::parse(text.as_bytes(), "f").unwrap();
        events(&document.root()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_known_tables_are_read() {
        let names: Vec<_> = KNOWN.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["claude", "codex", "gemini", "opencode", "pi", "zot"]
        );
        for (name, kind) in KNOWN.iter() {
            assert!(
                kind.shapes.len() > 4 && !kind.session_id.is_empty(),
                "{name}"
            );
            assert_eq!(&read(&format!("\"{name}\"")).unwrap(), kind);
        }
    }

    #[test]
    fn an_entry_may_have_a_table_of_its_own() {
        let kind = read(
            r#"{"session_id":["run"],"working":[{"kind":"step_*","a.b":true}],"done":[{"kind":"end"}]}"#,
        );
        let kind = kind.unwrap();
        assert_eq!(kind.session_id, [["run"]]);
        assert_eq!(kind.shapes[0].1, AgentState::Done);
        let (shape, state) = &kind.shapes[1];
        assert_eq!(*state, AgentState::Working);
        assert_eq!(shape.0[0].1, MemberPattern::Text(Pattern::new("step_*")));
        assert_eq!(
            shape.0[1],
            (
                vec!["a".to_owned(), "b".to_owned()],
                MemberPattern::Flag(true)
            )
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, wanted) in [
            ("\"cloude\"", "claude"),
            (r#"{"don":[]}"#, "done"),
            (r#"{"done":[{}]}"#, "fits every line"),
            (r#"{"done":[{"type":1}]}"#, "true or false"),
            (r#"{"done":[{"a..b":"x"}]}"#, "dot between"),
            (r#"{"done":{}}"#, "array"),
            ("3", "object"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
