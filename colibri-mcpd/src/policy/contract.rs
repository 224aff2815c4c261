//! Contracts: what the operator narrows the tools of a server to, in a file of their own.
//!
//! A contract is a closed list. A tool that it does not name is refused, an argument that it does not name is refused,
//! a keyword that would not be applied is an error of the file, and arguments that two readers could see differently
//! are refused whatever the contract says.

use std::collections::BTreeMap;
use std::path::Path;

use colibri_json::{Cursor, Document};
use serde_json::{Map, Value};

use super::file::{self, FileError};
use super::schema::{Fit, Schema, every_keyword_applies};
use super::strict_json::{Exact, Inexact};
use colibri_protocol::{Code, Failure};
use colibri_text::visible;

/// The contract of one server.
#[derive(Debug)]
pub struct Contract {
    file: String,
    tools: BTreeMap<String, Term>,
    others: Term,
    /// `None`: the contract says nothing of prompts.
    prompts: Option<BTreeMap<String, Term>>,
}

#[derive(Debug)]
enum Term {
    Allow,
    Deny { reason: String },
    When { schema: Box<Schema>, reason: String },
}

impl Contract {
    /// Reads the contract at `path`.
    ///
    /// # Errors
    /// A missing (an entry that names a contract must not run without it), unsafe or unreadable file, or wrong
    /// contents.
    pub fn read(path: &Path) -> Result<Contract, FileError> {
        let found = file::read(path, colibri_json::MAX_BYTES, false)?.ok_or_else(|| FileError::Read {
            path: path.to_owned(),
            error: std::io::Error::from_raw_os_error(libc::ENOENT),
        })?;
        Ok(Contract::parse(&found.content, &path.to_string_lossy())?)
    }

    /// Reads the contents of a contract; `file` is the name that errors and refusals give.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place; schemas that cannot be applied within bounds among it.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Contract, colibri_json::Error> {
        let document = Document::parse(bytes, file)?;
        let root = document.root().object(&["about", "tools", "others", "prompts"])?;
        root.read("about", Cursor::string)?;
        let others = match root.get("others") {
            None => Term::Deny {
                reason: "the contract does not name this tool".to_owned(),
            },
            Some(others) => term(others)?,
        };
        Ok(Contract {
            file: file.to_owned(),
            tools: terms(root.need("tools")?)?,
            others,
            prompts: root.read("prompts", terms)?,
        })
    }

    /// Whether the contract lets a call of a tool, by its server's own name for it, pass.
    ///
    /// # Errors
    /// [`Code::ContractDenied`] with the contract's reason, the place in the arguments, and the place in the file.
    pub fn check(&self, server: &str, tool: &str, arguments: Result<&Exact, &Inexact>) -> Result<(), Failure> {
        let (term, place) = match self.tools.get(tool) {
            Some(term) => (term, format!("{}: tools.{}", self.file, visible(tool))),
            None => (&self.others, format!("{}: others", self.file)),
        };
        apply(server, term, place, arguments)
    }

    /// Whether the contract lets a prompt, by its server's own name for it, be had with these arguments, which are JSON
    /// text that was validated. Where it says something of prompts, that is a closed list as well.
    ///
    /// # Errors
    /// As [`Contract::check`].
    pub fn check_prompt(&self, server: &str, prompt: &str, arguments: &[u8]) -> Result<(), Failure> {
        let Some(prompts) = &self.prompts else { return Ok(()) };
        let place = format!("{}: prompts.{}", self.file, visible(prompt));
        let unnamed = Term::Deny {
            reason: "the contract does not name this prompt".to_owned(),
        };
        let term = prompts.get(prompt).unwrap_or(&unnamed);
        apply(server, term, place, Exact::read(arguments).as_ref())
    }
}

