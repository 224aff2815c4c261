//! Requests to clients: our requests that wait for a client's answer, and their answers.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use colibri_peer::{Outbox, Slab};

/// The longest time for a client's answer, where it sends nothing.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// The most requests that wait for the answer of one client.
pub(crate) const MAX_ASKED: usize = 32;

/// The open requests to one client, by ids that never come again in its session.
#[derive(Default)]
pub struct ClientRequests {
    inner: Mutex<ClientRequestsInner>,
}

#[derive(Default)]
pub(super) struct ClientRequestsInner {
    pub(super) open: Slab<OpenClientRequest>,
    /// The client is gone, or writes nothing any more.
    pub(super) is_over: bool,
}

pub(super) struct OpenClientRequest {
    pub(super) answer: oneshot::Sender<Result<ClientResponse, String>>,
    pub(super) progressed: Arc<Notify>,
    pub(super) progress: Option<ClientProgress>,
}

/// Receives a client's progress: the message, and the place of its `params`.
pub type ClientProgress = Box<dyn Fn(&Bytes, Range<usize>) + Send>;

/// The answer of a client. It counts as the client's until it is let go.
pub struct ClientResponse {
    /// The message as it came.
    pub frame: Bytes,
    /// The place of its id.
    pub id: Range<usize>,
    /// The place of its `result`, or of its `error`.
    pub outcome: Result<Range<usize>, Range<usize>>,
    /// The time at which it was read.
    pub(super) read: Instant,
    of: Arc<Outbox>,
}

impl Drop for ClientResponse {
    fn drop(&mut self) {
        self.of.let_go(self.frame.len());
    }
}

/// The reason for which there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoResponse {
    /// The client is asked too much already.
    Busy,
    /// Nobody answered in time.
    TimedOut(Duration),
    /// The client is gone.
    Gone,
    /// The client's answer cannot be read.
    Unreadable(String),
}

impl NoResponse {
    /// The word for it in a record.
    pub fn word(&self) -> &'static str {
        match self {
            NoResponse::TimedOut(_) => "timed out",
            NoResponse::Unreadable(_) => "unreadable",
            NoResponse::Gone | NoResponse::Busy => "gone",
        }
    }
}

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoResponse::Busy => write!(f, "the client is asked {MAX_ASKED} things already"),
            NoResponse::TimedOut(limit) => {
                write!(f, "nobody answered within {} s", limit.as_secs())
            }
            NoResponse::Gone => f.write_str("the client that was asked is gone"),
            NoResponse::Unreadable(why) => write!(f, "the client's answer cannot be read: {why}"),
        }
    }
}

impl ClientRequests {
    pub(super) fn inner(&self) -> MutexGuard<'_, ClientRequestsInner> {
        self.inner.lock()
    }

    /// Takes a client's answer, or why it is none. `false`: nothing was asked under this id.
    pub fn answer(
        &self,
        of: &Arc<Outbox>,
        id: Option<&str>,
        answer: Result<(&Bytes, AnswerParts), &str>,
    ) -> bool {
        // Exactly as we wrote it: no other spelling of the number is its id.
        let number = id.and_then(|id| {
            id.parse()
                .ok()
                .filter(|number: &u64| number.to_string() == id)
        });
        let Some(open) = number.and_then(|number| self.inner().open.remove(number)) else {
            return false;
        };
        let response = match answer {
            Ok((frame, _)) if !of.hold(frame.len()) => {
                Err("the daemon has no room for it now".to_owned())
            }
            Ok((frame, (id, outcome))) => Ok(ClientResponse {
                frame: frame.clone(),
                id,
                outcome,
                read: Instant::now(),
                of: of.clone(),
            }),
            Err(why) => Err(why.to_owned()),
        };
        // Who asked may just have given up.
        let _ = open.answer.send(response);
        true
    }

    /// The client says how far the answer to a request is. `false`: nothing was asked under this
    /// token.
    pub fn progress(&self, token: u64, frame: &Bytes, params: Range<usize>) -> bool {
        let mut inner = self.inner();
        let Some(open) = inner.open.get_mut(token) else {
            return false;
        };
        if let Some(progress) = &open.progress {
            progress(frame, params);
        }
        open.progressed.notify_one();
        true
    }

    /// No answer will come any more.
    pub fn end(&self) {
        let mut inner = self.inner();
        inner.is_over = true;
        drop(inner.open.take_all());
    }

    /// The number of requests that wait for the client's answer.
    pub fn len(&self) -> usize {
        self.inner().open.len()
    }

    /// True if the client is asked nothing now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The place of an answer's id, and of its `result` or `error`.
pub type AnswerParts = (Range<usize>, Result<Range<usize>, Range<usize>>);
