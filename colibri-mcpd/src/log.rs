//! Logging: one line an event, to standard error or to syslog.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use syslog::{Facility, Formatter3164, Logger, LoggerBackend};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The most bytes of a log that is a file; what is older is in a second one.
const MAX_FILE: u64 = 1 << 20;

/// The destination of events.
pub(crate) enum To<'a> {
    /// Standard error.
    Stderr,
    /// syslogd, as `daemon`.
    Syslog,
    /// A file that stays within bounds.
    File(&'a Path),
}

/// Sends events of `level` and above there.
pub(crate) fn start(level: Level, to: &To<'_>) -> io::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false);
    let set = match to {
        To::Syslog => {
            reach_syslogd()?;
            let syslog = Syslog(Arc::new(Syslogd::new(Facility::LOG_DAEMON)));
            // syslogd notes time and level itself.
            let subscriber = builder
                .without_time()
                .with_level(false)
                .with_writer(syslog)
                .finish();
            tracing::subscriber::set_global_default(subscriber)
        }
        To::File(path) => {
            let file = Mutex::new(BoundedLogFile::open(path)?);
            tracing::subscriber::set_global_default(builder.with_writer(file).finish())
        }
        To::Stderr => {
            tracing::subscriber::set_global_default(builder.with_writer(io::stderr).finish())
        }
    };
    set.map_err(io::Error::other)
}

/// A file of at most [`MAX_FILE`] bytes. What would be too much begins it anew, and what was in it
/// is kept once.
struct BoundedLogFile {
    path: PathBuf,
    file: File,
    length: u64,
}

impl BoundedLogFile {
    fn open(path: &Path) -> io::Result<BoundedLogFile> {
        let file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        Ok(BoundedLogFile {
            path: path.to_owned(),
            length: file.metadata()?.len(),
            file,
        })
    }
}

impl Write for BoundedLogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.length > 0 && self.length + bytes.len() as u64 > MAX_FILE {
            let mut older = self.path.clone().into_os_string();
            older.push(".old");
            std::fs::rename(&self.path, older)?;
            *self = BoundedLogFile::open(&self.path)?;
        }
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

type SyslogLogger = Logger<LoggerBackend, Formatter3164>;

/// True if events can be sent to syslogd.
///
/// # Errors
/// They cannot: why, and what to do.
pub(crate) fn reach_syslogd() -> io::Result<()> {
    connect(Facility::LOG_DAEMON).map(drop)
}

fn connect(facility: Facility) -> io::Result<SyslogLogger> {
    let formatter = Formatter3164 {
        facility,
        hostname: None,
        process: "colibri-mcpd".to_owned(),
        pid: std::process::id(),
    };
    syslog::unix(formatter).map_err(|error| io::Error::other(format!(
            "cannot reach syslogd: {error}; start it (service syslogd onestart), or leave --syslog out and read standard \
             error"
        )))
}

/// The way to syslogd, made when something is sent first, and anew when syslogd was restarted.
pub(crate) struct Syslogd {
    facility: Facility,
    logger: Mutex<Option<SyslogLogger>>,
}

impl Syslogd {
    /// No connection yet.
    pub(crate) fn new(facility: Facility) -> Syslogd {
        Syslogd {
            facility,
            logger: Mutex::new(None),
        }
    }

    /// Sends something.
    ///
    /// # Errors
    /// Not even a new connection takes it.
    pub(crate) fn send(
        &self,
        send: impl Fn(&mut SyslogLogger) -> syslog::Result<()>,
    ) -> io::Result<()> {
        let mut slot = self.logger.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(logger) = slot.as_mut()
            && send(logger).is_ok()
        {
            return Ok(());
        }
        *slot = None;
        let mut logger = connect(self.facility)?;
        send(&mut logger).map_err(io::Error::other)?;
        *slot = Some(logger);
        Ok(())
    }
}

/// Writes each event to syslogd; one that cannot be sent goes to standard error.
struct Syslog(Arc<Syslogd>);

/// One event.
struct LogRecord {
    syslogd: Arc<Syslogd>,
    level: Level,
    line: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = LogRecord;

    fn make_writer(&'a self) -> LogRecord {
        LogRecord {
            syslogd: self.0.clone(),
            level: Level::INFO,
            line: Vec::new(),
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LogRecord {
        let mut record = self.make_writer();
        record.level = *metadata.level();
        record
    }
}

impl Write for LogRecord {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogRecord {
    fn drop(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let line = line.trim_end();
        let sent = self.syslogd.send(|logger| match self.level {
            Level::ERROR => logger.err(line),
            Level::WARN => logger.warning(line),
            Level::INFO => logger.info(line),
            Level::DEBUG | Level::TRACE => logger.debug(line),
        });
        if sent.is_ok() {
            return;
        }
        // Nobody is left to tell if standard error fails too.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_a_file_stays_within_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let line = [b'x'; 1000];
        for _ in 0..2 {
            let mut log = BoundedLogFile::open(&path).unwrap();
            for _ in 0..1500 {
                log.write_all(&line).unwrap();
            }
        }
        let sizes = ["log", "log.old"].map(|name| {
            std::fs::metadata(directory.path().join(name))
                .unwrap()
                .len()
        });
        assert!(sizes.iter().all(|size| *size <= MAX_FILE), "{sizes:?}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
