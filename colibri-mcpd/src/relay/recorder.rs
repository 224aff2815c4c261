//! Writes records.

use std::time::SystemTime;

use colibri_trail::{EventName, EventRecord, Trail, TrailError, TrailRecord};

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
    pub fn event(&self, event: EventName, details: &[(&str, colibri_trail::Detail<'_>)]) -> Result<(), TrailError> {
        match self {
            Recorder::Off => Ok(()),
            Recorder::Trail(trail) => trail
                .append([TrailRecord::Event(EventRecord {
                    time: SystemTime::now(),
                    event: event.name(),
                    details,
                })])
                .map(drop),
        }
    }
}
