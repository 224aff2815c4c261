//! The table of the daemon's methods beyond MCP's.

use super::method::{MethodEntry, MethodWork};
use super::{
    agents, costs, create_task, end, login, may, operator, overview, pins, servers, watch,
};
use colibri_protocol::{RpcError, Version};
use colibri_wire::Json;

/// The methods: a new one is a row here and a file beside this one.
const METHODS: &[MethodEntry] = &[
    MethodEntry::of::<operator::Approvals>(),
    MethodEntry::of::<operator::DecideMethod<true>>(),
    MethodEntry::of::<operator::DecideMethod<false>>(),
    MethodEntry::of::<operator::Reload>(),
    MethodEntry::of::<operator::RestartMethod>(),
    MethodEntry::of::<pins::ListPins>(),
    MethodEntry::of::<pins::DiffPins>(),
    MethodEntry::of::<pins::AcceptPins>(),
    MethodEntry::of::<overview::OverviewMethod>(),
    MethodEntry::of::<servers::ListServers>(),
    MethodEntry::of::<watch::WatchMethod>(),
    MethodEntry::of::<login::StartLogin>(),
    MethodEntry::of::<login::FinishLogin>(),
    MethodEntry::of::<login::LogoutMethod>(),
    MethodEntry::of::<agents::ListAgents>(),
    MethodEntry::of::<agents::SpawnAgent>(),
    MethodEntry::of::<agents::StopAgent>(),
    MethodEntry::of::<agents::AgentEvents>(),
    MethodEntry::of::<costs::ShowCosts>(),
    MethodEntry::of::<create_task::CreateTaskMethod>(),
    MethodEntry::of::<may::ProposeMay>(),
    MethodEntry::of::<end::EndMethod>(),
];

/// The method of a request, and the answer to it.
///
/// # Errors
/// -32601 for a method that there is not, -32602 for parameters that are not as they must be.
pub(crate) fn prepare(
    name: &str,
    params: Option<Json<'_>>,
) -> Result<(&'static MethodEntry, MethodWork), RpcError> {
    let entry = METHODS.iter().find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| RpcError::method_not_found(name, Version::LATEST))?;
    Ok((entry, (entry.prepare)(params)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_has_a_name_of_its_own() {
        for (at, entry) in METHODS.iter().enumerate() {
            assert!(entry.name.starts_with("colibri/"), "{}", entry.name);
            assert!(
                METHODS[..at].iter().all(|other| other.name != entry.name),
                "{}",
                entry.name
            );
        }
        let unknown = prepare("colibri/agent", None).err().unwrap();
        assert_eq!(unknown.code, colibri_protocol::rpc_error::METHOD_NOT_FOUND);
    }
}
