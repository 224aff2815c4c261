//! `colibri/create-task`: as `colibri_create_task`, by a person's own command, which no model
//! calls. It may share the task without a confirmation, and say what may be changed in its name.

use colibri_api::{CreatedTask, TaskLimits};
use colibri_protocol::RpcError;
use serde_json::{Map, Value, json};

use super::may;
use super::method::{DaemonMethod, MethodCall};
use super::status::CallerFacts;
use super::task_actor::TaskActor;
use crate::builtin;
use crate::relay::CallOutcome;
use colibri_policy::Gate;

/// `colibri/create-task`.
pub(super) struct CreateTaskMethod;

/// The parameter that the tool does not have.
const MAY: &str = "may";

impl DaemonMethod for CreateTaskMethod {
    const NAME: &'static str = "colibri/create-task";
    const GATE: Gate = Gate::Write;
    const STRICT: bool = true;
    /// The arguments of `colibri_create_task`, as they are written, and [`MAY`].
    type Parameters = Map<String, Value>;

    fn check(arguments: &Self::Parameters) -> Result<(), RpcError> {
        arguments
            .get(MAY)
            .map_or(Ok(()), |given| may::read(given).map(drop))
    }

    fn start(mut arguments: Self::Parameters, request: MethodCall) {
        tokio::spawn(async move {
            let given = arguments.remove(MAY);
            if given.is_some() {
                let awaited = request.daemon.discover_ungated(&request.call);
                request.daemon.host.discovered(awaited).await;
            }
            let slot = request
                .daemon
                .tools
                .of(request.call.client.caller.uid, None)
                .await;
            request.finish_blocking(move |daemon, call| {
                let actor = TaskActor::of(daemon, &call.client);
                let share = |name: &str| actor.share(daemon, name);
                let read = given.as_ref().map(may::read).transpose();
                let checked = read.map_err(CallOutcome::error).and_then(|read| {
                    let facts = CallerFacts::new(daemon.clone(), call.client.clone());
                    let checked = read.map(|read| may::check(&facts, &read)).transpose();
                    checked.map_err(CallOutcome::Failed)
                });
                let arguments = Value::Object(arguments).to_string();
                let created = checked.and_then(|may| {
                    let limits = TaskLimits {
                        may,
                        by_person: true,
                        tainted: false,
                    };
                    builtin::create_task(
                        &daemon.board,
                        actor.doer(),
                        Some(arguments.as_bytes()),
                        &share,
                        limits,
                    )
                    .map_err(CallOutcome::Failed)
                });
                drop(slot);
                match created {
                    Ok(task) => {
                        CallOutcome::result(json!(CreatedTask { task }).to_string().into_bytes())
                    }
                    Err(outcome) => outcome,
                }
            });
        });
    }
}
