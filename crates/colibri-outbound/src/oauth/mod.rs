//! OAuth 2.1 as MCP's specification has its client side ("Authorization", 2026-07-28): finding out
//! who issues tokens for a server, being known there, and having, keeping and renewing tokens.
//!
//! A person's login is that person's: tokens are kept by server and uid, and what they are good for
//! (issuer and resource) is held against the entry each time. No token of a client ever comes here,
//! and none leaves but to its server.

mod account;
mod challenge;
mod discovery;
mod grant;
mod login;
mod metadata;
mod settings;
mod store;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub use account::{CompletedLogin, OauthAccount, OauthServer, Vault};
pub use login::{Logins, StartedLogin};
pub use settings::{Grant, IdentityProvider, OauthSettings, REDIRECT_PORT};
pub use store::{TokenOwner, TokenStore};

/// The longest time for one request to an authorization server.
const TIME_LIMIT: Duration = Duration::from_secs(15);

/// A part of a request to an authorization server, in time as a whole: one that sends a byte now
/// and then is not waited for.
///
/// # Errors
/// What came in between.
async fn in_time<T>(
    work: impl Future<Output = Result<T, colibri_http::HttpError>>,
) -> anyhow::Result<T> {
    match tokio::time::timeout(TIME_LIMIT, work).await {
        Ok(done) => done.map_err(anyhow::Error::from),
        Err(_) => Err(anyhow!("no whole answer within {} s", TIME_LIMIT.as_secs())),
    }
}

/// Seconds since the epoch.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map(|since| since.as_secs()).unwrap_or_default()
}

/// 256 bits that nobody can guess, in 43 characters.
///
/// # Errors
/// The system has no randomness to give.
fn random() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("no random numbers")?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
