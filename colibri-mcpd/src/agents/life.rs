//! The life of an instance: its lines are read until its process ends, and it is ended when its
//! time has come.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use colibri_api::AgentState;
use colibri_text::hex;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use super::instance::{Ending, Instance, milliseconds};
use super::record_store::EventFileWriter;
use super::report::{self, AgentReport};
use crate::registry::AgentKind;
use crate::servers::{Stderr, StderrExcerpt};
use colibri_confine::SpawnedServer;
use colibri_peer::{Frame, FrameReader, aside};

/// The longest line that is an event.
const MAX_LINE: usize = 1 << 20;
/// The longest time for which the output of an ended instance is read to its end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Later than anybody looks.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Everything with which an instance is read.
pub(super) struct Life {
    pub instance: Arc<Instance>,
    /// The filter of its standard error.
    pub stderr: Stderr,
    pub excerpt: Arc<StderrExcerpt>,
    /// The file of its events.
    pub writer: EventFileWriter,
    /// The text written to its standard input, where that is a pipe.
    pub prompt: Option<Vec<u8>>,
}

impl Life {
    /// Reads the instance until it ends. Its process is gone when this returns. Returns the SHA-256
    /// of all its event lines, each with its end.
    pub(super) async fn run(self, spawned: SpawnedServer) -> String {
        let SpawnedServer {
            stdin,
            stdout,
            stderr,
            mut process,
        } = spawned;
        let instance = self.instance;
        let secrets = self.stderr.secrets.clone();
        let log = tokio::spawn(self.stderr.log(stderr));
        let mut reader = FrameReader::new(stdout, MAX_LINE);
        let mut ear = Ear {
            instance: instance.clone(),
            writer: self.writer,
            hash: Sha256::new(),
        };
        let mut writing = Box::pin(fed(stdin, self.prompt));
        let mut spent = Box::pin(sleep_until(
            instance
                .deadline()
                .unwrap_or_else(|| Instant::now() + NEVER),
        ));
        let mut open = true;
        let mut exit = None;
        let mut gone = process.wait();
        // Orders and limits come before what it writes: one that never stops writing is no
        // exception.
        loop {
            tokio::select! {
                biased;
                () = instance.ordered() => break,
                () = &mut spent => {
                    let minutes = instance.entry.budget.minutes.unwrap_or_default();
                    instance.end(Ending::Spent(format!("{minutes} minutes")));
                }
                ended = &mut gone => {
                    exit = Some(ended);
                    break;
                }
                () = &mut writing => {}
                more = reader.fill(), if open => {
                    open = more.unwrap_or(false);
                    ear.take(&mut reader);
                }
            }
        }
        drop(gone);
        if exit.is_some() && open {
            let _ = timeout(LAST_WORDS, async {
                while reader.fill().await.unwrap_or(false) {
                    ear.take(&mut reader);
                }
            })
            .await;
            ear.take(&mut reader);
        }
        // The end of its lifeline is the order to end.
        drop(writing);
        process.resume();
        let exit = match exit {
            Some(exit) => exit,
            // What it writes from now on is nobody's: it must not wait for it to be read.
            None => tokio::select! {
                biased;
                exit = process.wait() => exit,
                () = swallow(&mut reader) => process.wait().await,
            },
        };
        let _ = timeout(LAST_WORDS, log).await;
        instance.ended(
            exit,
            self.excerpt
                .get(&|text| secrets.redactor().redact(text).into_owned()),
        );
        hex(&ear.hash.finalize())
    }
}

/// The consumer of an instance's lines.
struct Ear {
    instance: Arc<Instance>,
    writer: EventFileWriter,
    /// Of all event lines.
    hash: Sha256,
}

impl Ear {
    /// Takes in everything that was read.
    fn take<R: AsyncRead + Unpin>(&mut self, reader: &mut FrameReader<R>) {
        aside(|| {
            let instance = self.instance.clone();
            let nothing = AgentKind::default();
            let kind = instance.entry.events.as_deref().unwrap_or(&nothing);
            let mut lines = Vec::new();
            let mut known = instance.known();
            while let Some(frame) = reader.pop() {
                let line = match frame {
                    Frame::Line(line) => line,
                    Frame::TooLong { .. } => {
                        known.skipped += 1;
                        continue;
                    }
                    // It is counted when it ends, if it does.
                    Frame::Endless { .. } => continue,
                };
                let Some(event) = report::event(&line) else {
                    known.skipped += 1;
                    continue;
                };
                known.told.hear(event, kind);
                known.events += 1;
                self.hash.update(&line);
                self.hash.update(b"\n");
                let now = SystemTime::now();
                known.last_event = Some((Instant::now(), now));
                line_of(&mut lines, known.events, now, &known.told, event.text());
                if instance
                    .entry
                    .budget
                    .events
                    .is_some_and(|most| known.events >= most)
                {
                    instance.end(Ending::Spent(format!("{} events", known.events)));
                    break;
                }
            }
            if !lines.is_empty() && !self.writer.add(&lines) {
                known.unkept = known.events;
            }
            // Who works on one thing over its standard input waits there for the next.
            if instance.entry.stdin == colibri_registry::Stdin::Pipe
                && known.told.state == AgentState::Done
            {
                instance.end(Ending::Done);
            }
        });
        self.instance.tell();
    }
}

/// An event as it is kept: `{"n":…,"at":…,"state":…,"event":…}`.
fn line_of(out: &mut Vec<u8>, n: u64, at: SystemTime, told: &AgentReport, event: &str) {
    let (at, state) = (milliseconds(at), told.state);
    out.extend_from_slice(
        format!("{{\"n\":{n},\"at\":{at},\"state\":\"{state}\",\"event\":").as_bytes(),
    );
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"}\n");
}

/// Writes what an instance is to do, and keeps its lifeline for as long as this is not dropped.
async fn fed(mut lifeline: Box<dyn AsyncWrite + Send + Unpin>, prompt: Option<Vec<u8>>) {
    if let Some(prompt) = prompt {
        // One that does not read it is not worth another word: its limits hold.
        let _ = lifeline.write_all(&prompt).await;
        let _ = lifeline.flush().await;
    }
    std::future::pending::<()>().await;
    drop(lifeline);
}

/// Reads to the end what nobody looks at.
async fn swallow<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>) {
    while reader.fill().await.unwrap_or(false) {
        while reader.pop().is_some() {}
    }
}
