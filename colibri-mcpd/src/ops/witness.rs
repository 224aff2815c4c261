//! The witness of the trail's heads: syslogd, whose files belong to root and may be on another
//! machine.

use std::io;

use colibri_trail::{TrailHead, Witness};
use syslog::Facility;

use crate::log::Syslogd;

/// Hands heads to the local syslogd, facility `auth`, level `notice`.
pub(crate) struct SyslogWitness(Syslogd);

impl SyslogWitness {
    /// A witness that connects when the first head comes.
    pub(crate) fn new() -> Self {
        Self(Syslogd::new(Facility::LOG_AUTH))
    }
}

impl Witness for SyslogWitness {
    fn witness(&self, head: &TrailHead) -> io::Result<()> {
        self.0.send(|logger| logger.notice(head))
    }
}
