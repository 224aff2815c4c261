//! Metadata that servers and authorization servers publish: its location, and the parts that are
//! believed (RFC 9728, RFC 8414, OpenID Connect Discovery 1.0, as MCP's "Authorization Server
//! Discovery" has them).

use anyhow::{Context as _, anyhow, bail};
use hyper::Uri;
use serde::Deserialize;

use colibri_http::UrlOrigin;
use colibri_text::brief;

/// The metadata of a protected resource: an MCP server (RFC 9728 §2).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ProtectedResource {
    /// The server as tokens name it.
    pub(crate) resource: String,
    /// The issuers of tokens for it.
    #[serde(default)]
    pub(crate) authorization_servers: Vec<String>,
    /// The scopes that a client requests that knows nothing better.
    #[serde(default)]
    pub(crate) scopes_supported: Option<Vec<String>>,
}

/// The metadata of an authorization server (RFC 8414 §2).
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct AuthorizationServer {
    /// By which it is known; everything that it issues is kept under this name.
    pub(crate) issuer: String,
    /// The address to which a person is sent.
    #[serde(default)]
    pub(crate) authorization_endpoint: Option<String>,
    /// The address that issues tokens.
    pub(crate) token_endpoint: String,
    /// The address at which clients register themselves (RFC 7591).
    #[serde(default)]
    pub(crate) registration_endpoint: Option<String>,
    /// The address at which tokens are revoked (RFC 7009).
    #[serde(default)]
    pub(crate) revocation_endpoint: Option<String>,
    /// The scopes that it can issue.
    #[serde(default)]
    pub(crate) scopes_supported: Vec<String>,
    /// The supported methods of PKCE.
    #[serde(default)]
    pub(crate) code_challenge_methods_supported: Vec<String>,
    /// The supported methods of client authentication; without the member, `client_secret_basic`.
    #[serde(default)]
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// True if the address of a document may be a client's id.
    #[serde(default)]
    pub(crate) client_id_metadata_document_supported: bool,
    /// True if each answer to a person's consent carries `iss` (RFC 9207).
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
}

/// The possible locations of a server's metadata where the server named none: at its path, then at
/// its root (RFC 9728 §3.1).
pub(crate) fn resource_locations(server: &Uri) -> Vec<String> {
    let Ok(origin) = UrlOrigin::of(server) else {
        return Vec::new();
    };
    let well_known = format!("{origin}/.well-known/oauth-protected-resource");
    match server.path().trim_end_matches('/') {
        "" => vec![well_known],
        path => vec![format!("{well_known}{path}"), well_known],
    }
}

/// The possible locations of an issuer's metadata, in order.
///
/// # Errors
/// The issuer is no URL that can be one (RFC 8414 §2: no query, no fragment).
pub(crate) fn issuer_locations(issuer: &str) -> anyhow::Result<Vec<String>> {
    let wrong = || anyhow!("{} is no issuer's URL", brief(issuer, 200));
    if issuer.contains(['?', '#']) {
        return Err(wrong());
    }
    let url: Uri = issuer.parse().map_err(|_| wrong())?;
    let origin = UrlOrigin::of(&url)?;
    Ok(match url.path().trim_end_matches('/') {
        "" => vec![
            format!("{origin}/.well-known/oauth-authorization-server"),
            format!("{origin}/.well-known/openid-configuration"),
        ],
        path => vec![
            format!("{origin}/.well-known/oauth-authorization-server{path}"),
            format!("{origin}/.well-known/openid-configuration{path}"),
            format!("{origin}{path}/.well-known/openid-configuration"),
        ],
    })
}

impl ProtectedResource {
    /// Holds it against the server that it is said to be of: a token for another server is none for
    /// this one.
    ///
    /// # Errors
    /// It is of another, or names no issuer.
    pub(crate) fn check(&self, server: &Uri) -> anyhow::Result<()> {
        if !is_of(&self.resource, server) {
            let resource = brief(&self.resource, 200);
            bail!(
                "its metadata are of another resource ({resource}): a token for that one is not asked for"
            );
        }
        if self.authorization_servers.is_empty() {
            bail!("its metadata name no authorization server");
        }
        Ok(())
    }
}

/// True if a resource is this server, or what it is a part of.
pub(crate) fn is_of(resource: &str, server: &Uri) -> bool {
    let named: Option<Uri> = resource.parse().ok().filter(|_| !resource.contains('#'));
    named.is_some_and(|named| {
        let below = server.path().strip_prefix(named.path().trim_end_matches('/'));
        matches!((UrlOrigin::of(&named), UrlOrigin::of(server)), (Ok(one), Ok(other)) if one == other)
            && below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    })
}

