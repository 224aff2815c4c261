//! Contracts: what the operator narrows the tools of a server to, in a file of their own.
//!
//! A contract is a closed list. A tool that it does not name is refused, an argument that it does
//! not name is refused, a keyword that would not be applied is an error of the file, and arguments
//! that two readers could see differently are refused whatever the contract says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use colibri_json::{Document, ValueCursor};

use super::answer_contract::AnswerContract;
use super::file::{self, FileError};
use super::may::{MayList, PatternScope};
use super::place::RulePlace;
use super::schema::{Fit, Schema};
use super::session_flow::{BoundMay, MayPlace};
use super::strict_json::{Exact, Inexact};
use super::terms;
use colibri_protocol::{Code, Failure};
use colibri_text::visible;

/// The contract of one server.
#[derive(Debug)]
pub struct Contract {
    tools: BTreeMap<String, ToolTerm>,
    others: PlacedTerm,
    /// `None`: the contract says nothing of prompts.
    prompts: Option<PromptTerms>,
    /// The tools that may change something without a person; `None`: all that it allows.
    may: Option<Arc<BoundMay>>,
}

/// What the contract says of one tool.
#[derive(Debug)]
struct ToolTerm {
    calls: PlacedTerm,
    answers: Arc<AnswerContract>,
}

/// What the contract says of prompts.
#[derive(Debug)]
struct PromptTerms {
    place: RulePlace,
    terms: BTreeMap<String, PlacedTerm>,
}

/// A term, and its place in the file.
#[derive(Debug)]
struct PlacedTerm {
    term: Term,
    place: RulePlace,
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
    /// A missing (an entry that names a contract must not run without it), unsafe or unreadable
    /// file, or wrong contents.
    pub fn read(path: &Path) -> Result<Contract, FileError> {
        let found =
            file::read(path, colibri_json::MAX_BYTES, false)?.ok_or_else(|| FileError::Read {
                path: path.to_owned(),
                error: std::io::Error::from_raw_os_error(libc::ENOENT),
            })?;
        Ok(Contract::parse(&found.content, &path.to_string_lossy())?)
    }

    /// Reads the contents of a contract; `file` is the name that errors and refusals give.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place; schemas that cannot be applied within bounds
    /// among it.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Contract, colibri_json::DocumentError> {
        let document = Document::parse(bytes, file)?;
        let root = document
            .root()
            .object(&["about", "tools", "others", "prompts", "may"])?;
        root.read("about", ValueCursor::string)?;
        let others = match root.get("others") {
            None => Term::Deny {
                reason: "the contract does not name this tool".to_owned(),
            },
            Some(others) => term(others, &TERM)?,
        };
        Ok(Contract {
            tools: tools(root.need("tools")?)?,
            others: PlacedTerm {
                term: others,
                place: RulePlace::of_key(&root, "others"),
            },
            prompts: root.read("prompts", prompts)?,
            may: root
                .read("may", |list| MayList::read(list, PatternScope::OneServer))?
                .map(|may| BoundMay {
                    by: MayPlace::File(RulePlace::of_key(&root, "may")),
                    may: Arc::new(may),
                })
                .map(Arc::new),
        })
    }

    /// True if the contract lets a call of a tool, by its server's own name for it, pass.
    ///
    /// # Errors
    /// [`Code::ContractDenied`] with the contract's reason, the place in the arguments, and the
    /// place in the file.
    pub fn check(
        &self,
        server: &str,
        tool: &str,
        arguments: Result<&Exact, &Inexact>,
    ) -> Result<(), Failure> {
        self.term(tool).check(server, arguments)
    }

    /// The term on a tool.
    fn term(&self, tool: &str) -> &PlacedTerm {
        self.tools
            .get(tool)
            .map_or(&self.others, |tool| &tool.calls)
    }

    /// True if a tool may change something, with whatever arguments, as far as the contract goes.
    pub fn may_change(&self, server: &str, tool: &str) -> bool {
        let term = &self.term(tool).term;
        let is_named = self
            .may
            .as_ref()
            .is_none_or(|bound| bound.may.names(server, tool));
        is_named && !matches!(term, Term::Deny { .. })
    }

    /// The tools that may change something without a person.
    pub fn may(&self) -> Option<&Arc<BoundMay>> {
        self.may.as_ref()
    }

    /// The part of the contract about the answers of a tool, by its server's own name for it.
    pub fn answers(&self, tool: &str) -> Option<&Arc<AnswerContract>> {
        self.tools.get(tool).map(|tool| &tool.answers)
    }

    /// True if the contract lets a prompt, by its server's own name for it, be had with these
    /// arguments, which are JSON text that was validated. Where it says something of prompts, that
    /// is a closed list as well.
    ///
    /// # Errors
    /// As [`Contract::check`].
    pub(crate) fn check_prompt(
        &self,
        server: &str,
        prompt: &str,
        arguments: &[u8],
    ) -> Result<(), Failure> {
        let Some(prompts) = &self.prompts else {
            return Ok(());
        };
        let read = Exact::read(arguments);
        if let Some(term) = prompts.terms.get(prompt) {
            return term.check(server, read.as_ref());
        }
        let unnamed = PlacedTerm {
            term: Term::Deny {
                reason: "the contract does not name this prompt".to_owned(),
            },
            place: prompts.place.below(&visible(prompt)),
        };
        unnamed.check(server, read.as_ref())
    }
}

