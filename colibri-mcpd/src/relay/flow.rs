//! The flow limits of calls: what a task, an agent's entry or a contract lets a session change, and
//! where the values come from that it sends. Without labels and without such a list a call passes
//! here in one look at two options.

use std::sync::Arc;

use colibri_api::{Task, TaskLimits};
use colibri_trail::TrailEvent;
use colibri_wire::Json;

use super::call::{Call, Chain};
use super::call_outcome::ServerAnswer;
use super::client::Client;
use super::flow_slot::{FlowSlot, PreviousSession};
use super::target::TargetDescription;
use colibri_peer::aside;
use colibri_policy::{FlowCall, FlowSuspension, SessionFlow, SuspensionFacts};

/// The least bytes of a result that is not looked through on a thread that serves clients.
const LARGE: usize = 64 << 10;

/// A client's limits, for the parts of the daemon that claim and make tasks.
#[derive(Clone, Copy)]
pub struct ClientFlow<'a> {
    client: &'a Client,
    chain: &'a Chain,
}

impl<'a> ClientFlow<'a> {
    /// Those of a client.
    pub(crate) fn new(client: &'a Client, chain: &'a Chain) -> ClientFlow<'a> {
        ClientFlow { client, chain }
    }

    /// The client has claimed a task, or goes on with it.
    pub(crate) fn claim(self, task: &Task) {
        let limits = &task.said.limits;
        if let Some(flow) = self.flow(limits.may.is_some() || limits.tainted) {
            flow.claim(task, self.client.caller.uid);
        }
    }

    /// The client has read tasks.
    pub(crate) fn read<'t>(self, tasks: impl IntoIterator<Item = &'t Task>) {
        if let Some(flow) = self.flow(false) {
            tasks
                .into_iter()
                .for_each(|task| flow.read_task(task, self.client.caller.uid));
        }
    }

    /// The client has read the result of a task.
    pub(crate) fn read_result(self, task: &Task, result: &str) {
        if let Some(flow) = self.flow(false) {
            flow.distrust(&format!("the result of task {}", task.id), result);
        }
    }

    /// The limits of a task that the client makes by a tool.
    pub(crate) fn inherited(self) -> TaskLimits {
        self.client
            .flow()
            .map(|flow| flow.inherited())
            .unwrap_or_default()
    }

    fn flow(self, is_limited: bool) -> Option<&'a Arc<SessionFlow>> {
        let is_open = is_limited || self.chain.flows.is_labelled() || self.client.flow().is_some();
        is_open.then(|| self.client.open_flow(self.chain))
    }
}

impl Client {
    fn flow_slot(&self) -> &FlowSlot {
        match &self.door {
            Some(door) => &door.flow,
            None => &self.session.flow,
        }
    }

    /// The limits of its session, or of its agent's instance, if it has some.
    pub(crate) fn flow(&self) -> Option<&Arc<SessionFlow>> {
        self.flow_slot().get()
    }

    fn open_flow(&self, chain: &Chain) -> &Arc<SessionFlow> {
        if let Some(flow) = self.flow() {
            return flow;
        }
        let is_claimed = |task| chain.board.has_claimed(self.caller.uid, task);
        let goes_on = self.door.is_none().then(|| {
            let name = self
                .session
                .client_info(None)
                .map(|info| (&*info.name).into());
            PreviousSession {
                table: &chain.flows,
                owner: (self.caller.uid, name.unwrap_or_default()),
                stays: self.session.owner().is_some(),
                is_claimed: &is_claimed,
            }
        });
        self.flow_slot().open(goes_on)
    }
}

impl Call {
    /// The call as the limits of its session see it, made of this target.
    pub(crate) fn flow_of<'a>(&'a self, described: &'a TargetDescription) -> FlowCall<'a> {
        let flow = described.flow.as_deref();
        FlowCall {
            server: &described.server,
            tool: &described.operation,
            reads: described.reads,
            labels: flow.and_then(|flow| flow.labels.as_deref()),
            contract: flow.and_then(|flow| flow.contract.as_deref()),
            arguments: self.arguments(),
            is_scripted: self.client.outer.is_some(),
        }
    }
}

impl Chain {
    /// The limits of a client's session, if it has some or the target has what they look at.
    pub(super) fn session_flow<'a>(
        &self,
        client: &'a Client,
        target: &TargetDescription,
    ) -> Option<&'a SessionFlow> {
        let is_limited = target.flow.is_some() || client.flow().is_some();
        is_limited.then(|| &**client.open_flow(self))
    }

    /// Notes what a call that goes, or waits, takes to its target.
    pub(super) fn note_sent(&self, call: &Call) {
        if let Some(flow) = call.client.flow()
            && let SuspensionFacts::Item(sent) = call.target.facts(call).suspension
        {
            flow.carry(&sent);
        }
    }

    /// Records that a call waits, and what was compared; never a value.
    pub(super) fn record_hold(&self, call: &Call, hold: &FlowSuspension) {
        let described = call.target.description();
        let door = call.client.door.as_deref();
        let (agent, session) = (
            door.map(|door| &*door.agent),
            door.map(|door| &*door.session),
        );
        let (server, tool, uid) = (
            &*described.server,
            &*described.operation,
            call.client.caller.uid,
        );
        let why = hold.to_string();
        let event = match hold {
            FlowSuspension::OutsideMay { task, .. } => TrailEvent::SuspendedOutsideTask {
                call: call.entry.number,
                uid,
                server,
                tool,
                task: *task,
                why: &why,
                agent,
                session,
            },
            FlowSuspension::Origin {
                argument, source, ..
            } => TrailEvent::SuspendedOrigin {
                call: call.entry.number,
                uid,
                server,
                tool,
                argument,
                source,
                agent,
                session,
            },
        };
        // The call itself is recorded, whatever becomes of this.
        if let Err(error) = self.recorder.event(event) {
            tracing::error!("a call that waits was not recorded: {error}");
        }
    }

    /// A person has allowed a call: its destinations too, if they were asked about.
    pub(super) fn note_allowed(&self, call: &Call) {
        let mut limits = call
            .entry
            .allowed
            .iter()
            .flat_map(|allowed| &allowed.limits);
        if limits.any(|limit| matches!(limit, FlowSuspension::Origin { .. }))
            && let Some(flow) = call.client.flow()
        {
            flow.allow(&call.flow_of(call.target.description()));
        }
    }

    /// Notes what a script's client gets to read of it: its result, or its error, and what it
    /// printed.
    pub(crate) fn note_script(&self, call: &Call, result: &str, printed: &str) {
        if let (Some(flow), Ok(result)) = (call.client.flow(), Json::parse(result.as_bytes())) {
            flow.note_script(result, printed);
        }
    }

    /// Notes a server's answer before its client gets it.
    pub(super) fn note_answer(&self, call: &Call, relayed: &ServerAnswer) {
        let Some(flow) = call.client.flow() else {
            return;
        };
        let described = call.target.description();
        let labels = described
            .flow
            .as_ref()
            .and_then(|flow| flow.labels.as_deref());
        let (Ok(span) | Err(span)) = &relayed.outcome;
        let Some(result) = Json::part(&relayed.frame, span.clone()) else {
            return;
        };
        let note = || flow.note((&described.server, &described.operation), labels, result);
        match span.len() < LARGE {
            true => note(),
            false => aside(note),
        }
    }
}
