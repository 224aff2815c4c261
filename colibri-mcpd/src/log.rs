//! Logging: one line an event, to standard error or to syslog.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use syslog::{Facility, Formatter3164, Logger, LoggerBackend};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Sends events of `level` and above to standard error, or to syslogd as `daemon`.
pub fn start(level: Level, to_syslog: bool) -> io::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false);
    let set = if to_syslog {
        let syslog = Syslog {
            logger: Arc::new(Mutex::new(Some(connect()?))),
        };
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
pub fn reach_syslogd() -> io::Result<()> {
    connect().map(drop)
}

fn connect() -> io::Result<SyslogLogger> {
    let formatter = Formatter3164 {
        facility: Facility::LOG_DAEMON,
        hostname: None,
        process: "colibri-mcpd".to_owned(),
        pid: std::process::id(),
    };
    syslog::unix(formatter).map_err(|error| io::Error::other(format!(
            "cannot reach syslogd: {error}; start it (service syslogd onestart), or leave --syslog out and read standard \
             error"
        )))
}

/// Writes each event to syslogd. The connection is made anew when syslogd was restarted; an event that still cannot be
/// sent goes to standard error.
struct Syslog {
    logger: Arc<Mutex<Option<SyslogLogger>>>,
}

/// One event.
struct Record {
    logger: Arc<Mutex<Option<SyslogLogger>>>,
    level: Level,
    line: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Record;

    fn make_writer(&'a self) -> Record {
        Record {
            logger: self.logger.clone(),
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
        let mut logger = self.logger.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for _ in 0..2 {
            if logger.is_none() {
                *logger = connect().ok();
            }
            let Some(open) = logger.as_mut() else { break };
            let sent = match self.level {
                Level::ERROR => open.err(line),
                Level::WARN => open.warning(line),
                Level::INFO => open.info(line),
                Level::DEBUG | Level::TRACE => open.debug(line),
            };
            if sent.is_ok() {
                return;
            }
            *logger = None;
        }
        // Nobody is left to tell if standard error fails too.
        let _ = writeln!(io::stderr(), "{line}");
    }
}
