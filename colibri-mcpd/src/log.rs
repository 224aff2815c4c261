//! Logging: one line an event, to standard error or to syslog.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use syslog::{Facility, Formatter3164, Logger, LoggerBackend};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Sends events of `level` and above to standard error, or to syslogd as `daemon`.
pub(crate) fn start(level: Level, to_syslog: bool) -> io::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false);
    let set = if to_syslog {
        reach_syslogd()?;
        let syslog = Syslog(Arc::new(Syslogd::new(Facility::LOG_DAEMON)));
        // syslogd notes time and level itself.
        let subscriber = builder.without_time().with_level(false).with_writer(syslog).finish();
        tracing::subscriber::set_global_default(subscriber)
    } else {
        tracing::subscriber::set_global_default(builder.with_writer(io::stderr).finish())
    };
    set.map_err(io::Error::other)
}

type SyslogLogger = Logger<LoggerBackend, Formatter3164>;

/// Whether events can be sent to syslogd.
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
    pub(crate) fn send(&self, send: impl Fn(&mut SyslogLogger) -> syslog::Result<()>) -> io::Result<()> {
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
struct Record {
    syslogd: Arc<Syslogd>,
    level: Level,
    line: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Record;

    fn make_writer(&'a self) -> Record {
        Record {
            syslogd: self.0.clone(),
            level: Level::INFO,
            line: Vec::new(),
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Record {
        let mut record = self.make_writer();
        record.level = *metadata.level();
        record
    }
}

impl Write for Record {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Record {
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
