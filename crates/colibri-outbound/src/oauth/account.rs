//! Authorization for requests to one server: an owner's tokens, renewed when they end.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use hyper::header::HeaderValue;
use hyper::{StatusCode, Uri};
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::debug;

use super::challenge::{Bearer, bearer};
use super::discovery::{self, ClientSecrets, DiscoveredServer, discover, register, words};
use super::grant::{GrantRefusal, IssuedTokens, Party, RequiredToken, revoke, token};
use super::metadata::{AuthorizationServer, is_of};
use super::now;
use super::settings::{Grant, IdentityProvider, OauthSettings};
use super::store::{Registration, StoredLogin, TokenOwner, TokenStore};
use crate::{Authorizer, Challenge};
use colibri_http::{BoxFuture, HttpClient};
use colibri_registry::EntryValue;
use colibri_text::brief;

/// A token is renewed this many seconds before it ends.
const EARLY: u64 = 30;

/// A server whose tokens are had this way: the same for all who use it.
pub struct OauthServer {
    /// Its id in the registry.
    pub id: String,
    /// Its address.
    pub url: Uri,
    /// The settings of its entry.
    pub settings: OauthSettings,
    /// Reaches issuers, by the address rules of the entry.
    pub client: HttpClient,
    /// The token store.
    pub store: Arc<TokenStore>,
    /// The secrets of the entry.
    pub vault: Arc<dyn Vault>,
}

/// The secrets of entries, and the observer of issued ones.
pub trait Vault: Send + Sync {
    /// A value of an entry: as it stands, or the secret that it names, as it is now.
    ///
    /// # Errors
    /// The secret is not there to read.
    fn read(&self, value: &EntryValue) -> anyhow::Result<SecretString>;

    /// A token or a password was issued, or read from where it is kept: no text may show it.
    fn issued(&self, token: &SecretString);
}

impl OauthServer {
    /// The owner of the tokens that a user's requests carry.
    pub fn owner(&self, uid: u32) -> TokenOwner {
        match self.settings.shared || self.settings.grant == Grant::Machine {
            true => TokenOwner::Everybody,
            false => TokenOwner::User(uid),
        }
    }

    /// The address to which a person is sent back.
    pub(super) fn redirect(&self) -> String {
        format!("http://127.0.0.1:{}/callback", self.settings.redirect_port)
    }

    /// The entry's secrets as they are now.
    ///
    /// # Errors
    /// One is not there to read.
    pub(super) fn secrets(&self) -> anyhow::Result<ClientSecrets> {
        let read =
            |value: Option<&EntryValue>| value.map(|value| self.vault.read(value)).transpose();
        let provider = self.settings.identity_provider.as_ref();
        Ok(ClientSecrets {
            client_secret: read(self.settings.client_secret.as_ref())?,
            private_key: read(self.settings.private_key.as_ref())?,
            provider_secret: read(provider.and_then(|provider| provider.client_secret.as_ref()))?,
        })
    }

    /// As which client its issuer knows us.
    ///
    /// # Errors
    /// As none.
    pub(super) async fn known_as(
        &self,
        found: &DiscoveredServer,
        secrets: &ClientSecrets,
    ) -> anyhow::Result<Registration> {
        let redirect = self.redirect();
        let known = register(
            &self.client,
            &self.store,
            &self.settings,
            secrets,
            found,
            &redirect,
        )
        .await?;
        known
            .client_secret
            .iter()
            .for_each(|secret| self.vault.issued(secret));
        Ok(known)
    }

    /// A token for it, by the grant in `form`.
    ///
    /// # Errors
    /// What its issuer has against it.
    pub(super) async fn token(
        &self,
        found: &DiscoveredServer,
        party: &Party,
        form: &[(&str, &str)],
    ) -> Result<IssuedTokens, GrantRefusal> {
        let AuthorizationServer {
            issuer,
            token_endpoint,
            ..
        } = &found.issuer;
        token(
            &self.client,
            issuer,
            token_endpoint,
            party,
            form,
            RequiredToken::Bearer,
        )
        .await
    }

    /// The instruction to a person to log in.
    pub(super) fn log_in(&self) -> String {
        format!("run: colibri-mcp login {}", self.id)
    }
}

/// A login that has ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedLogin {
    /// The server.
    pub server: String,
    /// The issuer of the tokens.
    pub issuer: String,
    /// Their scopes.
    pub scopes: Vec<String>,
}

/// An owner's authorization at a server.
pub struct OauthAccount {
    server: Arc<OauthServer>,
    owner: TokenOwner,
    /// The server's last challenge, for the next login.
    wanted: Mutex<Bearer>,
    kept: Mutex<StoredAccount>,
    /// One renewal at a time: a refresh token is often good once.
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct StoredAccount {
    /// The stored login, once it was looked up.
    login: Option<Option<StoredLogin>>,
    /// The number of times that it was forgotten.
    forgotten: u64,
}

impl OauthAccount {
    /// The account of this owner.
    pub fn new(server: Arc<OauthServer>, owner: TokenOwner) -> OauthAccount {
        OauthAccount {
            server,
            owner,
            wanted: Mutex::default(),
            kept: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
        }
    }

