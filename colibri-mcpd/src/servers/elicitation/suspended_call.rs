//! The state of a suspended call, while its client is asked for something in answer to it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::open_elicitations::failed;
use crate::relay::Client;
use crate::relay::pending_work::TICKET;
use crate::relay::record::ClientRequestRecord as Record;
use colibri_protocol::input::{InputQuestion, REQUESTS_LIMIT, input_required_result};
use colibri_protocol::{Askable, ElicitationKind, Failure, RpcError, Version};

/// Something that a server asked about a call of a modern client.
pub(in crate::servers) struct SuspendedElicitation {
    /// The server's id of it, as it wrote it.
    pub id: Box<str>,
    /// The kind of request.
    pub ask: ElicitationKind,
    /// Its `params` as the client gets them.
    pub params: Box<str>,
    /// The recorded digest.
    pub record: Record,
}

/// A call that is held.
pub(in crate::servers) struct SuspendedServerCall {
    /// The ticket for its retry.
    pub ticket: Arc<Ticket>,
    /// Under which the retry finds it; none while it is given out.
    pub id: Option<[u8; TICKET]>,
    /// The time until which it waits for the retry.
    pub until: Instant,
    /// The rest of the call's time limits: without progress, and in all.
    pub left: (Duration, Duration),
    /// The open requests, by our keys.
    pub asked: Vec<(String, SuspendedElicitation)>,
    /// The number of all requests.
    pub count: usize,
    /// The server's answer, which came all the same.
    pub answered: Option<Bytes>,
    /// The server that has it.
    pub client: Arc<Client>,
    /// The version of the client's request.
    pub version: Version,
    /// The kinds of requests that the client accepts.
    pub can: Askable,
    /// The number of the call's `enter` record, and when that was read.
    pub call: (u64, Instant),
    /// The daemon's resources that it holds while it is in flight.
    pub place: Option<Box<dyn Send + Sync>>,
}

impl SuspendedServerCall {
    /// True if something more can be asked about it.
    ///
    /// # Errors
    /// What to answer the server: too much is asked already.
    pub(in crate::servers) fn has_room(&self) -> Result<(), RpcError> {
        if self.asked.len() >= REQUESTS_LIMIT {
            return Err(failed(format!(
                "{REQUESTS_LIMIT} requests about this call wait for an answer already"
            )));
        }
        Ok(())
    }

    /// Something more is asked about it.
    ///
    /// # Errors
    /// What to answer the server: too much is asked already.
    pub(in crate::servers) fn ask(&mut self, asked: SuspendedElicitation) -> Result<(), RpcError> {
        self.has_room()?;
        self.count += 1;
        self.asked.push((self.count.to_string(), asked));
        Ok(())
    }

    /// The requests to the client.
    pub(in crate::servers) fn result(&self, server: &str, state: &str) -> Vec<u8> {
        let questions: Vec<_> = self
            .asked
            .iter()
            .map(|(key, asked)| InputQuestion {
                key,
                method: asked.ask.method(),
                params: Some(&asked.params),
            })
            .collect();
        input_required_result(self.version, server, &questions, state)
    }
}

/// The ticket of a suspended call, which its retry finds.
#[derive(Default)]
pub(in crate::servers) struct Ticket {
    /// The number of the call towards its server.
    pub number: u64,
    /// The reason for which there is nothing to go on with.
    pub lost: OnceLock<Failure>,
}
