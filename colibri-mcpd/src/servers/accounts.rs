//! The logins at a server behind a URL.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::specification::ServerSpecification;
use crate::registry::EntryTransport;
use colibri_http::HttpClient;
use colibri_outbound::oauth::{OauthAccount, OauthServer, TokenOwner};
use parking_lot::Mutex;

/// The logins at one server.
pub(super) struct ServerAccounts {
    server: Arc<OauthServer>,
    of: Mutex<BTreeMap<TokenOwner, Arc<OauthAccount>>>,
}

impl ServerAccounts {
    /// Those at a server; `None` if nobody logs in there.
    pub(super) fn at(spec: &ServerSpecification) -> Option<ServerAccounts> {
        let EntryTransport::Http {
            url,
            rules,
            oauth: Some(settings),
            ..
        } = &spec.entry.transport
        else {
            return None;
        };
        let server = OauthServer {
            id: spec.id.to_string(),
            url: url.parse().ok()?,
            settings: (**settings).clone(),
            client: HttpClient::new(rules.clone()),
            store: spec.context.parts.tokens.clone(),
            vault: spec.context.parts.secrets.clone(),
        };
        Some(ServerAccounts {
            server: Arc::new(server),
            of: Mutex::default(),
        })
    }

    /// A user's, or everybody's.
    pub(super) fn of(&self, uid: u32) -> Arc<OauthAccount> {
        let owner = self.server.owner(uid);
        let mut of = self.of.lock();
        let new = || Arc::new(OauthAccount::new(self.server.clone(), owner));
        of.entry(owner).or_insert_with(new).clone()
    }
}