/// Whether a term lets a call pass; `place` is where it stands.
fn apply(server: &str, term: &Term, place: String, arguments: Result<&Exact, &Inexact>) -> Result<(), Failure> {
    let denied = |why: String, advice: &str| {
        Err(Failure::new(Code::ContractDenied, why)
            .of_server(server)
            .by_rule(place.clone())
            .advising(advice))
    };
    let exact = match arguments {
        Ok(exact) => exact,
        Err(inexact) => {
            return denied(
                format!("the contract of this server cannot be checked: the arguments have {inexact}"),
                "write the arguments so that every reader reads the same, then call again",
            );
        }
    };
    if let Some(at) = exact.ambiguous() {
        return denied(
            format!("the arguments have two keys at {at} that some readers take for one"),
            "give each argument once, then call again",
        );
    }
    match term {
        Term::Allow => Ok(()),
        Term::Deny { reason } => denied(
            reason.clone(),
            &format!("do not repeat the call; the contract does not allow it ({place})"),
        ),
        Term::When { schema, reason } => match schema.check(exact) {
            Fit::Fits => Ok(()),
            Fit::Unfit(why) => denied(
                format!("{reason} ({why})"),
                &format!("stay within the contract ({place}): correct the arguments as the message says"),
            ),
            Fit::TooCostly => denied(
                format!("{reason} (the arguments are too large or too deep to be checked)"),
                "call with less",
            ),
        },
    }
}

fn terms(cursor: &Cursor<'_>) -> Result<BTreeMap<String, Term>, colibri_json::Error> {
    let members = cursor.members()?.into_iter();
    members
        .map(|member| Ok((member.key.to_owned(), term(&member.value)?)))
        .collect()
}

fn term(cursor: &Cursor<'_>) -> Result<Term, colibri_json::Error> {
    let keys = cursor.object(&["allow", "deny", "when", "reason"])?;
    let reason = |key: &str| {
        let value = keys.need(key)?;
        match value.text()? {
            text if text.trim().is_empty() || text.len() > 500 => {
                Err(value.error("a reason must have 1 to 500 bytes: it is what the refused caller reads"))
            }
            text => Ok(text.to_owned()),
        }
    };
    match (keys.get("allow"), keys.get("deny"), keys.get("when")) {
        (Some(_), None, None) if keys.get("reason").is_none() => reason("allow").map(|_| Term::Allow),
        (None, Some(_), None) if keys.get("reason").is_none() => Ok(Term::Deny {
            reason: reason("deny")?,
        }),
        (None, None, Some(when)) => Ok(Term::When {
            schema: Box::new(schema(when)?),
            reason: reason("reason")?,
        }),
        _ => Err(cursor.error(
            "must have one of: \"allow\": REASON, \"deny\": REASON, or \"when\": SCHEMA with \"reason\": REASON",
        )),
    }
}

fn schema(cursor: &Cursor<'_>) -> Result<Schema, colibri_json::Error> {
    cursor.members()?;
    let read = Exact::read(cursor.raw()).map_err(|inexact| cursor.error(format!("the schema has {inexact}")))?;
    every_keyword_applies(&read.value).map_err(|error| cursor.error(error.to_string()))?;
    let mut value = read.value;
    if let Value::Object(top) = &mut value {
        // What has no properties takes no arguments.
        top.entry("type").or_insert_with(|| "object".into());
        top.entry("properties").or_insert_with(|| Map::new().into());
    }
    close(&mut value);
    Schema::build(value).map_err(|error| cursor.error(error.to_string()))
}

