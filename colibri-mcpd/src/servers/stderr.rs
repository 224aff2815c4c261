//! A server's standard error: logged within bounds, and its first words kept for the error of a server that fails.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};
use tracing::info;

use crate::peer::{Frame, FrameReader};
use crate::registry::secrets::Secrets;

/// Bytes of a line that are looked at.
const MAX_LINE: usize = 4096;
/// Bytes of the first words that are kept.
const MAX_WORDS: usize = 512;
/// In so much time go at most [`MAX_LINES`] lines and [`MAX_BYTES`] bytes to the log.
const PERIOD: Duration = Duration::from_secs(60);
const MAX_LINES: u32 = 200;
const MAX_BYTES: usize = 64 * 1024;

/// What may go to the log of the standard error of those processes of a server that one user has.
#[derive(Default)]
pub struct Allowance(Mutex<Period>);

#[derive(Default)]
struct Period {
    began: Option<Instant>,
    lines: u32,
    bytes: usize,
}

impl Allowance {
    /// Whether a line of so many bytes may be logged.
    fn take(&self, bytes: usize) -> bool {
        let mut period = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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

/// The first words of a process, for who is told why it ended.
#[derive(Default)]
pub struct FirstWords(Mutex<Words>);

#[derive(Default)]
struct Words {
    text: Vec<u8>,
    withheld: bool,
}

impl FirstWords {
    fn words(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// From now on there are none: the process gets calls of several users, and may repeat what one of them said.
    pub(super) fn withhold(&self) {
        *self.words() = Words {
            text: Vec::new(),
            withheld: true,
        };
    }

    /// What there is, on one line.
    pub fn get(&self) -> Option<String> {
        let words = self.words();
        let text = String::from_utf8_lossy(&words.text);
        (!text.trim_end().is_empty()).then(|| colibri_text::visible(text.trim_end()).into_owned())
    }

    fn is_full(&self) -> bool {
        let words = self.words();
        words.withheld || words.text.len() >= MAX_WORDS
    }

    fn add(&self, line: &str) {
        let mut words = self.words();
        if words.withheld {
            return;
        }
        let room = MAX_WORDS.saturating_sub(words.text.len());
        words.text.extend_from_slice(&line.as_bytes()[..line.len().min(room)]);
        if words.text.len() < MAX_WORDS {
            words.text.push(b'\n');
        }
    }
}

/// The standard error of one process.
pub struct Stderr {
    /// The server's id.
    pub server: Arc<str>,
    /// Whose process id the log shows.
    pub pid: u32,
    /// Whose values are taken out.
    pub secrets: Arc<Secrets>,
    /// What may be logged.
    pub allowance: Arc<Allowance>,
    /// What is kept.
    pub words: Arc<FirstWords>,
}

/// What of it was not logged.
#[derive(Default)]
struct LeftOut {
    lines: u64,
    bytes: u64,
    since: Option<Instant>,
}

impl Stderr {
    /// Reads it to its end; logs a line an event, and how much was left out, at the end and once in a while.
    pub async fn log(self, stderr: impl AsyncRead + Unpin) {
        let mut reader = FrameReader::new(stderr, MAX_LINE);
        let mut left_out = LeftOut::default();
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

    fn line(&self, line: &[u8], left_out: &mut LeftOut) {
        let may_log = self.may_log(line.len() as u64, line.len(), left_out);
        if !may_log && self.words.is_full() {
            return;
        }
        let text = String::from_utf8_lossy(line);
        let text = self.secrets.redactor().redact(&text).into_owned();
        self.words.add(&text);
        if may_log {
            info!(
                server = &*self.server,
                pid = self.pid,
                "stderr: {}",
                colibri_text::visible(&text)
            );
        }
    }

    /// Whether a line of `length` bytes may be logged, which costs `bytes`. If not it is counted.
    fn may_log(&self, length: u64, bytes: usize, left_out: &mut LeftOut) -> bool {
        let may = self.allowance.take(bytes);
        if !may {
            left_out.lines += 1;
            left_out.bytes += length;
            left_out.since.get_or_insert_with(Instant::now);
        }
        if left_out.since.is_some_and(|since| since.elapsed() >= PERIOD) {
            self.tell(left_out);
        }
        may
    }

    /// Logs how much was left out, if anything was.
    fn tell(&self, left_out: &mut LeftOut) {
        let LeftOut { lines, bytes, .. } = std::mem::take(left_out);
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
        let lines = (0..10_000).filter(|_| allowance.take(MAX_BYTES / 4)).count();
        assert_eq!(lines, 4);
    }

    #[test]
    fn first_words_are_few_and_can_be_withheld() {
        let words = FirstWords::default();
        assert_eq!(words.get(), None);
        for _ in 0..1000 {
            words.add("a\u{1b}b");
        }
        let kept = words.get().unwrap();
        assert!(kept.starts_with("a\\u{1b}b\\na") && words.is_full(), "{kept}");
        assert!(words.words().text.len() <= MAX_WORDS);
        words.withhold();
        words.add("what another user said");
        assert_eq!(words.get(), None);
    }
}
