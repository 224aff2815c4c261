//! Tokens, asked for at a token endpoint (RFC 6749 §3.2, §5; RFC 7523; RFC 8693), and how a client
//! proves who it is there.

use anyhow::anyhow;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use form_urlencoded::Serializer;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::metadata::secure_url;
use super::{TIME_LIMIT, in_time, now, random};
use colibri_http::{HttpClient, HttpLimits};
use colibri_text::brief;

/// The most bytes of an answer.
const MAX_ANSWER: usize = 256 * 1024;
/// For how long a signed assertion holds, in seconds.
const ASSERTION_HOLDS: u64 = 300;

/// A client as an authorization server knows it.
#[derive(Debug, Clone)]
pub(crate) struct Party {
    /// Its `client_id`.
    pub(crate) id: String,
    /// The proof of the client's identity.
    pub(crate) proof: ClientProof,
}

/// The proof of a client's identity (RFC 6749 §2.3, RFC 7523 §2.2).
#[derive(Debug, Clone)]
pub(crate) enum ClientProof {
    /// Not at all: a public client.
    None,
    /// A password in `Authorization`.
    Basic(SecretString),
    /// A password in the form.
    Post(SecretString),
    /// A signature with this key, PKCS #8 in PEM: P-256 or RSA.
    Signature(SecretString),
}

/// The tokens that a token endpoint issued.
#[derive(Debug, Clone)]
pub(crate) struct IssuedTokens {
    /// For requests to the server.
    pub(crate) access: SecretString,
    /// For the next access token.
    pub(crate) refresh: Option<SecretString>,
    /// Until when the access token holds, seconds since the epoch. `None`: not said.
    pub(crate) expires: Option<u64>,
    /// Their scope, where it is said.
    pub(crate) scope: Option<String>,
}

/// The reason for which there is no token.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub(crate) struct GrantRefusal {
    /// The error's code (RFC 6749 §5.2), if the endpoint said one.
    pub(crate) code: Option<String>,
    /// For people.
    pub(crate) why: String,
}

impl From<anyhow::Error> for GrantRefusal {
    fn from(error: anyhow::Error) -> GrantRefusal {
        GrantRefusal {
            code: None,
            why: format!("{error:#}"),
        }
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: SecretString,
    #[serde(default)]
    token_type: String,
    #[serde(default)]
    refresh_token: Option<SecretString>,
    #[serde(default)]
    expires_in: Option<serde_json::Number>,
    #[serde(default)]
    scope: Option<String>,
}

#[derive(Deserialize)]
struct Problem {
    error: String,
    #[serde(default)]
    error_description: String,
}

/// The kind of token that an answer must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredToken {
    /// One for `Authorization: Bearer`.
    Bearer,
    /// A grant for another token endpoint (RFC 8693 §2.2.1, `N_A`).
    Grant,
}

/// Sends a request to an issuer's token endpoint. `form` has the grant; the client's id and proof
/// are added.
///
/// # Errors
/// What the endpoint, or the way to it, has against it. No secret is in it.
pub(crate) async fn token(
    client: &HttpClient,
    issuer: &str,
    endpoint: &str,
    party: &Party,
    form: &[(&str, &str)],
    kind: RequiredToken,
) -> Result<IssuedTokens, GrantRefusal> {
    let request = request(issuer, endpoint, party, form)?;
    let mut response = in_time(client.request(request, HttpLimits::all(TIME_LIMIT))).await?;
    let answer = in_time(response.whole(MAX_ANSWER)).await?;
    if response.status != StatusCode::OK {
        return Err(refused(issuer, response.status, &answer));
    }
    let tokens: TokenResponse = serde_json::from_slice(&answer).map_err(|_| {
        anyhow!(
            "{}: the answer of its token endpoint is none",
            brief(issuer, 200)
        )
    })?;
    if kind == RequiredToken::Bearer && !tokens.token_type.eq_ignore_ascii_case("bearer") {
        let (issuer, said) = (brief(issuer, 200), brief(&tokens.token_type, 40));
        return Err(anyhow!("{issuer} issued a token of type {said:?}, not Bearer").into());
    }
    let lasts = tokens
        .expires_in
        .as_ref()
        .and_then(serde_json::Number::as_f64);
    Ok(IssuedTokens {
        access: tokens.access_token,
        refresh: tokens.refresh_token,
        expires: lasts.map(|seconds| now().saturating_add(seconds.clamp(0.0, 1e9) as u64)),
        scope: tokens.scope,
    })
}

