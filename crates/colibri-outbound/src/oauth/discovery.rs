//! Discovery of a server's authorization server, and of the client id that we have there.

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode, Uri};
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::challenge::Bearer;
use super::grant::Party;
use super::metadata::{
    AuthorizationServer, ProtectedResource, issuer_locations, resource_locations, secure_url,
};
use super::settings::{Grant, IdentityProvider, OauthSettings};
use super::store::{Registration, TokenStore};
use super::{TIME_LIMIT, in_time};
use colibri_http::{HttpClient, HttpLimits, UrlOrigin};
use colibri_text::brief;

/// The most bytes of a document.
const MAX_DOCUMENT: usize = 256 * 1024;

/// The authorization facts of a server.
#[derive(Debug, Clone)]
pub(super) struct DiscoveredServer {
    /// The server, as tokens name it.
    pub(super) resource: String,
    /// The authorization server.
    pub(super) issuer: AuthorizationServer,
    /// The scopes to request; empty: nothing in particular.
    pub(super) scopes: Vec<String>,
}

/// Finds out who issues tokens for a server. `challenge` is what it said last.
///
/// # Errors
/// Nobody, not the one that the entry names, or not safely.
pub(super) async fn discover(
    client: &HttpClient,
    server: &Uri,
    settings: &OauthSettings,
    challenge: &Bearer,
) -> anyhow::Result<DiscoveredServer> {
    // What is issued goes there with each request, and on the way who issues it is found out.
    secure_url(&canonical(server))?;
    let resource = protected_resource(client, server, challenge).await?;
    let (named, issuer) = match resource {
        Some(resource) => {
            resource.check(server)?;
            let issuer = chosen(settings, &resource.authorization_servers)?;
            let issuer = authorization_server(client, &issuer).await?;
            (Some(resource), issuer)
        }
        None => (None, of_2025_03_26(client, server, settings).await?),
    };
    let said = challenge.scope.as_deref().map(words);
    let supported = named
        .as_ref()
        .and_then(|resource| resource.scopes_supported.clone());
    let mut scopes = settings
        .scopes
        .clone()
        .or(said)
        .or(supported)
        .unwrap_or_default();
    // With it there is something to renew a token with (OpenID Connect Core §11).
    let offline = "offline_access".to_owned();
    if settings.grant == Grant::Person
        && issuer.scopes_supported.contains(&offline)
        && !scopes.contains(&offline)
    {
        scopes.push(offline);
    }
    Ok(DiscoveredServer {
        resource: named.map_or_else(|| canonical(server), |resource| resource.resource),
        issuer,
        scopes,
    })
}

/// The words of a scope.
pub(super) fn words(scope: &str) -> Vec<String> {
    scope.split_ascii_whitespace().map(str::to_owned).collect()
}

/// A server as tokens name it that does not say so itself (MCP, "Canonical Server URI").
fn canonical(server: &Uri) -> String {
    let origin = UrlOrigin::of(server)
        .map(|origin| origin.to_string())
        .unwrap_or_default();
    format!("{origin}{}", server.path().trim_end_matches('/'))
}

/// The issuer that is asked: the one that the entry names, else the first.
fn chosen(settings: &OauthSettings, issuers: &[String]) -> anyhow::Result<String> {
    let Some(named) = &settings.issuer else {
        return issuers
            .first()
            .cloned()
            .context("it names no authorization server");
    };
    match issuers.contains(named) {
        true => Ok(named.clone()),
        false => Err(anyhow!(
            "its tokens are issued by {}, and not by the issuer that the entry names ({}): what is known there is not \
             shown to another; change \"oauth\" if that is right",
            brief(&issuers.join(", "), 300),
            brief(named, 200)
        )),
    }
}

async fn protected_resource(
    client: &HttpClient,
    server: &Uri,
    challenge: &Bearer,
) -> anyhow::Result<Option<ProtectedResource>> {
    if let Some(location) = &challenge.resource_metadata {
        let location = secure_url(location)?.to_string();
        let document = document(client, &location).await?;
        return document
            .map(Some)
            .with_context(|| format!("{} is not there", brief(&location, 200)));
    }
    for location in resource_locations(server) {
        if let Some(resource) = document(client, &location).await? {
            return Ok(Some(resource));
        }
    }
    Ok(None)
}

