//! Calls that wait for a person.
//!
//! Everything but a clear yes is a no: a call whose time runs out, whose queue is full, whose
//! daemon ends or whose caller cancels is not made. A decision is for one call, which the chain
//! holds: what was approved is what is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use colibri_api::Approval;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;

use colibri_protocol::{Code, Failure};
use colibri_registry::sha256_hex;
use colibri_text::{brief, visible};
use colibri_wire::json::{Json, JsonKind, string};

/// The time for which a call waits, where nothing else is said.
pub const DEFAULT_EXPIRY: Duration = Duration::from_secs(600);

/// The most calls of one uid that wait at once: one user must not fill the queue for the others.
const MAX_OF_ONE: usize = 16;
/// The most calls that wait at once.
const MAX_WAITING: usize = 256;
/// Changes of the queue that are kept for who watches slowly.
const KEPT_CHANGES: usize = 256;
/// The most bytes of a summary.
const MAX_SUMMARY: usize = 32 << 10;
/// The most characters of one value of it: a long one hides none that stands behind it.
const MAX_VALUE: usize = 2048;
/// Parts of names whose values are not shown where messages are watched.
const SECRET_NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "credential",
    "authorization",
    "cookie",
    "privatekey",
];

/// The decision of a person, or of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The call may be made.
    Approved {
        /// The person.
        by: u32,
    },
    /// It may not.
    Denied {
        /// The person.
        by: u32,
    },
    /// Nobody answered in time, or the daemon is ending.
    Expired,
}

/// The reason for which a decision was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// It was decided, has expired, was cancelled, or never was.
    #[error("no call {0} is waiting: it was decided, has expired or was cancelled")]
    NotWaiting(String),
    /// The approver made the call.
    #[error(
        "call {0} was made by your own uid; another operator has to approve it (self_approve in clients.json)"
    )]
    OwnCall(String),
}

/// The caller whose call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalCaller<'a> {
    /// The caller, or the person for whom the calling agent runs.
    pub uid: u32,
    /// The agent that called, if one did.
    pub agent: Option<&'a str>,
    /// Its instance.
    pub session: Option<&'a str>,
}

struct ApprovalEntry {
    shown: Approval,
    since: Instant,
    answer: oneshot::Sender<Decision>,
}

/// A change of the queue.
#[derive(Debug, Clone)]
pub enum ApprovalChange {
    /// A call waits.
    Waiting,
    /// A person has decided.
    Decided {
        /// The call, without its arguments.
        approval: Approval,
        /// True if it may be made.
        approved: bool,
    },
}

/// The queue.
pub struct ApprovalQueue {
    waiting: Arc<Mutex<BTreeMap<String, ApprovalEntry>>>,
    expiry: Duration,
    changes: broadcast::Sender<ApprovalChange>,
}

/// A call in the queue; dropping it takes the call out.
pub struct PendingApproval {
    /// Its id.
    pub id: String,
    /// The tool and its server, as a person reads them.
    operation: String,
    answer: oneshot::Receiver<Decision>,
    until: Instant,
    waiting: Arc<Mutex<BTreeMap<String, ApprovalEntry>>>,
}

fn lock(
    waiting: &Mutex<BTreeMap<String, ApprovalEntry>>,
) -> MutexGuard<'_, BTreeMap<String, ApprovalEntry>> {
    waiting.lock()
}

impl ApprovalQueue {
    /// An empty queue in which calls wait for so long.
    pub fn new(expiry: Duration) -> ApprovalQueue {
        ApprovalQueue {
            waiting: Arc::default(),
            expiry,
            changes: broadcast::Sender::new(KEPT_CHANGES),
        }
    }

    /// The changes from now on.
    pub fn watch(&self) -> broadcast::Receiver<ApprovalChange> {
        self.changes.subscribe()
    }

