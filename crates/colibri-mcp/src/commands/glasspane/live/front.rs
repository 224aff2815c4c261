//! One request to the served page, and its response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::super::html::page_to_serve;
use super::connections::ConnectionPlace;
use super::feed::{LiveOrder, LivePage};
use super::gate::{PageGate, PageRequest};
use super::reply::{self, PageBody};
use colibri_api::DecisionResponse;

/// The longest body of an answer, and the longest time for it, and for the daemon.
const MAX_BODY: usize = 4096;
const BODY_TIME: Duration = Duration::from_secs(5);
const DECISION_TIME: Duration = Duration::from_secs(30);
/// The interval at which a browser is told that there is no news.
const BEAT: Duration = Duration::from_secs(5);

/// The parts that all connections share.
pub(super) struct PageFront {
    pub gate: PageGate,
    pub page: watch::Receiver<LivePage>,
    pub orders: SyncSender<LiveOrder>,
    pub listeners: Arc<AtomicUsize>,
    /// Becomes true when the token was brought.
    pub entered: watch::Sender<bool>,
    /// Becomes true when this program ends.
    pub ending: watch::Sender<bool>,
    /// True if calls are approved from the page.
    pub may_approve: bool,
}

/// A person's answer to a waiting call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageDecision {
    id: String,
    approve: bool,
}

impl PageFront {
    /// Answers a request.
    pub(super) async fn answer(
        &self,
        place: &ConnectionPlace,
        request: Request<Incoming>,
    ) -> Response<PageBody> {
        let (parts, body) = request.into_parts();
        let request = match self.gate.check(&parts) {
            Ok(request) => request,
            Err(status) => return reply::refusal(status),
        };
        place.is_known_now();
        match request {
            PageRequest::Enter => {
                self.entered.send_replace(true);
                reply::entered(&self.gate.path(), &self.gate.set_cookie())
            }
            PageRequest::Page => {
                // If there are so many orders already, this one is among them.
                let _ = self.orders.try_send(LiveOrder::Look);
                let page = self.page.borrow().clone();
                reply::html(page_to_serve(&page.json(), &page.tables))
            }
            PageRequest::Events(seen) => reply::events(self.listen(seen)),
            PageRequest::Decide => match read(body).await {
                Some(decision) => self.decide(decision).await,
                None => reply::refusal(StatusCode::BAD_REQUEST),
            },
        }
    }

    /// The stream of news for a page whose parts have these numbers.
    fn listen(&self, mut seen: [u64; 2]) -> mpsc::Receiver<Bytes> {
        // A browser that reads slowly misses what was in between, and gets the newest.
        let (pieces, stream) = mpsc::channel(1);
        let (mut page, mut ending) = (self.page.clone(), self.ending.subscribe());
        let listening = Listening::one_more(&self.listeners);
        let _ = self.orders.try_send(LiveOrder::Look);
        tokio::spawn(async move {
            let _listening = listening;
            loop {
                let news = {
                    let page = page.borrow_and_update();
                    news(&page, &mut seen)
                };
                if pieces.send(news.into()).await.is_err() {
                    return;
                }
                tokio::select! {
                    _ = timeout(BEAT, page.changed()) => {}
                    _ = ending.changed() => {
                        // The last word: nobody is to come back.
                        let _ = pieces.send(Bytes::from_static(b"event: end\ndata: {}\n\n")).await;
                        return;
                    }
                    () = pieces.closed() => return,
                }
            }
        });
        stream
    }

    async fn decide(&self, decision: PageDecision) -> Response<PageBody> {
        if decision.approve && !self.may_approve {
            return reply::refusal(StatusCode::FORBIDDEN);
        }
        let (tell, told) = oneshot::channel();
        let order = LiveOrder::Decide {
            id: decision.id,
            approve: decision.approve,
            outcome: tell,
        };
        let decided = match self.orders.try_send(order) {
            Ok(()) => timeout(DECISION_TIME, told).await.ok().and_then(Result::ok),
            Err(_) => return refused("this program is busy: try again"),
        };
        match decided {
            Some(Ok(DecisionResponse { decided, approved })) => {
                let what = if approved { "Approved" } else { "Denied" };
                let said = format!("{what}: {} {}", decided.server, decided.tool);
                reply::json(StatusCode::OK, &json!({ "said": said }))
            }
            Some(Err(failure)) => refused(&failure.to_string()),
            None => refused("the daemon did not answer in time: look at what waits now"),
        }
    }
}

/// The response to a decision that had no effect.
fn refused(why: &str) -> Response<PageBody> {
    reply::json(StatusCode::CONFLICT, &json!({ "refused": why }))
}

/// Counts a browser that listens, until it is dropped.
struct Listening(Arc<AtomicUsize>);

impl Listening {
    fn one_more(listeners: &Arc<AtomicUsize>) -> Listening {
        listeners.fetch_add(1, Ordering::Relaxed);
        Listening(listeners.clone())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The events for the parts that have changed, and the time.
fn news(page: &LivePage, seen: &mut [u64; 2]) -> String {
    let mut news = String::new();
    for (at, name, part) in [(0, "record", &page.record), (1, "present", &page.present)] {
        if seen[at] != part.number {
            seen[at] = part.number;
            news.push_str(&format!("event: {name}\ndata: {}\n\n", part.json));
        }
    }
    news.push_str(&format!("event: beat\ndata: {}\n\n", page.at));
    news
}

/// Reads a decision; `None`: it is none, is too long, or does not come.
async fn read(mut body: Incoming) -> Option<PageDecision> {
    let whole = async {
        let mut whole = Vec::new();
        loop {
            let frame =
                std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context));
            let Some(frame) = frame.await else {
                return Some(whole);
            };
            let frame = frame.ok()?;
            let data = frame.data_ref().map_or(&[][..], |data| data);
            if whole.len() + data.len() > MAX_BODY {
                return None;
            }
            whole.extend_from_slice(data);
        }
    };
    let whole = timeout(BODY_TIME, whole).await.ok()??;
    serde_json::from_slice(&whole).ok()
}

#[cfg(test)]
mod tests {
    use super::super::feed::PagePart;
    use super::*;

    #[test]
    fn only_what_has_changed_is_news() {
        let part = |number, json: &str| PagePart {
            number,
            json: json.into(),
        };
        let mut page = LivePage {
            record: part(3, "{}"),
            present: part(1, "[]"),
            at: 7,
            ..LivePage::default()
        };
        let mut seen = [3, 0];
        assert_eq!(
            news(&page, &mut seen),
            "event: present\ndata: []\n\nevent: beat\ndata: 7\n\n"
        );
        assert_eq!(news(&page, &mut seen), "event: beat\ndata: 7\n\n");
        page.record.number = 4;
        assert!(news(&page, &mut seen).starts_with("event: record\ndata: {}\n\n"));
    }
}
