//! The ways between a client and a server of the same version, and a client that goes each of them.

use std::fmt;

use colibri_tests::http::{Http, Response};
use colibri_tests::{Client, Daemon, LEGACY, MODERN, modern_meta};
use serde_json::json;

use super::{client, exposed};

/// A way from a client to a server of the same version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    /// Over HTTP; otherwise in lines.
    pub(crate) http: bool,
    /// The version of both.
    pub(crate) version: &'static str,
    /// Whether the server stands behind its prefix.
    pub(crate) prefix: bool,
    /// Whether the server says something before it answers: over HTTP the answer is an event then,
    /// and no body.
    pub(crate) told: bool,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let framing = match (self.http, self.told) {
            (false, _) => "lines",
            (true, false) => "HTTP",
            (true, true) => "events",
        };
        write!(f, "{framing}, {}, prefix {}", self.version, self.prefix)
    }
}

impl Way {
    pub(crate) fn is_modern(&self) -> bool {
        self.version == MODERN
    }

    /// The name under which clients have a tool or a prompt.
    pub(crate) fn exposed(&self, name: &str) -> String {
        exposed(self.prefix, name)
    }
}

/// All ways: lines with a prefix and without, HTTP and streams of events in both eras.
pub(crate) fn ways() -> Vec<Way> {
    let (mut ways, both) = (Vec::new(), [LEGACY, MODERN]);
    for version in both {
        for prefix in [true, false] {
            ways.push(Way {
                http: false,
                version,
                prefix,
                told: false,
            });
        }
        ways.push(Way {
            http: true,
            version,
            prefix: true,
            told: false,
        });
        ways.push(Way {
            http: true,
            version,
            prefix: version == MODERN,
            told: true,
        });
    }
    ways
}

/// A client on one of the ways.
pub(crate) struct Peer<'d> {
    daemon: &'d Daemon<'d>,
    way: Way,
    over: Over,
    /// Whether an answer came as a body: one that takes long comes as an event.
    pub(crate) alone: bool,
}

enum Over {
    Lines(Client),
    Http {
        http: Http,
        /// Of a legacy client.
        session: Option<String>,
        /// The response to the last request.
        response: Option<Response>,
    },
}