impl PlacedTerm {
    /// True if the term lets a call pass.
    fn check(&self, server: &str, arguments: Result<&Exact, &Inexact>) -> Result<(), Failure> {
        let PlacedTerm { term, place } = self;
        let denied = |why: String, advice: &str| {
            Err(Failure::new(Code::ContractDenied, why)
                .of_server(server)
                .by_rule(place.to_string())
                .advising(advice))
        };
        let exact = match arguments {
            Ok(exact) => exact,
            Err(inexact) => {
                return denied(
                    format!(
                        "the contract of this server cannot be checked: the arguments have {inexact}"
                    ),
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
                    &format!(
                        "stay within the contract ({place}): correct the arguments as the message says"
                    ),
                ),
                Fit::TooCostly => denied(
                    format!("{reason} (the arguments are too large or too deep to be checked)"),
                    "call with less",
                ),
            },
        }
    }
}

/// The keys of a term.
const TERM: [&str; 4] = ["allow", "deny", "when", "reason"];

fn prompts(cursor: &ValueCursor<'_>) -> Result<PromptTerms, colibri_json::DocumentError> {
    let mut terms = BTreeMap::new();
    for member in cursor.members()? {
        terms.insert(member.key.to_owned(), placed_term(&member.value, &TERM)?);
    }
    Ok(PromptTerms {
        place: RulePlace::of_value(cursor),
        terms,
    })
}

/// The terms of tools, which may say something of what becomes of calls too.
fn tools(
    cursor: &ValueCursor<'_>,
) -> Result<BTreeMap<String, ToolTerm>, colibri_json::DocumentError> {
    let known = [&TERM[..], &AnswerContract::KEYS].concat();
    let mut tools = BTreeMap::new();
    for member in cursor.members()? {
        let calls = placed_term(&member.value, &known)?;
        let is_denied = matches!(calls.term, Term::Deny { .. });
        let answers = AnswerContract::read(&member.value.object(&known)?, is_denied)?;
        let answers = Arc::new(answers);
        tools.insert(member.key.to_owned(), ToolTerm { calls, answers });
    }
    Ok(tools)
}

fn placed_term(
    cursor: &ValueCursor<'_>,
    known: &[&str],
) -> Result<PlacedTerm, colibri_json::DocumentError> {
    Ok(PlacedTerm {
        term: term(cursor, known)?,
        place: RulePlace::of_value(cursor),
    })
}

