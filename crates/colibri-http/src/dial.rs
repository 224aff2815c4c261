//! Connections: resolves names, checks addresses against the rules, connects directly or through a
//! proxy, adds TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::BoxFuture;
use super::address::{AllowedTarget, Class, may_connect};
use super::error::HttpError;
use super::origin::UrlOrigin;
use super::tls;
use colibri_text::brief;

/// The time limit of a connection in all: name, addresses, proxy, TLS.
const IN_ALL: Duration = Duration::from_secs(15);
/// The time limit for one address.
const ONE_ADDRESS: Duration = Duration::from_secs(5);
/// The most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;
/// The most names that are looked up at a time: for one server's session, and for all.
const MAX_OWN_LOOK_UPS: usize = 2;
const MAX_LOOK_UPS: usize = 8;
/// The most bytes of a proxy's answer.
const MAX_PROXY_HEAD: usize = 8 * 1024;

/// The connection rules of a server's entry.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConnectionRules {
    /// The addresses that are allowed besides public ones.
    pub allowed: Vec<AllowedTarget>,
    /// A file of certificate authorities (PEM) that are trusted besides the system's.
    pub authorities: Option<PathBuf>,
    /// The proxy (`http://host:port`) for all connections. `None` for direct connections; the
    /// environment is ignored. The proxy resolves names itself. With a proxy the rules therefore
    /// apply only to URLs with a literal address, and to `localhost`.
    pub proxy: Option<Uri>,
}

impl ConnectionRules {
    /// The address of a proxy: `http://host:port`, without user, path and query. `None` for any
    /// other text.
    pub fn proxy(text: &str) -> Option<Uri> {
        let url: Uri = text.parse().ok()?;
        let is_plain = UrlOrigin::of(&url).is_ok_and(|origin| !origin.is_secure);
        (is_plain && matches!(url.path(), "" | "/") && url.query().is_none() && !text.contains('#'))
            .then_some(url)
    }
}

/// A stream of bytes in both directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Makes connections. The client is generic over it, so that tests run it over in-memory pipes.
pub trait Dial: Send + Sync {
    /// A connection to an origin, with TLS where it is `https`.
    fn dial<'a>(&'a self, origin: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>>;
}

/// The [`Dial`] that makes real connections.
pub struct Dialer {
    rules: ConnectionRules,
    tls: OnceLock<Arc<ClientConfig>>,
    /// The function that resolves names.
    look_up: LookUp,
    /// The permits for this dialer's look-ups.
    looking_up: Arc<Semaphore>,
}

/// A function that resolves a name, and blocks meanwhile.
type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The permits for all look-ups: a name server that does not answer must not use up the threads
/// that others need.
static LOOKING_UP: Semaphore = Semaphore::const_new(MAX_LOOK_UPS);

impl Dialer {
    /// A dialer that keeps to these rules.
    pub fn new(rules: ConnectionRules) -> Dialer {
        Dialer::over(rules, |host, port| {
            Ok((host, port).to_socket_addrs()?.collect())
        })
    }

    /// A dialer that resolves names with `look_up`.
    pub(super) fn over(rules: ConnectionRules, look_up: LookUp) -> Dialer {
        Dialer {
            rules,
            tls: OnceLock::new(),
            look_up,
            looking_up: Arc::new(Semaphore::new(MAX_OWN_LOOK_UPS)),
        }
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let own = self.looking_up.clone().acquire_owned().await;
        let room = LOOKING_UP.acquire().await;
        let (look_up, host) = (self.look_up, host.to_owned());
        // The look-up goes on if the caller gives up, and keeps its permits until it ends.
        let found = spawn_blocking(move || {
            let _room = (own, room);
            look_up(&host, port)
        });
        found.await.map_err(io::Error::other)?
    }