    /// Puts a call into the queue. `arguments` is what approvers get to see: a [`summary`], after
    /// the daemon's own secrets were taken out of it.
    ///
    /// # Errors
    /// [`Code::ApprovalDenied`] if too many calls wait already.
    pub fn ask(
        &self,
        asker: &ApprovalCaller<'_>,
        server: &str,
        tool: &str,
        rule: &str,
        arguments: String,
    ) -> Result<PendingApproval, Failure> {
        let mut waiting = lock(&self.waiting);
        // An agent fills its own part of the queue, and not that of the person for whom it runs.
        let is_own =
            |shown: &Approval| shown.uid == asker.uid && shown.session.as_deref() == asker.session;
        let own = waiting
            .values()
            .filter(|entry| is_own(&entry.shown))
            .count();
        // Nor do many of them fill that of people.
        let most = asker.session.map_or(MAX_WAITING, |_| MAX_WAITING / 2);
        if own >= MAX_OF_ONE || waiting.len() >= most {
            let failure = Failure::new(
                Code::ApprovalDenied,
                "too many calls wait for approval already",
            );
            return Err(failure
                .of_server(server)
                .by_rule(rule)
                .advising("wait until an operator has decided about them (colibri-mcp approvals), then call again"));
        }
        let mut bytes = [0; 4];
        let id = loop {
            if getrandom::fill(&mut bytes).is_err() {
                let failure =
                    Failure::new(Code::ApprovalDenied, "the call could not be given a number");
                return Err(failure.of_server(server).by_rule(rule));
            }
            // Not counted up: what was decided about a number must never be about another call
            // after a restart.
            let id = format!("{:08x}", u32::from_be_bytes(bytes));
            if !waiting.contains_key(&id) {
                break id;
            }
        };
        let (sender, answer) = oneshot::channel();
        let since = Instant::now();
        let asked = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let shown = Approval {
            id: id.clone(),
            uid: asker.uid,
            agent: asker.agent.map(str::to_owned),
            session: asker.session.map(str::to_owned),
            server: server.to_owned(),
            tool: tool.to_owned(),
            rule: rule.to_owned(),
            arguments,
            asked: asked.as_secs(),
            expires: asked.saturating_add(self.expiry).as_secs(),
        };
        let entry = ApprovalEntry {
            shown,
            since,
            answer: sender,
        };
        waiting.insert(id.clone(), entry);
        drop(waiting);
        // Nobody has to watch.
        let _ = self.changes.send(ApprovalChange::Waiting);
        Ok(PendingApproval {
            id,
            operation: format!("{} of {}", brief(tool, 200), brief(server, 40)),
            answer,
            until: since + self.expiry,
            waiting: self.waiting.clone(),
        })
    }

    /// The calls that wait, the oldest first.
    pub fn list(&self) -> Vec<Approval> {
        let waiting = lock(&self.waiting);
        let mut list: Vec<_> = waiting.values().collect();
        list.sort_by_key(|entry| (entry.since, &entry.shown.id));
        list.into_iter().map(|entry| entry.shown.clone()).collect()
    }

    /// Decides about a call, once. That `by` is an operator at all is for the caller to check.
    ///
    /// # Errors
    /// No such call, or an approver who made it and has no `self_approve`. Denying one's own call
    /// is always possible.
    pub fn decide(
        &self,
        id: &str,
        approve: bool,
        by: u32,
        self_approve: bool,
    ) -> Result<Approval, DecideError> {
        let mut waiting = lock(&self.waiting);
        let shown = id.to_owned();
        let gone = || DecideError::NotWaiting(brief(&shown, 20));
        let entry = waiting.get(id).ok_or_else(gone)?;
        if approve && entry.shown.uid == by && !self_approve {
            return Err(DecideError::OwnCall(entry.shown.id.clone()));
        }
        let entry = waiting.remove(id).ok_or_else(gone)?;
        let decision = if approve {
            Decision::Approved { by }
        } else {
            Decision::Denied { by }
        };
        // The call may just have been cancelled or have expired: then nothing was decided.
        entry.answer.send(decision).map_err(|_| gone())?;
        let approval = Approval {
            arguments: String::new(),
            ..entry.shown.clone()
        };
        let _ = self.changes.send(ApprovalChange::Decided {
            approval,
            approved: approve,
        });
        Ok(entry.shown)
    }
}