/// Has an issuer forget the token in `form` (RFC 7009).
///
/// # Errors
/// What the endpoint, or the way to it, has against it. No secret is in it.
pub(crate) async fn revoke(
    client: &HttpClient,
    issuer: &str,
    endpoint: &str,
    party: &Party,
    form: &[(&str, &str)],
) -> Result<(), GrantRefusal> {
    let request = request(issuer, endpoint, party, form)?;
    let mut response = in_time(client.request(request, HttpLimits::all(TIME_LIMIT))).await?;
    if response.status == StatusCode::OK {
        return Ok(());
    }
    let answer = in_time(response.whole(MAX_ANSWER)).await?;
    Err(refused(issuer, response.status, &answer))
}

/// The request for a token, with the client's id and proof.
fn request(
    issuer: &str,
    endpoint: &str,
    party: &Party,
    form: &[(&str, &str)],
) -> anyhow::Result<Request<Bytes>> {
    let url = secure_url(endpoint)?;
    let mut fields = Serializer::new(String::new());
    fields.extend_pairs(form);
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    match &party.proof {
        ClientProof::None => drop(fields.append_pair("client_id", &party.id)),
        ClientProof::Post(secret) => {
            fields.append_pair("client_id", &party.id);
            fields.append_pair("client_secret", secret.expose_secret());
        }
        ClientProof::Basic(secret) => {
            // Each half is encoded as in a form first (RFC 6749 §2.3.1).
            let encoded =
                |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = Zeroizing::new(format!(
                "{}:{}",
                encoded(&party.id),
                encoded(secret.expose_secret())
            ));
            request = request.header(
                AUTHORIZATION,
                format!("Basic {}", STANDARD.encode(pair.as_bytes())),
            );
        }
        ClientProof::Signature(key) => {
            let assertion = assertion(&party.id, issuer, key.expose_secret())?;
            fields.append_pair("client_id", &party.id);
            fields.append_pair(
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            );
            fields.append_pair("client_assertion", &assertion);
        }
    }
    let body = Bytes::from(fields.finish());
    request.body(body).map_err(anyhow::Error::from)
}

/// The refusal of a token endpoint.
fn refused(issuer: &str, status: StatusCode, answer: &[u8]) -> GrantRefusal {
    let issuer = brief(issuer, 200);
    match serde_json::from_slice::<Problem>(answer) {
        Ok(problem) => {
            let code = brief(&problem.error, 80);
            let why = match brief(&problem.error_description, 300) {
                why if why.is_empty() => format!("{issuer} refused: {code}"),
                why => format!("{issuer} refused: {code}, {why}"),
            };
            GrantRefusal {
                code: Some(problem.error),
                why,
            }
        }
        Err(_) => anyhow!("the token endpoint of {issuer} answered {status}").into(),
    }
}

/// A JWT by which a client proves who it is (RFC 7523 §3), for the issuer alone.
fn assertion(id: &str, issuer: &str, key: &str) -> anyhow::Result<Zeroizing<String>> {
    let wrong = || anyhow!("the private key is none in PKCS #8 and PEM, of P-256 or RSA");
    let der = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).map_err(|_| wrong())?;
    let der = Zeroizing::new(der.secret_pkcs8_der().to_vec());
    let source = SystemRandom::new();
    let elliptic = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &source).ok();
    let algorithm = if elliptic.is_some() { "ES256" } else { "RS256" };
    let now = now();
    let claims = serde_json::json!({
        "iss": id, "sub": id, "aud": issuer, "iat": now, "exp": now + ASSERTION_HOLDS, "jti": random()?,
    });
    let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{algorithm}","typ":"JWT"}}"#));
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = match elliptic {
        Some(pair) => {
            let signature = pair.sign(&source, signed.as_bytes()).map_err(|_| wrong())?;
            URL_SAFE_NO_PAD.encode(signature)
        }
        None => {
            let pair = RsaKeyPair::from_pkcs8(&der).map_err(|_| wrong())?;
            let mut signature = vec![0; pair.public().modulus_len()];
            pair.sign(
                &RSA_PKCS1_SHA256,
                &source,
                signed.as_bytes(),
                &mut signature,
            )
            .map_err(|_| wrong())?;
            URL_SAFE_NO_PAD.encode(signature)
        }
    };
    Ok(Zeroizing::new(format!("{signed}.{signature}")))
}
