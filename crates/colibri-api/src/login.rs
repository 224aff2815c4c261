//! How a person logs in to a server behind a URL: `colibri/login`, `colibri/login-finish`, `colibri/logout`. Anybody
//! may who may use the server.

use serde::{Deserialize, Serialize};

/// The parameters of `colibri/login`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginAsked {
    /// The server.
    pub server: String,
    /// Scopes beside those that the server names.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// What the identity provider of the entry says of the person: an ID token. With it nobody has to consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_token: Option<String>,
}

/// The answer of `colibri/login`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginStep {
    /// A person is to consent.
    Consent {
        /// Where, in a browser.
        url: String,
        /// Where the browser is sent afterwards.
        redirect: String,
        /// Who issues the tokens.
        issuer: String,
        /// What is asked for.
        scopes: Vec<String>,
    },
    /// It is done.
    Done(LoggedIn),
}

/// The parameters of `colibri/login-finish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginFinishAsked {
    /// The whole address to which the browser was sent.
    pub address: String,
}

/// The answer of `colibri/login-finish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedIn {
    /// The server.
    pub server: String,
    /// Who issued the tokens.
    pub issuer: String,
    /// What they are good for.
    pub scopes: Vec<String>,
}

/// The parameters of `colibri/logout`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogoutAsked {
    /// The server.
    pub server: String,
}

/// The answer of `colibri/logout`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedOut {
    /// The server.
    pub server: String,
    /// Whether there was a login.
    pub was_logged_in: bool,
    /// Whether the issuer of its tokens takes them no more.
    #[serde(default)]
    pub is_revoked: bool,
}
