//! The description of the target that answers a call.

use std::sync::{Arc, LazyLock};

use super::counters::CallMetrics;
use super::flow_slot::ToolFlow;
use colibri_policy::{AnswerContract, Gate};
use colibri_protocol::{Failure, Feature, Method, MirroredArgument};

/// The server's name of what the daemon answers itself.
pub const COLIBRI: &str = "colibri";
static COLIBRI_ID: LazyLock<Arc<str>> = LazyLock::new(|| COLIBRI.into());

/// The facts about a target that records, rules, messages and the relay need.
pub struct TargetDescription {
    /// The server's id; `colibri` for what the daemon answers itself.
    pub server: Arc<str>,
    /// The kind of item.
    pub feature: Feature,
    /// The server's own name or URI of it, or the method.
    pub operation: Arc<str>,
    /// True if the operation is a name that the daemon or its server gave, and no client's own
    /// word.
    pub is_named: bool,
    /// True if it is a look at the daemon's own state, and no call: it costs nothing, and only the
    /// first and the last of a connection are recorded.
    pub is_look: bool,
    /// The gate in front of it.
    pub gate: Gate,
    /// The server that it goes to; `None`: the daemon answers itself, or it is not known yet.
    pub upstream: Option<Arc<dyn Upstream>>,
    /// The name or URI by which the server knows the item, where the client may have used another.
    pub own_name: Option<Arc<str>>,
    /// True if its results must have structured content: it is a tool with an `outputSchema`, by
    /// which clients check them (2025-06-18 and later, server/tools, "Output Schema").
    pub has_output_schema: bool,
    /// The use of it without a budget.
    pub free: FreeUse,
    /// True if the operator marked it as one that may be called again although an earlier call may
    /// have had an effect.
    pub is_idempotent: bool,
    /// The contract on its answers, and on calls that it refuses.
    pub answers: Option<Arc<AnswerContract>>,
    /// The labels of its results and destinations, and what its contract lets be changed.
    pub flow: Option<Arc<ToolFlow>>,
    /// True if it only reads.
    pub reads: bool,
    /// True if arguments and results are recorded, not their digests alone.
    pub is_recorded_in_full: bool,
    /// The arguments that a modern client repeats in header fields over HTTP.
    pub mirrored: Vec<MirroredArgument>,
}

/// The use of a target where no budget is left, or nothing can be recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeUse {
    /// True if an agent can call it where its budget is spent.
    pub by_agents: bool,
    /// True if a person can call it where their budget is spent: it brings nothing of servers'
    /// results.
    pub by_people: bool,
    /// True if it is answered where nothing can be recorded: it only reads the daemon's own state,
    /// where the reason is found.
    pub unrecorded: bool,
}

impl TargetDescription {
    /// Something that the daemon answers itself.
    pub(crate) fn of_colibri(operation: &str, gate: Gate) -> TargetDescription {
        TargetDescription {
            server: COLIBRI_ID.clone(),
            feature: Feature::Tool,
            operation: operation.into(),
            is_named: true,
            is_look: false,
            gate,
            upstream: None,
            own_name: None,
            has_output_schema: false,
            free: FreeUse::default(),
            is_idempotent: false,
            answers: None,
            flow: None,
            reads: false,
            is_recorded_in_full: false,
            mirrored: Vec::new(),
        }
    }

    /// An item or a method of a server.
    pub fn of_server(
        (server, upstream): (&Arc<str>, Arc<dyn Upstream>),
        feature: Feature,
        operation: &str,
    ) -> TargetDescription {
        TargetDescription {
            server: server.clone(),
            reads: feature != Feature::Tool,
            feature,
            is_recorded_in_full: upstream.is_recorded_in_full(),
            upstream: Some(upstream),
            ..TargetDescription::of_colibri(operation, Gate::External)
        }
    }

    /// The same, known to its server by its operation.
    pub(crate) fn by_own_name(self) -> TargetDescription {
        TargetDescription {
            own_name: Some(self.operation.clone()),
            ..self
        }
    }

    /// True if the daemon answers itself.
    pub fn is_ours(&self) -> bool {
        *self.server == *COLIBRI
    }

    /// True if a request is a call: of a tool, or of what a server has. Shaking hands and listing
    /// are none.
    pub(super) fn is_counted(&self, method: Option<Method>) -> bool {
        method == Some(Method::ToolsCall) || !self.is_ours()
    }

    /// The server that it goes to.
    pub fn upstream(&self) -> Option<&dyn Upstream> {
        self.upstream.as_deref()
    }

    /// The contract on its answers.
    pub fn answers(&self) -> Option<&AnswerContract> {
        self.answers.as_deref()
    }
}

/// A server, as far as the stages of a call have to know it.
pub trait Upstream: Send + Sync {
    /// The reason for which it would take no call of this user by this method now.
    fn refusal(&self, _uid: u32, _method: Option<Method>) -> Option<Failure> {
        None
    }

    /// True if it can be asked for completions.
    fn completes(&self) -> bool {
        false
    }

    /// The id that clients see before its URIs, if they do.
    fn prefix(&self) -> Option<&str>;

    /// True if the operator wants arguments and results recorded, not their digests alone.
    fn is_recorded_in_full(&self) -> bool {
        false
    }

    /// Text without the values of secrets.
    fn redact(&self, text: &str) -> String;

    /// The most bytes that a result of it may have to be relayed whole; `None`: any number.
    fn result_limit(&self) -> Option<u64>;

    /// True if its results are relayed whole, however long they are.
    fn relays_whole(&self) -> bool;

    /// True if it is an integration of ours, whose word on its failures is taken.
    fn is_integration(&self) -> bool {
        false
    }

    /// True if another host's daemon answers for it, whose records of the calls are named in ours.
    fn has_trail(&self) -> bool {
        false
    }

    /// The counts of its calls.
    fn metrics(&self) -> &CallMetrics;
}
