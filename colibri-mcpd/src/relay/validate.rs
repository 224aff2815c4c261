//! The second stage: the facts about a call, as they are now, are put to the policy, which decides.

use std::borrow::Cow;

use super::call::{Call, CallTarget, Chain};
use super::cost;
use super::target_rules::ConfirmationRule;
use colibri_policy::{
    CallDecision, CallFacts, CallingAgent, ClientFacts, Rights, Road, SuspensionFacts, TargetFacts,
    decide,
};
use colibri_protocol::Method;

impl Chain {
    /// What policy decides about a call of a client with these rights.
    pub fn decide(&self, rights: &Rights, call: &Call) -> CallDecision {
        self.decide_about(rights, call, &call.target, call.target.facts(call))
    }

    /// The same of what a call asks for besides its own target.
    pub(crate) fn decide_about(
        &self,
        rights: &Rights,
        call: &Call,
        target: &CallTarget,
        facts: TargetFacts<'_>,
    ) -> CallDecision {
        let client = &*call.client;
        let daemon_gates = **self.rules.gates.load();
        let socket = client.door.as_deref();
        let lease_over = socket.and_then(|socket| Some(socket.lease.check().err()?.to_string()));
        decide(&CallFacts {
            road: call.entry.road,
            caller: ClientFacts {
                rights,
                daemon_gates,
                connection_gates: client.narrowed(daemon_gates),
                agent: socket.map(|socket| CallingAgent {
                    id: &socket.agent,
                    tools: &socket.tools,
                    max_bytes: socket.max_bytes,
                    max_bytes_place: &socket.max_bytes_place,
                    lease_over: lease_over.as_deref(),
                }),
                budget: cost::budget_of(client, call.entry.terms),
            },
            target: facts,
            arguments: call.arguments(),
            as_task: call.parts.task,
            session_flow: &|| self.session_flow(client, target.description()),
            unavailable: &|| {
                // A retry that something waits for goes there first.
                let is_awaited = call.entry.road != Road::Approval
                    && (call.entry.resumes.as_ref())
                        .is_some_and(|resumed| resumed.ticket().is_some());
                let server = target.description().upstream().filter(|_| !is_awaited)?;
                server.refusal(client.caller.uid, call.method)
            },
            allowed: call.entry.allowed.as_deref(),
        })
    }
}

impl CallTarget {
    /// The facts by which a call of it is decided.
    pub fn facts<'a>(&'a self, call: &'a Call) -> TargetFacts<'a> {
        let (described, rules) = (&self.description, &self.rules);
        TargetFacts {
            server: &described.server,
            is_own: described.is_ours(),
            feature: described.feature,
            name: &described.operation,
            gate: described.gate,
            is_counted: described.is_counted(call.method),
            is_free_for_people: described.free.by_people,
            is_free_for_agents: described.free.by_agents,
            is_for_operators: rules.is_for_operators,
            account_refusal: rules.account_refusal.as_deref(),
            verdict: Cow::Borrowed(&rules.verdict),
            refuses_tasks: rules.refuses_tasks,
            pin: rules.pin.as_ref(),
            skills: match (&rules.skills, call.method) {
                (Some(skills), Some(Method::ResourcesRead)) => skills.facts(true),
                (Some(skills), Some(Method::DirectoryRead)) => skills.facts(false),
                _ => Vec::new(),
            },
            prompt_contract: (rules.prompt_contract.as_deref())
                .filter(|_| call.method == Some(Method::PromptsGet)),
            argument_check: match &rules.check {
                Some(check) => Some(&**check),
                None => None,
            },
            lacks_completions: call.method == Some(Method::Complete)
                && (described.upstream()).is_some_and(|server| !server.completes()),
            suspension: match (rules.confirmation, call.method) {
                // Who wants to be told no more asks for nothing.
                (_, Some(Method::ResourcesUnsubscribe)) => SuspensionFacts::Nothing,
                (ConfirmationRule::Nothing, _) => SuspensionFacts::Nothing,
                (ConfirmationRule::Entry, _) => SuspensionFacts::Item(call.flow_of(described)),
                (ConfirmationRule::OwnTool(own), _) => {
                    SuspensionFacts::OwnRule((own.applies)(call.arguments()).then_some(own.rule))
                }
            },
        }
    }
}
