//! A person's login at a server behind a URL: `colibri/login`, `colibri/login-finish`,
//! `colibri/logout`. Anybody may who may use the server.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The parameters of `colibri/login`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginStartRequest {
    /// The server.
    pub server: String,
    /// Scopes beside those that the server names.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The person's ID token from the identity provider of the entry. With it nobody has to
    /// consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_token: Option<String>,
}

impl fmt::Debug for LoginStartRequest {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LoginAsked");
        shown
            .field("server", &self.server)
            .field("scopes", &self.scopes);
        shown
            .field("id_token", &self.id_token.as_ref().map(|_| "…"))
            .finish()
    }
}

/// The answer of `colibri/login`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginStep {
    /// A person is to consent.
    Consent {
        /// The address, for a browser.
        url: String,
        /// The address to which the browser is sent afterwards.
        redirect: String,
        /// The issuer of the tokens.
        issuer: String,
        /// The requested scopes.
        scopes: Vec<String>,
    },
    /// It is done.
    Done(LoggedIn),
}

/// The parameters of `colibri/login-finish`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginFinishRequest {
    /// The whole address to which the browser was sent.
    pub address: String,
}

impl fmt::Debug for LoginFinishRequest {
    /// Without what follows `?`: a code is in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.address.split('?').next().unwrap_or_default();
        f.debug_struct("LoginFinishAsked")
            .field("address", &place)
            .finish()
    }
}

/// The answer of `colibri/login-finish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedIn {
    /// The server.
    pub server: String,
    /// The issuer of the tokens.
    pub issuer: String,
    /// Their scopes.
    pub scopes: Vec<String>,
}

/// The parameters of `colibri/logout`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogoutRequest {
    /// The server.
    pub server: String,
}

/// The answer of `colibri/logout`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedOut {
    /// The server.
    pub server: String,
    /// True if there was a login.
    pub was_logged_in: bool,
    /// True if the issuer of its tokens takes them no more.
    #[serde(default)]
    pub is_revoked: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proves_who_a_person_is_is_in_no_debug_output() {
        let asked = LoginStartRequest {
            server: "s".to_owned(),
            scopes: Vec::new(),
            id_token: Some("hunter2".to_owned()),
        };
        let finish = LoginFinishRequest {
            address: "http://127.0.0.1:1/callback?code=hunter2".to_owned(),
        };
        let shown = format!("{asked:?} {finish:?}");
        assert!(
            !shown.contains("hunter2") && shown.contains("callback"),
            "{shown}"
        );
    }
}
