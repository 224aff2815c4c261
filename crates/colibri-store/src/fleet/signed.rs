//! Signatures of rows. Each row of tasks and schedules names the host that wrote it, and each state
//! of a task (who has it, its result) the host that brought it there; both are signed by the keys
//! of these hosts' trails. Who can write the database alone makes none of them.
//!
//! A text that is signed begins with its kind, which is that of no other text that a trail's key
//! signs, and a JSON array follows on one line: so two rows that differ never have the same text.
//! The array begins with the board's own name and the host's, so that a signature is of no use on
//! another board, or for another row. Left out is what changes nothing of what is done: the times
//! of the last change and of a claim's end.

use colibri_api::{Task, TaskShare, TaskStatus};
use colibri_text::{brief, hex};
use rusqlite::types::Value;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::lease_renewal::CLAIMS;
use super::people::{Account, FOREIGN, People, is_foreign};
use super::row_seal::RowSeal;
use super::state::FleetState;
use crate::error::TransactionError;
use crate::statements::{HostNames, SharedRow, Statements};

/// The kinds of signed texts.
const TASK: &str = "colibri-mcp/board/task/v1";
const STATE: &str = "colibri-mcp/board/state/v1";
const SCHEDULE: &str = "colibri-mcp/board/schedule/v1";

/// The most characters of a name in a message.
const MAX_NAME: usize = 64;

/// The reason for which a row is foreign.
#[derive(Debug, thiserror::Error)]
enum ForeignRow {
    /// It has no signature.
    #[error("no host has signed it")]
    Unsigned,
    /// Its host does not count at all.
    #[error("the host {0}, which wrote it, is not in hosts.json")]
    Host(String),
    /// Its host does not count for its person.
    #[error("the host {host} does not count for {person} in hosts.json")]
    OtherPerson { host: String, person: String },
    /// Its signature is another row's, or another key's.
    #[error("it is not as the host {0} signed it")]
    Signature(String),
    /// A host spoke for an instance of another.
    #[error("an instance has it of another host than the one that says so")]
    Instance,
    /// A task has a result and is not done, or the other way round.
    #[error("its result does not go with its status")]
    Result,
    /// The board has no name for its person.
    #[error("nobody has the number of its person")]
    Person,
}

/// The digest of a result, as PostgreSQL makes it.
fn digest(result: &str) -> String {
    hex(&Sha256::digest(result.as_bytes()))
}

/// True if who has claimed the task has something to say in this state.
fn is_by_claimer(status: TaskStatus) -> bool {
    !matches!(
        status,
        TaskStatus::Intake | TaskStatus::Queued | TaskStatus::Cancelled
    )
}

/// Signs and checks rows for one host.
#[derive(Clone, Copy)]
pub(super) struct RowSigner<'a> {
    pub(super) state: &'a FleetState,
    pub(super) people: &'a People,
    pub(super) names: &'a dyn HostNames,
}

