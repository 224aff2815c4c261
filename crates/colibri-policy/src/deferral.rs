//! Deferred calls of a contract: calls that it refused, or that failed for good.

use colibri_api::PERSON;
use colibri_json::{DocumentError, Object, ValueCursor};
use colibri_protocol::Code;
use colibri_text::{brief, hex};
use sha2::{Digest as _, Sha256};

use super::terms::{self, Pointer};

/// The most fields, codes and capabilities of a task, and characters of its title, a field of it
/// and a capability. A title with its fields is within what the board takes.
const MAX_FIELDS: usize = 4;
const MAX_CODES: usize = 16;
const MAX_CAPABILITIES: usize = 8;
const MAX_TITLE: usize = 80;
const MAX_IN_TITLE: usize = 100;
const MAX_FIELD: usize = 200;
const MAX_CAPABILITY: usize = 64;
/// Bytes of the digest of what a title does not show.
const DIGEST: usize = 6;

/// The task that a call becomes.
#[derive(Debug)]
pub(super) struct TaskTerm {
    title: String,
    /// Names, and places in the arguments.
    fields: Vec<(String, Pointer)>,
    /// The codes with which the call becomes one; none: any.
    codes: Vec<String>,
    capabilities: Vec<String>,
}

/// A task for what a call did not do.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    /// What is to be done, in one line.
    pub title: String,
    /// The described arguments, by name: escaped and cut.
    pub fields: Vec<(String, String)>,
    /// The capabilities that its taker needs.
    pub capabilities: Vec<String>,
}

impl TaskTerm {
    /// Reads it from the term of a tool that is denied, or is not.
    pub(super) fn read(
        cursor: &ValueCursor<'_>,
        is_denied: bool,
    ) -> Result<TaskTerm, DocumentError> {
        let keys = cursor.object(&["title", "fields", "codes", "capabilities"])?;
        let title = keys.need("title")?;
        let codes = match (keys.get("codes"), is_denied) {
            (Some(codes), false) => list(codes, MAX_CODES, code)?,
            (None, true) => Vec::new(),
            (Some(codes), true) => {
                return Err(codes.error("a tool that is denied has one end: leave codes out"));
            }
            (None, false) => {
                return Err(cursor
                    .error("the key \"codes\" is missing: with which failures it becomes a task"));
            }
        };
        Ok(TaskTerm {
            title: short(title, MAX_TITLE)?,
            fields: keys
                .read("fields", |fields| {
                    terms::fields(fields, "the arguments", MAX_FIELDS)
                })?
                .unwrap_or_default(),
            codes,
            capabilities: capabilities(&keys)?,
        })
    }

    /// True if a call that ends with this code becomes a task.
    pub(super) fn takes(&self, code: &str) -> bool {
        self.codes.is_empty() || self.names(code)
    }

    /// True if the contract lists this code.
    pub(super) fn names(&self, code: &str) -> bool {
        self.codes.iter().any(|taken| taken == code)
    }

    /// The task of a call; `field` says what the arguments have at a place.
    pub(super) fn left(&self, field: impl Fn(&Pointer) -> Option<String>) -> Left {
        let of_call = self.fields.iter();
        let (names, values): (Vec<&String>, Vec<String>) = of_call
            .filter_map(|(name, place)| Some((name, field(place)?)))
            .unzip();
        let fields: Vec<(String, String)> = names
            .into_iter()
            .zip(&values)
            .map(|(name, value)| (name.clone(), brief(value, MAX_FIELD)))
            .collect();
        let title = match fields.is_empty() {
            true => self.title.clone(),
            false => format!("{} ({})", self.title, in_title(&fields, &values)),
        };
        Left {
            title,
            fields,
            capabilities: self.capabilities.clone(),
        }
    }
}

/// Fields as a title shows them. Where it does not show all, a digest of the whole `values` stands
/// for the rest: calls that differ in that alone are not one task.
fn in_title(fields: &[(String, String)], values: &[String]) -> String {
    let all: Vec<&str> = fields.iter().map(|(_, value)| value.as_str()).collect();
    let all = all.join(", ");
    let shown = brief(&all, MAX_IN_TITLE);
    if all.chars().count() <= MAX_IN_TITLE {
        return shown;
    }
    let digest = Sha256::digest(serde_json::Value::from(values).to_string());
    format!("{shown} {}", hex(&digest[..DIGEST]))
}

fn capabilities(keys: &Object<'_>) -> Result<Vec<String>, DocumentError> {
    let capability = |cursor: &ValueCursor<'_>| short(cursor, MAX_CAPABILITY);
    let said = keys.read("capabilities", |said| {
        list(said, MAX_CAPABILITIES, capability)
    })?;
    Ok(said.unwrap_or_else(|| vec![PERSON.to_owned()]))
}

