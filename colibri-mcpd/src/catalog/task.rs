//! Tasks of servers, by the ids that clients know.

use std::sync::Arc;

use super::ServerHost;
use crate::relay::{CallTarget, TargetDescription, TargetRules, ToolFlow};
use crate::servers::{ServerSession, TaskOwner, process_of};
use colibri_policy::Rights;
use colibri_protocol::{Feature, RpcError};

impl ServerHost {
    /// The task of a user with these rights.
    fn find_task(&self, uid: u32, id: &str, rights: &Rights) -> Option<TaskOwner> {
        let task = self.context.tasks().find(uid, id);
        task.filter(|task| sees(rights, &task.server, &task.tool))
    }

    /// The process that has a task of a user with these rights, and its server's own id of it.
    pub(crate) fn open_task(
        &self,
        uid: u32,
        id: &str,
        rights: &Rights,
    ) -> Option<(Arc<ServerSession>, String)> {
        let task = self.find_task(uid, id, rights)?;
        Some((process_of(&task)?, task.own.into()))
    }

    /// The target that answers the request of a user with these rights about a task.
    ///
    /// # Errors
    /// There is no such task, or it went with its process.
    pub fn task(&self, uid: u32, id: &str, rights: &Rights) -> Result<Arc<CallTarget>, RpcError> {
        let Some(task) = self.find_task(uid, id, rights) else {
            return Err(RpcError::invalid_params(
                "no such task: it is not known here, or its time is over; call the tool again",
            ));
        };
        let server = self.servers().get(&*task.server).cloned();
        let Some(server) = server.filter(|_| process_of(&task).is_some()) else {
            return Err(RpcError::invalid_params(format!(
                "the task is lost: the process of {} that had it has ended; call {} again",
                task.server, task.tool
            )));
        };
        let description = TargetDescription {
            own_name: Some(task.own.into()),
            flow: ToolFlow {
                labels: server.spec.entry.flow.of_tool(&task.tool),
                contract: None,
            }
            .any(),
            reads: true,
            ..TargetDescription::of_server(
                (&task.server, server.clone()),
                Feature::Tool,
                &task.tool,
            )
        };
        let rules = TargetRules::default();
        Ok(CallTarget::handled(description, rules, server))
    }
}

/// True if a task of this tool is there: what an agent may not call it may not ask after either,
/// whoever called it.
fn sees(rights: &Rights, server: &str, tool: &str) -> bool {
    !rights.is_agents() || rights.sees(server, Feature::Tool, tool)
}
