//! Log messages of servers: who gets them, and how grave they have to be. And the messages of the
//! experimental capability `claude/channel`, which a server sends whenever it likes.
//!
//! A legacy server has one level for all its messages, so it is the least that a client of the
//! process wants; what a client does not want of that it does not get. Nothing in a message says
//! whose call it is about: it goes to those who have a call in flight there, which are one user's
//! in a process that is one user's alone.

use std::sync::Arc;

use bytes::Bytes;

use super::server::HostedServer;
use super::session::{PendingReply, ServerSession, ServerSessionState};
use crate::relay::{Call, Client, ClientSession};
use colibri_protocol::logging::Level;
use colibri_protocol::upstream;

/// Bytes queued for a client over which it gets no log messages: it must not be let go for what a
/// server says.
const MAX_QUEUED: usize = 1 << 20;

impl ServerSession {
    /// Has a legacy server send what this call's client wants, before the call.
    pub(super) fn level_for(&self, state: &mut ServerSessionState, call: &Call) {
        if state.says.can.channel
            && (call.client.session.only().is_some() || !self.spec.entry.prefix)
        {
            let session = &call.client.session;
            let outbox = session
                .stream()
                .unwrap_or_else(|| call.client.outbox.clone());
            state.watching.channels.insert(session.number, outbox);
        }
        if let Some(level) = call.log_level() {
            let session = &call.client.session;
            let stream = || {
                session
                    .stream()
                    .unwrap_or_else(|| call.client.outbox.clone())
            };
            let stream = (!call.version.is_modern()).then(stream);
            state
                .watching
                .levels
                .insert(session.number, (level, stream));
            self.set_level(state);
        }
    }

    /// Sends a legacy server the least level that is wanted of it, if it is another one.
    fn set_level(&self, state: &mut ServerSessionState) {
        let least = state
            .watching
            .levels
            .values()
            .map(|(level, _)| *level)
            .min();
        let (Some(level), true) = (least, state.says.can.logging && !state.version.is_modern())
        else {
            return;
        };
        if state.watching.level == Some(level) {
            return;
        }
        if let Some(number) = state.pending.reserve() {
            self.push(&upstream::set_level(number, level));
            state.pending.give_back(number);
            state.watching.level = Some(level);
        }
    }

    /// A client that was heard of here wants another level.
    fn relevel(&self, session: &ClientSession, level: Level) {
        let mut state = self.state();
        let stream = state.pending.iter().find_map(|(_, pending)| match pending {
            PendingReply::Call { call, .. } if call.client.session.number == session.number => {
                Some(
                    session
                        .stream()
                        .unwrap_or_else(|| call.client.outbox.clone()),
                )
            }
            _ => None,
        });
        let known = state
            .watching
            .levels
            .get(&session.number)
            .map(|(_, stream)| stream.clone());
        if let Some(stream) = known.or_else(|| stream.map(Some)) {
            state
                .watching
                .levels
                .insert(session.number, (level, stream));
            self.set_level(&mut state);
        }
    }

    /// A client is gone.
    fn forget_level(&self, session: u64) {
        let mut state = self.state();
        state.watching.channels.remove(&session);
        if state.watching.levels.remove(&session).is_some() {
            self.set_level(&mut state);
        }
    }

    /// Passes a message of a channel on, as it is, to the clients that called something here and
    /// see it without a prefix.
    pub(super) fn channel_message(&self, frame: &Bytes) {
        let state = self.state();
        let outboxes = state.watching.channels.values();
        for outbox in outboxes.filter(|outbox| outbox.queued() < MAX_QUEUED) {
            outbox.push(frame);
        }
    }

    /// Passes a log message on to those who have a call in flight here and want it. One that comes
    /// while nobody has goes to the legacy clients that asked something here before and said that
    /// they want it.
    pub(super) fn log_message(&self, frame: &Bytes, level: Level) {
        let state = self.state();
        let mut told: Vec<&Arc<Client>> = Vec::new();
        for (_, pending) in state.pending.iter() {
            let PendingReply::Call { call, .. } = pending else {
                continue;
            };
            let client = &call.client;
            if call.wants_log(level)
                && client.outbox.queued() < MAX_QUEUED
                && told
                    .iter()
                    .all(|other| other.connection != client.connection)
            {
                client.outbox.push(frame);
                told.push(client);
            }
        }
        if state.pending.is_empty() {
            for (least, stream) in state.watching.levels.values() {
                let stream = stream
                    .as_ref()
                    .filter(|stream| stream.queued() < MAX_QUEUED);
                if let Some(stream) = stream.filter(|_| level >= *least) {
                    stream.push(frame);
                }
            }
        }
    }
}

impl HostedServer {
    /// A client wants log messages of another level from now on.
    pub(crate) fn relevel(&self, session: &ClientSession, level: Level) {
        for (_, process) in self.sessions() {
            process.relevel(session, level);
        }
    }

    /// A client is gone: nothing is sent for its sake.
    pub(super) fn forget_level(&self, session: u64) {
        for (_, process) in self.sessions() {
            process.forget_level(session);
        }
    }
}
