//! Why a request came to nothing.

use std::net::IpAddr;
use std::time::Duration;

use super::address::Class;

/// Why a request came to nothing. What others say is escaped and cut; no header and no body of ours is in it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The address is one that the entry does not allow.
    #[error(
        "{} {class}, which the entry does not allow; list it in \"allow_addresses\" if it is meant",
        resolution(host, address)
    )]
    Address {
        /// As the URL names it.
        host: String,
        /// What it resolves to.
        address: IpAddr,
        /// What kind of address that is.
        class: Class,
    },
    /// What the entry names (its CA file) cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The URL, of the entry or of a redirect, is none that is followed.
    #[error("{0}")]
    Url(String),
    /// No connection: nothing of the request was sent.
    #[error("cannot connect to {host}: {why}")]
    Connect {
        /// As the URL names it.
        host: String,
        /// What the system, the proxy or TLS says.
        why: String,
    },
    /// Its certificate is not believed: nothing of the request was sent.
    #[error("the TLS certificate of {host} is not believed: {why}")]
    Certificate {
        /// As the URL names it.
        host: String,
        /// What is wrong with it.
        why: String,
    },
    /// The connection ended before the request was sent.
    #[error("the connection to {host} ended before the request was sent")]
    Unsent {
        /// As the URL names it.
        host: String,
    },
    /// The request was sent, at least in part, and no whole answer came.
    #[error("{host} gave no whole answer: {why}")]
    Lost {
        /// As the URL names it.
        host: String,
        /// What became of the connection.
        why: String,
    },
    /// No answer in time.
    #[error("{host} sent nothing for {} ms", .waited.as_millis())]
    Silent {
        /// As the URL names it.
        host: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The answer is longer than it may be.
    #[error("the answer of {host} is over the limit of {limit} bytes")]
    TooLong {
        /// As the URL names it.
        host: String,
        /// In bytes.
        limit: usize,
    },
}

/// `HOST is ADDRESS,`, or `HOST is` where the URL has the address itself.
fn resolution(host: &str, address: &IpAddr) -> String {
    let named = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match named.is_ok_and(|named| named == *address) {
        true => format!("{host} is"),
        false => format!("{host} is {address},"),
    }
}

impl Error {
    /// Whether a byte of the request may have reached the other side: it may have had an effect then.
    pub fn was_sent(&self) -> bool {
        matches!(self, Error::Lost { .. } | Error::Silent { .. } | Error::TooLong { .. })
    }

    /// Whether it stays until somebody changes something.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Error::Address { .. } | Error::Settings(_) | Error::Url(_) | Error::Certificate { .. }
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
            Error::Address { host, address, class }.to_string()
        };
        for (host, address, begins) in [
            ("127.0.0.1", "127.0.0.1", "127.0.0.1 is a loopback address, which"),
            ("[::1]", "::1", "[::1] is a loopback address, which"),
            (
                "h.example",
                "10.0.0.7",
                "h.example is 10.0.0.7, a private address, which",
            ),
        ] {
            assert!(said(host, address).starts_with(begins), "{}", said(host, address));
        }
    }
}