    /// The server.
    pub fn server(&self) -> &Arc<OauthServer> {
        &self.server
    }

    /// The server that has it.
    pub fn owner(&self) -> TokenOwner {
        self.owner
    }

    /// The server's last challenge.
    pub(super) fn wanted(&self) -> Bearer {
        self.wanted.lock().clone()
    }

    fn want(&self, challenge: &Bearer) {
        *self.wanted.lock() = challenge.clone();
    }

    /// The login that is kept, if it is one for this server as the entry has it now.
    pub(super) fn login(&self) -> anyhow::Result<Option<StoredLogin>> {
        let mut kept = self.kept.lock();
        let login = match &kept.login {
            Some(login) => login.clone(),
            None => {
                let login = self.server.store.login(&self.server.id, self.owner)?;
                login.iter().for_each(|login| self.conceal(login));
                kept.login.insert(login).clone()
            }
        };
        let settings = &self.server.settings;
        Ok(login.filter(|login| {
            let issuer = settings
                .issuer
                .as_ref()
                .is_none_or(|issuer| *issuer == login.issuer);
            let client = settings
                .client_id
                .as_ref()
                .is_none_or(|id| *id == login.client.client_id);
            issuer && client && is_of(&login.resource, &self.server.url)
        }))
    }

    pub(super) fn keep(&self, login: &StoredLogin) -> anyhow::Result<()> {
        self.keep_in(&mut self.kept.lock(), login)
    }

    /// The same, unless the owner logged out after this was begun.
    fn keep_begun(&self, login: &StoredLogin, begun: u64) -> anyhow::Result<()> {
        let mut kept = self.kept.lock();
        match kept.forgotten == begun {
            true => self.keep_in(&mut kept, login),
            false => Err(anyhow!("logged out meanwhile: {}", self.server.log_in())),
        }
    }

    /// In one step with the file, so that no other comes in between.
    fn keep_in(&self, kept: &mut StoredAccount, login: &StoredLogin) -> anyhow::Result<()> {
        self.conceal(login);
        kept.login = Some(Some(login.clone()));
        self.server
            .store
            .keep_login(&self.server.id, self.owner, login)
    }

    fn conceal(&self, login: &StoredLogin) {
        let tokens = [
            Some(&login.access_token),
            login.refresh_token.as_ref(),
            login.identity.as_ref(),
        ];
        tokens
            .into_iter()
            .flatten()
            .for_each(|token| self.server.vault.issued(token));
    }

    async fn current(&self) -> anyhow::Result<Option<HeaderValue>> {
        let Some(login) = self.login()? else {
            return Ok(None);
        };
        if login.expires.is_none_or(|expires| expires > now() + EARLY) {
            return field(&login.access_token).map(Some);
        }
        match self.renew(&login).await {
            Ok(login) => field(&login.access_token).map(Some),
            // The server decides whether it is still good: its clock counts. Who logged out has
            // none any more.
            Err(_)
                if login.expires.is_some_and(|expires| expires > now())
                    && self.login()?.is_some() =>
            {
                field(&login.access_token).map(Some)
            }
            Err(why) => Err(why),
        }
    }

