//! A server's standard error: logged within bounds, its beginning and its end stored for the error
//! of a server that fails.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};
use tracing::info;

use crate::registry::secrets::SecretStore;
use colibri_peer::{Frame, FrameReader};

/// Bytes of a line that are looked at.
const MAX_LINE: usize = 4096;
/// Bytes of the beginning and of the end of it that an error shows: what a server says first, and
/// the last lines, in which a traceback has its reason.
const MAX_BEGINNING: usize = 512;
const MAX_END: usize = 1536;
/// In so much time go at most [`MAX_LINES`] lines and [`MAX_BYTES`] bytes to the log.
const PERIOD: Duration = Duration::from_secs(60);
const MAX_LINES: u32 = 200;
const MAX_BYTES: usize = 64 * 1024;

/// The part that may be logged of the standard error of those processes of a server that one user
/// has.
#[derive(Default)]
pub struct Allowance(Mutex<Period>);

#[derive(Default)]
struct Period {
    began: Option<Instant>,
    lines: u32,
    bytes: usize,
}

impl Allowance {
    /// True if a line of so many bytes may be logged.
    fn take(&self, bytes: usize) -> bool {
        let mut period = self.0.lock();
        let now = Instant::now();
        if period.began.is_none_or(|began| now >= began + PERIOD) {
            *period = Period {
                began: Some(now),
                ..Period::default()
            };
        }
        let bytes = period.bytes.saturating_add(bytes);
        if period.lines >= MAX_LINES || bytes > MAX_BYTES {
            return false;
        }
        period.lines += 1;
        period.bytes = bytes;
        true
    }
}

/// The beginning and the end of the standard error of a process, for who is told why it ended.
#[derive(Default)]
pub struct StderrExcerpt(Mutex<Excerpt>);

/// Lines as they were written. Secrets are taken out of whole lines, before anything is cut.
#[derive(Default)]
struct Excerpt {
    beginning: StderrLines,
    end: StderrLines,
    /// Lines between the two are dropped.
    has_gap: bool,
    withheld: bool,
    /// The number of lines that were read.
    read: u64,
}

#[derive(Default)]
struct StderrLines {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl StderrLines {
    fn push(&mut self, line: &[u8]) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line.into());
    }

    /// Drops the first lines while this many bytes are left without them. True if there were any.
    fn drop_first(&mut self, enough: usize) -> bool {
        let before = self.lines.len();
        while let Some(first) = self.lines.front()
            && self.bytes - (first.len() + 1) >= enough
        {
            self.bytes -= first.len() + 1;
            self.lines.pop_front();
        }
        self.lines.len() < before
    }

    fn text(&self, redact: &dyn Fn(&str) -> String) -> String {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|line| redact(&String::from_utf8_lossy(line)))
            .collect();
        lines.join("\n")
    }
}

