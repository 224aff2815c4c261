//! The daemon's own answers: the protocol's own methods, the tool list, and the `colibri_*` tools.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use parking_lot::Mutex;

use super::listen;
use super::method::{MethodCall, MethodEntry, MethodWork};
use super::script;
use super::status::CallerFacts;
use super::task_actor::TaskActor;
use crate::builtin::{
    self, AnswerBound, BuiltinDefinition, BuiltinRoute, SkillDirectories, ToolSlots,
};
use crate::daemon::Daemon;
use crate::relay::{
    self, Call, CallOutcome, CallTarget, Chain, ClientFlow, FreeUse, TargetDescription,
};
use crate::results::ResultOwner;
use colibri_policy::{Gate, SuspensionFacts, TargetFacts, UserSlot};
use colibri_protocol::lists::ListCursor;
use colibri_protocol::subscription::SubscriptionFilter;
use colibri_protocol::{AnswerBody, Feature, Method, RpcError, Version, skills};
use colibri_wire::RequestId;

/// A request that the daemon answers itself.
pub(crate) struct Own {
    description: TargetDescription,
    work: OwnWork,
}

enum OwnWork {
    Over(Mutex<Option<CallOutcome>>),
    List(Arc<Daemon>, Feature, Option<ListCursor>),
    Listen(Arc<Daemon>, RequestId, SubscriptionFilter),
    Tool(Arc<Daemon>, &'static BuiltinDefinition),
    /// A request about a skill of the daemon's own.
    Skill(Arc<Daemon>, Method, String),
    /// A method of the daemon's own, until it is answered.
    Method(Arc<Daemon>, &'static MethodEntry, Mutex<Option<MethodWork>>),
}

impl OwnWork {
    /// The use of it where no budget is left, or nothing can be recorded.
    fn free_use(&self) -> FreeUse {
        match self {
            OwnWork::Tool(_, tool) => tool.rules.free,
            OwnWork::Method(_, entry, _) => FreeUse {
                unrecorded: entry.is_unrecorded,
                ..FreeUse::default()
            },
            _ => FreeUse::default(),
        }
    }
}

impl Own {
    fn target(operation: &str, gate: Gate, work: OwnWork) -> Arc<dyn CallTarget> {
        // A client's own words go to the records: no more of them than a method's name can have.
        let end = operation
            .char_indices()
            .nth(100)
            .map_or(operation.len(), |(end, _)| end);
        let description = TargetDescription {
            is_named: !matches!(work, OwnWork::Over(_)),
            is_look: matches!(&work, OwnWork::Method(_, entry, _) if entry.is_look),
            free: work.free_use(),
            ..TargetDescription::of_colibri(&operation[..end], gate)
        };
        Arc::new(Own { description, work })
    }

    /// A request whose answer is known already.
    pub(crate) fn answer(operation: &str, answer: AnswerBody) -> Arc<dyn CallTarget> {
        Own::over(
            operation,
            Gate::None,
            CallOutcome::Own {
                answer,
                failed: false,
            },
        )
    }

    /// A call of a tool of ours whose outcome is known already.
    pub(crate) fn done(
        definition: &BuiltinDefinition,
        outcome: builtin::ToolOutcome,
    ) -> Arc<dyn CallTarget> {
        Arc::new(Own {
            description: TargetDescription::of_colibri(definition.name, definition.gate),
            work: OwnWork::Over(Mutex::new(Some(outcome.into()))),
        })
    }

    /// A call whose outcome is known already.
    pub(crate) fn over(operation: &str, gate: Gate, outcome: CallOutcome) -> Arc<dyn CallTarget> {
        Own::target(operation, gate, OwnWork::Over(Mutex::new(Some(outcome))))
    }

    /// `tools/list` and its like.
    pub(crate) fn list(
        daemon: Arc<Daemon>,
        feature: Feature,
        cursor: Option<ListCursor>,
    ) -> Arc<dyn CallTarget> {
        let method = Method::list_of(feature).as_str();
        Own::target(method, Gate::None, OwnWork::List(daemon, feature, cursor))
    }

    /// A request about a file, a directory or the entry of a skill of ours, by its URI.
    pub(crate) fn skill(daemon: Arc<Daemon>, method: Method, uri: String) -> Arc<dyn CallTarget> {
        Own::target(
            method.as_str(),
            Gate::None,
            OwnWork::Skill(daemon, method, uri),
        )
    }

    /// `subscriptions/listen`.
    pub(crate) fn listen(
        daemon: Arc<Daemon>,
        id: RequestId,
        listen: SubscriptionFilter,
    ) -> Arc<dyn CallTarget> {
        Own::target(
            "subscriptions/listen",
            Gate::None,
            OwnWork::Listen(daemon, id, listen),
        )
    }

    /// A method of the daemon's own, whose parameters were read.
    pub(crate) fn method(
        daemon: Arc<Daemon>,
        (entry, work): (&'static MethodEntry, MethodWork),
    ) -> Arc<dyn CallTarget> {
        Own::target(
            entry.name,
            entry.gate,
            OwnWork::Method(daemon, entry, Mutex::new(Some(work))),
        )
    }

    /// A call of a tool of ours.
    pub(crate) fn tool(
        daemon: Arc<Daemon>,
        gate: Gate,
        tool: &'static BuiltinDefinition,
    ) -> Arc<dyn CallTarget> {
        Own::target(tool.name, gate, OwnWork::Tool(daemon, tool))
    }
}

impl CallTarget for Own {
    fn description(&self) -> &TargetDescription {
        &self.description
    }

    fn facts<'a>(&'a self, call: &'a Call) -> TargetFacts<'a> {
        let suspension = match &self.work {
            OwnWork::Tool(_, tool) => {
                let applies = tool
                    .rules
                    .confirm
                    .filter(|confirm| (confirm.applies)(call.arguments()));
                SuspensionFacts::OwnRule(applies.map(|confirm| confirm.rule))
            }
            _ => SuspensionFacts::Nothing,
        };
        TargetFacts {
            suspension,
            ..self.description.facts(call.method)
        }
    }

    fn send(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) {
        if call.client.is_cancelled(&call.id) {
            return chain.finish(vec![(call, CallOutcome::Cancelled)]);
        }
        match &self.work {
            OwnWork::Over(outcome) => {
                let outcome = outcome.lock().take();
                let outcome = relay::exit::fit(outcome.unwrap_or(CallOutcome::Cancelled), &call);
                chain.finish(vec![(call, outcome)]);
            }
            OwnWork::List(daemon, feature, cursor) => {
                let (feature, awaited) = (*feature, daemon.discover(&call));
                let with_skills = daemon.lists_own_skills(&call.client, feature);
                if awaited.is_empty() && !with_skills {
                    return answer_list(
                        daemon,
                        chain,
                        call,
                        (feature, cursor.as_ref()),
                        Vec::new(),
                    );
                }
                let (cursor, daemon, chain) = (cursor.clone(), daemon.clone(), chain.clone());
                tokio::spawn(async move {
                    daemon.host.discovered(awaited).await;
                    let skills = match with_skills {
                        true => {
                            let ResultOwner { uid, session } = call.client.owner();
                            let _slot = daemon.tools.of(uid, session).await;
                            let read = daemon.clone();
                            let read =
                                tokio::task::spawn_blocking(move || read.own_skills(feature));
                            read.await.unwrap_or_default()
                        }
                        false => Vec::new(),
                    };
                    answer_list(&daemon, &chain, call, (feature, cursor.as_ref()), skills);
                });
            }
            OwnWork::Listen(daemon, id, filter) => listen::start(daemon, chain, call, id, filter),
            OwnWork::Method(daemon, _, work) => {
                let Some(work) = work.lock().take() else {
                    return chain.finish(vec![(call, CallOutcome::Cancelled)]);
                };
                work(MethodCall {
                    daemon: daemon.clone(),
                    chain: chain.clone(),
                    call,
                });
            }
            OwnWork::Skill(daemon, method, uri) => {
                let (daemon, chain, method, uri) =
                    (daemon.clone(), chain.clone(), *method, uri.clone());
                tokio::spawn(async move {
                    let ResultOwner { uid, session } = call.client.owner();
                    let slot = daemon.tools.of(uid, session).await;
                    // Files may be slow: not on a thread that serves clients.
                    tokio::task::spawn_blocking(move || {
                        let outcome = own_skill(&daemon.skills, method, &uri, call.version);
                        let outcome = relay::exit::fit(outcome, &call);
                        chain.finish(vec![(call, outcome)]);
                        drop(slot);
                    });
                });
            }
            OwnWork::Tool(daemon, tool) => {
                let (tool, daemon, chain) = (*tool, daemon.clone(), chain.clone());
                if matches!(tool.route, BuiltinRoute::Script) {
                    return script::run(daemon, chain, call);
                }
                tokio::spawn(async move {
                    let ResultOwner { uid, session } = call.client.owner();
                    let slot = match tool.rules.slots {
                        ToolSlots::Disk => daemon.tools.of(uid, session).await,
                        ToolSlots::Catalog => {
                            daemon.host.discovered(daemon.discover_ungated(&call)).await;
                            daemon.searches.of(uid, session).await
                        }
                        ToolSlots::Results => chain.results.turn(call.client.owner()).await,
                    };
                    answer_tool(daemon, tool, chain, call, slot);
                });
            }
        }
    }
}

/// Answers a call of a tool of ours, and gives up its slot.
fn answer_tool(
    daemon: Arc<Daemon>,
    tool: &'static BuiltinDefinition,
    chain: Arc<Chain>,
    call: Box<Call>,
    slot: UserSlot,
) {
    // The store waits for the disk: not on a thread that serves clients.
    tokio::task::spawn_blocking(move || {
        if call.client.is_cancelled(&call.id) {
            return chain.finish(vec![(call, CallOutcome::Cancelled)]);
        }
        let actor = TaskActor::of(&daemon, &call.client);
        let facts = CallerFacts::new(daemon.clone(), call.client.clone());
        let most = relay::cost::limit(&call);
        let context = builtin::BuiltinContext {
            look: &|| facts.view(),
            offered: &|| facts.offered(),
            set_cost_mode: &|mode| facts.set_cost_mode(mode),
            server_meant: &|named| facts.server_meant(named),
            find: &|query, server, limit| facts.find(query, server, limit),
            definition: &|name| facts.definition(name, call.version),
            board: &daemon.board,
            skills: &daemon.skills,
            results: (&chain.results, most),
            owner: &call.client.owner(),
            flow: Some(ClientFlow::new(&call.client, &chain)),
            who: actor.doer(),
            share: &|name| actor.share(&daemon, name),
        };
        let outcome = builtin::call(tool, Some(call.arguments()), &context);
        let is_bounded = match tool.rules.bound {
            AnswerBound::Never => false,
            AnswerBound::WithoutBudget => {
                call.client.door.is_some() && relay::cost::is_spent(&call)
            }
            AnswerBound::Always => true,
        };
        let outcome = match relay::exit::fit(outcome.into(), &call) {
            CallOutcome::Own {
                answer: AnswerBody::Result(result),
                failed: false,
            } if is_bounded => {
                chain.own_result(&call, result, "this tool only reads, and changed nothing")
            }
            outcome => outcome,
        };
        chain.finish(vec![(call, outcome)]);
        // What was read is counted now: who is next finds what is left.
        drop(slot);
    });
}

fn answer_list(
    daemon: &Arc<Daemon>,
    chain: &Arc<Chain>,
    call: Box<Call>,
    page: (Feature, Option<&ListCursor>),
    skills: Vec<(String, Bytes)>,
) {
    let outcome = match daemon.list(&call, page, skills) {
        Ok(page) => CallOutcome::Page(page),
        Err(failure) => CallOutcome::Failed(failure),
    };
    chain.finish(vec![(call, outcome)]);
}

/// The answer to a request about a skill of ours.
fn own_skill(own: &SkillDirectories, method: Method, uri: &str, version: Version) -> CallOutcome {
    let result = match method {
        Method::SkillsGet => {
            let name =
                skills::directory(uri).and_then(|directory| directory.strip_prefix(skills::OWN));
            let entries = own.entries().into_iter();
            let mut entries = entries.filter(|skill| Some(&*skill.name) == name);
            let entry = entries.next().map(|skill| skill.entry);
            entry.map(|entry| skills::get_result(&entry, None, version))
        }
        Method::DirectoryRead => {
            let entries = own.entries();
            let files = entries
                .iter()
                .flat_map(|skill| &skill.files)
                .map(String::as_str);
            skills::directory_result(uri, files, str::to_owned, version)
        }
        _ => own
            .read(uri)
            .map(|content| match String::from_utf8(content) {
                Ok(text) => skills::read_result(uri, Ok(&text), version),
                Err(binary) => {
                    skills::read_result(uri, Err(&BASE64.encode(binary.as_bytes())), version)
                }
            }),
    };
    match (result, method) {
        (Some(result), _) => CallOutcome::result(result),
        (None, Method::ResourcesRead) => {
            CallOutcome::error(RpcError::unknown_resource(uri, None, version))
        }
        (None, Method::SkillsGet) => CallOutcome::error(RpcError::unknown("skill", uri, None)),
        (None, _) => CallOutcome::error(RpcError::unknown("directory", uri, None)),
    }
}
