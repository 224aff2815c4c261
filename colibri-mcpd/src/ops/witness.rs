//! The witness of the trail's heads: syslogd, whose files belong to root and may be on another machine.

use std::io;
use std::sync::{Mutex, PoisonError};

use colibri_trail::{Head, Witness};

/// Hands heads to the local syslogd, facility `auth`, level `notice`.
#[derive(Default)]
pub struct SyslogWitness {
    logger: Mutex<Option<syslog::Logger<syslog::LoggerBackend, syslog::Formatter3164>>>,
}

impl SyslogWitness {
    /// A witness that connects when the first head comes, and again whenever syslogd went away.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Witness for SyslogWitness {
    fn witness(&self, head: &Head) -> io::Result<()> {
        let mut slot = self.logger.lock().unwrap_or_else(PoisonError::into_inner);
        // A syslogd that was restarted has a new socket: one failure is answered by connecting once more.
        if let Some(logger) = slot.as_mut()
            && logger.notice(head).is_ok()
        {
            return Ok(());
        }
        *slot = None;
        let formatter = syslog::Formatter3164 {
            facility: syslog::Facility::LOG_AUTH,
            hostname: None,
            process: "colibri-mcpd".into(),
            pid: std::process::id(),
        };
        let mut logger = syslog::unix(formatter).map_err(io::Error::other)?;
        logger.notice(head).map_err(io::Error::other)?;
        *slot = Some(logger);
        Ok(())
    }
}
