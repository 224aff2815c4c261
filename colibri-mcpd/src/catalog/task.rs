//! Requests about tasks: they go to the process that has the task.

use std::sync::Arc;

use super::ServerHost;
use crate::relay::{Call, CallOutcome, CallTarget, Chain, TargetDescription, ToolFlow};
use crate::servers::{ServerSession, TaskOwner};
use colibri_policy::{Rights, TargetFacts};
use colibri_protocol::{Code, Failure, Feature, RpcError};

/// A task of a server's.
struct HostTask {
    description: TargetDescription,
    process: Arc<ServerSession>,
}

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
    pub fn task(
        &self,
        uid: u32,
        id: &str,
        rights: &Rights,
    ) -> Result<Arc<dyn CallTarget>, RpcError> {
        let Some(task) = self.find_task(uid, id, rights) else {
            return Err(RpcError::invalid_params(
                "no such task: it is not known here, or its time is over; call the tool again",
            ));
        };
        let server = self.servers().get(&*task.server).cloned();
        let (Some(process), Some(server)) = (process_of(&task), server) else {
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
            ..TargetDescription::of_server((&task.server, server), Feature::Tool, &task.tool)
        };
        Ok(Arc::new(HostTask {
            description,
            process,
        }))
    }
}

/// The process that has a task; `None`: the task went with it.
fn process_of(task: &TaskOwner) -> Option<Arc<ServerSession>> {
    let process = task.process.clone()?.downcast::<ServerSession>().ok()?;
    (!process.has_ended()).then_some(process)
}

/// True if a task of this tool is there: what an agent may not call it may not ask after either,
/// whoever called it.
fn sees(rights: &Rights, server: &str, tool: &str) -> bool {
    !rights.is_agents() || rights.sees(server, Feature::Tool, tool)
}

impl CallTarget for HostTask {
    fn description(&self) -> &TargetDescription {
        &self.description
    }

    fn facts<'a>(&'a self, call: &'a Call) -> TargetFacts<'a> {
        self.description.facts(call.method)
    }

    fn send(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) {
        if let Err(call) = self.process.send(call) {
            let message =
                "the task is lost: the process that had it has ended; call the tool again";
            let failure =
                Failure::new(Code::ServerDied, message).of_server(&*self.description.server);
            chain.finish(vec![(call, CallOutcome::Failed(failure))]);
        }
    }
}
