//! The part of a contract about a result: the required form of a success, whatever its server
//! reports.

use colibri_json::{DocumentError, ValueCursor};
use colibri_text::brief;
use colibri_wire::Json;
use serde_json::{Map, Value};

use super::schema::{Fit, Schema};
use super::strict_json::{Exact, look_alike};
use super::terms::{self, Pointer};

/// The most pairs that have to be the same.
const MAX_SAME: usize = 16;
/// The members that make a result what it is.
const MEMBERS: [&str; 5] = [
    "_meta",
    "content",
    "isError",
    "resultType",
    "structuredContent",
];

/// The members that a result has and a question has not.
const OF_RESULT: [&str; 3] = ["content", "isError", "structuredContent"];
/// The most characters of a key that are told.
const MAX_KEY: usize = 40;

/// The required structured result of a success.
#[derive(Debug)]
pub(super) struct ResultTerm {
    schema: Box<Schema>,
    /// Places in the structured result and in the arguments.
    same: Vec<(Pointer, Pointer)>,
    reason: Option<String>,
}

impl ResultTerm {
    pub(super) fn read(cursor: &ValueCursor<'_>) -> Result<ResultTerm, DocumentError> {
        let keys = cursor.object(&["schema", "same", "reason"])?;
        Ok(ResultTerm {
            schema: Box::new(terms::schema(keys.need("schema")?)?),
            same: keys.read("same", same)?.unwrap_or_default(),
            reason: keys.read("reason", terms::reason)?,
        })
    }

    /// Checks a tool's result, of which the relay takes that it is an error or not. One that is an
    /// error is only read: no reader may take it for a success.
    ///
    /// # Errors
    /// What of it is not as it must be, in words for whoever made the call.
    pub(super) fn check(
        &self,
        result: Json<'_>,
        says_error: bool,
        arguments: &[u8],
    ) -> Result<(), String> {
        self.fits(result, says_error, arguments)
            .map_err(|why| match &self.reason {
                Some(reason) => format!("{reason} ({why})"),
                None => why,
            })
    }

    /// Checks what is no result yet, but asks for something: no reader may take it for a success.
    ///
    /// # Errors
    /// As [`ResultTerm::check`].
    pub(super) fn check_question(result: Json<'_>) -> Result<(), String> {
        let whole = exact(result.text().as_bytes(), "what the server asks")?;
        let keys = whole.value.as_object().into_iter().flat_map(Map::keys);
        let of_result = |key: &&String| {
            OF_RESULT
                .iter()
                .any(|member| key == member || look_alike(key, member))
        };
        match keys.into_iter().find(of_result) {
            Some(key) => Err(format!(
                "what the server asks has {}, as results do",
                brief(key, MAX_KEY)
            )),
            None => Ok(()),
        }
    }

    fn fits(&self, result: Json<'_>, says_error: bool, arguments: &[u8]) -> Result<(), String> {
        let whole = exact(result.text().as_bytes(), "the result")?;
        let odd = |key: &&String| MEMBERS.iter().any(|member| look_alike(key, member));
        if whole
            .value
            .as_object()
            .is_some_and(|result| result.keys().any(|key| odd(&key)))
        {
            return Err("the result has a key that some readers take for another one".to_owned());
        }
        match whole.value.get("isError") {
            Some(Value::Bool(true)) if says_error => return Ok(()),
            None | Some(Value::Bool(false)) if !says_error => {}
            _ => return Err("isError of the result is neither true nor false".to_owned()),
        }
        let Some(structured) = result.get("structuredContent") else {
            return Err("the result has no structuredContent".to_owned());
        };
        let structured = exact(structured.text().as_bytes(), "structuredContent")?;
        match self.schema.check(&structured) {
            Fit::Fits => {}
            Fit::Unfit(why) => return Err(format!("structuredContent: {why}")),
            Fit::TooCostly => {
                return Err("structuredContent is too large or too deep to be checked".to_owned());
            }
        }
        if self.same.is_empty() {
            return Ok(());
        }
        let arguments = exact(arguments, "the arguments")?;
        for (said, asked) in &self.same {
            let is_same = said
                .of_exact(&structured.value)
                .is_some_and(|value| asked.of_exact(&arguments.value) == Some(value));
            if !is_same {
                return Err(format!(
                    "structuredContent: {said} is not the {asked} of the arguments"
                ));
            }
        }
        Ok(())
    }
}