/// Closes every object with listed properties against others, unless it says something of them itself. Branches
/// (`anyOf` and the like) speak of the same value as the schema around them and are left alone.
fn close(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    let says = map.contains_key("additionalProperties") || map.contains_key("unevaluatedProperties");
    if map.contains_key("properties") && !says {
        map.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for (key, value) in map {
        match (key.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(members)) => members.values_mut().for_each(close),
            ("prefixItems", Value::Array(items)) => items.iter_mut().for_each(close),
            ("items" | "contains" | "additionalProperties", inner) => close(inner),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(text: &str) -> Contract {
        Contract::parse(text.as_bytes(), "c.json").unwrap()
    }

    fn call(contract: &Contract, tool: &str, arguments: &str) -> Result<(), Failure> {
        let read = Exact::read(arguments.as_bytes());
        contract.check("s", tool, read.as_ref())
    }

    #[test]
    fn a_contract_that_speaks_of_prompts_is_a_closed_list_of_them_too() {
        let silent = contract(r#"{"tools":{}}"#);
        assert!(silent.check_prompt("s", "any", b"{}").is_ok());
        let contract = contract(
            r#"{"tools":{},"prompts":{"free":{"allow":"it only reads"},
              "review":{"when":{"properties":{"file":{"pattern":"^src/"}}},"reason":"sources alone"}}}"#,
        );
        let check = |prompt: &str, arguments: &str| contract.check_prompt("s", prompt, arguments.as_bytes());
        assert!(check("free", r#"{"a":"b"}"#).is_ok() && check("review", r#"{"file":"src/a"}"#).is_ok());
        for (prompt, arguments, place) in [
            ("review", r#"{"file":"/etc/passwd"}"#, "c.json: prompts.review"),
            ("review", r#"{"other":"x"}"#, "c.json: prompts.review"),
            ("review", r#"{"file":"src/a","file":"/etc"}"#, "c.json: prompts.review"),
            ("unnamed", "{}", "c.json: prompts.unnamed"),
        ] {
            let failure = check(prompt, arguments).unwrap_err();
            assert_eq!(
                (failure.code, failure.rule.as_deref()),
                (Code::ContractDenied, Some(place))
            );
        }
    }

    #[test]
    fn a_contract_is_a_closed_list() {
        let contract = contract(
            r#"{"about":"x","tools":{
              "free":{"allow":"reading is harmless"},
              "push":{"deny":"pushing is for people"},
              "write":{"reason":"only below /work","when":{"required":["path"],
                 "properties":{"path":{"type":"string","pattern":"^/work/"},"o":{"properties":{"k":{"type":"integer"}}}}}},
              "none":{"reason":"takes nothing","when":{}}}}"#,
        );
        assert!(call(&contract, "free", r#"{"anything":1}"#).is_ok());
        let failure = call(&contract, "push", "{}").unwrap_err();
        assert_eq!(failure.code, Code::ContractDenied);
        assert_eq!(failure.message, "pushing is for people");
        assert_eq!(
            (failure.rule.as_deref(), failure.server.as_deref()),
            (Some("c.json: tools.push"), Some("s"))
        );
        assert!(call(&contract, "write", r#"{"path":"/work/a","o":{"k":1}}"#).is_ok());
        for bad in [
            r#"{"path":"/etc/passwd"}"#,
            r#"{}"#,
            r#"{"path":"/work/a","Path":"/etc"}"#,
            r#"{"path":"/work/a","force":true}"#,
            r#"{"path":"/work/a","o":{"k":1,"l":2}}"#,
            r#"{"path":["/work/a"]}"#,
            r#"{"path":"/work/a","path":"/etc"}"#,
            r#"{"path":"/work/\ud800"}"#,
        ] {
            let failure = call(&contract, "write", bad).unwrap_err();
            assert_eq!(failure.code, Code::ContractDenied, "{bad}");
            assert_eq!(failure.rule.as_deref(), Some("c.json: tools.write"));
        }
        let failure = call(&contract, "write", r#"{"path":"/etc/x"}"#).unwrap_err();
        assert!(failure.message.starts_with("only below /work (/path: "), "{failure}");
        assert!(call(&contract, "none", "{}").is_ok() && call(&contract, "none", r#"{"a":1}"#).is_err());
        let failure = call(&contract, "Free", "{}").unwrap_err();
        assert_eq!(failure.rule.as_deref(), Some("c.json: others"));
    }

    #[test]
    fn what_readers_could_see_differently_is_refused_even_where_all_is_allowed() {
        let contract = contract(r#"{"tools":{},"others":{"allow":"a harmless server"}}"#);
        assert!(call(&contract, "x", r#"{"a":1}"#).is_ok());
        for bad in [r#"{"a":1,"a":2}"#, r#"{"a":1,"A":2}"#, r#"{"n":1e999}"#, r#"[1]"#] {
            assert!(call(&contract, "x", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mistakes_are_named_in_their_place() {
        for (text, place, message) in [
            ("{}", "", "\"tools\" is missing"),
            (r#"{"tool":{}}"#, "tool", "did you mean \"tools\"?"),
            (r#"{"tools":{"a":{}}}"#, "tools.a", "must have one of"),
            (
                r#"{"tools":{"a":{"allow":"x","deny":"y"}}}"#,
                "tools.a",
                "must have one of",
            ),
            (
                r#"{"tools":{"a":{"allow":"x","reason":"y"}}}"#,
                "tools.a",
                "must have one of",
            ),
            (r#"{"tools":{"a":{"allow":true}}}"#, "tools.a.allow", "must be a string"),
            (r#"{"tools":{"a":{"deny":" "}}}"#, "tools.a.deny", "a reason"),
            (r#"{"tools":{"a":{"when":{}}}}"#, "tools.a", "\"reason\" is missing"),
            (
                r#"{"tools":{"a":{"when":[],"reason":"x"}}}"#,
                "tools.a.when",
                "must be an object",
            ),
            (
                r#"{"tools":{"a":{"when":{"patern":"x"},"reason":"x"}}}"#,
                "tools.a.when",
                "patern",
            ),
            (
                r#"{"tools":{"a":{"when":{"properties":{"p":{"format":"uri"}}},"reason":"x"}}}"#,
                "tools.a.when",
                "format",
            ),
            (
                r#"{"tools":{"a":{"when":{"properties":{"p":{"pattern":"(?=x)"}}},"reason":"x"}}}"#,
                "tools.a.when",
                "not a schema",
            ),
            (
                r#"{"tools":{"a":{"when":{"$ref":"http://x/"},"reason":"x"}}}"#,
                "tools.a.when",
                "$ref",
            ),
        ] {
            let error = Contract::parse(text.as_bytes(), "c.json").unwrap_err();
            assert_eq!(error.path, place, "{error}");
            assert!(error.message.contains(message), "{error}");
        }
    }

    #[test]
    fn a_contract_that_is_missing_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.json");
        assert!(Contract::read(&path).is_err());
        std::fs::write(&path, r#"{"tools":{}}"#).unwrap();
        assert!(Contract::read(&path).is_ok());
    }

    fn shipped(name: &str) -> Contract {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../etc/contracts")
            .join(name);
        Contract::parse(&std::fs::read(path).unwrap(), name).unwrap()
    }

    fn table(contract: &Contract, allowed: &[(&str, &str)], refused: &[(&str, &str)]) {
        for (tool, arguments) in allowed {
            let answer = call(contract, tool, arguments);
            assert!(answer.is_ok(), "{tool} {arguments}: {answer:?}");
        }
        for (tool, arguments) in refused {
            assert!(call(contract, tool, arguments).is_err(), "{tool} {arguments}");
        }
    }

    #[test]
    fn the_git_contract_keeps_to_feature_branches() {
        let work = r#""path":"/work/trees/login""#;
        let with = |rest: &str| format!("{{{work}{rest}}}");
        table(
            &shipped("git.json"),
            &[
                ("git_status", &with("")),
                ("git_log", &with(r#","maxCount":20"#)),
                ("git_fetch", &with(r#","remote":"origin","prune":false"#)),
                ("git_worktree", &with(r#","mode":"list""#)),
                (
                    "git_worktree",
                    r#"{"path":"/work/repo","mode":"add","worktreePath":"/work/trees/login","branch":"feature/login","commitish":"origin/main"}"#,
                ),
                ("git_branch", &with(r#","mode":"list""#)),
                (
                    "git_branch",
                    &with(r#","mode":"create","branchName":"feature/login-2""#),
                ),
                ("git_checkout", &with(r#","target":"feature/login""#)),
                ("git_add", &with(r#","paths":["src/a.rs"]"#)),
                ("git_commit", &with(r#","message":"Add login""#)),
            ],
            &[
                ("git_push", &with("")),
                ("git_push", &with(r#","force":true"#)),
                ("git_reset", &with(r#","mode":"hard""#)),
                ("git_rebase", &with("")),
                ("git_fetch", &with(r#","remote":"ext::sh -c id""#)),
                ("git_fetch", &with(r#","remote":"--upload-pack=id""#)),
                ("git_fetch", r#"{"path":"/etc"}"#),
                (
                    "git_worktree",
                    &with(r#","mode":"remove","worktreePath":"/work/trees/login","force":true"#),
                ),
                (
                    "git_worktree",
                    r#"{"path":"/work/repo","mode":"add","worktreePath":"/work/trees/../../etc","branch":"feature/x"}"#,
                ),
                (
                    "git_worktree",
                    r#"{"path":"/work/repo","mode":"add","worktreePath":"/work/trees/x","branch":"main"}"#,
                ),
                (
                    "git_worktree",
                    r#"{"path":"/work/repo","mode":"add","worktreePath":"/work/trees/x"}"#,
                ),
                ("git_branch", &with(r#","mode":"delete","branchName":"feature/login""#)),
                ("git_branch", &with(r#","mode":"create","branchName":"main""#)),
                (
                    "git_branch",
                    &with(r#","mode":"create","branchName":"feature/../main""#),
                ),
                (
                    "git_branch",
                    &with(r#","mode":"create","branchName":"feature/x","force":true"#),
                ),
                ("git_branch", &with(r#","mode":"list","force":true"#)),
                ("git_branch", &with(r#","mode":"list","Mode":"delete""#)),
                ("git_checkout", &with(r#","target":"main""#)),
                ("git_checkout", &with(r#","target":"feature/x","force":true"#)),
                ("git_commit", r#"{"path":"/work/repo","message":"on main"}"#),
                ("git_commit", &with(r#","message":"x","amend":true"#)),
                ("git_commit", r#"{"message":"x"}"#),
                ("git_add", &with(r#","paths":["../../etc/passwd"]"#)),
                ("git_add", &with(r#","paths":["--force"]"#)),
                ("git_status", r#"{"path":"/work/trees/login\n"}"#),
                ("git_config", "{}"),
            ],
        );
    }

    #[test]
    fn the_notes_contract_goes_one_way() {
        table(
            &shipped("notes-mirror.json"),
            &[
                ("read_text_file", r#"{"path":"/work/docs/guide/start.md"}"#),
                ("list_directory", r#"{"path":"/work/docs"}"#),
                ("list_directory", r#"{"path":"/work/docs/guide"}"#),
                (
                    "read_multiple_files",
                    r#"{"paths":["/work/docs/a.md","/work/docs/b/c.md"]}"#,
                ),
                ("create_directory", r#"{"path":"/work/vault/mirror/guide"}"#),
                (
                    "write_file",
                    r##"{"path":"/work/vault/mirror/guide/start.md","content":"# Start"}"##,
                ),
            ],
            &[
                ("read_text_file", r#"{"path":"/work/vault/mirror/a.md"}"#),
                ("read_text_file", r#"{"path":"/work/vault/diary.md"}"#),
                ("read_text_file", r#"{"path":"/work/docs/../vault/diary.md"}"#),
                ("read_text_file", r#"{"path":"/work/docs/./a.md"}"#),
                ("read_text_file", r#"{"path":"/work/docs/private/a.md"}"#),
                ("read_text_file", r#"{"path":"/work/docs/guide/PRIVATE/a.md"}"#),
                ("read_text_file", r#"{"path":"/work/docs/.git/config"}"#),
                ("read_text_file", r#"{"path":"/work/docs/server.key"}"#),
                ("read_text_file", r#"{"path":"/work/docs/.env"}"#),
                ("read_text_file", r#"{"path":"/work/docsecrets/a.md"}"#),
                (
                    "read_multiple_files",
                    r#"{"paths":["/work/docs/a.md","/work/vault/diary.md"]}"#,
                ),
                ("list_directory", r#"{"path":"/work/vault"}"#),
                ("write_file", r#"{"path":"/work/docs/a.md","content":"x"}"#),
                ("write_file", r#"{"path":"/work/vault/diary.md","content":"x"}"#),
                (
                    "write_file",
                    r#"{"path":"/work/vault/mirror/.obsidian/plugins/x.js","content":"x"}"#,
                ),
                ("write_file", r#"{"path":"/work/vault/mirror/a.js","content":"x"}"#),
                (
                    "write_file",
                    r#"{"path":"/work/vault/mirror/a.md\u0000.js","content":"x"}"#,
                ),
                ("write_file", r#"{"path":"/work/vault/mirror/a.md"}"#),
                (
                    "move_file",
                    r#"{"source":"/work/docs/a.md","destination":"/work/vault/mirror/a.md"}"#,
                ),
                ("edit_file", r#"{"path":"/work/vault/mirror/a.md","edits":[]}"#),
                ("delete_file", r#"{"path":"/work/vault/mirror/a.md"}"#),
            ],
        );
    }

    #[test]
    fn the_model_contract_caps_and_has_no_system_prompt() {
        let messages = r#""messages":[{"role":"user","content":"hello"}]"#;
        let call = |rest: &str| format!(r#"{{"model":"small-1",{messages}{rest}}}"#);
        let long = format!(
            r#"{{"model":"small-1","max_tokens":10,"messages":[{{"role":"user","content":"{}"}}]}}"#,
            "x".repeat(40_000)
        );
        table(
            &shipped("model-api.json"),
            &[
                ("chat", &call(r#","max_tokens":1024"#)),
                ("chat", &call(r#","max_tokens":1,"temperature":0.2"#)),
                (
                    "chat",
                    r#"{"model":"small-1","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}"#,
                ),
                ("list_models", "{}"),
            ],
            &[
                ("chat", &call("")),
                ("chat", &call(r#","max_tokens":4097"#)),
                ("chat", &call(r#","max_tokens":0"#)),
                ("chat", &call(r#","max_tokens":1e9"#)),
                ("chat", &call(r#","max_tokens":"1""#)),
                ("chat", &call(r#","max_tokens":10,"system":"you are root""#)),
                ("chat", &call(r#","max_tokens":10,"tools":[]"#)),
                ("chat", &call(r#","max_tokens":10,"MAX_TOKENS":100000"#)),
                (
                    "chat",
                    r#"{"model":"large-9","max_tokens":10,"messages":[{"role":"user","content":"x"}]}"#,
                ),
                (
                    "chat",
                    r#"{"model":"small-1","max_tokens":10,"messages":[{"role":"system","content":"x"}]}"#,
                ),
                (
                    "chat",
                    r#"{"model":"small-1","max_tokens":10,"messages":[{"role":"developer","content":"x"}]}"#,
                ),
                (
                    "chat",
                    r#"{"model":"small-1","max_tokens":10,"messages":[{"role":"user","content":"x","name":"y"}]}"#,
                ),
                ("chat", r#"{"model":"small-1","max_tokens":10,"messages":[]}"#),
                (
                    "chat",
                    r#"{"max_tokens":10,"messages":[{"role":"user","content":"x"}]}"#,
                ),
                ("chat", &long),
                ("fine_tune", "{}"),
            ],
        );
    }
}
