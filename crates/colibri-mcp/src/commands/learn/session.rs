//! An observed session: this program between a client, on standard input and output, and the server
//! below its tracer.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use colibri_files::{LineBuffer, LinePiece, each_line};
use colibri_text::visible;
use parking_lot::Mutex;
use serde_json::json;

use super::learned_server::LearnedServer;
use super::messages::MessageReader;
use super::observation::{NamedThings, Observation, SessionNotes};
use super::program;
use super::tracer::{TracedServer, kill_traced, read_trace};
use crate::connection::MAX_LINE;
use crate::failure::CommandError;
use crate::interrupt;

/// The time that a server has to end by itself once its input has ended.
const GRACE: Duration = Duration::from_secs(1);
/// Between two looks at a session.
const PAUSE: Duration = Duration::from_millis(20);
/// The most bytes of recorded arguments.
const MAX_RECORD: u64 = 16 * 1024 * 1024;

/// Runs a session to its end; what was seen in it.
///
/// # Errors
/// The server or its tracer cannot be started, or the tracer reports nothing.
pub(super) fn observe(
    learned: &LearnedServer,
    input: impl io::Read + Send + 'static,
    output: impl Write + Send + 'static,
    record: Option<File>,
) -> Result<Observation, CommandError> {
    let mut named = NamedThings::of(&learned.home);
    let script = program::script(learned.words.get(1..).unwrap_or_default());
    for (number, word) in learned.words.iter().enumerate().skip(1) {
        // The program is no work of a person's.
        if script == Some(Path::new(word)) {
            continue;
        }
        named.take(word, &format!("argument {number} of the command"));
    }
    let own = ["PATH", "HOME", "LANG"];
    let given: Vec<&(String, String)> = learned
        .variables
        .iter()
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .collect();
    for (name, value) in &given {
        named.take(value, &format!("the variable {name}"));
    }
    if learned.directory != Path::new("/") {
        named.take(
            &learned.directory.to_string_lossy(),
            "its working directory",
        );
    }
    let seen = Observation {
        server: learned.id.clone(),
        sessions: 1,
        command: learned.words.clone(),
        from: learned.from.clone(),
        variables: given.iter().map(|(name, _)| name.clone()).collect(),
        directory: learned.directory.clone(),
        home: learned.home.clone(),
        programs: program::directories(&learned.words),
        ..Observation::default()
    };
    let notes = Arc::new(Mutex::new(SessionNotes { seen, named }));
    let ends = Arc::new(AtomicBool::new(false));
    let messages = Arc::new(Mutex::new(MessageReader::default()));
    let mut server = TracedServer::start(&learned.words, &learned.variables, &learned.directory)?;
    let trace = server.trace()?;
    let (to, from) = (server.child.stdin.take(), server.child.stdout.take());
    let (Some(to), Some(from)) = (to, from) else {
        return Err(CommandError::Machine("the server has no pipes".to_owned()));
    };
    let tracing = {
        let (notes, ends, start) = (
            Arc::clone(&notes),
            Arc::clone(&ends),
            learned.directory.clone(),
        );
        std::thread::spawn(move || read_trace(trace, start, &notes, &ends))
    };
    let input_ended = Arc::new(AtomicBool::new(false));
    {
        let (notes, messages, ended) = (
            Arc::clone(&notes),
            Arc::clone(&messages),
            Arc::clone(&input_ended),
        );
        let mut record = record.map(|file| CallRecorder { file, written: 0 });
        // It waits for a client that may never say anything again, and ends with this process.
        std::thread::spawn(move || {
            relay(input, to, |line| {
                let mut notes = notes.lock();
                let SessionNotes { seen, named } = &mut *notes;
                let call = messages.lock().client(line, seen, named);
                if let (Some((tool, arguments)), Some(record)) = (call, &mut record) {
                    record.write(&tool, &arguments);
                }
            });
            ended.store(true, Ordering::Relaxed);
        });
    }
    let answering = {
        let (notes, messages) = (Arc::clone(&notes), Arc::clone(&messages));
        std::thread::spawn(move || {
            relay(from, output, |line| {
                // In the order of the other direction: neither waits for the other.
                let mut notes = notes.lock();
                messages.lock().server(line, &mut notes.seen);
            });
        })
    };
    let mut until = None;
    while !tracing.is_finished() {
        std::thread::sleep(PAUSE);
        let is_over =
            input_ended.load(Ordering::Relaxed) || interrupt::is_told() || answering.is_finished();
        if is_over && until.is_none() {
            until = Some(Instant::now() + GRACE);
        }
        if until.is_some_and(|until| Instant::now() > until) {
            ends.store(true, Ordering::Relaxed);
        }
        if ends.load(Ordering::Relaxed) {
            kill_traced(&server);
        }
    }
    let _ = tracing.join();
    let _ = server.child.wait();
    // A server that has ended its tracer may still be there, and hold its output open.
    let until = Instant::now() + GRACE;
    while (kill_traced(&server) || !answering.is_finished()) && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
    let mut notes = notes.lock();
    if notes.seen.processes == 0 && notes.seen.escapes.is_empty() {
        return Err(CommandError::Machine(
            "the tracer has reported nothing of the server: nothing was learned".to_owned(),
        ));
    }
    Ok(std::mem::take(&mut notes.seen))
}

/// Copies lines, each of which `note` sees first, until either side ends.
fn relay(mut from: impl io::Read, mut to: impl Write, mut note: impl FnMut(&[u8])) {
    let mut lines = LineBuffer::new(MAX_LINE);
    loop {
        let length = match lines.read(&mut from) {
            Ok(LinePiece::Lines(piece)) => {
                each_line(piece).for_each(|(_, line)| note(line));
                if to.write_all(piece).and_then(|()| to.flush()).is_err() {
                    return;
                }
                piece.len()
            }
            Ok(LinePiece::Nothing) => 0,
            Ok(LinePiece::TooLong(_)) => {
                eprintln!("colibri-mcp: a message of more than 16 MiB was not passed on");
                0
            }
            Ok(LinePiece::End(_)) | Err(_) => return,
        };
        lines.consume(length);
    }
}

/// The file of calls with their arguments.
struct CallRecorder {
    file: File,
    written: u64,
}

impl CallRecorder {
    fn write(&mut self, tool: &str, arguments: &serde_json::Value) {
        let line = format!("{}\n", json!({ "tool": tool, "arguments": arguments }));
        self.written += line.len() as u64;
        if self.written > MAX_RECORD {
            return;
        }
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            eprintln!(
                "colibri-mcp: a call was not recorded: {}",
                visible(&error.to_string())
            );
        }
    }
}

/// Opens the file of a server's calls, for its user alone; calls are added to it.
///
/// # Errors
/// The system's.
pub(super) fn open_record(path: &Path) -> Result<File, CommandError> {
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).mode(0o600).open(path);
    opened.map_err(|source| CommandError::File {
        path: path.to_owned(),
        source,
    })
}
