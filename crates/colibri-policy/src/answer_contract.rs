//! The part of a contract about a tool's answers: their required form, what is recorded of them and
//! of refused calls, the calls that are made again, and those that are left to the board.
//!
//! It speaks of the structured result of our own integrations: a success has its facts in it, a
//! failure is a [`ReportedFailure`].

use std::collections::BTreeMap;
use std::time::Duration;

use colibri_json::{DocumentError, Object, ValueCursor};
use colibri_protocol::{Code, Failure};
use colibri_text::brief;
use colibri_wire::Json;

use super::deferral::{Left, TaskTerm};
use super::place::RulePlace;
use super::reported_failure::ReportedFailure;
use super::result_term::ResultTerm;
use super::strict_json::Exact;
use super::terms::{self, Pointer};

/// The most attempts after the first, and the longest wait before one, in milliseconds.
const MAX_RETRIES: usize = 10;
const MAX_WAIT_MS: u64 = 600_000;
/// The most fields of a record, and characters of a text.
const MAX_FIELDS: usize = 16;
const MAX_TEXT: usize = 200;

/// Takes the values of secrets out of text.
pub type Redact<'a> = &'a dyn Fn(&str) -> String;

/// The part of a contract about the answers of one tool.
#[derive(Debug)]
pub struct AnswerContract {
    /// The place of `result`.
    place: RulePlace,
    result: Option<ResultTerm>,
    record: Option<RecordedField>,
    refused: Option<RecordedField>,
    /// The waits before further attempts, by the code of the failure.
    retries: BTreeMap<String, Vec<Duration>>,
    task: Option<TaskTerm>,
}

#[derive(Debug)]
struct RecordedField {
    event: String,
    /// Names, and where they stand.
    fields: Vec<(String, Pointer)>,
}

/// The recorded facts of a result.
#[derive(Debug, PartialEq, Eq)]
pub struct ResultFacts<'a> {
    /// The kind of record.
    pub event: &'a str,
    /// Its fields, those that the result has.
    pub fields: Vec<(&'a str, FieldFact)>,
}

/// The value of a field.
#[derive(Debug, PartialEq, Eq)]
pub enum FieldFact {
    /// Text, escaped and cut.
    Text(String),
    /// A whole number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
}