/// The first bytes of a text that are shown, without a cut character.
fn first_of(text: &str) -> &str {
    let mut ends = (0..=MAX_BEGINNING.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
}

/// The last bytes of a text that are shown, without a cut character.
fn last_of(text: &str) -> &str {
    let mut starts = text.len().saturating_sub(MAX_END)..=text.len();
    starts
        .find_map(|start| text.get(start..))
        .unwrap_or_default()
}

impl StderrExcerpt {
    /// From now on there is none: the process gets calls of several users, and may repeat what one
    /// of them said.
    pub(super) fn withhold(&self) {
        let mut excerpt = self.0.lock();
        *excerpt = Excerpt {
            withheld: true,
            read: excerpt.read,
            ..Excerpt::default()
        };
    }

    /// The number of lines that were read so far.
    pub(super) fn lines(&self) -> u64 {
        self.0.lock().read
    }

    /// The text so far, on one line, without what `redact` removes.
    pub fn get(&self, redact: &dyn Fn(&str) -> String) -> Option<String> {
        let excerpt = self.0.lock();
        let (mut beginning, mut end) = (excerpt.beginning.text(redact), excerpt.end.text(redact));
        if !excerpt.has_gap {
            if !excerpt.end.lines.is_empty() {
                beginning = format!("{beginning}\n{end}");
            }
            end.clone_from(&beginning);
        }
        let text = match excerpt.has_gap || beginning.len() > MAX_BEGINNING + MAX_END {
            true => format!("{}\n[…]\n{}", first_of(&beginning), last_of(&end)),
            false => beginning,
        };
        (!text.trim_end().is_empty()).then(|| colibri_text::visible(text.trim_end()).into_owned())
    }

    fn add(&self, line: &[u8]) {
        let mut excerpt = self.0.lock();
        excerpt.read += 1;
        if excerpt.withheld {
            return;
        }
        if excerpt.beginning.bytes < MAX_BEGINNING {
            return excerpt.beginning.push(line);
        }
        excerpt.end.push(line);
        excerpt.has_gap |= excerpt.end.drop_first(MAX_END);
    }
}

/// The standard error of one process.
pub struct Stderr {
    /// The server's id.
    pub server: Arc<str>,
    /// The process id that the log shows.
    pub pid: u32,
    /// The secrets that are removed.
    pub secrets: Arc<SecretStore>,
    /// The part that may be logged.
    pub allowance: Arc<Allowance>,
    /// The stored tokens.
    pub excerpt: Arc<StderrExcerpt>,
}

/// The part of it that was not logged.
#[derive(Default)]
struct OmittedText {
    lines: u64,
    bytes: u64,
    since: Option<Instant>,
}

impl Stderr {
    /// Reads it to its end; logs a line an event, and how much was left out, at the end and once in
    /// a while.
    pub async fn log(self, stderr: impl AsyncRead + Unpin) {
        let mut reader = FrameReader::new(stderr, MAX_LINE);
        let mut left_out = OmittedText::default();
        loop {
            let more = match left_out.since {
                None => reader.fill().await,
                Some(since) => match timeout_at(since + PERIOD, reader.fill()).await {
                    Ok(more) => more,
                    Err(_) => {
                        self.tell(&mut left_out);
                        continue;
                    }
                },
            };
            while let Some(frame) = reader.pop() {
                match frame {
                    Frame::Line(line) => self.line(&line, &mut left_out),
                    Frame::TooLong { length, .. } => {
                        if self.may_log(length, MAX_LINE, &mut left_out) {
                            info!(
                                server = &*self.server,
                                pid = self.pid,
                                "stderr: a line of {length} bytes"
                            );
                        }
                    }
                    Frame::Endless { .. } => {}
                }
            }
            if !more.unwrap_or(false) {
                return self.tell(&mut left_out);
            }
        }
    }

    fn line(&self, line: &[u8], left_out: &mut OmittedText) {
        self.excerpt.add(line);
        if self.may_log(line.len() as u64, line.len(), left_out) {
            let text = String::from_utf8_lossy(line);
            let text = self.secrets.redactor().redact(&text);
            info!(
                server = &*self.server,
                pid = self.pid,
                "stderr: {}",
                colibri_text::visible(&text)
            );
        }
    }

    /// True if a line of `length` bytes may be logged, which costs `bytes`. If not it is counted.
    fn may_log(&self, length: u64, bytes: usize, left_out: &mut OmittedText) -> bool {
        let may = self.allowance.take(bytes);
        if !may {
            left_out.lines += 1;
            left_out.bytes += length;
            left_out.since.get_or_insert_with(Instant::now);
        }
        if left_out
            .since
            .is_some_and(|since| since.elapsed() >= PERIOD)
        {
            self.tell(left_out);
        }
        may
    }

    /// Logs how much was left out, if anything was.
    fn tell(&self, left_out: &mut OmittedText) {
        let OmittedText { lines, bytes, .. } = std::mem::take(left_out);
        if lines > 0 {
            let seconds = PERIOD.as_secs();
            info!(
                server = &*self.server,
                pid = self.pid,
                "stderr: {lines} lines more, of {bytes} bytes, are left out: at most {MAX_LINES} lines and {MAX_BYTES} \
                 bytes are logged in {seconds} s"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_much_may_be_logged_in_each_period() {
        let allowance = Allowance::default();
        let lines = (0..10_000).filter(|_| allowance.take(10)).count();
        assert_eq!(lines, MAX_LINES as usize);
        tokio::time::advance(PERIOD).await;
        let lines = (0..10_000)
            .filter(|_| allowance.take(MAX_BYTES / 4))
            .count();
        assert_eq!(lines, 4);
    }

    fn of<'a>(lines: impl IntoIterator<Item = &'a str>) -> StderrExcerpt {
        let excerpt = StderrExcerpt::default();
        lines
            .into_iter()
            .for_each(|line| excerpt.add(line.as_bytes()));
        excerpt
    }

    fn plain(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn beginning_and_end_are_stored_and_can_be_withheld() {
        assert_eq!(of([]).get(&plain), None);
        assert_eq!(
            of(["", "a\u{1b}b", ""]).get(&plain).unwrap(),
            "\\na\\u{1b}b"
        );
        // A traceback: its reason is its last line.
        let frame = format!("  File \"x.py\", line 7, in {}", "f".repeat(60));
        let mut lines = vec!["Traceback (most recent call last):"];
        lines.extend(std::iter::repeat_n(&*frame, 200));
        lines.push("ModuleNotFoundError: No module named 'mcp'");
        let excerpt = of(lines);
        let text = excerpt.get(&plain).unwrap();
        assert!(
            text.starts_with("Traceback") && text.ends_with("No module named 'mcp'"),
            "{text}"
        );
        assert!(
            text.contains("[…]") && text.len() < 2 * (MAX_BEGINNING + MAX_END),
            "{}",
            text.len()
        );
        let stored = excerpt.0.lock();
        assert!(stored.beginning.bytes + stored.end.bytes < MAX_BEGINNING + MAX_END + 2 * 100);
        drop(stored);
        excerpt.withhold();
        excerpt.add(b"what another user said");
        assert_eq!(excerpt.get(&plain), None);
    }

    #[test]
    fn what_is_short_is_whole_and_a_secret_at_a_cut_is_taken_out() {
        let lines: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let text = of(lines.iter().map(String::as_str)).get(&plain).unwrap();
        assert_eq!(text, lines.join("\\n"));
        let redact = |text: &str| text.replace("hunter2-hunter2", "[secret]");
        for filling in 0..600 {
            let long = format!("{}hunter2-hunter2", "x".repeat(filling));
            let text = of([&*long, &long, "y"]).get(&redact).unwrap();
            assert!(
                !text.contains("hunter") && text.ends_with('y'),
                "{filling}: {text}"
            );
        }
        // Cut between characters.
        for shift in 0..4 {
            let line = format!("{}{}", "x".repeat(shift), "\u{1f426}".repeat(900));
            assert!(of([&*line, &line, &line]).get(&plain).is_some());
        }
    }
}
