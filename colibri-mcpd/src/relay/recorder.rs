//! Writes records.

use std::time::SystemTime;

use colibri_trail::{EventRecord, Trail, TrailError, TrailEvent, TrailRecord};

/// Writes records.
pub enum Recorder {
    /// To the trail.
    Trail(Trail),
    /// Nowhere: for benchmarks and simulations alone. No flag of the daemon leads here.
    Off,
}

impl Recorder {
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
