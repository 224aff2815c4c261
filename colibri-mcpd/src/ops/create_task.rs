//! `colibri/create-task`: as `colibri_create_task`, by a person's own command, which no model calls. It may share the task
//! without a confirmation.

use colibri_api::CreatedTask;
use serde_json::{Map, Value, json};

use super::method::{DaemonMethod, MethodCall};
use super::task_actor::TaskActor;
use crate::builtin;
use crate::policy::Gate;
use crate::relay::CallOutcome;

/// `colibri/create-task`.
pub(super) struct CreateTaskMethod;

impl DaemonMethod for CreateTaskMethod {
    const NAME: &'static str = "colibri/create-task";
    const GATE: Gate = Gate::Write;
    const STRICT: bool = true;
    /// The arguments of `colibri_create_task`, as they are written.
    type Parameters = Map<String, Value>;

    fn start(arguments: Self::Parameters, request: MethodCall) {
        tokio::spawn(async move {
            let slot = request.daemon.tools.of(request.call.client.caller.uid, None).await;
            request.finish_blocking(move |daemon, call| {
                let actor = TaskActor::of(daemon, &call.client);
                let share = |name: &str| actor.share(daemon, name);
                let arguments = Value::Object(arguments).to_string();
                let created = builtin::create_task(&daemon.board, actor.doer(), Some(arguments.as_bytes()), &share);
                drop(slot);
                match created {
                    Ok(task) => CallOutcome::result(json!(CreatedTask { task }).to_string().into_bytes()),
                    Err(failure) => CallOutcome::Failed(failure),
                }
            });
        });
    }
}
