//! The third stage: the call goes to who answers it.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::metrics::CallMetrics;
use super::{Call, Chain};
use crate::policy::Gate;

/// The server's name of what the daemon answers itself.
pub const COLIBRI: &str = "colibri";

/// Who answers a call.
pub trait Target: Send + Sync {
    /// What records, rules and messages call it.
    fn describe(&self) -> Described<'_>;

    /// The name by which the one that answers knows its tool, where the client used another.
    fn rename(&self) -> Option<&str> {
        None
    }

    /// Arguments or a result as they are recorded where the operator asked for all of them: secrets redacted. `None`
    /// where only their digest is wanted.
    fn in_full(&self, _: &[u8]) -> Option<Box<RawValue>> {
        None
    }

    /// Whether it only reads the daemon's own state, which is told also where nothing can be recorded: who looks for
    /// the reason must be able to see it.
    fn tells_own_state(&self) -> bool {
        false
    }

    /// Where its calls are counted, if not with those that the daemon answers itself.
    fn metrics(&self) -> Option<&CallMetrics> {
        None
    }

    /// Whether the operator marked it as one that may be called again although an earlier call may have had an effect.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// What stands against this call beyond the gates, if anything.
    fn check(&self, call: &mut Call) -> Result<(), super::Failure>;

    /// Takes the call over. Whatever happens to it, it ends in [`Chain::finish`], once.
    fn send(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>);
}

/// A target, described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described<'a> {
    /// The server's id; `colibri` for what the daemon answers itself.
    pub server: &'a str,
    /// The server's own name of the tool, or the method.
    pub operation: &'a str,
    /// The gate in front of it.
    pub gate: Gate,
}

impl Described<'_> {
    /// Whether the daemon answers itself.
    pub fn is_ours(&self) -> bool {
        self.server == COLIBRI
    }
}

/// Sends a call to its target, unless it was cancelled meanwhile.
pub fn dispatch(chain: &Arc<Chain>, call: Box<Call>) {
    if call.client.is_cancelled(&call.id) {
        chain.finish(vec![(call, super::Outcome::Cancelled)]);
        return;
    }
    let target = call.target.clone();
    target.send(chain, call);
}
