//! Errors of the store, as callers are told of them.

use colibri_protocol::{Code, Failure};
use colibri_store::{StoreError, TaskRefusal};

use super::arguments::ArgumentError;

/// What a caller is told of an error of the store.
pub(crate) fn store_failure(error: StoreError) -> Failure {
    match error {
        StoreError::Cursor(cursor) => ArgumentError(cursor.to_string()).into(),
        StoreError::Task(refusal) => {
            let failure = Failure::new(Code::TaskRefused, refusal.to_string());
            match refusal {
                TaskRefusal::Missing(_) => {
                    failure.advising("find its number with colibri_list_tasks")
                }
                TaskRefusal::NoSchedule(_) => {
                    failure.advising("list your schedules with colibri_schedule_task")
                }
                _ => failure,
            }
        }
        StoreError::Timing(why) => ArgumentError(why).into(),
        StoreError::Schedules => {
            Failure::new(Code::TaskRefused, error.to_string()).advising("delete schedules first")
        }
        StoreError::Unrecorded(why) => Failure::new(Code::TrailUnavailable, why),
        StoreError::Full | StoreError::OpenTasks(_) => {
            Failure::new(Code::TaskRefused, error.to_string())
                .advising("finish or cancel tasks first")
        }
        error => Failure::new(Code::StoreUnavailable, error.to_string()),
    }
}