/// The metadata of an issuer.
///
/// # Errors
/// There are none, or they are another's.
pub(super) async fn authorization_server(
    client: &HttpClient,
    issuer: &str,
) -> anyhow::Result<AuthorizationServer> {
    secure_url(issuer)?;
    for location in issuer_locations(issuer)? {
        if let Some(metadata) = document::<AuthorizationServer>(client, &location).await? {
            metadata.check(issuer)?;
            return Ok(metadata);
        }
    }
    Err(anyhow!(
        "{} publishes no metadata of an authorization server",
        brief(issuer, 200)
    ))
}

/// Before 2025-06-18 a server was its own authorization server, and where it published nothing the
/// addresses were fixed.
async fn of_2025_03_26(
    client: &HttpClient,
    server: &Uri,
    settings: &OauthSettings,
) -> anyhow::Result<AuthorizationServer> {
    let issuer = UrlOrigin::of(server)?.to_string();
    let issuer = chosen(settings, &[issuer])?;
    let location = format!("{issuer}/.well-known/oauth-authorization-server");
    secure_url(&issuer)?;
    match document::<AuthorizationServer>(client, &location).await? {
        // Such servers write their issuer with and without a slash.
        Some(metadata) => metadata
            .check(&issuer)
            .or_else(|_| metadata.check(&format!("{issuer}/")))
            .map(|()| metadata),
        None => Err(anyhow!(
            "it wants a login (401), and neither it nor {issuer} says who issues tokens: ask whoever runs it, or give \
             the entry headers"
        )),
    }
}

/// A JSON document; `None` where there is none.
async fn document<T: DeserializeOwned>(
    client: &HttpClient,
    location: &str,
) -> anyhow::Result<Option<T>> {
    let shown = brief(location, 200);
    let request = Request::builder()
        .uri(location)
        .header(ACCEPT, "application/json")
        .body(Bytes::new())
        .map_err(|_| anyhow!("{shown} is no URL"))?;
    let mut response = in_time(client.request(request, HttpLimits::all(TIME_LIMIT))).await?;
    if response.status.is_client_error() {
        let _ = in_time(response.whole(MAX_DOCUMENT)).await;
        return Ok(None);
    }
    if response.status != StatusCode::OK {
        bail!("{shown} answered {}", response.status);
    }
    let body = in_time(response.whole(MAX_DOCUMENT)).await?;
    let parsed = serde_json::from_slice(&body);
    parsed
        .map(Some)
        .map_err(|error| anyhow!("{shown} is no metadata: {}", brief(&error.to_string(), 200)))
}

/// The entry's own secrets, read for this moment.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientSecrets {
    pub(super) client_secret: Option<SecretString>,
    pub(super) private_key: Option<SecretString>,
    pub(super) provider_secret: Option<SecretString>,
}

/// As which client we ask an issuer: as the one that the entry names, as the document that
/// describes us, as one that was registered before, or as a new one.
///
/// # Errors
/// None of these can be.
pub(super) async fn register(
    client: &HttpClient,
    store: &TokenStore,
    settings: &OauthSettings,
    secrets: &ClientSecrets,
    found: &DiscoveredServer,
    redirect: &str,
) -> anyhow::Result<Registration> {
    let issuer = &found.issuer;
    if let Some(id) = &settings.client_id {
        let method = match (&secrets.private_key, &secrets.client_secret) {
            (Some(_), _) => "private_key_jwt",
            (None, Some(_)) => with_secret(issuer),
            (None, None) => "none",
        };
        return Ok(Registration {
            client_id: id.clone(),
            client_secret: secrets.client_secret.clone(),
            method: method.to_owned(),
            expires: None,
            is_named: true,
        });
    }
    if let Some(url) = settings
        .client_metadata_url
        .as_ref()
        .filter(|_| issuer.client_id_metadata_document_supported)
    {
        return Ok(Registration {
            client_id: url.clone(),
            client_secret: None,
            method: "none".to_owned(),
            expires: None,
            is_named: false,
        });
    }
    let kept = store.registration(&issuer.issuer, redirect)?;
    if let Some(kept) =
        kept.filter(|kept| kept.expires.is_none_or(|expires| expires > super::now()))
    {
        return Ok(kept);
    }
    let Some(endpoint) = &issuer.registration_endpoint else {
        bail!(
            "{} registers no clients by itself: register Colibri there with the redirect address {redirect}, and write \
             what it gives you into the entry: \"oauth\": {{\"issuer\", \"client_id\", \"client_secret\"}}",
            brief(&issuer.issuer, 200)
        );
    };
    let registration = asked_for(client, endpoint, issuer, found, redirect).await?;
    store.keep_registration(&issuer.issuer, redirect, &registration)?;
    Ok(registration)
}