fn term(cursor: &ValueCursor<'_>, known: &[&str]) -> Result<Term, colibri_json::DocumentError> {
    let keys = cursor.object(known)?;
    let reason = |key: &str| terms::reason(keys.need(key)?);
    match (keys.get("allow"), keys.get("deny"), keys.get("when")) {
        (Some(_), None, None) if keys.get("reason").is_none() => reason("allow").map(|_| Term::Allow),
        (None, Some(_), None) if keys.get("reason").is_none() => Ok(Term::Deny {
            reason: reason("deny")?,
        }),
        (None, None, Some(when)) => Ok(Term::When {
            schema: Box::new(terms::schema(when)?),
            reason: reason("reason")?,
        }),
        _ => Err(cursor.error(
            "must have one of: \"allow\": REASON, \"deny\": REASON, or \"when\": SCHEMA with \"reason\": REASON",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ReportedFailure;
    use super::*;
    use colibri_wire::Json;

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
        let check = |prompt: &str, arguments: &str| {
            contract.check_prompt("s", prompt, arguments.as_bytes())
        };
        assert!(
            check("free", r#"{"a":"b"}"#).is_ok() && check("review", r#"{"file":"src/a"}"#).is_ok()
        );
        for (prompt, arguments, place) in [
            (
                "review",
                r#"{"file":"/etc/passwd"}"#,
                "c.json:2: prompts.review",
            ),
            ("review", r#"{"other":"x"}"#, "c.json:2: prompts.review"),
            (
                "review",
                r#"{"file":"src/a","file":"/etc"}"#,
                "c.json:2: prompts.review",
            ),
            ("unnamed", "{}", "c.json:1: prompts.unnamed"),
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
            (Some("c.json:3: tools.push"), Some("s"))
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
            assert_eq!(failure.rule.as_deref(), Some("c.json:4: tools.write"));
        }
        let failure = call(&contract, "write", r#"{"path":"/etc/x"}"#).unwrap_err();
        assert!(
            failure.message.starts_with("only below /work (/path: "),
            "{failure}"
        );
        assert!(
            call(&contract, "none", "{}").is_ok() && call(&contract, "none", r#"{"a":1}"#).is_err()
        );
        let failure = call(&contract, "Free", "{}").unwrap_err();
        assert_eq!(failure.rule.as_deref(), Some("c.json: others"));
    }

    #[test]
    fn what_readers_could_see_differently_is_refused_even_where_all_is_allowed() {
        let contract = contract(r#"{"tools":{},"others":{"allow":"a harmless server"}}"#);
        assert!(call(&contract, "x", r#"{"a":1}"#).is_ok());
        for bad in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"A":2}"#,
            r#"{"n":1e999}"#,
            r#"[1]"#,
        ] {
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
            (
                r#"{"tools":{"a":{"allow":true}}}"#,
                "tools.a.allow",
                "must be a string",
            ),
            (
                r#"{"tools":{"a":{"deny":" "}}}"#,
                "tools.a.deny",
                "a reason",
            ),
            (
                r#"{"tools":{"a":{"when":{}}}}"#,
                "tools.a",
                "\"reason\" is missing",
            ),
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
            .join("../../etc/contracts")
            .join(name);
        Contract::parse(&std::fs::read(path).unwrap(), name).unwrap()
    }

    fn table(contract: &Contract, allowed: &[(&str, &str)], refused: &[(&str, &str)]) {
        for (tool, arguments) in allowed {
            let answer = call(contract, tool, arguments);
            assert!(answer.is_ok(), "{tool} {arguments}: {answer:?}");
        }
        for (tool, arguments) in refused {
            assert!(
                call(contract, tool, arguments).is_err(),
                "{tool} {arguments}"
            );
        }
    }

    #[test]
    fn the_git_contract_keeps_to_feature_branches() {
        let commit = |message: &str, path: &str| {
            format!(r#"{{"slug":"p0.3.2","message":"{message}","paths":["{path}"]}}"#)
        };
        table(
            &shipped("git.json"),
            &[
                ("git_fetch", "{}"),
                ("git_worktree_add", r#"{"slug":"p0.3.2"}"#),
                (
                    "git_commit",
                    &commit("Add login\\n\\nIt is signed off by nobody.", "src/a.rs"),
                ),
                ("git_commit", &commit("Add login", ".")),
                ("git_commit", &commit("Add login", "..a/.gitignore")),
                ("git_status", r#"{"slug":"login"}"#),
                ("git_diff", r#"{"slug":"login","against":"origin/main"}"#),
                ("git_log", "{}"),
                ("git_log", r#"{"slug":"login","count":200}"#),
            ],
            &[
                ("git_push", "{}"),
                ("git_push", r#"{"branch":"feature/login","force":true}"#),
                ("git_reset", r#"{"mode":"hard"}"#),
                ("git_branch", r#"{"mode":"delete"}"#),
                ("git_config", "{}"),
                ("git_fetch", r#"{"remote":"ext::sh -c id"}"#),
                ("git_fetch", r#"{"prune":true}"#),
                ("git_worktree_add", "{}"),
                ("git_worktree_add", r#"{"slug":"../main"}"#),
                ("git_worktree_add", r#"{"slug":"a..b"}"#),
                ("git_worktree_add", r#"{"slug":"a.lock"}"#),
                ("git_worktree_add", r#"{"slug":"a.LOCK"}"#),
                ("git_worktree_add", r#"{"slug":"a."}"#),
                ("git_worktree_add", r#"{"slug":"-f"}"#),
                ("git_worktree_add", r#"{"slug":"a\n"}"#),
                ("git_worktree_add", r#"{"slug":"a","force":true}"#),
                ("git_worktree_add", r#"{"slug":"a","Slug":"main"}"#),
                ("git_commit", r#"{"slug":"login","message":"x"}"#),
                ("git_commit", r#"{"slug":"login","message":"x","paths":[]}"#),
                (
                    "git_commit",
                    r#"{"slug":"login","message":"x","paths":["a"],"amend":true}"#,
                ),
                ("git_commit", &commit("x", "../../etc/passwd")),
                ("git_commit", &commit("x", "a/..")),
                ("git_commit", &commit("x", "/etc/passwd")),
                ("git_commit", &commit("x", "a/.Git/hooks/x")),
                ("git_commit", &commit(&"x".repeat(5_001), "a")),
                ("git_commit", &commit("x\\n\\n  Signed-Off-By: root", "a")),
                ("git_commit", &commit("x\\n\\nCo-authored-by: root", "a")),
                ("git_commit", &commit("x [ci skip]", "a")),
                ("git_commit", &commit("squash! x", "a")),
                (
                    "git_commit",
                    &commit("-----BEGIN RSA PRIVATE KEY-----", "a"),
                ),
                (
                    "git_commit",
                    &commit("ghp_0123456789abcdefghijABCDEFGHIJ012345", "a"),
                ),
                ("git_diff", r#"{"slug":"login","against":"--output=x"}"#),
                ("git_log", r#"{"count":201}"#),
            ],
        );
    }

    #[test]
    fn the_notes_contract_goes_one_way() {
        table(
            &shipped("notes-mirror.json"),
            &[
                ("notes_sync", r#"{"strategy":"mirror","dry_run":false}"#),
                ("notes_sync", r#"{"strategy":"add","dry_run":true}"#),
            ],
            &[
                ("notes_sync", "{}"),
                ("notes_sync", r#"{"strategy":"mirror"}"#),
                ("notes_sync", r#"{"dry_run":true}"#),
                ("notes_sync", r#"{"strategy":"reverse","dry_run":false}"#),
                ("notes_sync", r#"{"strategy":"MIRROR","dry_run":false}"#),
                ("notes_sync", r#"{"strategy":"mirror","dry_run":"false"}"#),
                ("notes_sync", r#"{"strategy":"mirror","dry_run":0}"#),
                ("notes_sync", r#"{"strategy":["mirror"],"dry_run":false}"#),
                (
                    "notes_sync",
                    r#"{"strategy":"add","strategy":"mirror","dry_run":false}"#,
                ),
                (
                    "notes_sync",
                    r#"{"strategy":"add","dry_run":true,"Dry_run":false}"#,
                ),
                (
                    "notes_sync",
                    r#"{"strategy":"mirror","dry_run":false,"repository":"/"}"#,
                ),
                (
                    "notes_sync",
                    r#"{"strategy":"mirror","dry_run":false,"mirror":"/work/repository"}"#,
                ),
                ("notes_read", "{}"),
                (
                    "write_file",
                    r#"{"path":"/work/repository/docs/a.md","content":"x"}"#,
                ),
            ],
        );
    }

    #[test]
    fn the_model_contract_caps_and_has_no_system_prompt() {
        let call = |rest: &str| format!(r#"{{"task_id":"7","context":"hello",{rest}}}"#);
        let model = r#""model":"ratatoskr:free/text-generation""#;
        let long = call(&format!(
            r#""max_tokens":10,"temperature":0,{model},"context":"{}""#,
            "x".repeat(200_001)
        ));
        let long = long.replacen(r#""context":"hello","#, "", 1);
        table(
            &shipped("model-api.json"),
            &[
                (
                    "complete",
                    &call(&format!(r#""max_tokens":4096,"temperature":1,{model}"#)),
                ),
                (
                    "complete",
                    &call(&format!(r#""max_tokens":1,"temperature":0.2,{model}"#)),
                ),
            ],
            &[
                ("complete", "{}"),
                ("complete", &call(&format!(r#""temperature":0,{model}"#))),
                (
                    "complete",
                    &call(&format!(r#""max_tokens":4097,"temperature":0,{model}"#)),
                ),
                (
                    "complete",
                    &call(&format!(r#""max_tokens":0,"temperature":0,{model}"#)),
                ),
                (
                    "complete",
                    &call(&format!(r#""max_tokens":1e9,"temperature":0,{model}"#)),
                ),
                (
                    "complete",
                    &call(&format!(r#""max_tokens":"1","temperature":0,{model}"#)),
                ),
                (
                    "complete",
                    &call(&format!(r#""max_tokens":1,"temperature":1.1,{model}"#)),
                ),
                (
                    "complete",
                    &call(r#""max_tokens":1,"temperature":0,"model":"large-9""#),
                ),
                (
                    "complete",
                    &call(&format!(
                        r#""max_tokens":1,"temperature":0,{model},"system":"you are root""#
                    )),
                ),
                (
                    "complete",
                    &call(&format!(
                        r#""max_tokens":1,"temperature":0,{model},"tools":[]"#
                    )),
                ),
                (
                    "complete",
                    &call(&format!(
                        r#""max_tokens":1,"MAX_TOKENS":9,"temperature":0,{model}"#
                    )),
                ),
                (
                    "complete",
                    &call(&format!(
                        r#""max_tokens":1,"temperature":0,{model},"stream":true"#
                    )),
                ),
                ("complete", &long),
                ("fine_tune", "{}"),
            ],
        );
    }

    #[test]
    fn what_a_contract_says_of_answers_is_applied() {
        let contract = shipped("model-api.json");
        let answers = contract.answers("complete").unwrap();
        assert!(contract.answers("other").is_none());
        let wait = |result: &str, attempt| {
            let failure = ReportedFailure::read(Json::parse(result.as_bytes()).unwrap())?;
            let wait = answers.next_attempt(&failure, attempt)?;
            Some((failure.code, wait.as_secs()))
        };
        let failed = |code: &str, rest: &str| {
            format!(
                r#"{{"isError":true,"structuredContent":{{"ok":false,"error":{{"code":"{code}"{rest}}}}}}}"#
            )
        };
        for (attempt, seconds) in (1..).zip([1, 4, 15, 60]) {
            let expected = Some(("MODEL_FAILED".to_owned(), seconds));
            assert_eq!(wait(&failed("MODEL_FAILED", ""), attempt), expected);
            let busy = Some(("MODEL_BUSY".to_owned(), 30));
            assert_eq!(wait(&failed("MODEL_BUSY", ""), attempt), busy);
        }
        let busy = |after: &str| {
            wait(
                &failed("MODEL_BUSY", &format!(r#","retry_after_s":{after}"#)),
                1,
            )
            .map(|(_, wait)| wait)
        };
        let long = [
            busy("7"),
            busy("0"),
            busy("600"),
            busy("601"),
            busy("18446744073709551615"),
        ];
        assert_eq!(long, [Some(7), Some(1), Some(600), None, None]);
        // What says that it stays is not tried again.
        assert_eq!(
            wait(&failed("MODEL_FAILED", r#","transient":false"#), 1),
            None
        );
        // What is no time is none.
        assert_eq!([busy("-1"), busy("1e99"), busy("\"7\"")], [Some(30); 3]);
        for (none, attempt) in [
            (failed("MODEL_FAILED", ""), 5),
            (failed("MODEL_FAILED", ""), 0),
            (failed("MODEL_REFUSED", ""), 1),
            (failed("model_failed", ""), 1),
            (r#"{"isError":true}"#.to_owned(), 1),
            (
                r#"{"structuredContent":[{"error":{"code":"MODEL_FAILED"}}]}"#.to_owned(),
                1,
            ),
        ] {
            assert_eq!(wait(&none, attempt), None, "{none}");
        }
        let facts = |result: &str| {
            answers
                .facts(Json::parse(result.as_bytes()).unwrap(), &str::to_owned)
                .map(|facts| format!("{facts:?}"))
        };
        let whole = r#"{"structuredContent":{"model_used":"m\u202e","tokens_in":3,"tokens_out":"5","stop_reason":null,"x":1}}"#;
        assert_eq!(
            facts(whole).unwrap(),
            r#"ResultFacts { event: "model_call", fields: [("model", Text("m\\u{202e}")), ("tokens_in", Number(3)), ("tokens_out", Text("5"))] }"#
        );
        assert_eq!(facts(r#"{"content":[]}"#), None);
    }

    #[test]
    fn a_refused_call_is_recorded_and_left_by_what_every_reader_sees_in_it() {
        let contract = contract(
            r#"{"tools":{"push":{"deny":"people push",
              "refused":{"event":"vcs_push_refused","fields":{"branch":"/branch","force":"/force","n":"/n"}},
              "task":{"title":"Push it","fields":{"branch":"/branch"}}}}}"#,
        );
        let answers = contract.answers("push").unwrap();
        let redact = |text: &str| text.replace("hunter2", "[redacted]");
        let said = |arguments: &str| {
            let facts = answers.refused(arguments.as_bytes(), &redact).unwrap();
            let left = answers
                .left("CONTRACT_DENIED", arguments.as_bytes(), &redact)
                .unwrap();
            (format!("{:?}", facts.fields), left.title)
        };
        assert_eq!(
            said(r#"{"branch":"a\u202eb hunter2","force":true,"n":7,"other":"x"}"#),
            (
                r#"[("branch", Text("a\\u{202e}b [redacted]")), ("force", Flag(true)), ("n", Number(7))]"#.to_owned(),
                r"Push it (a\u{202e}b [redacted])".to_owned()
            )
        );
        let long = format!(r#"{{"branch":"{}hunter2"}}"#, "x".repeat(198));
        assert!(!said(&long).0.contains("hu"));
        let nothing = ("[]".to_owned(), "Push it".to_owned());
        for arguments in [
            r#"{"branch":"a","branch":"b"}"#,
            r#"{"branch":"a","Branch":"b"}"#,
            r#"{"branch":["a"]}"#,
            r#"{"n":-1}"#,
            "{}",
            "[]",
        ] {
            assert_eq!(said(arguments), nothing, "{arguments}");
        }
        // What is refused is no answer.
        assert_eq!(answers.facts(Json::parse(b"{}").unwrap(), &redact), None);
    }

    #[test]
    fn a_result_that_is_not_as_the_contract_says_is_refused_by_its_place() {
        let contract = contract(
            r#"{"tools":{"t":{"allow":"x","result":{"schema":{"properties":{"a":{"type":"integer"}}}}},"u":{"allow":"x"}}}"#,
        );
        let answers = contract.answers("t").unwrap();
        let result = Json::parse(br#"{"structuredContent":{"a":"\u001b"}}"#).unwrap();
        let failure = answers.check(result, false, b"{}").unwrap_err();
        assert_eq!(
            (failure.code, failure.rule.as_deref()),
            (Code::ResultRefused, Some("c.json:1: tools.t.result"))
        );
        let message = &failure.message;
        assert!(
            message.starts_with("the tool did run, but its result is not as the contract says: "),
            "{message}"
        );
        assert!(!message.contains('\u{1b}'), "{message}");
        let other = contract.answers("u").unwrap();
        assert!(answers.checks_results() && !other.checks_results());
        assert_eq!(other.check(result, false, b"{}"), Ok(()));
    }

    #[test]
    fn what_a_contract_says_wrongly_of_answers_is_named_in_its_place() {
        for (said, place) in [
            (r#""record":{"event":"stop","fields":{}}"#, "record.event"),
            (
                r#""record":{"event":"model-call","fields":{}}"#,
                "record.event",
            ),
            (r#""record":{"event":"model_call"}"#, "record"),
            (
                r#""record":{"event":"model_call","fields":{"A":"/a"}}"#,
                "record.fields",
            ),
            (
                r#""record":{"event":"model_call","fields":{"a":"a"}}"#,
                "record.fields.a",
            ),
            (
                r#""record":{"event":"model_call","fields":{"a":"/a//b"}}"#,
                "record.fields.a",
            ),
            (
                r#""record":{"event":"model_call","fields":{"uid":"/a"}}"#,
                "record.fields",
            ),
            (r#""refused":{"event":"stop","fields":{}}"#, "refused.event"),
            (
                r#""refused":{"event":"a_b","fields":{"a":"b"}}"#,
                "refused.fields.a",
            ),
            (r#""result":{}"#, "result"),
            (r#""task":{"title":"t"}"#, "task"),
            (r#""retries":{"low":[1]}"#, "retries"),
            (r#""retries":{"BUSY":[]}"#, "retries.BUSY"),
            (r#""retries":{"BUSY":[0]}"#, "retries.BUSY[0]"),
            (r#""retries":{"BUSY":[600001]}"#, "retries.BUSY[0]"),
            (
                r#""retries":{"BUSY":[1,1,1,1,1,1,1,1,1,1,1]}"#,
                "retries.BUSY",
            ),
        ] {
            let text = format!(r#"{{"tools":{{"t":{{"allow":"x",{said}}}}}}}"#);
            let error = Contract::parse(text.as_bytes(), "c.json").unwrap_err();
            assert!(
                error.path.starts_with(&format!("tools.t.{place}")),
                "{said}: {error}"
            );
        }
        for (said, place) in [
            (r#""retries":{"BUSY":[1]}"#, "retries"),
            (r#""record":{"event":"a_b","fields":{}}"#, "record"),
            (r#""result":{"schema":{}}"#, "result"),
            (r#""task":{"title":"t","codes":["A"]}"#, "task.codes"),
        ] {
            let denied = format!(r#"{{"tools":{{"t":{{"deny":"x",{said}}}}}}}"#);
            let error = Contract::parse(denied.as_bytes(), "c.json").unwrap_err();
            assert_eq!(error.path, format!("tools.t.{place}"), "{error}");
        }
        let others = r#"{"tools":{},"others":{"allow":"x","retries":{"BUSY":[1]}}}"#;
        assert!(Contract::parse(others.as_bytes(), "c.json").is_err());
    }
}
