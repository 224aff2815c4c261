//! The advertised items of a server: the definitions that count, and their pin check.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use colibri_json::DocumentError;
use colibri_text::brief;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::context::ServerContext;
use super::listing::Catalogue;
use super::session::ServerSession;
use super::specification::ServerSpecification;
use colibri_policy::PinCheck;
use colibri_protocol::{Code, Failure, Feature};
use colibri_trail::TrailEvent;

/// The most names of one line of the log, or of one record.
const MAX_NAMED: usize = 10;
/// Changes of one server's definitions that are logged and recorded as they come.
const MAX_NOTES: u32 = 50;
/// After these, one in this time.
const BETWEEN_NOTES: Duration = Duration::from_secs(60);

/// The items that one server advertises.
pub(crate) struct AdvertisedItems {
    spec: Arc<ServerSpecification>,
    inner: Mutex<AdvertisedItemsInner>,
    /// Locked while definitions are checked: the last check is also the one that counts.
    judging: Arc<tokio::sync::Mutex<()>>,
    /// True if it is in the table of tools.
    in_table: AtomicBool,
    /// True if the server was seen to ask people for something.
    asks: AtomicBool,
    retired: AtomicBool,
}

struct AdvertisedItemsInner {
    /// The report of the process that was asked last.
    catalogue: Arc<Catalogue>,
    /// Its pin check.
    judgement: Arc<PinCheck>,
    /// The first label of its entry that is about nothing of this.
    label_fault: Option<Arc<DocumentError>>,
    /// The number of times that something was newly blocked, and the last time.
    noted: (u32, Instant),
}

impl AdvertisedItems {
    /// The advertised items of a server with this report.
    pub(super) fn new(
        spec: &Arc<ServerSpecification>,
        known: Arc<Catalogue>,
    ) -> Arc<AdvertisedItems> {
        let (context, server) = (&spec.context, &spec.id);
        let judgement = context.judge(server, &known);
        if let Some(blocked) = newly_blocked(
            (&Catalogue::default(), &PinCheck::NOTHING),
            (&known, &judgement),
        ) {
            note_blocked(context, server, blocked);
        }
        let asks = known.asks;
        Arc::new(AdvertisedItems {
            spec: spec.clone(),
            inner: Mutex::new(AdvertisedItemsInner {
                label_fault: label_fault(spec, &known),
                catalogue: known,
                judgement: Arc::new(judgement),
                noted: (0, Instant::now()),
            }),
            judging: Arc::default(),
            in_table: AtomicBool::new(false),
            asks: AtomicBool::new(asks),
            retired: AtomicBool::new(false),
        })
    }