impl AuthorizationServer {
    /// Holds it against the issuer that was asked about.
    ///
    /// # Errors
    /// It is another's, or sends people or secrets over connections that others can read.
    pub(crate) fn check(&self, issuer: &str) -> anyhow::Result<()> {
        if self.issuer != issuer {
            let (said, asked) = (brief(&self.issuer, 200), brief(issuer, 200));
            bail!("the metadata of {asked} are of another issuer ({said})");
        }
        let endpoints = [
            Some(&self.token_endpoint),
            self.authorization_endpoint.as_ref(),
            self.registration_endpoint.as_ref(),
        ];
        endpoints
            .into_iter()
            .flatten()
            .try_for_each(|url| secure_url(url).map(drop))
    }

    /// True if codes are bound to who asked for them (RFC 7636). What an authorization server does
    /// not say, it is not believed to do.
    ///
    /// # Errors
    /// It does not say so.
    pub(crate) fn check_pkce(&self) -> anyhow::Result<()> {
        match self
            .code_challenge_methods_supported
            .iter()
            .any(|way| way == "S256")
        {
            true => Ok(()),
            false => Err(anyhow!(
                "{} does not say that it supports PKCE with S256, without which a code could be stolen",
                brief(&self.issuer, 200)
            )),
        }
    }
}

/// A URL to which secrets may be sent: `https`, or one of this machine.
///
/// # Errors
/// It is another.
pub(crate) fn secure_url(url: &str) -> anyhow::Result<Uri> {
    let parsed: Option<Uri> = url.parse().ok();
    let is_secure = |url: &Uri| {
        UrlOrigin::of(url).is_ok_and(|origin| {
            let address: Option<std::net::IpAddr> = origin.host.parse().ok();
            origin.is_secure
                || origin.host == "localhost"
                || address.is_some_and(|address| address.is_loopback())
        })
    };
    parsed.filter(is_secure).with_context(|| {
        format!(
            "{} is not https: nothing secret is sent there",
            brief(url, 200)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn metadata_stand_where_the_specification_says() {
        assert_eq!(
            resource_locations(&url("https://h/public/mcp")),
            [
                "https://h/.well-known/oauth-protected-resource/public/mcp",
                "https://h/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            resource_locations(&url("https://h")),
            ["https://h/.well-known/oauth-protected-resource"]
        );
        assert_eq!(
            issuer_locations("https://a/tenant1").unwrap(),
            [
                "https://a/.well-known/oauth-authorization-server/tenant1",
                "https://a/.well-known/openid-configuration/tenant1",
                "https://a/tenant1/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            issuer_locations("https://a").unwrap(),
            [
                "https://a/.well-known/oauth-authorization-server",
                "https://a/.well-known/openid-configuration"
            ]
        );
        for wrong in ["", "a", "https://a?x", "https://a#x", "ftp://a"] {
            assert!(issuer_locations(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn metadata_are_of_whom_they_were_asked_about() {
        let of = |resource: &str| {
            let metadata = ProtectedResource {
                resource: resource.to_owned(),
                authorization_servers: vec!["https://a".to_owned()],
                scopes_supported: None,
            };
            metadata.check(&url("https://h/public/mcp")).is_ok()
        };
        for right in [
            "https://h/public/mcp",
            "https://H/public",
            "https://h",
            "https://h:443/",
            "https://h/public/",
        ] {
            assert!(of(right), "{right}");
        }
        for wrong in [
            "https://h/pub",
            "https://h/public/mcp/x",
            "https://other/public/mcp",
            "http://h/public/mcp",
            "",
            "https://h/#x",
        ] {
            assert!(!of(wrong), "{wrong}");
        }
        let server = |issuer: &str, token: &str| AuthorizationServer {
            issuer: issuer.to_owned(),
            token_endpoint: token.to_owned(),
            ..AuthorizationServer::default()
        };
        assert!(
            server("https://a", "https://a/token")
                .check("https://a")
                .is_ok()
        );
        assert!(
            server("https://a/", "https://a/token")
                .check("https://a")
                .is_err()
        );
        assert!(
            server("https://a", "http://a/token")
                .check("https://a")
                .is_err()
        );
        assert!(
            server("http://127.0.0.1:9", "http://127.0.0.1:9/token")
                .check("http://127.0.0.1:9")
                .is_ok()
        );
        assert!(server("https://a", "https://a/token").check_pkce().is_err());
    }
}