/// As which client we ask an identity provider.
pub(super) fn at_provider(
    provider: &IdentityProvider,
    secrets: &ClientSecrets,
    voucher: &AuthorizationServer,
) -> Party {
    let method = secrets
        .provider_secret
        .as_ref()
        .map_or("none", |_| with_secret(voucher));
    let client = Registration {
        client_id: provider.client_id.clone(),
        client_secret: secrets.provider_secret.clone(),
        method: method.to_owned(),
        expires: None,
        is_named: true,
    };
    client.party(None)
}

/// Sends a password in the way that the issuer takes: the header where it takes both or says
/// nothing.
fn with_secret(issuer: &AuthorizationServer) -> &'static str {
    let methods = issuer
        .token_endpoint_auth_methods_supported
        .as_deref()
        .unwrap_or_default();
    let has = |method: &str| methods.iter().any(|known| known == method);
    match !has("client_secret_basic") && has("client_secret_post") {
        true => "client_secret_post",
        false => "client_secret_basic",
    }
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    #[serde(default)]
    client_secret: Option<SecretString>,
    #[serde(default)]
    client_secret_expires_at: u64,
    #[serde(default)]
    token_endpoint_auth_method: Option<String>,
}

/// Registers us (RFC 7591 §3).
async fn asked_for(
    client: &HttpClient,
    endpoint: &str,
    issuer: &AuthorizationServer,
    found: &DiscoveredServer,
    redirect: &str,
) -> anyhow::Result<Registration> {
    let methods = issuer
        .token_endpoint_auth_methods_supported
        .as_deref()
        .unwrap_or_default();
    let method = match methods.is_empty() || methods.iter().any(|method| method == "none") {
        // What runs on people's machines keeps no secret from them (RFC 8252 §8.4).
        true => "none",
        false => with_secret(issuer),
    };
    let mut asked = serde_json::json!({
        "client_name": "Colibri MCP",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    });
    if !found.scopes.is_empty() {
        asked["scope"] = found.scopes.join(" ").into();
    }
    let shown = brief(endpoint, 200);
    let request = Request::builder()
        .method(Method::POST)
        .uri(secure_url(endpoint)?)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(Bytes::from(asked.to_string()))
        .map_err(|_| anyhow!("{shown} is no URL"))?;
    let mut response = in_time(client.request(request, HttpLimits::all(TIME_LIMIT))).await?;
    let answer = in_time(response.whole(MAX_DOCUMENT)).await?;
    if !response.status.is_success() {
        let text = String::from_utf8_lossy(&answer);
        bail!(
            "{shown} registers no client ({}): {}",
            response.status,
            brief(&text, 300)
        );
    }
    let registered: RegistrationResponse = serde_json::from_slice(&answer)
        .map_err(|_| anyhow!("{shown} answered, but with no client that could be read"))?;
    let method =
        registered
            .token_endpoint_auth_method
            .unwrap_or_else(|| match &registered.client_secret {
                // What it issued without saying what for, is for what it takes.
                Some(_) => with_secret(issuer).to_owned(),
                None => "none".to_owned(),
            });
    Ok(Registration {
        client_id: registered.client_id,
        client_secret: registered.client_secret,
        method,
        expires: Some(registered.client_secret_expires_at).filter(|at| *at != 0),
        is_named: false,
    })
}
