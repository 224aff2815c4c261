//! Routing of a call: to Colibri itself, or to a server.

use std::borrow::Cow;
use std::sync::Arc;

use super::own_target::Own;
use crate::builtin::{self, ArgumentError, BuiltinRoute};
use crate::catalog::LookupKey;
use crate::daemon::Daemon;
use crate::relay::{CallArguments, CallOutcome, CallTarget, Client, RequestParts, no_such_tool};
use colibri_policy::Gate;
use colibri_protocol::{Feature, Method, Request, Route, RpcError, Version, skills};
use colibri_wire::Json;

/// The target of a request about one tool, prompt or resource.
///
/// # Errors
/// The request does not say which, or not as MCP has it.
pub(crate) fn find_target(
    daemon: &Arc<Daemon>,
    method: Method,
    request: &Request<'_>,
    params: Option<Json<'_>>,
    parts: &mut RequestParts,
    client: &Client,
) -> Result<Arc<CallTarget>, RpcError> {
    let params = params
        .ok_or_else(|| RpcError::invalid_params(format!("{} needs params", method.as_str())))?;
    let (wanted, version) = (RouteQuery { daemon, client }, request.version);
    match method.route() {
        Route::Resource | Route::Skill | Route::Directory => {
            let uri = text(params.get("uri"), "params.uri", parts)?;
            let is_own = uri.starts_with(skills::OWN) && client.session.only().is_none();
            if is_own
                && matches!(
                    method,
                    Method::ResourcesRead | Method::SkillsGet | Method::DirectoryRead
                )
            {
                return Ok(Own::skill(daemon.clone(), method, uri.into_owned()));
            }
            if method == Method::ResourcesUnsubscribe {
                // Whatever became of its server, and of the right to ask it.
                client.session.unsubscribe(&uri);
            }
            let feature = match method.route() {
                Route::Skill => Feature::Skill,
                _ => Feature::Resource,
            };
            Ok(wanted.find(method, wanted.uri(feature, uri.into_owned()), version))
        }
        Route::Reference => {
            parts.arguments = CallArguments::At(params.span());
            wanted.completion(params, parts, version)
        }
        _ => {
            parts.name = request.name.map(|name| name.span());
            let name = text(request.name, "params.name", parts)?;
            if let Some(arguments) = request.arguments {
                if !arguments.is_object() {
                    return Err(RpcError::invalid_params(
                        "params.arguments must be an object",
                    ));
                }
                parts.arguments = CallArguments::At(arguments.span());
            }
            match method.route() {
                Route::Named(Feature::Prompt) => {
                    Ok(wanted.named(method, Feature::Prompt, &name, version))
                }
                _ => wanted.tool(&name, params, parts, version),
            }
        }
    }
}

/// The name or URI of what is asked for, whose place is noted.
fn text<'a>(
    value: Option<Json<'a>>,
    place: &str,
    parts: &mut RequestParts,
) -> Result<Cow<'a, str>, RpcError> {
    parts.name = value.map(|value| value.span());
    let text = value.and_then(|value| value.as_str());
    text.ok_or_else(|| RpcError::invalid_params(format!("{place} must be a string")))
}

/// The target of a method that MCP does not know: the server whose entry lists it.
pub(crate) fn method(daemon: &Daemon, client: &Client, name: &str) -> Option<Arc<CallTarget>> {
    let table = daemon.host.table();
    let method = table.method(name)?;
    let rights = daemon.chain.rules.rights(client);
    let is_hidden = rights.is_agents() && !rights.sees(&method.server.spec.id, Feature::Tool, name);
    (!is_hidden).then(|| method.target())
}

/// A client that asks for something.
struct RouteQuery<'a> {
    daemon: &'a Arc<Daemon>,
    client: &'a Client,
}