impl<'d> Peer<'d> {
    /// One that has made its handshake. One in lines is told nothing unasked of lists.
    pub(crate) fn new(daemon: &'d Daemon<'d>, way: Way) -> Peer<'d> {
        let over = match way.http {
            false => Over::Lines(client(daemon, way.version)),
            true => {
                let mut http = daemon.http();
                let session = (!way.is_modern()).then(|| http.open(way.version));
                Over::Http {
                    http,
                    session,
                    response: None,
                }
            }
        };
        Peer {
            daemon,
            way,
            over,
            alone: false,
        }
    }

    /// The same, which can be asked everything, whatever it speaks.
    pub(crate) fn able(daemon: &'d Daemon<'d>, way: Way) -> Peer<'d> {
        let mut peer = Peer::new(daemon, way);
        if let Over::Lines(client) = &mut peer.over
            && !way.is_modern()
        {
            let able =
                json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
            *client = daemon.connect();
            client.open_with(way.version, able);
        }
        peer
    }

    /// The same, which is told unasked what concerns it.
    pub(crate) fn told(daemon: &'d Daemon<'d>, way: Way) -> Peer<'d> {
        let mut peer = Peer::new(daemon, way);
        if let Over::Lines(client) = &mut peer.over
            && !way.is_modern()
        {
            client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        }
        peer
    }

    /// Sends a request, byte for byte. `method` and `name` are said again in the head where that
    /// has to be.
    pub(crate) fn send(&mut self, line: &[u8], method: &str, name: &str) {
        let way = self.way;
        match &mut self.over {
            Over::Lines(client) => assert!(client.send(line)),
            Over::Http {
                http,
                session,
                response,
            } => {
                if response.take().is_some_and(|response| response.is_stream()) {
                    // Its end.
                    assert_eq!(http.event(), None);
                }
                let mut fields = vec![("MCP-Protocol-Version", way.version)];
                match session {
                    Some(session) => fields.push(("Mcp-Session-Id", session)),
                    None => fields.extend([("Mcp-Method", method), ("Mcp-Name", name)]),
                }
                assert!(http.post(&fields, std::str::from_utf8(line).unwrap()));
                *response = Some(http.response());
            }
        }
    }

    /// The next message, byte for byte.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        match &mut self.over {
            Over::Lines(client) => client.read().expect("a message"),
            Over::Http { http, response, .. } => {
                let response = response.as_mut().expect("a response");
                if !response.is_stream() {
                    return std::mem::take(&mut response.body);
                }
                loop {
                    let event = http.event().expect("an event");
                    // The first one of a stream says where to read on, and nothing else.
                    if !event.data.is_empty() {
                        return event.data.into_bytes();
                    }
                }
            }
        }
    }

    /// The answer to a request, behind what the server says before it.
    pub(crate) fn ask(&mut self, line: &[u8], method: &str, name: &str) -> Vec<u8> {
        self.send(line, method, name);
        if let Over::Http { response, .. } = &self.over {
            let response = response.as_ref().unwrap();
            assert!(
                response.is_stream() || !self.way.told,
                "{}: {response:?}",
                self.way
            );
            self.alone |= !response.is_stream();
        }
        if self.way.told {
            let told = self.read();
            assert!(
                told.windows(22)
                    .any(|window| window == b"notifications/progress")
            );
        }
        self.read()
    }

    /// Whether the last answer came as an event.
    pub(crate) fn is_event(&self) -> bool {
        match &self.over {
            Over::Http { response, .. } => response.as_ref().is_some_and(Response::is_stream),
            Over::Lines(_) => false,
        }
    }

    /// Answers what it was asked, byte for byte.
    pub(crate) fn answer(&mut self, line: &[u8]) {
        match &mut self.over {
            Over::Lines(client) => assert!(client.send(line)),
            Over::Http { session, .. } => {
                let mut other = self.daemon.http();
                let session = session.as_deref().expect("a session");
                other.in_session(session, std::str::from_utf8(line).unwrap());
                assert_eq!(other.response().status, 202);
            }
        }
    }

    /// Listens to what is told unasked: to updates of these URIs, or else to that lists change.
    pub(crate) fn listen(&mut self, uris: &[&str]) -> Ear {
        let lists = json!({ "toolsListChanged": uris.is_empty(), "resourceSubscriptions": uris });
        let listen = format!(
            r#"{{"jsonrpc":"2.0","id":"\u0065ar","method":"subscriptions/listen","params":{{"notifications":{lists},"_meta":{{{}}}}}}}"#,
            modern_meta()
        );
        if self.way.is_modern() {
            let mut ear = match self.way.http {
                true => Peer::new(self.daemon, self.way),
                false => {
                    self.send(listen.as_bytes(), "subscriptions/listen", "");
                    assert!(self.read().starts_with(
                        br#"{"jsonrpc":"2.0","method":"notifications/subscriptions/ack"#
                    ));
                    return Ear::Same;
                }
            };
            ear.send(listen.as_bytes(), "subscriptions/listen", "");
            ear.read();
            let Over::Http { http, .. } = ear.over else {
                unreachable!()
            };
            return Ear::Stream(http);
        }
        for uri in uris {
            let subscribe = format!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
            );
            self.send(subscribe.as_bytes(), "resources/subscribe", "");
            assert_eq!(self.read(), br#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
        }
        let Over::Http {
            session: Some(session),
            ..
        } = &self.over
        else {
            return Ear::Same;
        };
        let mut stream = self.daemon.http();
        assert!(stream.listen(session, None).is_stream());
        Ear::Stream(stream)
    }

    /// The next message that was told unasked.
    pub(crate) fn hear(&mut self, ear: &mut Ear) -> Vec<u8> {
        match ear {
            Ear::Same => self.read(),
            Ear::Stream(http) => http.event().expect("an event").data.into_bytes(),
        }
    }
}

/// Where a peer hears what it is told unasked.
pub(crate) enum Ear {
    /// On its connection.
    Same,
    /// In a stream of its own.
    Stream(Http),
}
