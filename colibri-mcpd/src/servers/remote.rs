//! A server behind a URL, given to a session as a process is: its streams, and what ends them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use colibri_confine::{BoxFuture, ServerExit, ServerProcess, SpawnedServer};
use colibri_http::{ConnectionRules, HttpClient};
use colibri_outbound::{Authorizer, Endpoint, EndpointTransport, SendError};

/// Receives the failures of requests that have no answer. A process has none.
pub(super) type Faults = Option<mpsc::UnboundedReceiver<SendError>>;

/// The transport of a server.
pub(super) struct RemoteAccess<'a> {
    pub url: &'a str,
    pub headers: BTreeMap<String, SecretString>,
    pub spoken: EndpointTransport,
    pub rules: &'a ConnectionRules,
    pub authorizer: Arc<dyn Authorizer>,
    /// The most bytes of a message.
    pub max_frame: usize,
    /// The longest silence after a request.
    pub silence: Duration,
}

/// A session with a server behind a URL.
///
/// # Errors
/// A header that cannot be sent.
pub(super) fn connect(reached: RemoteAccess<'_>) -> anyhow::Result<(SpawnedServer, Faults)> {
    let url: Uri = reached
        .url
        .parse()
        .map_err(|_| anyhow!("its url cannot be used"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &reached.headers {
        let name: HeaderName = name
            .parse()
            .map_err(|_| anyhow!("the header {name} has no legal name"))?;
        let mut value = HeaderValue::from_str(value.expose_secret().trim_end_matches(['\r', '\n']))
            .map_err(|_| {
                anyhow!(
                    "the value of the header {name} cannot be sent: it is to be printable ASCII"
                )
            })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let link = colibri_outbound::connect(Endpoint {
        url,
        transport: reached.spoken,
        headers,
        client: HttpClient::new(reached.rules.clone()),
        authorizer: reached.authorizer,
        max_message: reached.max_frame,
        silence: reached.silence,
    });
    let spawned = SpawnedServer {
        stdin: Box::new(link.input),
        stdout: Box::new(link.output),
        stderr: Box::new(tokio::io::empty()),
        process: Box::new(RemoteServer(link.ended)),
    };
    Ok((spawned, Some(link.faults)))
}

/// A server that runs elsewhere.
struct RemoteServer(JoinHandle<()>);

impl ServerProcess for RemoteServer {
    fn pid(&self) -> u32 {
        0
    }

    fn wait(&mut self) -> BoxFuture<'_, ServerExit> {
        Box::pin(async {
            if !self.0.is_finished() {
                let _ = (&mut self.0).await;
            }
            ServerExit::Disconnected
        })
    }
}
