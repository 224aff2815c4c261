//! The daemon's own answers: the protocol's own methods, the tool list, and the `colibri_*` tools.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use parking_lot::Mutex;

use super::listen;
use super::method::{MethodAnswer, MethodCall, MethodEntry, MethodWork};
use super::script;
use super::status::CallerFacts;
use super::task_actor::TaskActor;
use crate::builtin::{
    self, AnswerBound, BuiltinDefinition, BuiltinRoute, SkillDirectories, ToolSlots,
};
use crate::daemon::Daemon;
use crate::relay::{
    self, Call, CallHandler, CallOutcome, CallTarget, Chain, ClientFlow, ConfirmationRule,
    Destination, FreeUse, ServerCall, TargetDescription, TargetRules,
};
use crate::results::ResultOwner;
use colibri_policy::{Gate, UserSlot};
use colibri_protocol::lists::ListCursor;
use colibri_protocol::subscription::SubscriptionFilter;
use colibri_protocol::{AnswerBody, Feature, Method, RpcError, Version, skills};
use colibri_wire::RequestId;

/// What the daemon answers itself.
pub(crate) enum Own {
    List(Arc<Daemon>, Feature, Option<ListCursor>),
    Listen(Arc<Daemon>, RequestId, SubscriptionFilter),
    Tool(Arc<Daemon>, &'static BuiltinDefinition),
    /// A request about a skill of the daemon's own.
    Skill(Arc<Daemon>, Method, String),
    /// A method of the daemon's own, until it is answered.
    Method(Arc<Daemon>, Mutex<Option<MethodAnswer>>),
}

/// The description of what the daemon answers.
fn described(operation: &str, gate: Gate) -> TargetDescription {
    // A client's own words go to the records: no more of them than a method's name can have.
    let end = operation
        .char_indices()
        .nth(100)
        .map_or(operation.len(), |(end, _)| end);
    TargetDescription::of_colibri(&operation[..end], gate)
}

impl Own {
    fn target(self, description: TargetDescription, rules: TargetRules) -> Arc<CallTarget> {
        CallTarget::handled(description, rules, Arc::new(self))
    }

    /// A request whose answer is known already.
    pub(crate) fn answer(operation: &str, answer: AnswerBody) -> Arc<CallTarget> {
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
    ) -> Arc<CallTarget> {
        let description = TargetDescription::of_colibri(definition.name, definition.gate);
        known(description, outcome.into())
    }

    /// A call whose outcome is known already.
    pub(crate) fn over(operation: &str, gate: Gate, outcome: CallOutcome) -> Arc<CallTarget> {
        let description = TargetDescription {
            is_named: false,
            ..described(operation, gate)
        };
        known(description, outcome)
    }

    /// `tools/list` and its like.
    pub(crate) fn list(
        daemon: Arc<Daemon>,
        feature: Feature,
        cursor: Option<ListCursor>,
    ) -> Arc<CallTarget> {
        let description = described(Method::list_of(feature).as_str(), Gate::None);
        Own::List(daemon, feature, cursor).target(description, TargetRules::default())
    }

    /// A request about a file, a directory or the entry of a skill of ours, by its URI.
    pub(crate) fn skill(daemon: Arc<Daemon>, method: Method, uri: String) -> Arc<CallTarget> {
        let description = described(method.as_str(), Gate::None);
        Own::Skill(daemon, method, uri).target(description, TargetRules::default())
    }

    /// `subscriptions/listen`.
    pub(crate) fn listen(
        daemon: Arc<Daemon>,
        id: RequestId,
        listen: SubscriptionFilter,
    ) -> Arc<CallTarget> {
        let description = described(Method::SubscriptionsListen.as_str(), Gate::None);
        Own::Listen(daemon, id, listen).target(description, TargetRules::default())
    }

    /// A method of the daemon's own, whose parameters were read.
    pub(crate) fn method(
        daemon: Arc<Daemon>,
        (entry, work): (&'static MethodEntry, MethodWork),
    ) -> Arc<CallTarget> {
        let free = FreeUse {
            unrecorded: entry.is_unrecorded,
            ..FreeUse::default()
        };
        let description = TargetDescription {
            is_look: entry.is_look,
            free,
            ..described(entry.name, entry.gate)
        };
        let rules = TargetRules {
            is_for_operators: work.is_for_operators,
            ..TargetRules::default()
        };
        Own::Method(daemon, Mutex::new(Some(work.answer))).target(description, rules)
    }

    /// A call of a tool of ours.
    pub(crate) fn tool(
        daemon: Arc<Daemon>,
        gate: Gate,
        tool: &'static BuiltinDefinition,
    ) -> Arc<CallTarget> {
        let description = TargetDescription {
            free: tool.rules.free,
            ..described(tool.name, gate)
        };
        let rules = TargetRules {
            confirmation: match tool.rules.confirm {
                Some(rule) => ConfirmationRule::OwnTool(rule),
                None => ConfirmationRule::Nothing,
            },
            ..TargetRules::default()
        };
        Own::Tool(daemon, tool).target(description, rules)
    }
}

/// A target whose outcome is known already.
fn known(description: TargetDescription, outcome: CallOutcome) -> Arc<CallTarget> {
    let destination = Destination::Known(Mutex::new(Some(outcome)));
    CallTarget::new(description, TargetRules::default(), destination)
}

impl CallHandler for Own {
    fn handle(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) -> Option<ServerCall> {
        match call.client.is_cancelled(&call.id) {
            true => chain.finish(vec![(call, CallOutcome::Cancelled)]),
            false => self.answer_call(chain, call),
        }
        None
    }
}

impl Own {
    fn answer_call(&self, chain: &Arc<Chain>, call: Box<Call>) {
        match self {
            Own::List(daemon, feature, cursor) => {
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
            Own::Listen(daemon, id, filter) => listen::start(daemon, chain, call, id, filter),
            Own::Method(daemon, work) => {
                let Some(answer) = work.lock().take() else {
                    return chain.finish(vec![(call, CallOutcome::Cancelled)]);
                };
                answer(MethodCall {
                    daemon: daemon.clone(),
                    chain: chain.clone(),
                    call,
                });
            }
            Own::Skill(daemon, method, uri) => {
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
            Own::Tool(daemon, tool) => {
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