    async fn connect(&self, origin: &UrlOrigin) -> Result<Box<dyn Io>, HttpError> {
        let stream = match &self.rules.proxy {
            None => {
                self.reach(&origin.host, origin.port, &self.rules.allowed)
                    .await?
            }
            Some(proxy) => self.through(proxy, origin).await?,
        };
        if !origin.is_secure {
            return Ok(Box::new(stream));
        }
        let config = match self.tls.get() {
            Some(config) => config.clone(),
            None => {
                let config = tls::config(self.rules.authorities.as_deref())?;
                self.tls.get_or_init(|| config).clone()
            }
        };
        let failed = |why: String| HttpError::Connect {
            host: origin.host.clone(),
            why,
        };
        let name =
            ServerName::try_from(origin.host.clone()).map_err(|error| failed(error.to_string()))?;
        match TlsConnector::from(config).connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(match tls::disbelieved(&error) {
                Some(why) => HttpError::Certificate {
                    host: origin.host.clone(),
                    why,
                },
                None => failed(tls::told(&error)),
            }),
        }
    }

    /// A connection to a host, at an address that the rules allow. The checked address is the one
    /// that is connected to: a second, different answer of the name server has no effect.
    async fn reach(
        &self,
        host: &str,
        port: u16,
        allowed: &[AllowedTarget],
    ) -> Result<TcpStream, HttpError> {
        let failed = |why: String| HttpError::Connect {
            host: host.to_owned(),
            why,
        };
        let addresses = self
            .resolve(host, port)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let mut last = None;
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            let ip = address.ip();
            if !may_connect(ip, allowed) {
                let class = Class::of(ip);
                // The error of an allowed address, if there is one, is more useful.
                last.get_or_insert(HttpError::Address {
                    host: host.to_owned(),
                    address: ip,
                    class,
                });
                continue;
            }
            last = Some(failed(
                match timeout(ONE_ADDRESS, TcpStream::connect(address)).await {
                    Ok(Ok(stream)) => {
                        let _ = stream.set_nodelay(true);
                        return Ok(stream);
                    }
                    Ok(Err(error)) => format!("{address}: {error}"),
                    Err(_) => format!("{address}: no answer within {} s", ONE_ADDRESS.as_secs()),
                },
            ));
        }
        Err(last.unwrap_or_else(|| failed("the name has no address".to_owned())))
    }

    /// A connection through the proxy (RFC 9110 §9.3.6), for `http` too, so that both schemes are
    /// handled alike.
    async fn through(&self, proxy: &Uri, origin: &UrlOrigin) -> Result<TcpStream, HttpError> {
        if origin.is_odd_address() {
            return Err(HttpError::Url(format!(
                "{origin} has an address in a spelling of its own, which the proxy could read otherwise: write it in full"
            )));
        }
        let name = origin.host.trim_end_matches('.');
        let address = match origin.host.parse::<IpAddr>() {
            // RFC 6761 §6.3: `localhost` is always the host itself.
            Err(_) if name == "localhost" || name.ends_with(".localhost") => {
                Some(Ipv4Addr::LOCALHOST.into())
            }
            address => address.ok(),
        };
        if let Some(address) = address
            && !may_connect(address, &self.rules.allowed)
        {
            return Err(HttpError::Address {
                host: origin.host.clone(),
                address,
                class: Class::of(address),
            });
        }
        let at = UrlOrigin::of(proxy)?;
        // The operator chose the proxy, so its address may be of any class.
        let anywhere = [
            AllowedTarget::parse("0.0.0.0/0"),
            AllowedTarget::parse("::/0"),
        ];
        let anywhere: Vec<AllowedTarget> = anywhere.into_iter().flatten().collect();
        let failed = |why: String| HttpError::Connect {
            host: origin.host.clone(),
            why: format!("the proxy {at}: {why}"),
        };
        let reached = self.reach(&at.host, at.port, &anywhere).await;
        let mut stream = reached.map_err(|error| failed(error.to_string()))?;
        let authority = origin.authority();
        let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        stream
            .write_all(head.as_bytes())
            .await
            .map_err(|error| failed(error.to_string()))?;
        let mut answer = Vec::new();
        // Byte by byte: the bytes after the head belong to the server.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= MAX_PROXY_HEAD {
                return Err(failed(format!("its answer is over {MAX_PROXY_HEAD} bytes")));
            }
            answer.push(
                stream
                    .read_u8()
                    .await
                    .map_err(|error| failed(error.to_string()))?,
            );
        }
        let line = String::from_utf8_lossy(&answer);
        let line = line.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some(status)
                if status.len() == 3 && status.starts_with('2') && line.starts_with("HTTP/1.") =>
            {
                Ok(stream)
            }
            _ => Err(failed(format!("it answered {}", brief(line, 100)))),
        }
    }
}

impl Dial for Dialer {
    fn dial<'a>(&'a self, origin: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        Box::pin(async move {
            let late = |_| HttpError::Connect {
                host: origin.host.clone(),
                why: format!("no connection within {} s", IN_ALL.as_secs()),
            };
            timeout(IN_ALL, self.connect(origin))
                .await
                .unwrap_or_else(|elapsed| Err(late(elapsed)))
        })
    }
}
