//! The second stage: is this caller allowed this call, and does the call say what its target can
//! take.

use super::call::Call;
use super::cost;
use super::rules::CallRules;
use colibri_policy::{Gate, Rights};
use colibri_protocol::{Code, Failure};

/// Checks a call of a client that policy lets do this.
///
/// # Errors
/// What stands against the call.
pub fn validate(rules: &CallRules, rights: &Rights, call: &mut Call) -> Result<(), Failure> {
    if let Some(door) = &call.client.door {
        let lease = door.lease.check();
        lease.map_err(|why| Failure::new(Code::StoreUnavailable, why.to_string()))?;
    }
    let target = call.target.clone();
    let described = target.description();
    call.terms = cost::terms(rights, &call.client);
    cost::affords(rights, call)?;
    if described.gate != Gate::None || !described.is_ours() {
        let open = rules
            .gates_under(&call.client, rights)
            .check(described.gate);
        open.map_err(|failure| failure.of_server(&*described.server))?;
        if !described.is_ours() {
            rights.may(&described.server, described.feature, &described.operation)?;
        }
    }
    target.check(call)
}