impl AnswerContract {
    /// The keys of a tool's term that are read here.
    pub(super) const KEYS: [&'static str; 5] = ["record", "refused", "result", "retries", "task"];
    /// Those that say something of what the tool answers.
    const OF_RESULTS: [&'static str; 3] = ["record", "result", "retries"];

    /// Reads them.
    pub(super) fn read(
        keys: &Object<'_>,
        is_denied: bool,
    ) -> Result<AnswerContract, DocumentError> {
        let denied = AnswerContract::OF_RESULTS
            .iter()
            .find_map(|key| keys.get(key))
            .filter(|_| is_denied);
        if let Some(key) = denied {
            return Err(key.error(
                "a tool that is denied answers nothing: beside deny there are refused and task",
            ));
        }
        Ok(AnswerContract {
            place: RulePlace::of_key(keys, "result"),
            result: keys.read("result", ResultTerm::read)?,
            record: keys.read("record", |record| recorded(record, "the structured result"))?,
            refused: keys.read("refused", |refused| recorded(refused, "the arguments"))?,
            retries: keys.read("retries", retries)?.unwrap_or_default(),
            task: keys.read("task", |task| TaskTerm::read(task, is_denied))?,
        })
    }

    /// True if results are checked.
    pub fn checks_results(&self) -> bool {
        self.result.is_some()
    }

    /// Checks a tool's result, of which the relay takes that it is an error or not.
    ///
    /// # Errors
    /// [`Code::ResultRefused`] with the contract's reason, what of the result is not as it must be,
    /// and the place in the file.
    pub fn check(
        &self,
        result: Json<'_>,
        says_error: bool,
        arguments: &[u8],
    ) -> Result<(), Failure> {
        let Some(term) = &self.result else {
            return Ok(());
        };
        term.check(result, says_error, arguments).map_err(|why| {
            self.refuse(&format!(
                "the tool did run, but its result is not as the contract says: {why}"
            ))
        })
    }

    /// Checks what a tool asks before it has a result.
    ///
    /// # Errors
    /// [`Code::ResultRefused`]: some reader could take it for the result, which nobody has checked.
    pub fn check_question(&self, question: Json<'_>) -> Result<(), Failure> {
        match self.result {
            Some(_) => ResultTerm::check_question(question).map_err(|why| self.refuse(&why)),
            None => Ok(()),
        }
    }

    /// The refusal of a tool that answers with a task: nobody would check the result of that.
    pub fn refuse_task(&self) -> Failure {
        self.refuse(
            "the server answered with a task, whose result the contract could not check; it was told to cancel it",
        )
    }

    fn refuse(&self, why: &str) -> Failure {
        Failure::new(Code::ResultRefused, why).by_rule(self.place.to_string())
    }

    /// True if a key of the term names this code of a failure.
    pub fn names(&self, code: &str) -> bool {
        self.retries.contains_key(code) || self.task.as_ref().is_some_and(|task| task.names(code))
    }

    /// The wait before the next attempt at a call, whose attempt of this number (from 1) failed so.
    /// A failure that says that it stays has none. A provider that says when to come back is
    /// obeyed, unless that is too long to wait.
    pub fn next_attempt(&self, failure: &ReportedFailure, attempt: u32) -> Option<Duration> {
        let waits = self
            .retries
            .get(&failure.code)
            .filter(|_| failure.transient != Some(false))?;
        let wait = *waits.get(attempt.checked_sub(1)? as usize)?;
        let wait = failure
            .retry_after
            .map_or(wait, |after| after.max(Duration::from_secs(1)));
        (wait <= Duration::from_millis(MAX_WAIT_MS)).then_some(wait)
    }

    /// The recorded facts of a result that does not report a failure. `redact` takes secrets out of
    /// text.
    pub fn facts(&self, result: Json<'_>, redact: Redact<'_>) -> Option<ResultFacts<'_>> {
        let recorded = self.record.as_ref()?;
        Some(recorded.facts(Some(result.get("structuredContent")?), redact))
    }

    /// The recorded facts of a call that the contract refused. Arguments that two readers could see
    /// differently say nothing.
    pub fn refused(&self, arguments: &[u8], redact: Redact<'_>) -> Option<ResultFacts<'_>> {
        let recorded = self.refused.as_ref()?;
        Some(recorded.facts(unambiguous(arguments), redact))
    }

    /// True if calls may be left to the board.
    pub fn leaves_calls(&self) -> bool {
        self.task.is_some()
    }

    /// The deferred call that a call which ended with this code leaves to the board.
    pub fn left(&self, code: &str, arguments: &[u8], redact: Redact<'_>) -> Option<Left> {
        let task = self.task.as_ref().filter(|task| task.takes(code))?;
        let arguments = unambiguous(arguments);
        Some(task.left(|place| {
            let value = place.of(arguments?)?;
            match fact(value, redact)? {
                // Whole: it is cut where it is shown.
                FieldFact::Text(_) => Some(redact(&value.as_str()?)),
                FieldFact::Number(number) => Some(number.to_string()),
                FieldFact::Flag(flag) => Some(flag.to_string()),
            }
        }))
    }
}

impl RecordedField {
    fn facts(&self, object: Option<Json<'_>>, redact: Redact<'_>) -> ResultFacts<'_> {
        let fields = self.fields.iter();
        ResultFacts {
            event: &self.event,
            fields: fields
                .filter_map(|(name, place)| {
                    Some((name.as_str(), fact(place.of(object?)?, redact)?))
                })
                .collect(),
        }
    }
}

/// A value as it is recorded, if it is a whole number, yes or no, or text: escaped and cut, without
/// secrets.
fn fact(value: Json<'_>, redact: Redact<'_>) -> Option<FieldFact> {
    let text = || Some(FieldFact::Text(brief(&redact(&value.as_str()?), MAX_TEXT)));
    let number = value.as_u64().map(FieldFact::Number);
    number
        .or_else(|| value.as_bool().map(FieldFact::Flag))
        .or_else(text)
}

/// Arguments that every reader sees alike.
fn unambiguous(arguments: &[u8]) -> Option<Json<'_>> {
    let exact = Exact::read(arguments).ok()?;
    exact
        .ambiguous()
        .is_none()
        .then(|| Json::part(arguments, 0..arguments.len()))?
}

/// Reads what is recorded, of fields in `whose` object.
fn recorded(cursor: &ValueCursor<'_>, whose: &str) -> Result<RecordedField, DocumentError> {
    let keys = cursor.object(&["event", "fields"])?;
    let event = keys.need("event")?;
    let name = event.text()?;
    // The daemon's own events have no such name.
    if !terms::is_name(name) || !name.contains('_') {
        return Err(
            event.error("must be two words or more of a-z and 0-9, joined by _, like model_call")
        );
    }
    Ok(RecordedField {
        event: name.to_owned(),
        fields: terms::fields(keys.need("fields")?, whose, MAX_FIELDS)?,
    })
}

fn retries(cursor: &ValueCursor<'_>) -> Result<BTreeMap<String, Vec<Duration>>, DocumentError> {
    let mut retries = BTreeMap::new();
    for member in cursor.members()? {
        if !terms::is_code(member.key) {
            return Err(member.key_error(
                "a failure's code begins with A-Z and is of A-Z, 0-9 and _, like MODEL_FAILED",
            ));
        }
        let waits = member.value.array()?;
        if !(1..=MAX_RETRIES).contains(&waits.len()) {
            let why = format!(
                "must have 1 to {MAX_RETRIES} waits in milliseconds, one for each further attempt"
            );
            return Err(member.value.error(why));
        }
        let waits = waits
            .iter()
            .map(|wait| wait.integer(1..=MAX_WAIT_MS).map(Duration::from_millis));
        retries.insert(member.key.to_owned(), waits.collect::<Result<_, _>>()?);
    }
    Ok(retries)
}
