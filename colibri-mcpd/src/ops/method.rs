//! A method of the daemon beyond MCP's, `colibri/…`: on the clients' socket, at no agent socket.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::daemon::Daemon;
use crate::relay::{Call, CallOutcome, Chain};
use colibri_policy::Gate;
use colibri_protocol::RpcError;
use colibri_text::brief;
use colibri_wire::Json;

/// A method of the daemon beyond MCP's.
pub(super) trait DaemonMethod: 'static {
    /// The method's name.
    const NAME: &'static str;
    /// The gate in front of it.
    const GATE: Gate = Gate::None;
    /// True if it only reads the daemon's own state: it is a look, and no call. What is recorded of
    /// looks is their beginning on a connection and their end.
    const IS_LOOK: bool = false;
    /// True if it is answered where nothing can be recorded.
    const UNRECORDED: bool = Self::IS_LOOK;
    /// True if it is for operators.
    const FOR_OPERATORS: bool = false;
    /// True if unknown parameters are refused.
    const STRICT: bool = false;
    /// The parameters of a request.
    type Parameters: DeserializeOwned + Send + Sync + 'static;

    /// True if a request with these parameters is for operators.
    fn is_for_operators(_: &Self::Parameters) -> bool {
        Self::FOR_OPERATORS
    }

    /// Checks the parameters beyond their types.
    ///
    /// # Errors
    /// -32602, with the first fault.
    fn check(_: &Self::Parameters) -> Result<(), RpcError> {
        Ok(())
    }

    /// Begins to answer a request, which [`Chain::finish`] ends.
    fn start(parameters: Self::Parameters, request: MethodCall);
}

/// A request to be answered.
pub(crate) struct MethodCall {
    pub daemon: Arc<Daemon>,
    pub chain: Arc<Chain>,
    pub call: Box<Call>,
}

/// One request, whose parameters were read.
pub(crate) struct MethodWork {
    pub(crate) is_for_operators: bool,
    pub(crate) answer: MethodAnswer,
}

/// Begins to answer a request.
pub(crate) type MethodAnswer = Box<dyn FnOnce(MethodCall) + Send + Sync>;

/// A row of the table of methods.
pub(crate) struct MethodEntry {
    pub(crate) name: &'static str,
    pub(crate) gate: Gate,
    pub(crate) is_look: bool,
    pub(crate) is_unrecorded: bool,
    /// Reads the parameters of a request.
    pub(crate) prepare: fn(Option<Json<'_>>) -> Result<MethodWork, RpcError>,
}

impl MethodEntry {
    /// The row of a method.
    pub(super) const fn of<M: DaemonMethod>() -> MethodEntry {
        MethodEntry {
            name: M::NAME,
            gate: M::GATE,
            is_look: M::IS_LOOK,
            is_unrecorded: M::UNRECORDED,
            prepare: |params| {
                let parameters = read_parameters::<M>(params)?;
                Ok(MethodWork {
                    is_for_operators: M::is_for_operators(&parameters),
                    answer: Box::new(move |request| M::start(parameters, request)),
                })
            },
        }
    }
}

impl MethodCall {
    /// Ends the request.
    pub(super) fn finish(self, outcome: CallOutcome) {
        self.chain.finish(vec![(self.call, outcome)]);
    }

    /// Answers on a thread that may read files and wait for the disk.
    pub(super) fn finish_blocking(
        self,
        answer: impl FnOnce(&Arc<Daemon>, &Call) -> CallOutcome + Send + 'static,
    ) {
        tokio::task::spawn_blocking(move || {
            let outcome = answer(&self.daemon, &self.call);
            self.finish(outcome);
        });
    }
}

/// Reads the parameters of a method. The `_meta` that every request of 2026-07-28 has is none of
/// them.
///
/// # Errors
/// -32602, with the first fault.
pub(super) fn read_parameters<M: DaemonMethod>(
    params: Option<Json<'_>>,
) -> Result<M::Parameters, RpcError> {
    let wrong = |error: serde_json::Error| {
        RpcError::invalid_params(format!("params: {}", brief(&error.to_string(), 200)))
    };
    let text = params.map_or("{}", |params| params.text());
    let parameters = if M::STRICT {
        let mut members: Map<String, Value> = serde_json::from_str(text).map_err(wrong)?;
        members.remove("_meta");
        serde_json::from_value(Value::Object(members)).map_err(wrong)?
    } else {
        serde_json::from_str(text).map_err(wrong)?
    };
    M::check(&parameters)?;
    Ok(parameters)
}
