//! A request of ours towards a client, for a server or for the daemon itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::client::Client;
use super::client_requests::{
    ClientProgress, ClientResponse, MAX_ASKED, NoResponse, OpenClientRequest,
};
use colibri_protocol::upstream;
use colibri_wire::Edits;

/// A request towards a client. Dropping it takes it back: the client is told, if it was asked and
/// did not answer.
pub struct ClientRequest {
    client: Arc<Client>,
    number: u64,
    state: ClientRequestState,
    answer: oneshot::Receiver<Result<ClientResponse, String>>,
    open: Option<OpenClientRequest>,
    progressed: Arc<Notify>,
    /// The reason that the client is given when it is withdrawn.
    why: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientRequestState {
    Not,
    Waits,
    Over,
}

impl ClientRequest {
    /// A number for a request to this client, which is its id and its progress token.
    ///
    /// # Errors
    /// The client is asked too much already, or gone.
    pub fn begin(client: &Arc<Client>) -> Result<ClientRequest, NoResponse> {
        let mut inner = client.session.asked.inner();
        if inner.is_over {
            return Err(NoResponse::Gone);
        }
        if inner.open.len() >= MAX_ASKED {
            return Err(NoResponse::Busy);
        }
        let number = inner.open.reserve().ok_or(NoResponse::Busy)?;
        let (sender, answer) = oneshot::channel();
        let progressed: Arc<Notify> = Arc::default();
        Ok(ClientRequest {
            client: client.clone(),
            number,
            state: ClientRequestState::Not,
            answer,
            open: Some(OpenClientRequest {
                answer: sender,
                progressed: progressed.clone(),
                progress: None,
            }),
            progressed,
            why: "it is not wanted any more",
        })
    }

    /// Its id and progress token.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Sends the request. `progress` gets the client's progress notifications meanwhile.
    ///
    /// # Errors
    /// The client is gone.
    pub fn send(
        &mut self,
        frame: &Bytes,
        edits: &Edits,
        progress: Option<ClientProgress>,
    ) -> Result<(), NoResponse> {
        let mut inner = self.client.session.asked.inner();
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        if inner.is_over {
            return Err(NoResponse::Gone);
        }
        inner
            .open
            .put(self.number, OpenClientRequest { progress, ..open });
        self.state = ClientRequestState::Waits;
        drop(inner);
        if !self.client.outbox.push_edited(frame, edits) {
            return Err(NoResponse::Gone);
        }
        Ok(())
    }

    /// Waits for the answer, for so long since the request or the last progress, and in no case
    /// longer than `until`.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn answer(
        &mut self,
        patience: Duration,
        until: Instant,
    ) -> Result<ClientResponse, NoResponse> {
        let began = Instant::now();
        let mut deadline = (began + patience).min(until);
        loop {
            tokio::select! {
                biased;
                answer = &mut self.answer => {
                    self.state = ClientRequestState::Over;
                    return match answer {
                        Ok(answer) => answer.map_err(NoResponse::Unreadable),
                        Err(_) => Err(NoResponse::Gone),
                    };
                }
                () = self.progressed.notified() => deadline = (Instant::now() + patience).min(until),
                () = sleep_until(deadline) => {
                    self.why = "nobody answered in time";
                    return Err(NoResponse::TimedOut(began.elapsed()));
                }
            }
        }
    }

    /// Sets the reason that the client is given if the request is withdrawn.
    pub fn because(&mut self, why: &'static str) {
        self.why = why;
    }
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        let mut inner = self.client.session.asked.inner();
        let waits = match self.state {
            ClientRequestState::Not => {
                inner.open.give_back(self.number);
                false
            }
            ClientRequestState::Waits => inner.open.remove(self.number).is_some(),
            ClientRequestState::Over => false,
        };
        drop(inner);
        if waits {
            self.client
                .outbox
                .push(&upstream::cancelled(self.number, self.why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(client: &Arc<Client>) -> ClientRequest {
        let mut asking = ClientRequest::begin(client).unwrap();
        asking
            .send(&Bytes::from_static(b"{}"), &Edits::new(), None)
            .unwrap();
        asking
    }

    /// Answers with `{}` under an id as it is written.
    fn answer(client: &Arc<Client>, id: &str) -> bool {
        let frame = Bytes::from_static(b"{}");
        client
            .session
            .asked
            .answer(&client.outbox, Some(id), Ok((&frame, (0..0, Ok(0..2)))))
    }

    const LONG: Duration = Duration::from_secs(600);

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[tokio::test]
    async fn an_answer_is_found_by_its_exact_id_once() {
        let (client, other) = (Client::unread(9), Client::unread(9));
        let (mut first, mut second) = (ask(&client), ask(&client));
        let id = first.number().to_string();
        for stray in [
            format!("\"{id}\""),
            format!("{id}.0"),
            format!("0{id}"),
            format!("{id}0"),
            "-1".to_owned(),
        ] {
            assert!(!answer(&client, &stray), "{stray}");
        }
        assert!(
            !answer(&other, &id)
                && !client
                    .session
                    .asked
                    .answer(&client.outbox, None, Err("no id"))
        );
        assert!(answer(&client, &id) && !answer(&client, &id));
        assert!(first.answer(LONG, later()).await.is_ok());
        assert_eq!(client.session.asked.len(), 1);
        let unreadable = client.session.asked.answer(
            &client.outbox,
            Some(&second.number().to_string()),
            Err("odd"),
        );
        let why = second.answer(LONG, later()).await.err();
        assert_eq!(
            (unreadable, why),
            (true, Some(NoResponse::Unreadable("odd".to_owned())))
        );
        assert!(client.session.asked.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn progress_gives_more_time_and_not_more_than_there_is() {
        let client = Client::unread(9);
        let mut asking = ask(&client);
        let (token, began) = (asking.number(), Instant::now());
        let told = client.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(6)).await;
                told.session.asked.progress(token, &Bytes::new(), 0..0);
            }
        });
        let why = asking
            .answer(Duration::from_secs(10), began + Duration::from_secs(60))
            .await
            .err();
        assert_eq!(why, Some(NoResponse::TimedOut(Duration::from_secs(60))));
        let before = client.outbox.queued();
        drop(asking);
        assert!(client.outbox.queued() > before, "the client is told");
        let mut asking = ask(&client);
        let why = asking.answer(Duration::from_secs(5), later()).await.err();
        assert_eq!(why, Some(NoResponse::TimedOut(Duration::from_secs(5))));
    }

    #[tokio::test]
    async fn what_is_asked_of_one_client_is_bounded_and_ends_with_it() {
        let client = Client::unread(9);
        let mut all: Vec<ClientRequest> = (0..MAX_ASKED).map(|_| ask(&client)).collect();
        assert_eq!(ClientRequest::begin(&client).err(), Some(NoResponse::Busy));
        drop(all.pop());
        let mut last = ask(&client);
        let answered = last.number().to_string();
        assert!(answer(&client, &answered));
        client.session.asked.end();
        assert!(last.answer(LONG, later()).await.is_ok());
        assert_eq!(
            all[0].answer(LONG, later()).await.err(),
            Some(NoResponse::Gone)
        );
        assert_eq!(ClientRequest::begin(&client).err(), Some(NoResponse::Gone));
        let before = client.outbox.queued();
        drop(all);
        assert_eq!(
            client.outbox.queued(),
            before,
            "who is gone is told nothing"
        );
    }
}
