//! Resources of external servers: who has the one that a client asks for, and asking for it.
//!
//! What a server lists is not all that can be read of it: templates stand for any number of
//! resources, and links lead to others. So a URI goes to the server that it names; one that names
//! none goes to a server without a prefix.
//!
//! The files of a skill are resources too. What is read of them is checked against the entry that
//! was approved.

use std::sync::Arc;

use super::ServerHost;
use super::item::Item;
use super::lookup::{Look, UnseenServers};
use super::skill_content::SkillContent;
use crate::relay::{
    Call, CallHandler, CallOutcome, CallTarget, Chain, ConfirmationRule, ServerCall, SuspendedCall,
    TargetDescription, TargetRules, ToolFlow,
};
use crate::servers::{HostedServer, SkillAnswer};
use colibri_policy::{PinCheck, PinStatus, Rights};
use colibri_protocol::{Code, Failure, Feature, Method, RpcError, skills, uri};
use colibri_text::Pattern;

/// The number of a server's templates that a URI is compared with, their longest length, and that
/// of the URI, in bytes: both may be made to be slow to compare.
const MAX_TEMPLATES: usize = 200;
const MAX_TEMPLATE: usize = 256;
const MAX_COMPARED: usize = 4096;

/// The target of a resource, or of a template of resources, of a server.
pub(super) fn target(
    host: &Arc<ServerHost>,
    server: &Arc<HostedServer>,
    feature: Feature,
    own: &str,
) -> Arc<CallTarget> {
    let description = TargetDescription {
        is_idempotent: true,
        flow: ToolFlow {
            labels: server.spec.entry.flow.of_others(),
            contract: None,
        }
        .any(),
        ..TargetDescription::of_server((&server.spec.id, server.clone()), feature, own)
            .by_own_name()
    };
    let rules = TargetRules {
        verdict: server
            .label_denial()
            .unwrap_or_else(|| server.spec.rules.judge(feature, own, b"")),
        pin: Some(standing(&server.offer.definitions().1, feature, own)),
        skills: match feature {
            Feature::Resource => SkillContent::around(host, server, own),
            _ => None,
        },
        confirmation: ConfirmationRule::Entry,
        ..TargetRules::default()
    };
    // What there is to know of skills is answered here.
    CallTarget::handled(description, rules, host.clone())
}

/// The pin status of a resource: its own if it is listed, or that of the templates that it could
/// belong to.
fn standing(judgement: &PinCheck, feature: Feature, own: &str) -> PinStatus {
    let listed = judgement.of(feature, own);
    if !listed.is_approved()
        || feature == Feature::Template
        || judgement.definitions[feature.index()].contains_key(own)
    {
        return listed.clone();
    }
    let blocked = judgement
        .blocked(Feature::Template)
        .find(|template| may_be_of(template, own));
    blocked.map_or(PinStatus::Approved, |template| {
        judgement.of(Feature::Template, template).clone()
    })
}

/// True if expanding a template (RFC 6570) could give a URI: what stands between its expressions is
/// there, in order.
fn may_be_of(template: &str, uri: &str) -> bool {
    if template.len() > MAX_TEMPLATE || uri.len() > MAX_COMPARED {
        return false;
    }
    let (mut pattern, mut rest) = (String::new(), template);
    while let Some((literal, expression)) = rest.split_once('{') {
        pattern.push_str(literal);
        let Some((_, after)) = expression.split_once('}') else {
            return false;
        };
        pattern.push('*');
        rest = after;
    }
    pattern.push_str(rest);
    Pattern::new(pattern).matches(uri)
}

impl ServerHost {
    /// Finds the server of the resource, or the template, that a client knows by this URI: the
    /// server that it names, if the client may see it; else one of those whose URIs are exposed
    /// unchanged, which lists it, or has a template that it could be of, or is the only one with
    /// resources.
    pub(super) fn look_for_uri(
        self: &Arc<Self>,
        feature: Feature,
        wanted: &str,
        rights: &Rights,
    ) -> Look {
        let servers = self.servers();
        let visible = |server: &&Arc<HostedServer>| rights.sees_any(&server.spec.id);
        if let Some((id, own)) = uri::original(wanted)
            && let Some(server) = servers
                .get(id)
                .filter(|server| server.spec.entry.prefix)
                .filter(visible)
        {
            return self.look_at(server, feature, &own);
        }
        let table = self.table();
        let listed = [feature, Feature::Template, Feature::Resource]
            .map(|feature| table.by_name(feature, wanted));
        let listed = listed.into_iter().flatten().map(|item| &item.server);
        if let Some(server) = listed
            .filter(|server| !server.spec.entry.prefix)
            .find(visible)
        {
            return Look::Here(target(self, server, feature, wanted));
        }
        let bare: Vec<_> = servers
            .values()
            .filter(|server| !server.spec.entry.prefix)
            .filter(visible)
            .collect();
        let has_one = |server: &&&Arc<HostedServer>| {
            let catalogue = server.offer.catalogue();
            let mut templates = catalogue.of(Feature::Template).iter().take(MAX_TEMPLATES);
            templates.any(|template| may_be_of(&template.name, wanted))
        };
        if let Some(server) = bare.iter().find(has_one) {
            return Look::Here(target(self, server, feature, wanted));
        }
        let unseen = bare.iter().filter(|server| !server.offer.is_in_table());
        if let Some(place) =
            UnseenServers::among(unseen.map(|server| (*server).clone()).collect(), wanted)
        {
            return Look::Seek(place);
        }
        let mut with = bare
            .iter()
            .filter(|server| server.offer.catalogue().can().resources.offered);
        match (with.next(), with.next()) {
            (Some(server), None) => Look::Here(target(self, server, feature, wanted)),
            (Some(_), Some(_)) => Look::Missing(Some(
                "several servers without a prefix have resources, and none lists it",
            )),
            (None, _) => Look::Missing(None),
        }
    }

