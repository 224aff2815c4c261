//! Calls that need a person's word, where the person is asked through the client itself.

use std::sync::Arc;
use std::time::SystemTime;

use super::call::{Call, Chain, Outcome, Waits};
use super::client::Client;
use super::request_state::Kind;
use super::tickets::{Over, TICKET, TooMany, WAIT};
use colibri_protocol::{Answer, Ask, Code, Failure, input};

/// The key of our question among those that a client is asked.
const KEY: &str = "confirm";

/// A call that waits for its retry, which says what the person said.
struct Confirmation {
    server: Arc<str>,
    rule: String,
    /// What the person is asked.
    params: String,
}

impl Chain {
    /// Whether the person behind a call is asked by its client in answer to it.
    pub fn asks_by_answer(&self, call: &Call) -> bool {
        call.version.is_modern() && call.askable().can(Ask::Form)
    }

    /// Asks the person behind a modern client whether a call may be made, who gets to read what `arguments` say of it. If
    /// the retry says so, it goes to its target as confirmed.
    pub fn ask_to_confirm(&self, call: Box<Call>, rule: &str, arguments: &str) {
        let described = call.target.describe();
        let confirmation = Confirmation {
            server: described.server.into(),
            rule: rule.to_owned(),
            params: input::confirmation(described.server, described.operation, arguments),
        };
        Arc::new(confirmation).ask(self, call);
    }

    /// A ticket for the retry of a call that a person allowed: it is made once.
    ///
    /// # Errors
    /// Too much waits already.
    pub fn confirmed(&self, call: &Call) -> Result<[u8; TICKET], TooMany> {
        self.ticket(&call.client, Arc::new(Allowed))
    }

    /// A ticket for the retry of a client's call.
    ///
    /// # Errors
    /// Too much waits already.
    pub fn ticket(&self, client: &Client, waits: Arc<dyn Waits>) -> Result<[u8; TICKET], TooMany> {
        // A request over HTTP has no connection to keep.
        let stays = client.session.owner().is_none();
        self.tickets.issue(client.caller.uid, stays, waits)
    }
}

impl Confirmation {
    fn ask(self: Arc<Self>, chain: &Chain, call: Box<Call>) {
        let outcome = match chain.ticket(&call.client, self.clone()) {
            Ok(ticket) => {
                let state = chain.seal(Kind::Confirm, &call, &ticket, SystemTime::now() + WAIT);
                let question = input::Question {
                    key: KEY,
                    method: Ask::Form.method(),
                    params: Some(&self.params),
                };
                let result = input::input_required_result(call.version, &self.server, &[question], &state);
                Outcome::Own {
                    answer: Answer::Result(result),
                    failed: false,
                }
            }
            Err(why) => Outcome::Failed(self.failure(format!("the person cannot be asked: {why}"))),
        };
        chain.finish(vec![(call, outcome)]);
    }

    fn failure(&self, why: String) -> Failure {
        Failure::new(Code::ApprovalDenied, why)
            .of_server(&*self.server)
            .by_rule(self.rule.clone())
    }
}

impl Over for Confirmation {
    /// The client was answered already.
    fn over(&self, _: &'static str) {}
}

impl Waits for Confirmation {
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, retry: Box<Call>) {
        let said = retry.response(KEY).map(|response| {
            response
                .get("action")
                .and_then(|action| action.as_str())
                .unwrap_or_default()
                .into_owned()
        });
        match said.as_deref() {
            Some("accept") => go(chain, retry),
            Some(_) => {
                let failure = self.failure("the person who was asked by the client refused this call".to_owned());
                chain.finish(vec![(retry, Outcome::Failed(failure))]);
            }
            None => self.ask(chain, retry),
        }
    }
}

/// A call that a person allowed and whose server asks something itself.
struct Allowed;

impl Over for Allowed {
    fn over(&self, _: &'static str) {}
}

impl Waits for Allowed {
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, retry: Box<Call>) {
        go(chain, retry);
    }
}

/// A call that a person allowed goes on.
fn go(chain: &Arc<Chain>, mut call: Box<Call>) {
    call.confirmed = true;
    call.target.clone().send(chain, call);
}
