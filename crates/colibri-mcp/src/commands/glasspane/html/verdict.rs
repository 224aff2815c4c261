//! The verdict of `trail verify`, in bounded form.

use serde::Serialize;

use super::names::NAME;
use colibri_text::brief;
use colibri_trail::{Report, TrailFault, TrailWitness};

/// The most faults and notes of the trail that are shown.
const MAX_FAULTS: usize = 20;

/// The verdict of `trail verify`.
#[derive(Debug, Serialize)]
pub(super) struct TrailVerdict {
    pub sound: bool,
    pub fault_count: u64,
    pub faults: Vec<String>,
    pub note_count: usize,
    pub notes: Vec<String>,
    pub records: u64,
    pub first_record: u64,
    pub segments: u64,
    pub checkpoints: u64,
    pub has_key: bool,
    pub head: String,
    pub root: Option<String>,
    pub promised: u64,
    pub witnessed: bool,
    pub vouched_by: Vec<TrailWitness>,
}

impl TrailVerdict {
    pub(super) fn of(report: Report, has_key: bool, witnessed: bool) -> TrailVerdict {
        let place = |fault: &TrailFault| {
            let segment = fault.segment.as_deref().unwrap_or("the whole trail");
            let line = fault
                .line
                .map_or_else(String::new, |line| format!(" line {line}"));
            brief(
                &format!("{segment}{line}: {}: {}", fault.kind, fault.what),
                4 * NAME,
            )
        };
        TrailVerdict {
            sound: report.is_sound(),
            fault_count: report.fault_count,
            faults: report.faults.iter().take(MAX_FAULTS).map(place).collect(),
            note_count: report.notes.len(),
            notes: (report.notes.iter().take(MAX_FAULTS))
                .map(|note| brief(note, 4 * NAME))
                .collect(),
            records: report.records,
            first_record: report.first_record,
            segments: report.segments,
            checkpoints: report.checkpoints,
            has_key,
            head: brief(&report.head, NAME),
            root: report.root,
            promised: report.promised_records,
            witnessed,
            vouched_by: report.vouched_by,
        }
    }
}
