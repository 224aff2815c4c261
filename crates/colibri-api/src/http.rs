//! Addresses and headers of servers behind a URL, as far as their text says whether they can be
//! used.

/// Headers that belong to HTTP or to the MCP transport: an entry that set them would break the
/// connection, or speak in the daemon's place.
const RESERVED_HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Of an address, what says to whom it leads: the part before the path, with user and port, as it
/// is written.
pub fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// True if an address may stand in an entry.
///
/// # Errors
/// Why not.
pub fn check_url(url: &str) -> Result<(), &'static str> {
    if !(url.starts_with("https://") || url.starts_with("http://")) {
        return Err("must begin with https:// or http://");
    }
    if url.len() > 2048
        || !url.bytes().all(|b| matches!(b, b'!'..=b'~'))
        || url.contains(['"', '<', '>', '\\', '#'])
    {
        return Err(
            "must be at most 2048 printable ASCII characters, without spaces, quotes, \\ and #",
        );
    }
    let authority = authority(url);
    if authority.contains('@') {
        return Err("must not hold a user or password; use headers with {\"secret\": NAME}");
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err("the host is missing");
    }
    // What follows the host, be it an IPv6 address in brackets.
    let port = authority
        .rsplit(']')
        .next()
        .and_then(|rest| rest.rsplit_once(':'));
    match port {
        Some((_, port)) if !port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Err("its port must be a number from 1 to 65535")
        }
        _ => Ok(()),
    }
}

/// True if an entry may set a header of this name.
///
/// # Errors
/// Why not.
pub fn check_header_name(name: &str) -> Result<(), &'static str> {
    // RFC 9110 §5.6.2, token.
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !(1..=128).contains(&name.len()) || !name.bytes().all(token) {
        return Err("not a legal name of an HTTP header");
    }
    if RESERVED_HEADERS
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
    {
        return Err("this header belongs to the transport and cannot be set");
    }
    Ok(())
}

/// True if a header can have this value.
pub fn is_header_value(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_that_can_be_connected_to() {
        for url in [
            "http://h",
            "http://h:80/x",
            "https://[::1]/",
            "https://[::1]:8443/p?q=a:b",
        ] {
            assert_eq!(check_url(url), Ok(()), "{url}");
        }
        for url in [
            "http://h:",
            "http://h:0/",
            "https://h:65536/",
            "https://[::1]:x/",
        ] {
            assert!(check_url(url).unwrap_err().contains("port"), "{url}");
        }
    }
}