impl RowSigner<'_> {
    /// The name of a user on the board.
    pub(super) fn person_name(&self, uid: u32) -> String {
        self.account_name(Account::User(uid))
    }

    fn account_name(&self, account: Account) -> String {
        let (Account::User(id) | Account::Group(id)) = account;
        match is_foreign(id) {
            true => self.names.name(i64::from(id - FOREIGN)).unwrap_or_default(),
            false => self.people.name(account),
        }
    }

    fn task_line(&self, task: &Task, host: &str) -> String {
        let (said, limits) = (&task.said, &task.said.limits);
        let share = said.share.map(|share| match share {
            TaskShare::All => "all".to_owned(),
            TaskShare::Group(gid) => self.account_name(Account::Group(gid)),
        });
        let creator = task.person.clone();
        let creator = creator.unwrap_or_else(|| self.person_name(said.created_by));
        let board = &*self.state.board.lock();
        json!([
            board,
            host,
            task.id,
            said.title,
            said.description,
            said.source,
            said.required_capabilities,
            said.priority,
            creator,
            task.created_at,
            share,
            limits.may,
            limits.by_person,
            limits.tainted,
        ])
        .to_string()
    }

    fn task_text(&self, task: &Task, host: &str) -> String {
        format!("{TASK}\n{}\n", self.task_line(task, host))
    }

    /// The text of a state of a task. A task whose host is not known is one that nobody has signed.
    fn state_text(&self, task: &Task, host: &str, result: Option<&str>) -> String {
        let session =
            |session: &Option<String>| session.as_ref().map(|name| self.state.session(name));
        let claimed_by = task.claimed_by.map(|uid| match &task.claimed_person {
            Some(name) => name.clone(),
            None => self.person_name(uid),
        });
        let state = json!([
            host,
            task.said.status.name(),
            task.claim % CLAIMS.unsigned_abs(),
            claimed_by,
            session(&task.claimed_session),
            session(&task.for_session),
            task.attempts,
            task.reason,
            result,
            task.started_at,
            task.ended_at,
        ]);
        let task = self.task_line(task, task.host.as_deref().unwrap_or_default());
        format!("{STATE}\n{task}\n{state}\n")
    }

    /// This host's name, and its signature of a task's state.
    pub(super) fn sign_state(&self, task: &Task, result: Option<&str>) -> [Value; 2] {
        let own = &self.state.host;
        let result = result.map(digest);
        let text = self.state_text(task, &own.name, result.as_deref());
        [own.name.clone().into(), own.signer.sign(&text).into()]
    }

    /// Signs a task that was just added, as this host meant it and not as the database returned it.
    pub(super) fn sign_task(
        &self,
        statements: &mut dyn Statements,
        task: &mut Task,
    ) -> Result<(), TransactionError> {
        let own = &self.state.host;
        (task.host, task.foreign) = (Some(own.name.clone()), None);
        let signature = own.signer.sign(&self.task_text(task, &own.name));
        let [host, state] = self.sign_state(task, None);
        let sql = "UPDATE tasks SET host = ?1, signature = ?2, state_host = ?1, state_signature = ?3 WHERE id = ?4";
        let values = [host, signature.into(), state, task.id.cast_signed().into()];
        statements.execute(sql, &values).map(drop)
    }

    /// The reason for which a task is foreign: no host that counts here has signed it as it stands
    /// on the board.
    fn foreign_task(&self, task: &Task, seal: &RowSeal) -> Option<String> {
        let check = || -> Result<(), ForeignRow> {
            if task.person.is_none() || task.claimed_by.is_some() != task.claimed_person.is_some() {
                return Err(ForeignRow::Person);
            }
            let host = seal.host.as_deref().unwrap_or_default();
            let text = self.task_text(task, host);
            self.check(
                host,
                task.person.as_deref(),
                &text,
                seal.signature.as_deref(),
            )?;
            let status = task.said.status;
            let host = seal.state_host.as_deref().unwrap_or_default();
            let is_of_host = |session: &Option<String>| match session {
                Some(session) => self
                    .state
                    .session(session)
                    .split_once(':')
                    .is_some_and(|(of, _)| of == host),
                None => true,
            };
            if !is_of_host(&task.for_session)
                || is_by_claimer(status) && !is_of_host(&task.claimed_session)
            {
                return Err(ForeignRow::Instance);
            }
            if seal.result.is_some() != (status == TaskStatus::Done) {
                return Err(ForeignRow::Result);
            }
            let claimer = task
                .claimed_person
                .as_deref()
                .filter(|_| is_by_claimer(status));
            let text = self.state_text(task, host, seal.result.as_deref());
            self.check(host, claimer, &text, seal.state_signature.as_deref())
        };
        check().err().map(|why| why.to_string())
    }

    fn schedule_text(&self, host: &str, facts: &serde_json::Value) -> String {
        format!(
            "{SCHEDULE}\n{}\n",
            json!([&*self.state.board.lock(), host, facts])
        )
    }

    /// Signs a schedule that was just added: its number, times, work, creator, and time of
    /// creation.
    pub(super) fn sign_schedule(
        &self,
        statements: &mut dyn Statements,
        id: u64,
        facts: &serde_json::Value,
    ) -> Result<(), TransactionError> {
        let own = &self.state.host;
        let signature = own.signer.sign(&self.schedule_text(&own.name, facts));
        let values = [
            own.name.clone().into(),
            signature.into(),
            id.cast_signed().into(),
        ];
        let sql = "UPDATE schedules SET host = ?1, signature = ?2 WHERE id = ?3";
        statements.execute(sql, &values).map(drop)
    }

    /// The reason for which a schedule is foreign.
    fn foreign_schedule(
        &self,
        facts: &serde_json::Value,
        creator: Option<&str>,
        seal: &RowSeal,
    ) -> Option<String> {
        let host = seal.host.as_deref().unwrap_or_default();
        let text = self.schedule_text(host, facts);
        let checked = self.check(host, creator, &text, seal.signature.as_deref());
        checked.err().map(|why| why.to_string())
    }

    /// Looks whether a host that counts for a person has signed a text.
    fn check(
        &self,
        host: &str,
        person: Option<&str>,
        text: &str,
        signature: Option<&str>,
    ) -> Result<(), ForeignRow> {
        let Some(signature) = signature else {
            return Err(ForeignRow::Unsigned);
        };
        let own = &self.state.host;
        let counted = self.state.counted.lock().clone();
        let shown = brief(host, MAX_NAME);
        let key = match counted.get(host) {
            _ if host == own.name => own.signer.verifier(),
            None => return Err(ForeignRow::Host(shown)),
            Some(counted) => {
                if let Some(person) = person.filter(|person| !counted.counts_for(host, person)) {
                    let person = brief(person, MAX_NAME);
                    return Err(ForeignRow::OtherPerson {
                        host: shown,
                        person,
                    });
                }
                &counted.key
            }
        };
        match key.verify(text, signature) {
            true => Ok(()),
            false => Err(ForeignRow::Signature(shown)),
        }
    }
}

/// A row as the board has it, and what checks its signatures.
pub(super) struct SignedRow<'a> {
    pub(super) signer: RowSigner<'a>,
    pub(super) seal: RowSeal,
}

impl SharedRow for SignedRow<'_> {
    fn names(&self) -> &dyn HostNames {
        self.signer.names
    }

    fn host(&self) -> Option<&str> {
        self.seal.host.as_deref()
    }

    fn foreign_task(&self, task: &Task) -> Option<String> {
        self.signer.foreign_task(task, &self.seal)
    }

    fn foreign_schedule(&self, facts: &serde_json::Value, creator: Option<&str>) -> Option<String> {
        self.signer.foreign_schedule(facts, creator, &self.seal)
    }

    fn is_signed_result(&self, result: &str) -> bool {
        self.seal.result == Some(digest(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_database() {
        // SELECT encode(sha256(convert_to('{"n":1}', 'UTF8')), 'hex')
        let known = "2bfd14f43d17fc7cea24e0917a8879b4b2f880b8baeec1b9d90fbaad655e71bd";
        assert_eq!(digest("{\"n\":1}"), known);
    }
}