impl PendingApproval {
    /// The progress notification for the waiting caller, for the progress token of the call, which
    /// is JSON as it was written.
    pub fn notice(&self, token: &str) -> String {
        let seconds = self
            .until
            .saturating_duration_since(Instant::now())
            .as_secs();
        let message = string(&format!(
            "the call of {} waits for approval, at most {seconds} s: an operator other than its caller allows it with \
             `colibri-mcp approvals approve {}`",
            self.operation, self.id
        ));
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":0,"message":{message},"_meta":{{"org.colibri/approval":"{id}"}}}}}}"#,
            id = self.id
        )
    }

    /// Waits for the decision, or until time is up.
    pub async fn decision(&mut self) -> Decision {
        let until = self.until;
        match tokio::time::timeout_at(until, &mut self.answer).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(_)) => Decision::Expired,
            Err(_) => self.close().unwrap_or(Decision::Expired),
        }
    }

    /// Takes the call out of the queue, since it was decided elsewhere. The decision that an
    /// approver took before that, if there is one: it counts.
    pub fn withdraw(mut self) -> Option<Decision> {
        self.close()
    }

    /// Closes the queue's way to the call and takes its row away: an approver who decides now is
    /// told that it is too late.
    fn close(&mut self) -> Option<Decision> {
        self.answer.close();
        lock(&self.waiting).remove(&self.id);
        self.answer.try_recv().ok()
    }
}

impl Drop for PendingApproval {
    fn drop(&mut self) {
        lock(&self.waiting).remove(&self.id);
    }
}

impl Decision {
    /// The answer to the call; `None` if it may be made. `program_reply` is the reply of the
    /// caller's program to a request that a person should have answered.
    pub fn failure(self, server: &str, rule: &str, program_reply: Option<&str>) -> Option<Failure> {
        let why = match (self, program_reply) {
            (Decision::Approved { .. }, _) => return None,
            (Decision::Denied { by }, _) => format!("the operator with uid {by} refused this call"),
            (Decision::Expired, None) => "nobody approved this call in time".to_owned(),
            (Decision::Expired, Some(reply)) => format!(
                "nobody approved this call in time: the client showed it to no person, its program replied {reply} by itself"
            ),
        };
        Some(
            Failure::new(Code::ApprovalDenied, why)
                .of_server(server)
                .by_rule(rule),
        )
    }
}

/// Arguments as an approver sees them: all of them, one member a line, hidden characters escaped,
/// whatever the caller called them. Of a value over 2,048 characters the middle is left out, and
/// what would be over 32 KiB; then the summary begins by saying so. It ends with the length and the
/// SHA-256 of the whole.
pub fn summary(arguments: &[u8]) -> String {
    let digest = sha256_hex(arguments);
    let mut shown = SummaryText::default();
    match Json::part(arguments, 0..arguments.len()) {
        Some(json) => shown.show(json, "", 0),
        None => shown.is_cut = true,
    }
    let mut end = MAX_SUMMARY.min(shown.text.len());
    while !shown.text.is_char_boundary(end) {
        end -= 1;
    }
    let is_whole = end == shown.text.len() && !shown.is_cut;
    let begin = if is_whole {
        ""
    } else {
        "NOT ALL OF THE ARGUMENTS IS SHOWN:\n"
    };
    let more = if end == shown.text.len() { "" } else { "…\n" };
    format!(
        "{begin}{}{more}({} bytes, sha256 {digest})",
        &shown.text[..end],
        arguments.len()
    )
}

/// True if a member of this name may hold what nobody else is to read.
pub fn sounds_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    SECRET_NAMES.iter().any(|part| plain.contains(part))
}

/// The text of a summary.
#[derive(Default)]
struct SummaryText {
    text: String,
    /// True if a part of a value was left out.
    is_cut: bool,
}