    /// The resource, or the template, that a server knows by this URI.
    pub(super) fn look_at(
        self: &Arc<Self>,
        server: &Arc<HostedServer>,
        feature: Feature,
        own: &str,
    ) -> Look {
        if !server.offer.is_in_table() {
            Look::Seek(UnseenServers::At(server.clone(), own.to_owned()))
        } else if server.offer.catalogue().can().resources.offered {
            Look::Here(target(self, server, feature, own))
        } else {
            Look::Missing(Some("its server declares no resources"))
        }
    }
}

impl CallHandler for ServerHost {
    fn handle(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) -> Option<ServerCall> {
        let id = &*call.target.description().server;
        let Some(server) = self.servers().get(id).cloned() else {
            let message = format!("{id} is not available: it was removed from the registry");
            let failure = Failure::new(Code::IntegrationUnavailable, message).of_server(id);
            chain.finish(vec![(call, CallOutcome::Failed(failure))]);
            return None;
        };
        match call.method {
            Some(Method::SkillsGet) => {
                tokio::spawn(self.get_skill(server, chain.clone(), call));
                None
            }
            Some(Method::DirectoryRead) => self.read_directory(server, chain, call),
            _ => Some((call, server)),
        }
    }
}

impl ServerHost {
    /// Answers `skills/get` with the entry that the server gives now, if it is as approved.
    async fn get_skill(
        self: Arc<Self>,
        server: Arc<HostedServer>,
        chain: Arc<Chain>,
        call: Box<Call>,
    ) {
        let operation = &*call.target.description().operation.clone();
        let (client, version) = (call.client.clone(), call.version);
        let mut answered = None;
        let ask = async { answered = Some(server.skill(&client, operation).await) };
        let Some(call) = SuspendedCall::until(ask, &chain, call).await else {
            return;
        };
        let outcome = match answered {
            Some(Ok(SkillAnswer::Approved)) => {
                let table = self.table();
                let is_narrowed = chain.rules.rights(&client).is_narrowed();
                let definition = |item: &Arc<Item>| match is_narrowed {
                    true => item.own_definition(version),
                    false => item.definition(&item.exposed, version, client.caller.uid),
                };
                let item = table
                    .by_own_name(Feature::Skill, &server.spec.id, operation)
                    .map(definition);
                let entry = item
                    .as_ref()
                    .and_then(|entry| std::str::from_utf8(entry).ok());
                let ttl = server.offer.catalogue().ttl_ms(Feature::Skill);
                match entry {
                    Some(entry) => CallOutcome::result(skills::get_result(entry, ttl, version)),
                    None => CallOutcome::error(RpcError::unknown("skill", operation, None)),
                }
            }
            Some(Ok(SkillAnswer::None(error))) => CallOutcome::error(error),
            Some(Err(failure)) => CallOutcome::Failed(failure),
            None => CallOutcome::Cancelled,
        };
        chain.finish(vec![(call, outcome)]);
    }

    /// Answers `resources/directory/read` from the approved entries of skills. The call is given
    /// back if the server has to answer.
    fn read_directory(
        &self,
        server: Arc<HostedServer>,
        chain: &Arc<Chain>,
        call: Box<Call>,
    ) -> Option<ServerCall> {
        let (spec, operation) = (&server.spec, &call.target.description().operation);
        let rights = chain.rules.rights(&call.client);
        let files = SkillContent::files_below(&server, operation);
        let files = files.iter().map(String::as_str);
        let seen = files.filter(|uri| rights.sees(&spec.id, Feature::Resource, uri));
        let has_prefix = spec.entry.prefix && !rights.is_narrowed();
        let exposed = |own: &str| match has_prefix {
            true => uri::exposed(&spec.id, own),
            false => own.to_owned(),
        };
        let outcome = match skills::directory_result(operation, seen, exposed, call.version) {
            Some(result) => CallOutcome::result(result),
            None if server.offer.catalogue().can().directories => return Some((call, server)),
            None => CallOutcome::error(RpcError::unknown("directory", operation, None)),
        };
        chain.finish(vec![(call, outcome)]);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_could_give_what_has_their_literals() {
        for (template, uri, may) in [
            ("file:///{path}", "file:///a", true),
            ("file:///{path}", "file:///", true),
            ("file:///{path}.txt{?rev}", "file:///a.txt?rev=1", true),
            ("file:///{path}.txt", "file:///a.md", false),
            ("{+uri}", "anything", true),
            ("git://{a}/{b}", "git://x", false),
            ("git://x", "git://x", true),
            ("git://{", "git://{", false),
        ] {
            assert_eq!(may_be_of(template, uri), may, "{template} {uri}");
        }
        assert!(!may_be_of(
            &"{a}a".repeat(64),
            &"b".repeat(MAX_COMPARED + 1)
        ));
    }
}