/// A list that is not empty, of at most so many.
fn list(
    cursor: &ValueCursor<'_>,
    most: usize,
    read: impl Fn(&ValueCursor<'_>) -> Result<String, DocumentError>,
) -> Result<Vec<String>, DocumentError> {
    let items = cursor.array()?;
    if !(1..=most).contains(&items.len()) {
        return Err(cursor.error(format!("must have 1 to {most} elements")));
    }
    items.iter().map(read).collect()
}

fn short(cursor: &ValueCursor<'_>, most: usize) -> Result<String, DocumentError> {
    match cursor.text()? {
        text if text.trim().is_empty() || text.chars().count() > most => {
            Err(cursor.error(format!("must have 1 to {most} characters")))
        }
        text => Ok(text.to_owned()),
    }
}

/// A code of an integration's own, or one of ours with which a call ends that the contract was
/// asked about.
fn code(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let text = cursor.text()?;
    if !terms::is_code(text) {
        return Err(cursor.error(
            "a failure's code begins with A-Z and is of A-Z, 0-9 and _, like MODEL_FAILED",
        ));
    }
    let ours = Code::ALL.iter().find(|code| code.name() == text);
    match ours.is_none_or(|code| code.row().number >= 300 || ENDS.contains(code)) {
        true => Ok(text.to_owned()),
        false => {
            Err(cursor.error("no call ends with this code that the contract let pass, or refused"))
        }
    }
}

/// The codes of ours that a contract brings about.
const ENDS: [Code; 2] = [Code::ContractDenied, Code::ResultRefused];

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_json::Document;

    fn read(text: &str, is_denied: bool) -> Result<TaskTerm, DocumentError> {
        TaskTerm::read(
            &Document::parse(text.as_bytes(), "c.json").unwrap().root(),
            is_denied,
        )
    }

    #[test]
    fn a_task_is_for_a_person_unless_the_contract_says_otherwise() {
        let pushed = read(
            r#"{"title":"Push it","fields":{"branch":"/branch","of":"/of"}}"#,
            true,
        )
        .unwrap();
        assert!(pushed.takes("CONTRACT_DENIED"));
        let long = "x".repeat(300);
        let left = pushed
            .left(|place| (place == &Pointer::parse("/branch").unwrap()).then(|| long.clone()));
        let shown = format!("Push it ({}… ", "x".repeat(100));
        assert!(
            left.title.starts_with(&shown) && left.title.len() == shown.len() + 13,
            "{}",
            left.title
        );
        // What a title does not show is of the task all the same, be it cut out of a field too.
        for (one, other) in [(99, 100), (100, 101), (150, 151), (250, 251), (300, 301)] {
            let title = |end: &str| {
                let values = [format!("{}{end}", "\u{1}".repeat(one)), "a".repeat(other)];
                let of =
                    |place: &Pointer| usize::from(place != &Pointer::parse("/branch").unwrap());
                pushed.left(|place| Some(values[of(place)].clone())).title
            };
            assert!(
                title("a") != title("b") && title("a") == title("a"),
                "{one}"
            );
            assert_eq!(title("a").chars().count(), 124, "{}", title("a"));
        }
        assert_eq!(
            left.fields,
            [("branch".to_owned(), format!("{}…", "x".repeat(200)))]
        );
        assert_eq!(left.capabilities, ["person"]);
        let text = r#"{"title":"Ask again","codes":["MODEL_FAILED","SERVER_DIED"],"capabilities":["net","ops"]}"#;
        let failed = read(text, false).unwrap();
        assert_eq!(
            ["MODEL_FAILED", "SERVER_DIED", "MODEL_BUSY"].map(|code| failed.takes(code)),
            [true, true, false]
        );
        let left = failed.left(|_| None);
        assert_eq!(
            (&*left.title, left.capabilities),
            ("Ask again", vec!["net".to_owned(), "ops".to_owned()])
        );
    }

    #[test]
    fn what_is_said_wrongly_of_a_task_is_named_in_its_place() {
        let long = |key: &str, count| {
            format!(
                r#"{{"title":"t","codes":["A"],"{key}":"{}"}}"#,
                "x".repeat(count)
            )
        };
        for (text, is_denied, place) in [
            (r#"{"title":"t"}"#, false, ""),
            (r#"{"codes":["A"]}"#, false, ""),
            (r#"{"title":"t","codes":["A"]}"#, true, "codes"),
            (r#"{"title":"t","codes":[]}"#, false, "codes"),
            (r#"{"title":"t","codes":["a"]}"#, false, "codes[0]"),
            (
                r#"{"title":"t","codes":["A","POLICY_DENIED"]}"#,
                false,
                "codes[1]",
            ),
            (
                r#"{"title":"t","codes":["RESULT_TOO_LARGE"]}"#,
                false,
                "codes[0]",
            ),
            (
                r#"{"title":"t","codes":["A"],"capabilities":[]}"#,
                false,
                "capabilities",
            ),
            (
                r#"{"title":"t","codes":["A"],"capabilities":[" "]}"#,
                false,
                "capabilities[0]",
            ),
            (r#"{"title":" ","codes":["A"]}"#, false, "title"),
            (r#"{"title":"a\u001b","codes":["A"]}"#, false, "title"),
            (
                r#"{"title":"t","fields":{"call":"/a"}}"#,
                true,
                "fields.call",
            ),
            (
                r#"{"title":"t","fields":{"a":"/a","b":"/a","c":"/a","d":"/a","e":"/a"}}"#,
                true,
                "fields",
            ),
            (r#"{"title":"t","field":{}}"#, true, "field"),
            (&long("titel", 1), false, "titel"),
        ] {
            let error = read(text, is_denied).unwrap_err();
            assert_eq!(error.path, place, "{text}: {error}");
        }
        assert!(read(&format!(r#"{{"title":"{}"}}"#, "x".repeat(80)), true).is_ok());
        assert!(read(&format!(r#"{{"title":"{}"}}"#, "x".repeat(81)), true).is_err());
    }
}