    /// Has a newer token in place of this one.
    async fn renew(&self, old: &StoredLogin) -> anyhow::Result<StoredLogin> {
        let _one = self.renewing.lock().await;
        let begun = self.kept.lock().forgotten;
        let mut login = match self.login()? {
            // Somebody was faster.
            Some(login)
                if login.access_token.expose_secret() != old.access_token.expose_secret() =>
            {
                return Ok(login);
            }
            Some(login) => login,
            None => bail!("the login is over: {}", self.server.log_in()),
        };
        let Some(refresh) = login.refresh_token.clone() else {
            return match self.without_a_person() {
                true => self.obtain(&Bearer::default(), &login.scopes).await,
                false => Err(anyhow!("the login has ended: {}", self.server.log_in())),
            };
        };
        let secrets = self.server.secrets()?;
        let party = named(&login.client, &secrets).party(secrets.private_key.clone());
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose_secret()),
            ("resource", login.resource.as_str()),
        ];
        let client = &self.server.client;
        let renewed = token(
            client,
            &login.issuer,
            &login.token_endpoint,
            &party,
            &form,
            RequiredToken::Bearer,
        )
        .await;
        match renewed {
            Ok(tokens) => {
                login.renew(tokens);
                self.keep_begun(&login, begun)?;
                Ok(login)
            }
            Err(GrantRefusal {
                code: Some(code),
                why,
            }) if code == "invalid_grant" => {
                self.forget()?;
                Err(anyhow!(
                    "{why}: the login has ended: {}",
                    self.server.log_in()
                ))
            }
            Err(refused) => Err(anyhow!("the login could not be renewed: {refused}")),
        }
    }

    /// True if tokens are had without asking a person.
    fn without_a_person(&self) -> bool {
        self.server.settings.grant == Grant::Machine
    }

    /// Has a token as a machine.
    async fn obtain(&self, challenge: &Bearer, besides: &[String]) -> anyhow::Result<StoredLogin> {
        let server = &self.server;
        let begun = self.kept.lock().forgotten;
        let mut found = discover(&server.client, &server.url, &server.settings, challenge).await?;
        add(&mut found.scopes, besides);
        let secrets = server.secrets()?;
        let client = server.known_as(&found, &secrets).await?;
        let party = client.party(secrets.private_key.clone());
        let scope = found.scopes.join(" ");
        let mut form = vec![
            ("grant_type", "client_credentials"),
            ("resource", found.resource.as_str()),
        ];
        if !scope.is_empty() {
            form.push(("scope", &scope));
        }
        let tokens = server.token(&found, &party, &form).await?;
        let login = made(&found, &client, tokens);
        self.keep_begun(&login, begun)?;
        Ok(login)
    }

    /// Logs a person in by what the identity provider of the entry says of them: an ID token.
    ///
    /// # Errors
    /// The entry names none; the provider, or the server's issuer, refuses.
    pub async fn vouch(&self, identity: SecretString) -> anyhow::Result<CompletedLogin> {
        let Some(provider) = &self.server.settings.identity_provider else {
            bail!("its entry names no \"identity_provider\"");
        };
        let _one = self.renewing.lock().await;
        let login = self
            .vouched(provider, identity, &self.wanted(), &[])
            .await?;
        Ok(self.ended(login))
    }

    /// The report of a login that has ended well.
    pub(super) fn ended(&self, login: StoredLogin) -> CompletedLogin {
        CompletedLogin {
            server: self.server.id.clone(),
            issuer: login.issuer,
            scopes: login.scopes,
        }
    }

    /// Forgets the login. Whether there was one.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget(&self) -> anyhow::Result<bool> {
        let mut kept = self.kept.lock();
        *kept = StoredAccount {
            login: None,
            forgotten: kept.forgotten + 1,
        };
        self.server.store.forget_login(&self.server.id, self.owner)
    }

    /// Forgets the login and gives its tokens back. `None`: there was none; whether its issuer took
    /// them.
    ///
    /// # Errors
    /// What the system says.
    pub async fn log_out(&self) -> anyhow::Result<Option<bool>> {
        let _one = self.renewing.lock().await;
        let login = self.login()?;
        if !self.forget()? {
            return Ok(None);
        }
        let Some(login) = login else {
            return Ok(Some(false));
        };
        let revoked = self.revoke(&login).await;
        if let Err(why) = &revoked {
            debug!(
                server = self.server.id,
                "its tokens were not given back: {why:#}"
            );
        }
        Ok(Some(revoked.is_ok()))
    }

    /// Has the issuer forget tokens: the one that renews first, which may end the other (RFC 7009
    /// §2.1).
    async fn revoke(&self, login: &StoredLogin) -> anyhow::Result<()> {
        let endpoint = login
            .revocation_endpoint
            .as_ref()
            .context("its issuer has no way to")?;
        let secrets = self.server.secrets()?;
        let party = named(&login.client, &secrets).party(secrets.private_key.clone());
        let tokens = [
            ("refresh_token", login.refresh_token.as_ref()),
            ("access_token", Some(&login.access_token)),
        ];
        for (hint, token) in tokens {
            let Some(token) = token else { continue };
            let form = [("token", token.expose_secret()), ("token_type_hint", hint)];
            let revoked = revoke(&self.server.client, &login.issuer, endpoint, &party, &form).await;
            revoked?;
        }
        Ok(())
    }

    /// Exchanges what an identity provider says of a person for a token of this server (ID-JAG).
    async fn vouched(
        &self,
        provider: &IdentityProvider,
        identity: SecretString,
        challenge: &Bearer,
        besides: &[String],
    ) -> anyhow::Result<StoredLogin> {
        let server = &self.server;
        server.vault.issued(&identity);
        let begun = self.kept.lock().forgotten;
        let mut found = discover(&server.client, &server.url, &server.settings, challenge).await?;
        add(&mut found.scopes, besides);
        let secrets = server.secrets()?;
        let voucher = discovery::authorization_server(&server.client, &provider.issuer).await?;
        let party = discovery::at_provider(provider, &secrets, &voucher);
        let scope = found.scopes.join(" ");
        let mut form = vec![
            (
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ),
            (
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:id-jag",
            ),
            ("audience", found.issuer.issuer.as_str()),
            ("resource", found.resource.as_str()),
            ("subject_token", identity.expose_secret()),
            (
                "subject_token_type",
                "urn:ietf:params:oauth:token-type:id_token",
            ),
        ];
        if !scope.is_empty() {
            form.push(("scope", &scope));
        }
        let grant = token(
            &server.client,
            &voucher.issuer,
            &voucher.token_endpoint,
            &party,
            &form,
            RequiredToken::Grant,
        );
        let grant = grant.await?;
        server.vault.issued(&grant.access);
        let client = server.known_as(&found, &secrets).await?;
        let party = client.party(secrets.private_key.clone());
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", grant.access.expose_secret()),
            ("resource", found.resource.as_str()),
        ];
        let tokens = server.token(&found, &party, &form);
        let mut login = made(&found, &client, tokens.await?);
        login.identity = Some(identity);
        self.keep_begun(&login, begun)?;
        Ok(login)
    }

    async fn refused(&self, challenge: Challenge) -> anyhow::Result<()> {
        let asked = bearer(&challenge.fields).unwrap_or_default();
        let login = self.login()?;
        let held = login
            .as_ref()
            .map(|login| field(&login.access_token))
            .transpose()?;
        if held.is_some() && held != challenge.refused {
            // It was renewed meanwhile.
            return Ok(());
        }
        self.want(&asked);
        let lacks = challenge.status == StatusCode::FORBIDDEN;
        if lacks && asked.error.as_deref() != Some("insufficient_scope") {
            bail!("it does not allow this (403)");
        }
        let before = login
            .as_ref()
            .map(|login| login.scopes.clone())
            .unwrap_or_default();
        let scopes = asked.scope.as_deref().map(words).unwrap_or_default();
        if self.without_a_person() {
            if lacks && scopes.iter().all(|scope| before.contains(scope)) {
                bail!("it does not allow this (403), whatever its token is for");
            }
            let _one = self.renewing.lock().await;
            return self.obtain(&asked, &before).await.map(drop);
        }
        let provider = self.server.settings.identity_provider.as_ref();
        match login {
            Some(login) if !lacks && login.refresh_token.is_some() => {
                self.renew(&login).await.map(drop)
            }
            Some(StoredLogin {
                identity: Some(identity),
                ..
            }) if let Some(provider) = provider => {
                let _one = self.renewing.lock().await;
                self.vouched(provider, identity, &asked, &before)
                    .await
                    .map(drop)
            }
            Some(_) if lacks => Err(anyhow!(
                "it wants more rights than were given ({}): {}",
                brief(&scopes.join(" "), 200),
                self.server.log_in()
            )),
            Some(_) => Err(anyhow!(
                "it no longer takes the login: {}",
                self.server.log_in()
            )),
            None => Err(anyhow!("it wants a login: {}", self.server.log_in())),
        }
    }
}

