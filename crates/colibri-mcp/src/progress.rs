//! Signs of life of long work: a step that takes longer than a second says what it is, on standard
//! error.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use colibri_text::visible;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// The time for which a step may be silent.
const SILENCE: Duration = Duration::from_secs(1);
/// The time between two pictures of a step on a terminal.
const TICK: Duration = Duration::from_millis(100);

/// True if steps are events for a program, not lines for a person.
static AS_EVENTS: AtomicBool = AtomicBool::new(false);

/// Has steps written as JSON, a line each.
pub(crate) fn write_events() {
    AS_EVENTS.store(true, Ordering::Relaxed);
}

/// A step of a command's work, for as long as it is held.
#[derive(Debug)]
pub(crate) struct WorkStep {
    end: Option<Sender<()>>,
    display: Option<JoinHandle<()>>,
}

/// Begins a step, in words such as `installing 31 packages`.
pub(crate) fn step(what: impl Into<String>) -> WorkStep {
    let (what, (end, ended)) = (what.into(), mpsc::channel());
    let display = std::thread::spawn(move || {
        if ended.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
            display(&visible(&what), &ended);
        }
    });
    WorkStep {
        end: Some(end),
        display: Some(display),
    }
}

fn display(what: &str, ended: &Receiver<()>) {
    if AS_EVENTS.load(Ordering::Relaxed) {
        eprintln!("{}", json!({ "event": "progress", "step": what }));
    } else if io::stderr().is_terminal() {
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        // The other end says nothing: it is dropped.
        let _ = ended.recv();
        bar.finish_and_clear();
    } else {
        eprintln!("{what} …");
    }
}

impl Drop for WorkStep {
    fn drop(&mut self) {
        self.end.take();
        if let Some(display) = self.display.take() {
            // A display that panicked has shown what it could.
            let _ = display.join();
        }
    }
}
