//! One server as the registry has it: the facts that its calls, starts and processes share.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::context::ServerContext;
use super::start_queue::StartQueue;
use super::tap::Taps;
use crate::registry::{Isolation, RegisteredServer, ServerSpec};
use crate::relay::{CallMetrics, Chain};
use colibri_policy::{Contract, ServerRules};
use colibri_protocol::{Code, Failure, Version};

/// The time limits of one server, defaults filled in.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// From starting the process to the end of its handshake.
    pub start: Duration,
    /// From sending a call, or its last progress, to the answer.
    pub call: Duration,
    /// Without a call in flight.
    pub idle: Duration,
    /// Of one call in all.
    pub total: Duration,
}

impl ServerLimits {
    /// The limits of an entry; `call` holds where it sets no limit for a call.
    fn of(entry: &ServerSpec, call: Duration) -> ServerLimits {
        ServerLimits {
            start: entry.limits.start.unwrap_or(Duration::from_secs(30)),
            call: entry.limits.call.unwrap_or(call),
            idle: entry.limits.idle.unwrap_or(Duration::from_secs(300)),
            total: entry.limits.total.unwrap_or(Duration::from_secs(3600)),
        }
    }
}

/// One server as the registry has it. An entry that changes in substance makes another one.
pub struct ServerSpecification {
    /// The server's id.
    pub id: Arc<str>,
    /// Its entry.
    pub entry: Arc<ServerSpec>,
    /// The rules on its tools.
    pub rules: ServerRules,
    /// The contract that narrows their arguments.
    pub contract: Option<Arc<Contract>>,
    /// Its time limits.
    pub limits: ServerLimits,
    /// The callers that share its processes.
    pub isolation: Isolation,
    /// The executable's identity: path, size, time of change.
    pub executable: String,
    /// The counts of its calls.
    pub metrics: CallMetrics,
    /// The watchers of its messages; they stay where another specification takes this one's place.
    pub taps: Arc<Taps>,
    /// The daemon's parts that all servers share.
    pub(super) context: Arc<ServerContext>,
    /// SHA-256 of the entry as it is written now; another wording of the same entry has another
    /// one.
    pub(super) digest: ArcSwap<String>,
    /// The starts that wait for a place.
    pub(super) queue: StartQueue,
    /// The version that its processes speak, once it is known.
    version: Mutex<Option<Version>>,
}

impl ServerSpecification {
    /// The specification of a registered server, and the reason for which it must not be started,
    /// if there is one.
    pub(super) fn new(
        id: &str,
        registered: &RegisteredServer,
        executable: String,
        (version, taps): (Option<Version>, Arc<Taps>),
        context: &Arc<ServerContext>,
    ) -> (ServerSpecification, Option<String>) {
        let entry = registered.entry.clone();
        if entry.flow.is_labelled() {
            context.parts.chain.flows.set_labelled();
        }
        let (contract, blocked) = match registered.contract() {
            Ok(contract) => (contract.map(Arc::new), registered.refusal.clone()),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let spec = ServerSpecification {
            rules: ServerRules::new([&entry.tools, &entry.prompts, &entry.resources]),
            contract,
            limits: ServerLimits::of(&entry, context.parts.call_timeout),
            isolation: registered.isolation(),
            metrics: CallMetrics::default(),
            taps,
            context: context.clone(),
            digest: ArcSwap::from_pointee(entry.digest.clone()),
            queue: StartQueue::default(),
            version: Mutex::new(version),
            id: id.into(),
            entry,
            executable,
        };
        (spec, blocked)
    }

    /// The chain that its calls pass.
    pub(super) fn chain(&self) -> &Arc<Chain> {
        &self.context.parts.chain
    }

    /// The version that the server's processes speak, if it is known.
    pub(super) fn version(&self) -> Option<Version> {
        *self.version.lock()
    }

    /// Stores the version that the server's processes speak, or forgets it.
    pub(super) fn set_version(&self, version: Option<Version>) {
        *self.version.lock() = version;
    }

    /// A failure of this server.
    pub(super) fn failure(&self, code: Code, message: impl Into<String>) -> Failure {
        Failure::new(code, message).of_server(&*self.id)
    }

    /// A failure whose cause is the server's own words, which may hold the secrets that it was
    /// given.
    pub(super) fn server_failure(&self, words: &str) -> Failure {
        self.failure(Code::IntegrationUnavailable, self.redact(words))
    }

    /// The text without the values of secrets.
    pub fn redact(&self, text: &str) -> String {
        self.context.redactor().redact(text).into_owned()
    }
}