impl Authorizer for OauthAccount {
    fn authorization(&self) -> BoxFuture<'_, anyhow::Result<Option<HeaderValue>>> {
        Box::pin(self.current())
    }

    fn challenged(&self, challenge: Challenge) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(self.refused(challenge))
    }
}

/// A registration with the secrets that the entry has now.
fn named(client: &Registration, secrets: &ClientSecrets) -> Registration {
    let mut client = client.clone();
    if client.is_named {
        client.client_secret = secrets.client_secret.clone();
    }
    client
}

/// The login to store for tokens that were issued just now.
pub(super) fn made(
    found: &DiscoveredServer,
    client: &Registration,
    tokens: IssuedTokens,
) -> StoredLogin {
    let mut client = client.clone();
    if client.is_named {
        client.client_secret = None;
    }
    let mut scopes = found.scopes.clone();
    add(
        &mut scopes,
        &tokens.scope.as_deref().map(words).unwrap_or_default(),
    );
    StoredLogin {
        issuer: found.issuer.issuer.clone(),
        resource: found.resource.clone(),
        token_endpoint: found.issuer.token_endpoint.clone(),
        revocation_endpoint: found.issuer.revocation_endpoint.clone(),
        client,
        scopes,
        access_token: tokens.access,
        refresh_token: tokens.refresh,
        expires: tokens.expires,
        // What this issuer says of the person is nothing to show to an identity provider.
        identity: None,
    }
}

/// Adds what is not there.
pub(super) fn add(scopes: &mut Vec<String>, more: &[String]) {
    for scope in more {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
}

fn field(token: &SecretString) -> anyhow::Result<HeaderValue> {
    let value = format!("Bearer {}", token.expose_secret());
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| anyhow!("the token is none that a header can hold"))?;
    value.set_sensitive(true);
    Ok(value)
}