    /// The server's catalogue of its tools.
    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.inner.lock().catalogue.clone()
    }

    /// The definitions of its tools, and their pin check.
    pub(crate) fn definitions(&self) -> (Arc<Catalogue>, Arc<PinCheck>) {
        let inner = self.inner.lock();
        (inner.catalogue.clone(), inner.judgement.clone())
    }

    /// The first label of its entry that is about none of its tools.
    pub(super) fn label_fault(&self) -> Option<Arc<DocumentError>> {
        self.inner.lock().label_fault.clone()
    }

    /// True if its tools are known, and in the table.
    pub(crate) fn is_in_table(&self) -> bool {
        self.in_table.load(Ordering::Acquire)
    }

    /// They are in the table now.
    pub(crate) fn set_in_table(&self) {
        self.in_table.store(true, Ordering::Release);
    }

    /// True if the server was seen to ask people for something, by a process of this entry and
    /// executable.
    pub(super) fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }

    /// The server asks people for something: that is known of it from now on.
    pub(super) fn seen_to_ask(&self) {
        if !self.asks.swap(true, Ordering::AcqRel) {
            info!(
                server = &*self.spec.id,
                "it asks people for something: clients share none of its processes at once"
            );
            self.keep();
        }
    }

    /// The server is gone from the registry: what its processes say counts no more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// The server's entry is written otherwise: what it offers is kept under that.
    pub(super) fn keep(&self) {
        let known = self.catalogue();
        if known.seen {
            self.remember(&known);
        }
    }

    fn remember(&self, said: &Arc<Catalogue>) {
        let digest = self.spec.digest.load_full();
        let said = Arc::new(Catalogue {
            asks: self.asks(),
            ..(**said).clone()
        });
        self.spec
            .context
            .remember(&self.spec.id, &digest, &self.spec.executable, &said);
    }

    /// Takes over what one of the server's processes says of its tools. It is judged first: nobody
    /// is shown what is not approved, and no call is given to a process that says it.
    ///
    /// # Errors
    /// The daemon is ending.
    pub(super) async fn learned(
        self: &Arc<Self>,
        session: &Arc<ServerSession>,
        said: Catalogue,
    ) -> Result<(), Failure> {
        let one_at_a_time = self.judging.clone().lock_owned().await;
        let (offer, session) = (self.clone(), session.clone());
        let take_over = move || {
            // Held here: who waits may give up, and a start that takes too long does, while this
            // goes on.
            let _one_at_a_time = one_at_a_time;
            offer.take_over(&session, said);
        };
        if self.spec.context.pins().is_none() {
            take_over();
            return Ok(());
        }
        // A long list takes a while, and pins wait for the disk: not on a thread that serves
        // clients.
        let judged = tokio::task::spawn_blocking(take_over).await;
        judged.map_err(|_| Failure::new(Code::DaemonStopping, "the daemon is ending"))
    }

    fn take_over(&self, session: &ServerSession, said: Catalogue) {
        if self.retired.load(Ordering::Acquire) {
            // Another entry of its name may be there, whose definitions are the ones that count.
            return;
        }
        let known = self.catalogue();
        let said = Catalogue {
            asks: known.asks,
            ..said
        };
        let said = if *known == said {
            known
        } else {
            Arc::new(said)
        };
        let judgement = Arc::new(self.spec.context.judge(&self.spec.id, &said));
        session.definitions.judged(said.clone(), judgement.clone());
        self.offer(said, judgement);
    }

    /// Judges again what the server and its processes said: other definitions are approved than
    /// before. Takes a while: not to be called on a thread that serves clients.
    pub(super) fn judge_again(&self, sessions: impl FnOnce() -> Vec<Arc<ServerSession>>) {
        let _one_at_a_time = self.judging.blocking_lock();
        let (known, _) = self.definitions();
        let sessions = sessions();
        let others = sessions.iter().filter_map(|session| {
            let said = session.definitions.said()?;
            (!Arc::ptr_eq(&said, &known)).then_some((session, said))
        });
        for (session, said) in others {
            let judgement = Arc::new(self.spec.context.judge(&self.spec.id, &said));
            session.definitions.judged(said, judgement);
        }
        // Last: what waits to be accepted is what is shown.
        let judgement = Arc::new(self.spec.context.judge(&self.spec.id, &known));
        for session in &sessions {
            if session
                .definitions
                .said()
                .is_some_and(|said| Arc::ptr_eq(&said, &known))
            {
                session.definitions.judged(known.clone(), judgement.clone());
            } else if session.definitions.fall_behind(&judgement) {
                session.drain();
            }
        }
        self.offer(known, judgement);
    }

    /// True if what is newly blocked is to be logged and recorded: a server that changes its
    /// definitions without end must not fill log and trail.
    fn may_note(&self) -> bool {
        let mut inner = self.inner.lock();
        let (count, last) = inner.noted;
        let may = count < MAX_NOTES || last.elapsed() >= BETWEEN_NOTES;
        if may {
            inner.noted = (count.saturating_add(1), Instant::now());
        }
        may
    }

    /// Makes this what the server offers, and tells everybody if it is something else than before.
    fn offer(&self, said: Arc<Catalogue>, judgement: Arc<PinCheck>) {
        let (before, judged_before) = {
            let mut inner = self.inner.lock();
            inner.label_fault = label_fault(&self.spec, &said);
            (
                std::mem::replace(&mut inner.catalogue, said.clone()),
                std::mem::replace(&mut inner.judgement, judgement.clone()),
            )
        };
        let changed = *before != *said;
        let blocked = newly_blocked((&before, &judged_before), (&said, &judgement));
        let may_note = (changed || blocked.is_some()) && self.may_note();
        if changed {
            self.remember(&said);
            if may_note {
                info!(
                    server = &*self.spec.id,
                    tools = said.of(Feature::Tool).len(),
                    prompts = said.of(Feature::Prompt).len(),
                    resources = said.of(Feature::Resource).len(),
                    templates = said.of(Feature::Template).len(),
                    "what it offers changed"
                );
            }
        }
        if let Some(blocked) = blocked.filter(|_| may_note) {
            note_blocked(&self.spec.context, &self.spec.id, blocked);
        }
        self.spec
            .context
            .learned(changed || *judged_before != *judgement);
    }
}

/// The first label of an entry that is about none of the tools that its server is known to have.
fn label_fault(spec: &ServerSpecification, known: &Catalogue) -> Option<Arc<DocumentError>> {
    let tools = known.of(Feature::Tool).iter();
    let tools = tools.map(|tool| (&*tool.name, &*tool.raw));
    let fault = known.seen.then(|| spec.entry.flow.unfit(tools)).flatten()?;
    warn!(server = &*spec.id, "nothing of it is called: {fault}");
    Some(Arc::new(fault))
}

