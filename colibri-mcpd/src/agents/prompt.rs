//! The work of an instance: a prompt as a task, and a task as a line on its standard input.

use anyhow::bail;
use colibri_api::{NewTask, Task, TaskLimits, TaskStatus};
use colibri_text::brief;
use serde_json::json;

use crate::board::origin;
use colibri_store::{MAX_DESCRIPTION, MAX_TITLE, PRIORITY_DEFAULT};

/// The source of the tasks that prompts become.
const SOURCE: &str = "prompt";
/// The prompt of an instance that has no task yet.
const NEXT: &str = "Call colibri_next_task, do what it says, and end with colibri_finish_task.";

/// The task that a prompt becomes.
///
/// # Errors
/// It is empty, or too long.
pub(super) fn task_of(prompt: &str, uid: u32) -> anyhow::Result<NewTask> {
    let first = prompt.trim().lines().next().unwrap_or_default();
    let length = prompt.chars().count();
    if first.is_empty() {
        bail!("the prompt is empty");
    }
    if length > MAX_DESCRIPTION {
        bail!(
            "the prompt has {length} characters, of which {MAX_DESCRIPTION} are allowed: put the long text into a file \
             that the agent can read, and name that file in the prompt"
        );
    }
    Ok(NewTask {
        title: brief(first, MAX_TITLE),
        description: prompt.to_owned(),
        source: SOURCE.to_owned(),
        status: TaskStatus::Queued,
        required_capabilities: Vec::new(),
        priority: PRIORITY_DEFAULT,
        created_by: uid,
        share: None,
        limits: TaskLimits {
            by_person: true,
            ..TaskLimits::default()
        },
    })
}

/// The line written to the standard input of an instance that runs for `person`: one line, as `zot
/// rpc` reads it.
pub(super) fn prompt_line(session: &str, person: u32, task: Option<&Task>) -> Vec<u8> {
    let message = match task {
        None => NEXT.to_owned(),
        Some(task @ Task { id, said, .. }) => {
            let origin = origin(task, person).map(|origin| format!(" ({origin})"));
            let what = match said.description.trim() {
                "" => said.title.clone(),
                description if description.starts_with(said.title.trim()) => description.to_owned(),
                description => format!("{}\n\n{description}", said.title),
            };
            format!(
                "{what}\n\nThis is task {id}{}: call colibri_next_task to take it, and end with colibri_finish_task, or with \
                 colibri_fail_task and the reason.",
                origin.unwrap_or_default()
            )
        }
    };
    let line = json!({ "id": session, "type": "prompt", "message": message });
    format!("{line}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_becomes_a_task_and_a_task_one_line() {
        let new = task_of("Fix the build.\nIt fails on arm.", 7).unwrap();
        assert!(
            task_of(" \n", 7).is_err() && task_of(&"x".repeat(MAX_DESCRIPTION + 1), 7).is_err()
        );
        assert_eq!(
            (new.title.as_str(), new.created_by, new.status),
            ("Fix the build.", 7, TaskStatus::Queued)
        );
        let task = Task {
            id: 12,
            said: new,
            ..serde_json::from_value(json!({
                "id": 0, "title": "", "description": "", "source": "", "status": "queued", "required_capabilities": [],
                "priority": 0, "created_by": 0, "created_at": 0, "updated_at": 0, "claim": 0, "claimed_by": null,
                "claimed_session": null, "lease_until": null, "for_session": null, "attempts": 0, "reason": null,
                "waiting": null, "started_at": null, "ended_at": null,
            }))
            .unwrap()
        };
        let line = prompt_line("0123456789abcdef", 7, Some(&task));
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let read: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            (&read["type"], &read["id"]),
            (&json!("prompt"), &json!("0123456789abcdef"))
        );
        let message = read["message"].as_str().unwrap();
        assert!(
            message.starts_with("Fix the build.\nIt fails on arm.\n"),
            "{message}"
        );
        assert!(
            message.contains("task 12:") && message.contains("colibri_finish_task"),
            "{message}"
        );
        let others = String::from_utf8(prompt_line("0", 8, Some(&task))).unwrap();
        assert!(
            others.contains("task 12 (from ") && others.contains("uid 7)"),
            "{others}"
        );
        let next = prompt_line("0", 7, None);
        assert!(
            String::from_utf8(next)
                .unwrap()
                .contains("colibri_next_task")
        );
    }
}
