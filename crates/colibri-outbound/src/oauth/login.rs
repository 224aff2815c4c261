//! A person logs in: is sent to the issuer with a secret, and comes back with a code (OAuth 2.1
//! §4.1, RFC 7636, RFC 9207).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use form_urlencoded::Serializer;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::account::{CompletedLogin, OauthAccount, add, made};
use super::discovery::{DiscoveredServer, discover};
use super::metadata::secure_url;
use super::random;
use super::settings::Grant;
use super::store::Registration;
use colibri_text::brief;

/// The longest time that a person may take.
const TIME: Duration = Duration::from_secs(600);
/// The most logins that one user may have begun.
const MAX_OF_ONE: usize = 8;

/// A login that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedLogin {
    /// The address at which the person consents, in a browser.
    pub url: String,
    /// The address to which the browser is sent afterwards.
    pub redirect: String,
    /// The issuer of the tokens.
    pub issuer: String,
    /// The requested scopes.
    pub scopes: Vec<String>,
}

struct PendingLogin {
    uid: u32,
    account: Arc<OauthAccount>,
    found: DiscoveredServer,
    client: Registration,
    verifier: SecretString,
    redirect: String,
    until: Instant,
}

/// The logins that were begun, by their `state`.
#[derive(Default)]
pub struct Logins {
    pending: Mutex<BTreeMap<String, PendingLogin>>,
}

impl Logins {
    /// Begins a login. `more` is asked for beside what the server names.
    ///
    /// # Errors
    /// There is nobody to log in at, or not safely.
    pub async fn start(
        &self,
        uid: u32,
        account: &Arc<OauthAccount>,
        more: &[String],
    ) -> anyhow::Result<StartedLogin> {
        let server = account.server();
        if server.settings.grant == Grant::Machine {
            bail!(
                "its entry says that the daemon logs in by itself (\"grant\": \"client_credentials\")"
            );
        }
        let challenge = account.wanted();
        let mut found = discover(&server.client, &server.url, &server.settings, &challenge).await?;
        found.issuer.check_pkce()?;
        let before = account
            .login()?
            .map(|login| login.scopes)
            .unwrap_or_default();
        add(&mut found.scopes, &before);
        add(&mut found.scopes, more);
        let issuer = &found.issuer;
        let Some(endpoint) = &issuer.authorization_endpoint else {
            bail!(
                "{} has no address where a person consents",
                brief(&issuer.issuer, 200)
            );
        };
        secure_url(endpoint)?;
        let redirect = server.redirect();
        let secrets = server.secrets()?;
        if self.is_begun_again(uid, account) {
            server
                .store
                .forget_registration(&issuer.issuer, &redirect)?;
        }
        let client = server.known_as(&found, &secrets).await?;
        let (state, verifier) = (random()?, random()?);
        let mut query = Serializer::new(String::new());
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.client_id)
            .append_pair("redirect_uri", &redirect)
            .append_pair("state", &state)
            .append_pair(
                "code_challenge",
                &URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier)),
            )
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &found.resource);
        if !found.scopes.is_empty() {
            query.append_pair("scope", &found.scopes.join(" "));
        }
        if found.scopes.iter().any(|scope| scope == "offline_access") {
            // OpenID Connect Core §11.
            query.append_pair("prompt", "consent");
        }
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        let started = StartedLogin {
            url: format!("{endpoint}{separator}{}", query.finish()),
            redirect: redirect.clone(),
            issuer: issuer.issuer.clone(),
            scopes: found.scopes.clone(),
        };
        let mut pending = self.pending.lock();
        let now = Instant::now();
        pending.retain(|_, login| login.until > now);
        while pending.values().filter(|login| login.uid == uid).count() >= MAX_OF_ONE {
            let oldest = pending.iter().filter(|(_, login)| login.uid == uid);
            let oldest = oldest
                .min_by_key(|(_, login)| login.until)
                .map(|(state, _)| state.clone());
            oldest.and_then(|state| pending.remove(&state));
        }
        let login = PendingLogin {
            uid,
            account: account.clone(),
            found,
            client,
            verifier: verifier.into(),
            redirect,
            until: now + TIME,
        };
        pending.insert(state, login);
        Ok(started)
    }

    /// Ends a login with the whole address to which the browser was sent.
    ///
    /// # Errors
    /// It is of no login of this user that was begun, comes from another issuer, or says no.
    pub async fn finish(&self, uid: u32, address: &str) -> anyhow::Result<CompletedLogin> {
        let (place, query) = address
            .trim()
            .split_once('?')
            .context("the address has no query: paste all of it")?;
        let query = query.split('#').next().unwrap_or_default();
        let mut fields: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if fields.insert(name.to_string(), value.to_string()).is_some() {
                bail!("the address says {} twice", brief(&name, 40));
            }
        }
        let state = fields
            .get("state")
            .context("the address has no state: paste all of it")?;
        let login = self.taken(uid, state)?;
        if place != login.redirect {
            bail!("the address must begin with {}", login.redirect);
        }
        let issuer = &login.found.issuer;
        // Before anything else that it says is believed, or shown (RFC 9207 §2.4).
        match fields.get("iss") {
            Some(said) if *said != issuer.issuer => {
                bail!(
                    "the answer is of another issuer than {}: nothing was sent anywhere",
                    brief(&issuer.issuer, 200)
                );
            }
            None if issuer.authorization_response_iss_parameter_supported => {
                bail!(
                    "the answer does not name its issuer (iss), which {} says it does: nothing was sent anywhere",
                    brief(&issuer.issuer, 200)
                );
            }
            _ => {}
        }
        if let Some(error) = fields.get("error") {
            let why = fields
                .get("error_description")
                .map(|why| format!(", {}", brief(why, 300)));
            bail!("refused: {}{}", brief(error, 80), why.unwrap_or_default());
        }
        let code = fields
            .get("code")
            .context("the address has no code: paste all of it")?;
        let server = login.account.server();
        let secrets = server.secrets()?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", login.redirect.as_str()),
            ("code_verifier", login.verifier.expose_secret()),
            ("resource", login.found.resource.as_str()),
        ];
        let party = login.client.party(secrets.private_key);
        let tokens = server.token(&login.found, &party, &form).await;
        let tokens = match tokens {
            Ok(tokens) => tokens,
            Err(refused) => {
                if refused.code.as_deref() == Some("invalid_client") && !login.client.is_named {
                    // It forgot us: the next login registers anew.
                    server
                        .store
                        .forget_registration(&issuer.issuer, &login.redirect)?;
                }
                return Err(refused.into());
            }
        };
        let kept = made(&login.found, &login.client, tokens);
        login.account.keep(&kept)?;
        Ok(login.account.ended(kept))
    }

    /// A login is ended once, and by who began it.
    fn taken(&self, uid: u32, state: &str) -> anyhow::Result<PendingLogin> {
        let mut pending = self.pending.lock();
        let now = Instant::now();
        match pending.get(state) {
            Some(login) if login.uid == uid && login.until > now => {}
            _ => {
                bail!(
                    "no login waits for this address: it was ended, is over 10 minutes old, or is not yours"
                );
            }
        }
        pending
            .remove(state)
            .context("no login waits for this address")
    }

    /// True if somebody who was sent to the issuer has not come back: it may have told them that it
    /// does not know us any more, which is shown to nobody else.
    fn is_begun_again(&self, uid: u32, account: &Arc<OauthAccount>) -> bool {
        let pending = self.pending.lock();
        let mut logins = pending.values();
        logins.any(|login| login.uid == uid && login.account.server().id == account.server().id)
    }
}
