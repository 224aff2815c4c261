//! The server of the page, from the first browser to the signal that ends it.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::super::html::{DAY, HtmlArguments, LiveTerms, PageSource, Span, now};
use super::board;
use super::connections::{ConnectionPlace, PageConnections};
use super::feed::{LiveFeed, LivePage};
use super::front::PageFront;
use super::gate::PageGate;
use super::redirect::{self, RedirectFile};
use crate::commands::approvals::terminal_needed;
use crate::commands::context::CommandContext;
use crate::failure::CommandError;
use colibri_text::visible;

/// The longest time for the head of a request, and between two requests of a connection.
const HEAD: Duration = Duration::from_secs(10);
/// The longest time of a connection that has not shown the cookie.
const STRANGER: Duration = Duration::from_secs(3);
/// The most bytes of a head.
const MAX_HEAD: usize = 16 * 1024;
/// The wait after a connection that could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// The time for the last word to those who listen.
const LAST_WORD: Duration = Duration::from_millis(300);
/// Orders that wait for the thread.
const MAX_ORDERS: usize = 64;

/// Serves the page until a signal ends it.
pub(crate) fn run(
    arguments: &HtmlArguments,
    every: Duration,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(serve(arguments, every, context))
}

async fn serve(
    arguments: &HtmlArguments,
    every: Duration,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let mut signals = EndingSignals::new()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let gate = PageGate::new(listener.local_addr()?.port())?;
    let span = Span {
        since: arguments.since.unwrap_or_else(|| now().saturating_sub(DAY)),
        until: u64::MAX,
    };
    let no_approval = terminal_needed(context);
    let terms = LiveTerms {
        secret: gate.page_secret().to_owned(),
        no_approval,
    };
    let source = PageSource::open(arguments, context, span, Some(terms))?;
    let (sender, page) = watch::channel(LivePage::default());
    let (orders, ordered) = sync_channel(MAX_ORDERS);
    let listeners = Arc::default();
    let feed = LiveFeed {
        source,
        span,
        period: now().saturating_sub(span.since),
        every,
        orders: ordered,
        listeners: Arc::clone(&listeners),
        page: sender,
    };
    feed.begin()?;
    let feed = std::thread::spawn(move || feed.run());
    let (watched, changes) = (context.clone(), orders.clone());
    std::thread::spawn(move || board::watch(&watched, &changes));

    let entrance = gate.entrance().unwrap_or_default();
    let mut file = Some(RedirectFile::write(&entrance)?);
    let (entered, mut was_entered) = watch::channel(false);
    invite(context, &gate, file.as_ref())?;
    let front = Arc::new(PageFront {
        gate,
        page,
        orders,
        listeners,
        entered,
        ending: watch::Sender::new(false),
        may_approve: no_approval.is_none(),
    });
    let connections = Arc::new(PageConnections::default());
    loop {
        tokio::select! {
            status = signals.next() => {
                drop(file);
                front.ending.send_replace(true);
                sleep(LAST_WORD).await;
                return Ok(status);
            }
            _ = was_entered.changed(), if file.is_some() => {
                // The token is of no more use.
                file = None;
                context.tell("The page was opened. Ctrl-C ends it.")?;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    accept(&front, &connections, stream);
                    // Its task has its turn, or a burst would push it out before anything of it was
                    // read.
                    yield_now().await;
                }
                Err(_) => sleep(ACCEPT_AGAIN).await,
            },
        }
        if feed.is_finished() {
            return Err(CommandError::Machine(
                "the thread that reads trail and daemon has ended".to_owned(),
            ));
        }
    }
}

/// Shows the person where the page is, and has a browser open it.
fn invite(
    context: &CommandContext,
    gate: &PageGate,
    file: Option<&RedirectFile>,
) -> Result<(), CommandError> {
    let Some(path) = file.map(RedirectFile::path) else {
        return Ok(());
    };
    let shown = path.display().to_string();
    let opened = match redirect::open(path) {
        Ok(program) => format!(
            "{} opens it. Or open this file in another browser of yours",
            visible(&program)
        ),
        Err(why) => format!(
            "No browser could be started ({}). Open this file in yours",
            visible(&why.to_string())
        ),
    };
    context.answer(
        &serde_json::json!({ "address": gate.host(), "file": shown }),
        &format!(
            "The page is served on {} while this runs. {opened}, once:\n\n  {}\n",
            gate.host(),
            visible(&shown)
        ),
    )
}

/// Serves a connection, which has little time until it shows the cookie.
fn accept(front: &Arc<PageFront>, connections: &Arc<PageConnections>, stream: TcpStream) {
    let place = connections.place();
    let number = place.number();
    let task = tokio::spawn(speak(front.clone(), Arc::new(place), stream));
    connections.serve(number, task.abort_handle());
}

async fn speak(front: Arc<PageFront>, place: Arc<ConnectionPlace>, stream: TcpStream) {
    let service = service_fn(|request| {
        let (front, place) = (front.clone(), place.clone());
        async move { Ok::<_, Infallible>(front.answer(&place, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // It is gone, or sent what is no request.
        _ = connection.as_mut() => return,
        () = sleep(STRANGER) => {}
    }
    if place.is_known() {
        let _ = connection.await;
    }
}

/// The signals that end the server.
struct EndingSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl EndingSignals {
    fn new() -> Result<EndingSignals, CommandError> {
        Ok(EndingSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The exit status of the next one. To be interrupted is how a person ends it.
    async fn next(&mut self) -> ExitCode {
        tokio::select! {
            _ = self.interrupt.recv() => ExitCode::SUCCESS,
            _ = self.terminate.recv() => ExitCode::from(128 + 15),
            _ = self.hang_up.recv() => ExitCode::from(128 + 1),
        }
    }
}
