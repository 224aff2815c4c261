//! Who has which login at a server behind a URL.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::context::Context;
use crate::oauth::{self, Account, Owner};
use crate::registry::{Entry, Transport};
use colibri_http::Client;

/// The logins at one server.
pub(super) struct Accounts {
    server: Arc<oauth::Server>,
    of: Mutex<BTreeMap<Owner, Arc<Account>>>,
}

impl Accounts {
    /// Those at a server; `None` if nobody logs in there.
    pub(super) fn at(id: &str, entry: &Entry, context: &Context) -> Option<Accounts> {
        let Transport::Http {
            url,
            rules,
            oauth: Some(settings),
            ..
        } = &entry.transport
        else {
            return None;
        };
        let server = oauth::Server {
            id: id.to_owned(),
            url: url.parse().ok()?,
            settings: (**settings).clone(),
            client: Client::new(rules.clone()),
            store: context.parts.tokens.clone(),
            vault: context.parts.secrets.clone(),
        };
        Some(Accounts {
            server: Arc::new(server),
            of: Mutex::default(),
        })
    }

    /// A user's, or everybody's.
    pub(super) fn of(&self, uid: u32) -> Arc<Account> {
        let owner = self.server.owner(uid);
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Account::new(self.server.clone(), owner));
        of.entry(owner).or_insert_with(new).clone()
    }
}
