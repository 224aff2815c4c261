//! Writes records.

use std::time::SystemTime;

use colibri_protocol::MetaRecord;
use colibri_trail::{EventRecord, Trail, TrailError, TrailEvent, TrailRecord};

/// Writes records.
pub enum Recorder {
    /// To the trail.
    Trail(Trail),
    /// Nowhere: for benchmarks and simulations alone. No flag of the daemon leads here.
    Off,
}

impl Recorder {
    /// The way in which another trail names the record of this number; `None`: there is none.
    pub fn reference(&self, number: u64) -> Option<MetaRecord> {
        match self {
            Recorder::Trail(trail) if number > 0 => Some(MetaRecord {
                origin: trail.verifier().name().into(),
                n: number,
            }),
            _ => None,
        }
    }

    /// Records something that is not a call.
    ///
    /// # Errors
    /// It could not be written.
    pub fn event(&self, event: TrailEvent<'_>) -> Result<(), TrailError> {
        match self {
            Recorder::Off => Ok(()),
            Recorder::Trail(trail) => append_event(trail, event),
        }
    }
}

/// Appends an event of now.
///
/// # Errors
/// It could not be written.
pub(super) fn append_event(trail: &Trail, event: TrailEvent<'_>) -> Result<(), TrailError> {
    let record = TrailRecord::Event(EventRecord {
        time: SystemTime::now(),
        event: event.name(),
        details: &event.details(),
    });
    trail.append([record]).map(drop)
}
