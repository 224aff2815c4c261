//! OpenTelemetry: follows the trail and the metrics, and exports them over OTLP/HTTP.
//!
//! The trail is the queue. What a collector does not take now is read again later, from the
//! position that is stored after each batch; in memory there is one batch at most.

mod collector;
mod metrics;
mod spans;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::commands::context::CommandContext;
use crate::failure::CommandError;
use crate::{interrupt, records};
use colibri_files::replace_file;
use colibri_text::{counted, visible};
use colibri_trail::{RecordFilter, RecordReader, directory, utc};
use collector::{Collector, Outcome};
use spans::SpanTracker;

/// Spans of one request.
const BATCH: usize = 512;
/// The interval at which the trail is read.
const FOLLOW: Duration = Duration::from_millis(500);
/// The interval at which metrics are exported.
const METRICS_EVERY: Duration = Duration::from_secs(60);
/// Longest stored position, bytes.
const MAX_POSITION: u64 = 64 << 20;

/// The options of an export.
#[derive(Debug)]
pub(crate) struct ExportOptions {
    /// The collector's URL, without `/v1/traces`.
    pub(crate) endpoint: String,
    /// The daemon's state directory.
    pub(crate) state_dir: PathBuf,
    /// The file of the position.
    pub(crate) position: PathBuf,
    /// True if an export that never ran begins with the trail's first record, not with what is
    /// written next.
    pub(crate) all: bool,
    /// True if it ends with the trail's present end.
    pub(crate) once: bool,
    /// The daemon's metrics socket.
    pub(crate) metrics: Option<PathBuf>,
}

/// The position of an export in the trail, with what began before it and has not ended.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportPosition {
    /// The name of the trail's key.
    trail: String,
    /// The day before the last record, where reading begins.
    since: Option<String>,
    tracker: SpanTracker,
}

/// What an export did.
#[derive(Debug, Default)]
struct ExportCounts {
    spans: u64,
    dropped: u64,
    missing: u64,
}

impl ExportPosition {
    /// Reads the position in a file, if there is one.
    fn read(path: &Path, trail: &str) -> Result<Option<Self>, CommandError> {
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(file) if file.len() > MAX_POSITION => {
                return Err(Self::refused(path, "is too long"));
            }
            _ => fs::read_to_string(path).map_err(records::at(path))?,
        };
        let position: Self =
            serde_json::from_str(&text).map_err(|_| Self::refused(path, "is no position"))?;
        if position.trail != trail {
            return Err(Self::refused(path, "is the position in another trail"));
        }
        Ok(Some(position))
    }

    fn refused(path: &Path, what: &str) -> CommandError {
        let path = path.display();
        CommandError::Data(format!(
            "{path} {what}: remove it to begin anew, or name another with --position"
        ))
    }

    fn write(&self, path: &Path) -> Result<(), CommandError> {
        let text = serde_json::to_string(self).map_err(io::Error::from)?;
        replace_file(path, text.as_bytes(), 0o600).map_err(records::at(path))
    }
}