fn exact(text: &[u8], what: &str) -> Result<Exact, String> {
    let exact = Exact::read(text).map_err(|inexact| format!("{what}: {inexact}"))?;
    match exact.ambiguous() {
        Some(at) => Err(format!(
            "{what}: two keys at {at} that some readers take for one"
        )),
        None => Ok(exact),
    }
}

fn same(cursor: &ValueCursor<'_>) -> Result<Vec<(Pointer, Pointer)>, DocumentError> {
    let members = cursor.members()?;
    if members.len() > MAX_SAME {
        return Err(cursor.error(format!("must have at most {MAX_SAME} pairs")));
    }
    let pair = |member: colibri_json::NamedValue<'_>| {
        let said = Pointer::parse(member.key).ok_or_else(|| {
            member.key_error("must lead to a member of the structured result, like /branch")
        })?;
        Ok((said, Pointer::read(&member.value, "the arguments")?))
    };
    members.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_json::Document;
    use proptest::prelude::*;

    fn term(text: &str) -> ResultTerm {
        ResultTerm::read(&Document::parse(text.as_bytes(), "c.json").unwrap().root()).unwrap()
    }

    fn commit() -> ResultTerm {
        term(
            r#"{"schema":{"required":["sha","branch"],"properties":{"sha":{"type":"string","pattern":"^[0-9a-f]{40}$"},
                "branch":{"type":"string"},"stat":{"properties":{"files":{"type":"integer"}}}}},
                "same":{"/branch":"/branch"},"reason":"a commit is of the branch that was asked for"}"#,
        )
    }

    const ARGUMENTS: &[u8] = br#"{"branch":"feature/\u0061","message":"m"}"#;
    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    /// The reason for which a success with this structured content, and this beside it, is refused.
    fn why(structured: &str, beside: &str) -> Option<String> {
        let result = format!(r#"{{"structuredContent":{structured}{beside}}}"#);
        let result = Json::parse(result.as_bytes()).unwrap_or_else(|_| panic!("{result}"));
        commit().check(result, false, ARGUMENTS).err()
    }

    #[test]
    fn a_success_is_what_the_contract_says_and_nothing_else() {
        let said =
            |branch: &str, more: &str| format!(r#"{{"sha":"{SHA}","branch":"{branch}"{more}}}"#);
        for good in [
            said("feature/a", ""),
            said("feature\\/a", r#","stat":{"files":2}"#),
        ] {
            assert_eq!(
                why(&good, r#","content":[],"isError":false"#),
                None,
                "{good}"
            );
        }
        for (structured, beside, of) in [
            (
                said("main", ""),
                "",
                "structuredContent: /branch is not the /branch of the arguments",
            ),
            (
                said("feature/a", r#","pushed":true"#),
                "",
                "structuredContent: the top level: ",
            ),
            (
                said("feature/a", r#","stat":{"files":2,"x":1}"#),
                "",
                "structuredContent: /stat: ",
            ),
            (
                said("feature/a", r#","branch":"main""#),
                "",
                "twice in its object at /structuredContent/branch",
            ),
            (
                said("feature/a", r#","Branch":"main""#),
                "",
                "two keys at /structuredContent/branch",
            ),
            (
                said("feature/a", r#","stat":{"files":18446744073709551616}"#),
                "",
                "beyond 64 bits",
            ),
            (
                said("feature/a", r#","stat":{"files":1e400}"#),
                "",
                "beyond 64 bits",
            ),
            (
                said("feature/a", r#","stat":"\ud800""#),
                "",
                "lone surrogate",
            ),
            (
                r#"{"sha":"abc","branch":"feature/a"}"#.to_owned(),
                "",
                "structuredContent: /sha: ",
            ),
            (
                format!(r#"{{"sha":"{SHA}"}}"#),
                "",
                "structuredContent: the top level: ",
            ),
            (
                "[]".to_owned(),
                "",
                "structuredContent: something other than an object",
            ),
            (
                "null".to_owned(),
                "",
                "structuredContent: something other than an object",
            ),
            // Another reader takes another one.
            (said("feature/a", ""), r#","structuredContent":{}"#, "twice"),
            (
                said("feature/a", ""),
                r#","structuredcontent":{}"#,
                "two keys",
            ),
            (
                said("feature/a", ""),
                r#","iserror":true"#,
                "some readers take for another one",
            ),
            (
                said("feature/a", ""),
                r#","isErro\u0072\u0000":true"#,
                "some readers take for another one",
            ),
            (
                said("feature/a", ""),
                r#","\u017ftructuredContent":1"#,
                "two keys",
            ),
            (
                said("feature/a", ""),
                r#","isError":true"#,
                "isError of the result is neither",
            ),
            (
                said("feature/a", ""),
                r#","isError":"yes""#,
                "isError of the result is neither",
            ),
            (
                said("feature/a", ""),
                r#","content":[{"n":1e999}]"#,
                "beyond 64 bits",
            ),
        ] {
            let found =
                why(&structured, beside).unwrap_or_else(|| panic!("{structured} {beside} passes"));
            assert!(found.contains(of), "{structured} {beside}: {found}");
            assert!(
                found.starts_with("a commit is of the branch that was asked for ("),
                "{found}"
            );
        }
        let huge = format!(r#"{{"sha":"{}"}}"#, "0".repeat(5 << 20));
        assert!(why(&huge, "").unwrap().contains("more than 4 MiB"));
        let none = Json::parse(br#"{"content":[]}"#).unwrap();
        assert!(
            commit()
                .check(none, false, ARGUMENTS)
                .unwrap_err()
                .contains("no structuredContent")
        );
        assert!(
            commit()
                .check(Json::parse(b"7").unwrap(), false, ARGUMENTS)
                .is_err()
        );
    }

    #[test]
    fn a_failure_is_one_for_every_reader_and_not_looked_into() {
        let check = |text: &str, says_error| {
            commit().check(Json::parse(text.as_bytes()).unwrap(), says_error, b"{}")
        };
        assert_eq!(
            check(r#"{"isError":true,"structuredContent":{"ok":false}}"#, true),
            Ok(())
        );
        assert_eq!(check(r#"{"isError":true}"#, true), Ok(()));
        for text in [
            r#"{"isError":true,"isError":false}"#,
            r#"{"isError":true,"IsError":false}"#,
            r#"{"isError":true,"structuredContent":{},"structuredContent":{}}"#,
        ] {
            assert!(check(text, true).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_the_same_is_there_on_both_sides() {
        let term = term(r#"{"schema":{"additionalProperties":true},"same":{"/a/b":"/c"}}"#);
        for (structured, arguments, is_same) in [
            (r#"{"a":{"b":1}}"#, r#"{"c":1}"#, true),
            (r#"{"a":{"b":[{"x":null}]}}"#, r#"{"c":[{"x":null}]}"#, true),
            (r#"{"a":{"b":1}}"#, r#"{"c":1.0}"#, false),
            (r#"{"a":{"b":1}}"#, r#"{"c":"1"}"#, false),
            (r#"{"a":[1]}"#, r#"{"c":1}"#, false),
            (r#"{"a":{"b":null}}"#, "{}", false),
            ("{}", r#"{"c":null}"#, false),
            ("{}", "{}", false),
            (r#"{"a":{"b":1}}"#, r#"{"c":1,"C":2}"#, false),
        ] {
            let result = format!(r#"{{"structuredContent":{structured}}}"#);
            let checked = term.check(
                Json::parse(result.as_bytes()).unwrap(),
                false,
                arguments.as_bytes(),
            );
            assert_eq!(
                checked.is_ok(),
                is_same,
                "{structured} {arguments}: {checked:?}"
            );
        }
    }

    #[test]
    fn what_is_said_wrongly_of_results_is_named_in_its_place() {
        let many: String = (0..17).map(|n| format!(r#""/a{n}":"/a","#)).collect();
        let many = format!(
            r#"{{"schema":{{}},"same":{{{}}}}}"#,
            many.trim_end_matches(',')
        );
        for (text, place) in [
            ("[]", ""),
            ("{}", ""),
            (r#"{"schema":{},"sane":{}}"#, "sane"),
            (r#"{"schema":[]}"#, "schema"),
            (r#"{"schema":{"format":"x"}}"#, "schema"),
            (r#"{"schema":{"$ref":"http://h/"}}"#, "schema"),
            (r#"{"schema":{},"reason":""}"#, "reason"),
            (
                r#"{"schema":{},"same":{"branch":"/branch"}}"#,
                "same.branch",
            ),
            (r#"{"schema":{},"same":{"/":"/branch"}}"#, "same./"),
            (r#"{"schema":{},"same":{"/a~0":"/branch"}}"#, "same./a~0"),
            (r#"{"schema":{},"same":{"/a":"branch"}}"#, "same./a"),
            (r#"{"schema":{},"same":{"/a":7}}"#, "same./a"),
            (
                r#"{"schema":{},"same":{"/a":"/1/2/3/4/5/6/7/8/9"}}"#,
                "same./a",
            ),
            (&*many, "same"),
        ] {
            let document = Document::parse(text.as_bytes(), "c.json").unwrap();
            let error = ResultTerm::read(&document.root()).unwrap_err();
            assert_eq!(error.path, place, "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_contract_names_and_a_server_says_is_answered(
            said in "(/?[a-c~0]{0,2}){0,3}",
            asked in "(/?[a-c~0]{0,2}){0,3}",
            structured in r#"\{("[a-c]":([0-9]|\{("[a-c]":[0-9],?){0,2}\}|\[\]|null),?){0,3}\}"#,
            arguments in r#"\{("[a-c]":([0-9]|\{("[a-c]":[0-9],?){0,2}\}|\[\]|null),?){0,3}\}"#,
        ) {
            let text = format!(r#"{{"schema":{{"additionalProperties":true}},"same":{{"{said}":"{asked}"}}}}"#);
            let document = Document::parse(text.as_bytes(), "c.json").unwrap();
            let result = format!(r#"{{"structuredContent":{structured}}}"#);
            if let (Ok(term), Ok(json)) = (ResultTerm::read(&document.root()), Json::parse(result.as_bytes())) {
                let is_fine = term.check(json, false, arguments.as_bytes()).is_ok();
                let value = |text: &str, place: &str| serde_json::from_str::<Value>(text).ok()?.pointer(place).cloned();
                // What passes is the same to a reader that shares nothing with this one.
                let same = value(&structured, &said).is_some() && value(&structured, &said) == value(&arguments, &asked);
                prop_assert!(!is_fine || same, "{} {} {} {}", said, asked, structured, arguments);
            }
        }

        #[test]
        fn no_bytes_make_the_check_fail_otherwise_than_by_words(bytes in r#"\{"(structuredContent|isError|x)":[\[\]{}",:a0-9.eE\\-]{0,16}\}"#, says in any::<bool>()) {
            if let Ok(json) = Json::parse(bytes.as_bytes()) {
                prop_assert!(says || commit().check(json, says, ARGUMENTS).is_err());
                let _ = commit().check(json, says, bytes.as_bytes());
            }
        }
    }
}
