//! The permitted requests of a process to people, and those that wait for an answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use crate::relay::Client;
use colibri_protocol::{Askable, Code, Failure, RpcError};
use colibri_wire::RequestId;

/// The most requests of one process that wait for a person.
const MAX_OPEN: usize = 32;
/// The most elicitations by URL of one process whose end can still be told.
const MAX_URLS: usize = 64;
/// The longest id of an elicitation whose end can be told, in bytes.
const MAX_URL_ID: usize = 256;

/// The persons and kinds of a process's permitted requests.
#[derive(Debug, Clone, Copy)]
pub(in crate::servers) struct ElicitationRights {
    /// The kinds that its entry allows, and that it was told of. Nothing for a process that several
    /// users share.
    pub what: Askable,
    /// The kinds that its entry allows in answer to a call, which says whose they are.
    pub in_answer: Askable,
    /// The process is one client's alone.
    pub one_client: bool,
    /// URIs stand behind the server's prefix.
    pub is_exposed: bool,
}

/// The open requests of a process.
#[derive(Default)]
pub(in crate::servers) struct OpenElicitations {
    /// By the server's ids.
    open: BTreeMap<RequestId, OpenElicitation>,
    /// The clients that got elicitations by URL, by their ids, the oldest first.
    urls: VecDeque<(Box<str>, Weak<Client>)>,
    /// The number of requests.
    count: u64,
    /// The client that used the process last.
    last: Weak<Client>,
}

struct OpenElicitation {
    /// The number among all that the process ever made.
    count: u64,
    /// The session of the client that is asked.
    session: u64,
    /// True if it ends with the calls of that client.
    of_call: bool,
    /// Receives the reason for which it ends before it is answered.
    over: oneshot::Sender<ElicitationEnd>,
}

/// The reason for which a request ends before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::servers) enum ElicitationEnd {
    /// The server took it back.
    TakenBack,
    /// The call that it was about is over.
    CallOver,
}

/// The reason for which a request is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::servers) enum NotTaken {
    /// One with the same id waits already.
    SameId,
    /// So many wait already.
    TooMany(usize),
}

impl OpenElicitations {
    /// True if a request under this id would be taken.
    ///
    /// # Errors
    /// Why not.
    pub(in crate::servers) fn takes(&self, id: &RequestId) -> Result<(), NotTaken> {
        if self.open.contains_key(id) {
            Err(NotTaken::SameId)
        } else if self.open.len() >= MAX_OPEN {
            Err(NotTaken::TooMany(MAX_OPEN))
        } else {
            Ok(())
        }
    }

    /// A request under this id, which is taken, waits from now on: by which number it is closed,
    /// and what is told if it is over before.
    pub(in crate::servers) fn open(
        &mut self,
        id: RequestId,
        session: u64,
        of_call: bool,
    ) -> (u64, oneshot::Receiver<ElicitationEnd>) {
        let (sender, over) = oneshot::channel();
        self.count += 1;
        let open = OpenElicitation {
            count: self.count,
            session,
            of_call,
            over: sender,
        };
        self.open.insert(id, open);
        (self.count, over)
    }

    /// A request is over. Another one may have its id by now.
    pub(in crate::servers) fn close(&mut self, id: &RequestId, count: u64) {
        if self.open.get(id).is_some_and(|open| open.count == count) {
            self.open.remove(id);
        }
    }

    /// The server takes a request back.
    pub(in crate::servers) fn take_back(&mut self, id: &RequestId) {
        if let Some(open) = self.open.remove(id) {
            // Its answer may just have come.
            let _ = open.over.send(ElicitationEnd::TakenBack);
        }
    }

    /// Ends what is about calls of sessions that have none here any more.
    pub(in crate::servers) fn settle(&mut self, has_call: impl Fn(u64) -> bool) {
        let is_over = |open: &OpenElicitation| open.of_call && !has_call(open.session);
        let over: Vec<RequestId> = self
            .open
            .iter()
            .filter(|(_, open)| is_over(open))
            .map(|(id, _)| id.clone())
            .collect();
        for open in over.iter().filter_map(|id| self.open.remove(id)) {
            let _ = open.over.send(ElicitationEnd::CallOver);
        }
    }

    /// The process is gone: whoever is asked is told.
    pub(in crate::servers) fn end(&mut self) {
        self.open.clear();
    }

    /// True if nothing waits.
    pub(in crate::servers) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// True if something is asked of a session's client.
    pub(in crate::servers) fn waits_for(&self, session: u64) -> bool {
        self.open.values().any(|open| open.session == session)
    }

    /// Notes whom an elicitation by URL went to, so that its end can be told.
    pub(in crate::servers) fn note_url(&mut self, id: &str, client: &Arc<Client>) {
        if id.len() > MAX_URL_ID {
            return;
        }
        if self.urls.len() >= MAX_URLS {
            self.urls.pop_front();
        }
        self.urls.push_back((id.into(), Arc::downgrade(client)));
    }

    /// Takes the client that got an elicitation by URL that is over, once.
    pub(in crate::servers) fn complete_url(&mut self, id: &str) -> Option<Arc<Client>> {
        let place = self.urls.iter().position(|(known, _)| **known == *id)?;
        self.urls.remove(place)?.1.upgrade()
    }

    /// This client uses the process.
    pub(in crate::servers) fn used_by(&mut self, client: &Arc<Client>) {
        self.last = Arc::downgrade(client);
    }

    /// The client that used the process last, if it is there.
    pub(in crate::servers) fn last(&self) -> Option<Arc<Client>> {
        self.last.upgrade().filter(|client| !client.is_gone())
    }
}

/// The error for a server whose request fails.
pub(in crate::servers) fn failed(why: String) -> RpcError {
    let failure = Failure::new(Code::AskFailed, why);
    RpcError {
        code: failure.code.row().number,
        message: failure.to_string(),
        data: None,
    }
}