/// `otlp`: exports until it is told to end, or the trail's present end.
///
/// # Errors
/// The trail cannot be read, the position cannot be read or written, the endpoint is no URL, or,
/// with `once`, the collector does not take what there is.
pub(crate) fn export(
    options: &ExportOptions,
    context: &CommandContext,
) -> Result<(), CommandError> {
    interrupt::hold_back()?;
    let Some(key) = records::verifier(&options.state_dir)? else {
        let what = format!(
            "{} has no trail.pub, so no trail",
            options.state_dir.display()
        );
        return Err(CommandError::Data(what));
    };
    let mut collector = Collector::new(&options.endpoint, key.name())?;
    let dir = directory(&options.state_dir);
    let stored = ExportPosition::read(&options.position, key.name())?;
    let mut skipping = stored.is_none() && !options.all;
    let mut position = stored.unwrap_or_else(|| ExportPosition {
        trail: key.name().to_owned(),
        ..ExportPosition::default()
    });
    let filter = RecordFilter {
        since: position.since.clone(),
        ..RecordFilter::default()
    };
    let mut reader = RecordReader::new(&dir, filter);
    let mut counts = ExportCounts::default();
    let mut metrics_at = Instant::now();
    loop {
        let mut batch = Vec::new();
        let mut is_moved = false;
        let read = reader.read(&mut |record| {
            if record.n >= position.tracker.next {
                counts.missing += position.tracker.take(&key, &record, &mut batch);
                position.since = day_before(&record.fields.timestamp);
                is_moved = true;
                if skipping {
                    batch.clear();
                }
            }
            match batch.len() >= BATCH || interrupt::is_told() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let at_end = read.map_err(records::at(&dir))?.is_continue();
        if !batch.is_empty() {
            let count = batch.len() as u64;
            match collector.send_spans(batch, options.once) {
                Outcome::Taken { rejected } => {
                    counts.spans += count - rejected.min(count);
                    counts.dropped += rejected;
                }
                Outcome::Refused(why) => {
                    counts.dropped += count;
                    say(&format!(
                        "{} dropped: the collector refuses them: {why}",
                        counted(count, "span")
                    ));
                }
                Outcome::Away(why) => {
                    let what = format!(
                        "the collector takes nothing ({why}); nothing is lost, the next run goes on here"
                    );
                    return match options.once {
                        true => Err(CommandError::CollectorAway(what)),
                        // Told to end: the position stays where it was.
                        false => finish(context, &counts, Some(&what)),
                    };
                }
            }
        }
        if is_moved {
            position.write(&options.position)?;
        }
        if at_end {
            skipping = false;
        }
        if let Some(socket) = &options.metrics
            && (options.once && at_end || metrics_at.elapsed() >= METRICS_EVERY)
        {
            metrics_at = Instant::now();
            send_metrics(&mut collector, socket);
        }
        if interrupt::is_told() || options.once && at_end {
            return finish(context, &counts, None);
        }
        if at_end {
            std::thread::sleep(FOLLOW);
        }
    }
}

/// Exports the daemon's metrics as they are now. What is not taken is dropped: the next ones have
/// all of it.
fn send_metrics(collector: &mut Collector, socket: &Path) {
    let text = UnixStream::connect(socket).and_then(metrics::read);
    let outcome = match text {
        Ok(text) => collector.send_metrics(metrics::of_text(&text)),
        Err(error) => Outcome::Away(format!("{}: {error}", socket.display())),
    };
    if let Outcome::Refused(why) | Outcome::Away(why) = outcome {
        say(&format!("metrics of this minute dropped: {why}"));
    }
}

fn finish(
    context: &CommandContext,
    counts: &ExportCounts,
    why: Option<&str>,
) -> Result<(), CommandError> {
    let ExportCounts {
        spans,
        dropped,
        missing,
    } = counts;
    if let Some(why) = why {
        say(why);
    }
    if *missing > 0 {
        let what = format!(
            "{} of the trail were dropped by retention before they were read",
            counted(*missing, "record")
        );
        say(&what);
    }
    let facts =
        serde_json::json!({ "spans": spans, "dropped": dropped, "missing_records": missing });
    context.answer(
        &facts,
        &format!("{} exported, {dropped} dropped", counted(*spans, "span")),
    )
}

/// Prints what goes on, for a person.
fn say(text: &str) {
    eprintln!("colibri-mcp: {}", visible(text));
}

/// The day before a time of the trail: records near it may have earlier times.
fn day_before(timestamp: &str) -> Option<String> {
    let time: jiff::Timestamp = timestamp.parse().ok()?;
    let before = std::time::SystemTime::from(time).checked_sub(Duration::from_secs(86_400))?;
    Some(utc(before).date().to_string())
}
