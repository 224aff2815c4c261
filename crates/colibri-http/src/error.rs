//! The errors of a request.

use std::net::IpAddr;
use std::time::Duration;

use super::address::Class;

/// The error of a request. Texts of the other side are escaped and cut; headers and bodies of the
/// request are never in it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HttpError {
    /// The entry does not allow the address.
    #[error(
        "{} {class}, which the entry does not allow; list it in \"allow_addresses\" if it is meant",
        resolution(host, address)
    )]
    Address {
        /// The host, as in the URL.
        host: String,
        /// The address that the host resolves to.
        address: IpAddr,
        /// The class of the address.
        class: Class,
    },
    /// The CA file that the entry names cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The URL, of the entry or of a redirect, cannot be used.
    #[error("{0}")]
    Url(String),
    /// No connection; no part of the request was sent.
    #[error("cannot connect to {host}: {why}")]
    Connect {
        /// The host, as in the URL.
        host: String,
        /// The cause, as reported by the system, the proxy or TLS.
        why: String,
    },
    /// The host's certificate is not trusted; no part of the request was sent.
    #[error("the TLS certificate of {host} is not believed: {why}")]
    Certificate {
        /// The host, as in the URL.
        host: String,
        /// The fault of the certificate.
        why: String,
    },
    /// The connection ended before the request was sent.
    #[error("the connection to {host} ended before the request was sent")]
    Unsent {
        /// The host, as in the URL.
        host: String,
    },
    /// The request was sent, at least in part, and no whole response came.
    #[error("{host} gave no whole answer: {why}")]
    Lost {
        /// The host, as in the URL.
        host: String,
        /// The cause.
        why: String,
    },
    /// No response in time.
    #[error("{host} sent nothing for {} ms", .waited.as_millis())]
    Silent {
        /// The host, as in the URL.
        host: String,
        /// The time that was waited.
        waited: Duration,
    },
    /// The response is longer than the limit.
    #[error("the answer of {host} is over the limit of {limit} bytes")]
    TooLong {
        /// The host, as in the URL.
        host: String,
        /// The limit, in bytes.
        limit: usize,
    },
}

/// `HOST is ADDRESS,`, or `HOST is` if the URL has the address itself.
fn resolution(host: &str, address: &IpAddr) -> String {
    let named = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    match named.is_ok_and(|named| named == *address) {
        true => format!("{host} is"),
        false => format!("{host} is {address},"),
    }
}

impl HttpError {
    /// True if a byte of the request may have reached the other side: the request may have had an
    /// effect.
    pub fn was_sent(&self) -> bool {
        matches!(
            self,
            HttpError::Lost { .. } | HttpError::Silent { .. } | HttpError::TooLong { .. }
        )
    }

    /// True if the error stays until somebody changes something.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            HttpError::Address { .. }
                | HttpError::Settings(_)
                | HttpError::Url(_)
                | HttpError::Certificate { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_named_once() {
        let said = |host: &str, address: &str| {
            let address: IpAddr = address.parse().unwrap();
            let (host, class) = (host.to_owned(), Class::of(address));
            HttpError::Address {
                host,
                address,
                class,
            }
            .to_string()
        };
        for (host, address, begins) in [
            (
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1 is a loopback address, which",
            ),
            ("[::1]", "::1", "[::1] is a loopback address, which"),
            (
                "h.example",
                "10.0.0.7",
                "h.example is 10.0.0.7, a private address, which",
            ),
        ] {
            assert!(
                said(host, address).starts_with(begins),
                "{}",
                said(host, address)
            );
        }
    }
}