impl RouteQuery<'_> {
    /// The tool of Colibri itself that this client has under a name.
    fn own_definition(&self, name: &str) -> Option<&'static builtin::BuiltinDefinition> {
        let is_there = self.client.session.only().is_none();
        let own = builtin::definition(name).filter(|_| is_there);
        own.filter(|own| self.client.door.is_none() || own.at_door.is_some())
    }

    fn own(&self, definition: &'static builtin::BuiltinDefinition) -> Arc<CallTarget> {
        let gate = definition.at_door.filter(|_| self.client.door.is_some());
        let gate = gate.unwrap_or(definition.gate);
        Own::tool(self.daemon.clone(), gate, definition)
    }

    /// The target of a tool call.
    fn tool(
        &self,
        name: &str,
        params: Json<'_>,
        parts: &mut RequestParts,
        version: Version,
    ) -> Result<Arc<CallTarget>, RpcError> {
        match self.own_definition(name) {
            Some(definition) => match definition.route {
                BuiltinRoute::Here(_) | BuiltinRoute::Script => Ok(self.own(definition)),
                BuiltinRoute::Relay => self.external_call(definition, params, parts, version),
                BuiltinRoute::Named => self.named_call(definition, params, parts, version),
            },
            None => Ok(self.named(Method::ToolsCall, Feature::Tool, name, version)),
        }
    }

    /// The target of a tool or a prompt that clients see under this name.
    fn named(
        &self,
        method: Method,
        feature: Feature,
        name: &str,
        version: Version,
    ) -> Arc<CallTarget> {
        let operation = if method == Method::ToolsCall {
            name
        } else {
            method.as_str()
        };
        if let Some(only) = self.client.session.only() {
            let wanted = LookupKey::Own(feature, only.clone(), name.to_owned());
            return self.find_as(operation, wanted, version);
        }
        // What of all this an agent has is not looked up by the name alone.
        let known = self
            .client
            .door
            .is_none()
            .then(|| self.daemon.host.exposed(feature, name));
        known.flatten().unwrap_or_else(|| {
            self.find_as(
                operation,
                LookupKey::Exposed(feature, name.to_owned()),
                version,
            )
        })
    }

    fn uri(&self, feature: Feature, uri: String) -> LookupKey {
        match self.client.session.only() {
            Some(only) => LookupKey::Own(feature, only.clone(), uri),
            None => LookupKey::Uri(feature, uri),
        }
    }

    fn find(&self, method: Method, wanted: LookupKey, version: Version) -> Arc<CallTarget> {
        self.find_as(method.as_str(), wanted, version)
    }

    fn find_as(&self, operation: &str, wanted: LookupKey, version: Version) -> Arc<CallTarget> {
        self.find_behind(Gate::None, operation, wanted, version)
    }

    /// The same, where a gate stands in front of the answer that there is no such thing.
    fn find_behind(
        &self,
        gate: Gate,
        operation: &str,
        wanted: LookupKey,
        version: Version,
    ) -> Arc<CallTarget> {
        let rights = self.daemon.chain.rules.rights(self.client);
        let found = self.daemon.host.find(wanted, &rights, version);
        found.unwrap_or_else(|outcome| Own::over(operation, gate, outcome))
    }

    /// The target that completes an argument of a prompt, or of a template of resources: its
    /// server.
    fn completion(
        &self,
        params: Json<'_>,
        parts: &mut RequestParts,
        version: Version,
    ) -> Result<Arc<CallTarget>, RpcError> {
        let of = params.get("ref").filter(Json::is_object);
        let of = of.ok_or_else(|| RpcError::invalid_params("params.ref must be an object"))?;
        if let Some(key) = of.ambiguous(&["type", "name", "uri"]) {
            let message = format!("refused: two members of params.ref can be read as \"{key}\"");
            return Err(RpcError::invalid_params(message));
        }
        let kind = of.get("type");
        let is = |wanted| kind.is_some_and(|kind| kind.is_string(wanted));
        if is("ref/prompt") {
            let name = text(of.get("name"), "params.ref.name", parts)?;
            Ok(self.named(Method::Complete, Feature::Prompt, &name, version))
        } else if is("ref/resource") {
            let uri = text(of.get("uri"), "params.ref.uri", parts)?;
            Ok(self.find(
                Method::Complete,
                self.uri(Feature::Template, uri.into_owned()),
                version,
            ))
        } else {
            Err(RpcError::invalid_params(
                "params.ref.type must be \"ref/prompt\" or \"ref/resource\"",
            ))
        }
    }

    /// The target of `colibri_external_mcp_call_tool`.
    fn external_call(
        &self,
        definition: &builtin::BuiltinDefinition,
        params: Json<'_>,
        parts: &mut RequestParts,
        version: Version,
    ) -> Result<Arc<CallTarget>, RpcError> {
        let (call, outer) = match asked_for(params, builtin::parse_external_call)? {
            Ok(asked) => asked,
            Err(error) => return Ok(Own::done(definition, error.outcome())),
        };
        let wanted = LookupKey::Origin(call.server, call.tool);
        let target = self.find_behind(definition.gate, definition.name, wanted, version);
        parts.arguments = within(outer, call.arguments);
        Ok(target)
    }

    /// The target of `colibri_call_tool`: that of the tool it names.
    fn named_call(
        &self,
        definition: &builtin::BuiltinDefinition,
        params: Json<'_>,
        parts: &mut RequestParts,
        version: Version,
    ) -> Result<Arc<CallTarget>, RpcError> {
        let (call, outer) = match asked_for(params, builtin::parse_named_call)? {
            Ok(asked) => asked,
            Err(error) => return Ok(Own::done(definition, error.outcome())),
        };
        parts.arguments = within(outer, call.arguments);
        if self
            .daemon
            .chain
            .rules
            .gates_for(self.client)
            .check(definition.gate)
            .is_err()
        {
            // Refused by its own gate, whatever it names.
            let nothing = CallOutcome::Failed(no_such_tool(&call.tool));
            return Ok(Own::over(definition.name, definition.gate, nothing));
        }
        let target = match self.own_definition(&call.tool).map(|own| (own, own.route)) {
            Some((own, BuiltinRoute::Here(_) | BuiltinRoute::Script)) => self.own(own),
            _ => self.find_as(&call.tool, LookupKey::Called(call.tool.clone()), version),
        };
        parts.called = Some(call.tool.into());
        Ok(target)
    }
}

/// Reads the arguments of a tool that calls others, and where they stand.
fn asked_for<'m, C>(
    params: Json<'m>,
    parse: impl Fn(Option<&'m [u8]>) -> Result<C, ArgumentError>,
) -> Result<Result<(C, Json<'m>), ArgumentError>, RpcError> {
    let arguments = params.get("arguments");
    match (
        parse(arguments.map(|arguments| arguments.text().as_bytes())),
        arguments,
    ) {
        (Ok(call), Some(outer)) => Ok(Ok((call, outer))),
        (Err(error), _) => Ok(Err(error)),
        (Ok(_), None) => Err(RpcError::invalid_params(
            "params.arguments must be an object",
        )),
    }
}

/// The place of the arguments of a tool that is called through another, whose own ones are `outer`.
fn within(outer: Json<'_>, inner: Option<&[u8]>) -> CallArguments {
    let inner = inner.map(|inner| {
        let at = outer.span().start + (inner.as_ptr() as usize - outer.text().as_ptr() as usize);
        at..at + inner.len()
    });
    CallArguments::Within {
        outer: outer.span(),
        inner,
    }
}
