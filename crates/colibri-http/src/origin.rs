//! The origin of a URL: scheme, host and port (RFC 6454). Also resolves references relative to a
//! URL.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use hyper::Uri;

use super::error::HttpError;

/// Scheme, host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UrlOrigin {
    /// `https` rather than `http`.
    pub is_secure: bool,
    /// The host in lower case; an IPv6 address without its brackets.
    pub host: String,
    /// The port; the scheme's default if the URL has none.
    pub port: u16,
}

impl UrlOrigin {
    /// The origin of an absolute URL.
    ///
    /// # Errors
    /// The scheme is not `http` or `https`, the host is missing, or the URL has a user.
    pub fn of(url: &Uri) -> Result<UrlOrigin, HttpError> {
        let refuse = |why: &str| {
            Err(HttpError::Url(format!(
                "the URL {} {why}",
                without_query(url)
            )))
        };
        let is_secure = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return refuse("is neither https nor http"),
        };
        let Some(authority) = url.authority() else {
            return refuse("has no host");
        };
        if authority.as_str().contains('@') {
            return refuse("holds a user or password");
        }
        let host = authority.host();
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_read = match inner {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        let host = inner.unwrap_or(host);
        let port = match authority.port() {
            Some(port) => Some(port.as_u16()),
            // A colon without a number, or with text that is no number.
            None if authority.as_str().len() > authority.host().len() => None,
            None => Some(if is_secure { 443 } else { 80 }),
        };
        match port {
            _ if host.is_empty() => refuse("has no host"),
            _ if !is_read => {
                refuse("has a host that is neither a name nor an address as they are written")
            }
            Some(port) if port != 0 => Ok(UrlOrigin {
                is_secure,
                host: host.to_ascii_lowercase(),
                port,
            }),
            _ => refuse("has no port that can be used"),
        }
    }

    /// True if the host ends in a number without being a plain address: `127.1`, `0x7f000001`,
    /// `127.0.0.1.`. Resolvers differ in the address that they read from it (WHATWG URL, "ends in a
    /// number").
    pub(crate) fn is_odd_address(&self) -> bool {
        let last = self
            .host
            .trim_end_matches('.')
            .rsplit('.')
            .next()
            .unwrap_or_default();
        let is_number = last.bytes().all(|digit| digit.is_ascii_digit()) || last.starts_with("0x");
        is_number && self.host.parse::<IpAddr>().is_err()
    }

    /// Host and port, as a request names them.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// True if a host is a name: letters, digits, `-`, `_` and dots.
fn is_name(host: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    host.bytes().all(legal)
}

impl fmt::Display for UrlOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        let standard = if self.is_secure { 443 } else { 80 };
        let bracketed = self.host.contains(':');
        let (open, close) = if bracketed { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}", self.host)?;
        match self.port == standard {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}

/// A URL without its query, for errors: a query may hold secrets.
pub(super) fn without_query(url: &Uri) -> String {
    let text = url.to_string();
    text.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// Resolves a reference against a URL (RFC 3986 §5.2, without `..`, which no server needs to
/// write).
///
/// # Errors
/// The text is no URL reference.
pub fn resolve_reference(base: &Uri, reference: &str) -> Result<Uri, HttpError> {
    let wrong = || {
        let shown =
            colibri_text::brief(reference.split(['?', '#']).next().unwrap_or_default(), 200);
        HttpError::Url(format!(
            "{} names a URL that cannot be used: {shown}",
            without_query(base)
        ))
    };
    let reference = reference.split('#').next().unwrap_or_default();
    let scheme = base.scheme_str().unwrap_or("http");
    let authority = base
        .authority()
        .map(|authority| authority.as_str())
        .unwrap_or_default();
    let path = base.path();
    let first = reference.split(['/', '?']).next().unwrap_or_default();
    let whole = if first.contains(':') {
        reference.to_owned()
    } else if reference.starts_with("//") {
        format!("{scheme}:{reference}")
    } else if reference.starts_with('/') {
        format!("{scheme}://{authority}{reference}")
    } else if reference.starts_with('?') {
        format!("{scheme}://{authority}{path}{reference}")
    } else if reference.is_empty() {
        return Ok(base.clone());
    } else {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{scheme}://{authority}{directory}/{reference}")
    };
    let relative = whole.split(['?']).next().unwrap_or_default();
    if relative.split('/').any(|part| part == "..") {
        return Err(wrong());
    }
    whole.parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Result<String, String> {
        let uri = url.parse().map_err(|_| "unread".to_owned())?;
        UrlOrigin::of(&uri)
            .map(|origin| format!("{origin} {}", origin.authority()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        assert_eq!(
            origin("https://Example.ORG/a?b").unwrap(),
            "https://example.org example.org:443"
        );
        assert_eq!(origin("http://h:8080").unwrap(), "http://h:8080 h:8080");
        assert_eq!(
            origin("http://[::1]:8080/x").unwrap(),
            "http://[::1]:8080 [::1]:8080"
        );
        assert_eq!(origin("http://[::1]/x").unwrap(), "http://[::1] [::1]:80");
        for wrong in [
            "ftp://h/",
            "/x",
            "http://u:p@h/",
            "http://h:0/",
            "http://h:99999/",
            "http://h:/",
            "http://%31%32%37.0.0.1/",
            "http://loc%61lhost/",
            "http://h,x/",
            "http://[fe80::1%25lo0]/",
            "http://[v1.x]/",
        ] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
        let error = origin("ftp://h/x?token=secret").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn references_are_read_where_they_stand() {
        let base: Uri = "https://h.example/a/b?c=1".parse().unwrap();
        for (reference, whole) in [
            ("https://other.example/x", "https://other.example/x"),
            ("//other.example/x", "https://other.example/x"),
            ("/x?y=1", "https://h.example/x?y=1"),
            ("x", "https://h.example/a/x"),
            ("?d", "https://h.example/a/b?d"),
            ("", "https://h.example/a/b?c=1"),
            ("/x?u=http://h/..#f", "https://h.example/x?u=http://h/.."),
        ] {
            assert_eq!(
                resolve_reference(&base, reference).unwrap().to_string(),
                whole,
                "{reference}"
            );
        }
        assert!(
            resolve_reference(&base, "../x").is_err() && resolve_reference(&base, "/a b").is_err()
        );
    }
}
