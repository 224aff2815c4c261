//! The second stage: the facts about a call, as they are now, are put to the policy, which decides.

use super::call::{Call, Chain};
use super::call_target::CallTarget;
use super::cost;
use colibri_policy::{
    CallDecision, CallFacts, CallingAgent, ClientFacts, Rights, TargetFacts, decide,
};

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
            caller: ClientFacts {
                rights,
                daemon_gates,
                connection_gates: client.narrowed(daemon_gates),
                agent: socket.map(|socket| CallingAgent {
                    id: &socket.agent,
                    tools: &socket.tools,
                    max_bytes: socket.max_bytes,
                    lease_over: lease_over.as_deref(),
                }),
                budget: cost::budget_of(client, call.entry.terms),
            },
            target: facts,
            arguments: call.arguments(),
            as_task: call.parts.task,
            session_flow: &|| self.session_flow(client, target.description()),
            unavailable: &|| target.description().upstream()?.refusal(client.caller.uid),
            allowed: call.entry.allowed.as_deref(),
        })
    }
}
