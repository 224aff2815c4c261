//! Skills of one server that a client asks for by their URI: `skills/get`.
//!
//! A server need not list all its skills, and may change one without telling. So it is asked each
//! time, and the entry that it gives is checked against the pins like one that it lists.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;

use super::listing::{Catalogue, ServerDefinition, ServerList};
use super::server::HostedServer;
use super::session::ServerSession;
use super::state::ProcessKey;
use crate::relay::Client;
use colibri_protocol::{Code, Failure, Feature, RpcError, skills, upstream};
use colibri_text::visible;

/// The most skills of one server that are known, listed or not.
const MAX_SKILLS: usize = 10_000;

/// The answer to a request for a skill.
pub(crate) enum SkillAnswer {
    /// Its entry is in the catalog, as approved.
    Approved,
    /// The server has no such skill, or does not say what it is: its error.
    None(RpcError),
}

impl HostedServer {
    /// Requests the entry of a skill, by the server's own URI of it, and takes it over into the
    /// catalog.
    ///
    /// # Errors
    /// There is no process, the server does not answer, or the entry is not as approved.
    pub(crate) async fn skill(
        self: &Arc<Self>,
        client: &Arc<Client>,
        uri: &str,
    ) -> Result<SkillAnswer, Failure> {
        let key = self.key(&client.caller, client.session.owner());
        let opened = timeout(self.spec.limits.start, self.open(key, client)).await;
        let late = || self.unavailable("it was not started in time (start_timeout_ms)");
        let session = opened
            .map_err(|_| late())?
            .map_err(|not_started| not_started.failure())?;
        let version = session.version();
        let answered = session.ask(
            |number| upstream::skill(number, uri, version),
            self.spec.limits.call,
            Code::TimeoutCall,
        );
        let answered = answered.await;
        if matches!(key, ProcessKey::Call(..)) {
            session.drain();
        }
        let answered = answered?;
        let result = match answered.outcome() {
            Ok(Some(result)) => result,
            Err(Some(error)) => {
                let why = error
                    .get("message")
                    .and_then(|text| text.as_str())
                    .unwrap_or_default();
                let why: String = self.spec.redact(&why).chars().take(300).collect();
                return Ok(SkillAnswer::None(RpcError::unknown(
                    "skill",
                    uri,
                    Some(&visible(&why)),
                )));
            }
            Ok(None) | Err(None) => {
                return Err(self.spec.server_failure("skills/get: an empty answer"));
            }
        };
        let entry = skills::read_entry(result, uri).map_err(|why| {
            self.spec
                .server_failure(&format!("skills/get of {}: {why}", visible(uri)))
        })?;
        let entry = Bytes::copy_from_slice(entry.text().as_bytes());
        self.learn_skill(&session, uri, entry).await?;
        let judgement = self.offer.definitions().1;
        match judgement
            .of(Feature::Skill, uri)
            .failure(&self.spec.id, Feature::Skill, uri)
        {
            Some(failure) => Err(failure),
            None => Ok(SkillAnswer::Approved),
        }
    }

    /// Takes an entry over, unless it is known as it is.
    async fn learn_skill(
        &self,
        session: &Arc<ServerSession>,
        uri: &str,
        raw: Bytes,
    ) -> Result<(), Failure> {
        let known = self.offer.catalogue();
        let listed = known.of(Feature::Skill);
        if listed
            .iter()
            .any(|skill| skill.name == uri && skill.raw == raw)
        {
            return Ok(());
        }
        let mut definitions: Vec<_> = listed
            .iter()
            .filter(|skill| skill.name != uri)
            .cloned()
            .collect();
        if definitions.len() >= MAX_SKILLS {
            return Err(self
                .spec
                .server_failure(&format!("it has more than {MAX_SKILLS} skills")));
        }
        let name = uri.to_owned();
        definitions.push(ServerDefinition { name, raw });
        let list = &known.lists[Feature::Skill.index()];
        let mut said = Catalogue::clone(&known);
        said.lists[Feature::Skill.index()] = Arc::new(ServerList {
            definitions,
            ttl_ms: list.ttl_ms,
            left_out: list.left_out.clone(),
        });
        self.offer.learned(session, said).await
    }
}