impl SummaryText {
    /// Shows members of objects by their path, down to a few levels; what is deeper stands as it
    /// was written.
    fn show(&mut self, json: Json<'_>, path: &str, depth: usize) {
        const MAX_DEPTH: usize = 8;
        const MAX_KEY: usize = 100;
        if self.text.len() > MAX_SUMMARY {
            return;
        }
        if json.is_object() && depth < MAX_DEPTH && json.members().next().is_some() {
            for member in json.members() {
                let key = member
                    .key
                    .as_str()
                    .unwrap_or_else(|| member.key.text().into());
                self.is_cut |= key.chars().count() > MAX_KEY;
                self.show(
                    member.value,
                    &format!("{path}/{}", brief(&key, MAX_KEY)),
                    depth + 1,
                );
            }
            return;
        }
        if json.kind() == JsonKind::Array
            && depth < MAX_DEPTH
            && json.elements().any(|element| element.is_object())
        {
            for (index, element) in json.elements().enumerate() {
                self.show(element, &format!("{path}/{index}"), depth + 1);
            }
            return;
        }
        let text = match json.as_str() {
            Some(text) if json.kind() == JsonKind::String => {
                format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            }
            _ => json.text().to_owned(),
        };
        let value = self.value(&text);
        self.text.push_str(&format!("{path}: {value}\n"));
    }