/// The newly blocked definitions of a server; true if the instructions are among them.
fn newly_blocked<'s>(
    (before, judged_before): (&Catalogue, &PinCheck),
    (said, judgement): (&'s Catalogue, &PinCheck),
) -> Option<(Vec<(Feature, &'s str)>, bool)> {
    let blocked: BTreeSet<(Feature, &str, &Bytes)> = before
        .all()
        .filter(|(feature, of)| !judged_before.of(*feature, &of.name).is_approved())
        .map(|(feature, of)| (feature, &*of.name, &of.raw))
        .collect();
    let definitions: Vec<(Feature, &str)> = said
        .all()
        .filter(|(feature, of)| !judgement.of(*feature, &of.name).is_approved())
        .filter(|(feature, of)| !blocked.contains(&(*feature, &*of.name, &of.raw)))
        .map(|(feature, of)| (feature, of.name.as_str()))
        .collect();
    let instructions = !judgement.instructions.is_approved()
        && (judged_before.instructions.is_approved() || before.instructions != said.instructions);
    (!definitions.is_empty() || instructions).then_some((definitions, instructions))
}

/// Says in log and trail what of a server's definitions is blocked.
fn note_blocked(
    context: &ServerContext,
    id: &str,
    (blocked, instructions): (Vec<(Feature, &str)>, bool),
) {
    let shown = |(feature, name): &(Feature, &str)| match feature {
        Feature::Tool => brief(name, 100),
        other => format!("{} {}", other.noun(), brief(name, 100)),
    };
    let mut names = blocked
        .iter()
        .take(MAX_NAMED)
        .map(shown)
        .collect::<Vec<_>>()
        .join(", ");
    if blocked.len() > MAX_NAMED {
        names.push_str(", …");
    }
    let tools = blocked
        .iter()
        .filter(|(feature, _)| *feature == Feature::Tool)
        .count();
    let others = blocked.len() - tools;
    warn!(
        server = id,
        tools,
        others,
        instructions,
        "definitions that are not as approved are blocked: {names}; see colibri-mcp pin diff {id}"
    );
    if let Err(error) = context.parts.chain.recorder.event(TrailEvent::PinsBlocked {
        server: id,
        tools: tools as u64,
        others: others as u64,
        names: &names,
        instructions,
    }) {
        tracing::error!("what was blocked was not recorded: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::listing::{ServerDefinition, ServerList};
    use super::*;
    use colibri_policy::PinStatus;

    fn said(tools: &[(&str, &str)], instructions: &str) -> Catalogue {
        let definitions = tools.iter().map(|(name, raw)| ServerDefinition {
            name: (*name).to_owned(),
            raw: Bytes::copy_from_slice(raw.as_bytes()),
        });
        let tools = ServerList {
            definitions: definitions.collect(),
            ttl_ms: None,
            left_out: Vec::new(),
        };
        Catalogue {
            lists: std::array::from_fn(|at| {
                if at == 0 {
                    Arc::new(tools.clone())
                } else {
                    Arc::default()
                }
            }),
            instructions: Some(instructions.to_owned()),
            ..Catalogue::default()
        }
    }

    fn judgement(blocked: &[&str], instructions: bool) -> PinCheck {
        let new = || PinStatus::New {
            why: "x".to_owned(),
        };
        let mut judgement = PinCheck::NOTHING;
        if instructions {
            judgement.instructions = new();
        }
        judgement.definitions[Feature::Tool.index()] = blocked
            .iter()
            .map(|name| ((*name).to_owned(), new()))
            .collect();
        judgement
    }

    #[test]
    fn what_was_blocked_before_is_not_told_again() {
        let (good, bad) = (
            said(&[("a", "1"), ("b", "1")], "i"),
            said(&[("a", "1"), ("b", "2")], "i"),
        );
        let (none, b) = (PinCheck::NOTHING, judgement(&["b"], false));
        assert_eq!(newly_blocked((&good, &none), (&good, &none)), None);
        assert_eq!(
            newly_blocked((&good, &none), (&bad, &b)),
            Some((vec![(Feature::Tool, "b")], false))
        );
        assert_eq!(newly_blocked((&bad, &b), (&bad, &b)), None);
        // Another text of it, one more, the instructions.
        let worse = said(&[("a", "1"), ("b", "3")], "i");
        assert_eq!(
            newly_blocked((&bad, &b), (&worse, &b)),
            Some((vec![(Feature::Tool, "b")], false))
        );
        let both = judgement(&["a", "b"], false);
        assert_eq!(
            newly_blocked((&bad, &b), (&bad, &both)),
            Some((vec![(Feature::Tool, "a")], false))
        );
        let other = said(&[("a", "1"), ("b", "2")], "j");
        let all = judgement(&["b"], true);
        assert_eq!(
            newly_blocked((&bad, &b), (&other, &all)),
            Some((vec![], true))
        );
        assert_eq!(newly_blocked((&other, &all), (&other, &all)), None);
        assert_eq!(
            newly_blocked((&bad, &all), (&other, &all)),
            Some((vec![], true))
        );
        assert_eq!(newly_blocked((&bad, &b), (&good, &none)), None);
    }
}
