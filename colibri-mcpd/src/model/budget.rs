//! The budget of an agent's model: reserved before a request goes out, so that concurrent requests
//! cannot overrun it, and settled when the answer is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::relay::AgentSocket;
use colibri_model::{ModelRefusal, TokenCounts};
use hyper::StatusCode;
use parking_lot::Mutex;

/// The tokens of one instance of an agent.
pub(super) struct TokenBudget {
    door: Arc<AgentSocket>,
    /// The tokens reserved for requests in flight.
    reserved: Mutex<u64>,
}

impl TokenBudget {
    pub(super) fn new(door: Arc<AgentSocket>) -> TokenBudget {
        TokenBudget {
            door,
            reserved: Mutex::new(0),
        }
    }

    /// Takes what a request may cost out of what is left.
    ///
    /// # Errors
    /// So much is not left, or the host's lease is over.
    pub(super) fn reserve(
        self: &Arc<Self>,
        tokens: TokenCounts,
    ) -> Result<TokenReservation, ModelRefusal> {
        let lease = self.door.lease.check();
        lease.map_err(|why| ModelRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string()))?;
        let mut reserved = self.reserved.lock();
        let sum = reserved.saturating_add(tokens.sum());
        if let Some(most) = self.door.max_tokens
            && tokens.sum() > 0
        {
            let spent = &self.door.spent;
            let spent = spent
                .tokens_in
                .load(Ordering::Relaxed)
                .saturating_add(spent.tokens_out.load(Ordering::Relaxed));
            let left = most.saturating_sub(spent).saturating_sub(*reserved);
            if tokens.sum() > left {
                let why = match spent >= most {
                    true => format!("the {most} tokens of this agent are spent"),
                    false => format!(
                        "this request may cost {} tokens, and of the {most} of this agent {left} are left: ask for \
                         a smaller maximum, or send less (\"budget.tokens\" and \"context_tokens\" of the entry)",
                        tokens.sum()
                    ),
                };
                return Err(ModelRefusal::new(StatusCode::TOO_MANY_REQUESTS, why));
            }
        }
        *reserved = sum;
        Ok(TokenReservation {
            budget: self.clone(),
            tokens,
        })
    }
}

/// The reserved cost of a request. It is given back when this is dropped.
pub(super) struct TokenReservation {
    budget: Arc<TokenBudget>,
    /// The amount.
    pub(super) tokens: TokenCounts,
}

impl TokenReservation {
    /// Replaces the reservation by the actual cost.
    pub(super) fn settle(&self, cost: TokenCounts) {
        let spent = &self.budget.door.spent;
        spent.tokens_in.fetch_add(cost.read, Ordering::Relaxed);
        spent.tokens_out.fetch_add(cost.written, Ordering::Relaxed);
    }
}

impl Drop for TokenReservation {
    fn drop(&mut self) {
        let mut reserved = self.budget.reserved.lock();
        *reserved = reserved.saturating_sub(self.tokens.sum());
    }
}