    /// A value, without its middle where it is long.
    fn value(&mut self, text: &str) -> String {
        let text = visible(text);
        let characters = text.chars().count();
        if characters <= MAX_VALUE {
            return text.into_owned();
        }
        self.is_cut = true;
        let at = |character: usize| {
            text.char_indices()
                .nth(character)
                .map_or(text.len(), |(at, _)| at)
        };
        let (begin, end) = (at(MAX_VALUE / 2), at(characters - MAX_VALUE / 2));
        format!(
            "{}[… {} bytes not shown …]{}",
            &text[..begin],
            end - begin,
            &text[end..]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue() -> ApprovalQueue {
        ApprovalQueue::new(DEFAULT_EXPIRY)
    }

    fn person(uid: u32) -> ApprovalCaller<'static> {
        ApprovalCaller {
            uid,
            agent: None,
            session: None,
        }
    }

    fn ask(queue: &ApprovalQueue, uid: u32) -> PendingApproval {
        queue
            .ask(
                &person(uid),
                "github",
                "create_issue",
                "rule",
                summary(b"{}"),
            )
            .unwrap()
    }

    #[tokio::test]
    async fn a_yes_is_for_one_call_and_once() {
        let queue = queue();
        let (mut first, mut second) = (ask(&queue, 1001), ask(&queue, 1001));
        assert_eq!(queue.list().len(), 2);
        let id = first.id.clone();
        assert_eq!(
            queue.decide(&id, true, 1, false).unwrap().tool,
            "create_issue"
        );
        assert_eq!(first.decision().await, Decision::Approved { by: 1 });
        assert_eq!(
            queue.decide(&id, true, 1, false),
            Err(DecideError::NotWaiting(id))
        );
        assert_eq!(queue.list()[0].id, second.id);
        let id = second.id.clone();
        queue.decide(&id, false, 2, false).unwrap();
        let decision = second.decision().await;
        assert_eq!(decision, Decision::Denied { by: 2 });
        let failure = decision.failure("github", "rule", None).unwrap();
        assert_eq!(
            (failure.code, failure.rule.as_deref()),
            (Code::ApprovalDenied, Some("rule"))
        );
        assert!(
            Decision::Approved { by: 1 }
                .failure("github", "rule", None)
                .is_none()
        );
    }

    #[tokio::test]
    async fn nobody_approves_their_own_call_unless_the_file_says_so() {
        let queue = queue();
        let mut waiting = ask(&queue, 1001);
        let id = waiting.id.clone();
        assert_eq!(
            queue.decide(&id, true, 1001, false),
            Err(DecideError::OwnCall(id.clone()))
        );
        assert_eq!(queue.list().len(), 1, "it still waits");
        queue.decide(&id, true, 1001, true).unwrap();
        assert_eq!(waiting.decision().await, Decision::Approved { by: 1001 });
        let mut waiting = ask(&queue, 1001);
        queue
            .decide(&waiting.id.clone(), false, 1001, false)
            .unwrap();
        assert_eq!(waiting.decision().await, Decision::Denied { by: 1001 });
    }

    #[tokio::test(start_paused = true)]
    async fn time_runs_out_as_a_no() {
        let queue = queue();
        let mut waiting = ask(&queue, 1001);
        let id = waiting.id.clone();
        let began = Instant::now();
        assert_eq!(waiting.decision().await, Decision::Expired);
        assert_eq!(began.elapsed(), DEFAULT_EXPIRY);
        assert!(queue.list().is_empty());
        assert!(queue.decide(&id, true, 1, false).is_err());
        assert!(Decision::Expired.failure("s", "r", None).is_some());
    }

    #[tokio::test]
    async fn a_cancelled_call_and_an_ending_daemon_are_a_no() {
        let queue = queue();
        let waiting = ask(&queue, 1001);
        let id = waiting.id.clone();
        drop(waiting);
        assert!(queue.list().is_empty() && queue.decide(&id, true, 1, false).is_err());
        let mut waiting = ask(&queue, 1001);
        lock(&queue.waiting).clear();
        assert_eq!(waiting.decision().await, Decision::Expired);
    }

    #[tokio::test]
    async fn a_call_that_is_withdrawn_has_the_decision_that_came_first() {
        let queue = queue();
        for (approve, expected) in [
            (Some(true), Some(Decision::Approved { by: 1 })),
            (Some(false), Some(Decision::Denied { by: 1 })),
            (None, None),
        ] {
            let waiting = ask(&queue, 1001);
            let id = waiting.id.clone();
            if let Some(approve) = approve {
                queue.decide(&id, approve, 1, false).unwrap();
            }
            assert_eq!(waiting.withdraw(), expected);
            assert_eq!(
                queue.decide(&id, true, 1, false),
                Err(DecideError::NotWaiting(id))
            );
            assert!(queue.list().is_empty());
        }
    }

    #[test]
    fn the_caller_reads_which_call_waits_and_what_allows_it() {
        let queue = queue();
        let waiting = queue
            .ask(
                &person(1001),
                "fs",
                "wr\"ite\u{202e}",
                "rule",
                summary(b"{}"),
            )
            .unwrap();
        let notice: serde_json::Value = serde_json::from_str(&waiting.notice("7")).unwrap();
        let message = notice["params"]["message"].as_str().unwrap();
        assert!(message.starts_with("the call of wr\"ite"), "{message}");
        assert!(
            message.contains(" of fs waits for approval") && !message.contains('\u{202e}'),
            "{message}"
        );
        assert!(
            message.contains(&format!("colibri-mcp approvals approve {}", waiting.id)),
            "{message}"
        );
    }

    #[test]
    fn an_agent_fills_no_part_of_the_queue_but_its_own() {
        let queue = queue();
        let agent = |session| ApprovalCaller {
            agent: Some("coder"),
            session: Some(session),
            ..person(1001)
        };
        let call = |asker: &ApprovalCaller<'_>| queue.ask(asker, "s", "t", "r", String::new());
        let held: Vec<PendingApproval> = (0..MAX_OF_ONE)
            .map(|_| call(&agent("a")).unwrap())
            .collect();
        assert!(call(&agent("a")).is_err());
        let (other, own) = (call(&agent("b")).unwrap(), call(&person(1001)).unwrap());
        let shown = queue.list();
        assert_eq!(
            (shown[0].agent.as_deref(), shown[0].session.as_deref()),
            (Some("coder"), Some("a"))
        );
        assert_eq!(shown.len(), held.len() + 2);
        // It is still a call for that uid.
        for id in [&held[0].id, &other.id, &own.id] {
            assert_eq!(
                queue.decide(id, true, 1001, false),
                Err(DecideError::OwnCall(id.clone()))
            );
        }
        assert!(queue.decide(&held[0].id, true, 1001, true).is_ok());
    }

    #[test]
    fn many_agents_leave_half_of_the_queue_to_people() {
        let queue = queue();
        let sessions: Vec<String> = (0..MAX_WAITING).map(|n| format!("{n:016x}")).collect();
        let agents = sessions.iter().map(|session| ApprovalCaller {
            agent: Some("coder"),
            session: Some(session),
            ..person(1001)
        });
        let held: Vec<_> = agents
            .map(|asker| queue.ask(&asker, "s", "t", "r", String::new()))
            .collect();
        assert_eq!(
            held.iter().filter(|held| held.is_ok()).count(),
            MAX_WAITING / 2
        );
        assert!(
            queue
                .ask(&person(1001), "s", "t", "r", String::new())
                .is_ok()
        );
    }

    #[test]
    fn the_queue_is_bounded_for_each_and_for_all() {
        let queue = queue();
        let mut held: Vec<PendingApproval> = (0..MAX_OF_ONE).map(|_| ask(&queue, 1)).collect();
        let full = queue
            .ask(&person(1), "s", "t", "r", String::new())
            .err()
            .unwrap();
        assert_eq!(full.code, Code::ApprovalDenied);
        for uid in 2..=(MAX_WAITING / MAX_OF_ONE) as u32 {
            held.extend((0..MAX_OF_ONE).map(|_| ask(&queue, uid)));
        }
        assert!(
            queue
                .ask(&person(999), "s", "t", "r", String::new())
                .is_err()
        );
        held.pop();
        assert!(
            queue
                .ask(&person(999), "s", "t", "r", String::new())
                .is_ok()
        );
    }

    #[test]
    fn summaries_show_all_of_the_arguments_and_nothing_hidden() {
        let shown = summary(
            br#"{"title":"a\u001b[2Jb","session_token_cmd":"rm -rf /","nested":{"Pass-Word":"x","n":1},"l":[{"token":{"x":"y"}}],"e":[1,2],
                "o":{},"d":{"d":{"d":{"d":{"d":{"d":{"d":{"d":{"d":"deep"}}}}}}}}}"#,
        );
        assert!(
            !shown.contains('\u{1b}') && !shown.contains("NOT ALL"),
            "{shown}"
        );
        for line in [
            "/session_token_cmd: \"rm -rf /\"\n",
            "/nested/Pass-Word: \"x\"\n",
            "/nested/n: 1\n",
            "/l/0/token/x: \"y\"\n",
            "/e: [1,2]\n",
            "/o: {}\n",
            "deep",
            "bytes, sha256 ",
        ] {
            assert!(shown.contains(line), "{line} {shown}");
        }
        // What is long hides nothing behind it, and is said to be cut.
        let long =
            summary(format!("{{\"a\":\"{}\",\"cmd\":\"rm\"}}", "é".repeat(100_000)).as_bytes());
        assert!(
            long.starts_with("NOT ALL OF THE ARGUMENTS IS SHOWN:\n/a: \"é"),
            "{long:.80}"
        );
        assert!(
            long.contains("not shown …]é")
                && long.contains("/cmd: \"rm\"\n")
                && long.contains("200019 bytes")
        );
        let many: Vec<String> = (0..10_000).map(|n| format!("\"k{n}\":{n}")).collect();
        let many = summary(format!("{{{}}}", many.join(",")).as_bytes());
        assert!(
            many.starts_with("NOT ALL") && many.len() < MAX_SUMMARY + 200,
            "{}",
            many.len()
        );
    }

    proptest! {
        #[test]
        fn summaries_are_bounded_and_visible(text in any::<String>(), key in any::<String>()) {
            let arguments = serde_json::json!({ key: [text.clone(), {"a": text}] }).to_string();
            let shown = summary(arguments.as_bytes());
            prop_assert!(shown.len() <= MAX_SUMMARY + 200);
            prop_assert!(!shown.contains(|c| c != '\n' && colibri_text::is_hidden(c)));
        }
    }
}
