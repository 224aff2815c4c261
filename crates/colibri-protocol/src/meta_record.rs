//! The record of a call in the trail of another daemon, as a request and its answer name it in
//! `_meta`.

use super::members::{Change, rewrite};
use colibri_wire::json::string;
use colibri_wire::{Edits, Json};

/// The key of `_meta`: in a request the caller's own record, in the answer that of the daemon that
/// answers.
const META_RECORD: &str = "org.colibri/record";

/// The longest origin of a trail, bytes.
const MAX_ORIGIN: usize = 128;

/// A record of a trail, by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaRecord {
    /// The origin of the trail, as its checkpoints have it.
    pub origin: Box<str>,
    /// The record's number.
    pub n: u64,
}

impl MetaRecord {
    /// Reads a request's `_meta`. One that no trail could have is passed over.
    pub fn read(meta: Json<'_>) -> Option<MetaRecord> {
        let record = meta.get(META_RECORD)?;
        let (origin, n) = (record.get("origin")?.as_str()?, record.get("n")?.as_u64()?);
        let is_origin = (1..=MAX_ORIGIN).contains(&origin.len())
            && origin.bytes().all(|byte| byte.is_ascii_graphic());
        let origin = Box::from(&*origin);
        is_origin.then_some(MetaRecord { origin, n })
    }

    /// Reads what was answered, a result or an error.
    pub fn of_answer(outcome: Json<'_>) -> Option<MetaRecord> {
        let meta = outcome
            .get("_meta")
            .or_else(|| outcome.get("data")?.get("_meta"));
        MetaRecord::read(meta?)
    }

    /// The request with this record in its `_meta`, in place of another one there.
    pub fn put_in_request(&self, frame: &[u8]) -> Vec<u8> {
        self.put(frame, |message| {
            Some(match message.get("params") {
                Some(params) => (params, false),
                None => (message, true),
            })
        })
    }

    /// The answer with this record in its `_meta`, in place of another one there. An error has it
    /// in its `data`.
    pub fn put_in_answer(&self, frame: &[u8]) -> Vec<u8> {
        self.put(frame, |message| {
            let failed = || message.get("error");
            let result = message.get("result").map(|result| (result, false));
            result.or_else(|| match failed()?.get("data") {
                Some(data) => Some((data, false)),
                None => Some((failed()?, true)),
            })
        })
    }

    /// Puts the record into the object at `place`. True beside it: into a member that the object
    /// lacks.
    fn put(
        &self,
        frame: &[u8],
        place: impl FnOnce(Json<'_>) -> Option<(Json<'_>, bool)>,
    ) -> Vec<u8> {
        let found = Json::parse(frame).ok().and_then(place);
        let Some((object, is_owner)) = found.filter(|(object, _)| object.is_object()) else {
            return frame.to_vec();
        };
        let own = format!(
            "\"{META_RECORD}\":{{\"origin\":{},\"n\":{}}}",
            string(&self.origin),
            self.n
        );
        let meta = format!("\"_meta\":{{{own}}}");
        let insert = match (is_owner, object.get("_meta")) {
            // Of a message that is a request the parameters, of an error the data.
            (true, _) if object.get("method").is_some() => format!("\"params\":{{{meta}}}"),
            (true, _) => format!("\"data\":{{{meta}}}"),
            (false, None) => meta,
            (false, Some(_)) => String::new(),
        };
        let mut edits = Edits::new();
        rewrite(&mut edits, object, &insert, |member, edits| {
            if !is_owner && member.key.is_string("_meta") && member.value.is_object() {
                rewrite(edits, member.value, &own, |member, _| {
                    match member.key.is_string(META_RECORD) {
                        true => Change::Remove,
                        false => Change::Keep,
                    }
                });
            }
            Change::Keep
        });
        edits.apply(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::json;

    fn record(n: u64) -> MetaRecord {
        let origin = "colibri-mcp/trail/0123456789abcdef".into();
        MetaRecord { origin, n }
    }

    #[test]
    fn a_request_and_its_answer_carry_one_record() {
        for request in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"a":1e400},"name":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"org.colibri/record":{"n":1},"a":1}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#,
        ] {
            let text = String::from_utf8(record(7).put_in_request(request.as_bytes())).unwrap();
            let meta = json(&text).get("params").unwrap().get("_meta").unwrap();
            assert_eq!(MetaRecord::read(meta), Some(record(7)), "{text}");
            assert_eq!(text.matches(META_RECORD).count(), 1, "{text}");
        }
        for answer in [
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"a":1}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"org.colibri/record":{"origin":"x","n":1}},"a":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"x","data":{"code":"POLICY_DENIED"}}}"#,
        ] {
            let text = String::from_utf8(record(8).put_in_answer(answer.as_bytes())).unwrap();
            let outcome = json(&text)
                .get("result")
                .or_else(|| json(&text).get("error"))
                .unwrap();
            assert_eq!(MetaRecord::of_answer(outcome), Some(record(8)), "{text}");
            assert_eq!(text.matches(META_RECORD).count(), 1, "{text}");
        }
    }

    #[test]
    fn what_cannot_carry_it_stays_as_it_is() {
        for answer in [
            "",
            "no json",
            "[]",
            r#"{"result":7}"#,
            r#"{"result":{"_meta":7}}"#,
            r#"{"error":{"data":"x"}}"#,
            r#"{"error":7}"#,
        ] {
            let text = record(8).put_in_answer(answer.as_bytes());
            assert_eq!(String::from_utf8(text).unwrap(), answer);
        }
    }

    #[test]
    fn a_record_that_no_trail_has_is_passed_over() {
        let long = format!("{{\"origin\":\"{}\",\"n\":1}}", "o".repeat(MAX_ORIGIN + 1));
        for record in [
            "7",
            "{}",
            r#"{"origin":"","n":1}"#,
            r#"{"origin":"a b","n":1}"#,
            r#"{"origin":"a\u202e","n":1}"#,
            r#"{"origin":"a","n":-1}"#,
            r#"{"origin":"a","n":1.5}"#,
            r#"{"origin":"a","n":"1"}"#,
            &long,
        ] {
            let meta = format!("{{\"{META_RECORD}\":{record}}}");
            assert_eq!(MetaRecord::read(json(&meta)), None, "{record}");
        }
    }
}
