//! The definitions of the tools.

use serde_json::{Value, json};

use super::names::{
    COMMIT_PATTERN, MAX_COUNT, MAX_LINES, MAX_MESSAGE, MAX_PATH, MAX_PATHS, MAX_SLUG, SLUG_PATTERN,
};
use crate::integration::tool_call_error::output_schema;

/// All of them.
pub(super) fn list() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let slug = json!({ "type": "string", "pattern": SLUG_PATTERN, "maxLength": MAX_SLUG,
        "description": "The worktree's name: .worktrees/claude/SLUG, on the branch feature/SLUG" });
    let sha = text("The commit that the branch is at");
    let branch = text("The branch");
    let truncated = json!({ "type": "boolean", "description": "Whether there is more" });
    let tool = |name: &str,
                about: &str,
                input: Value,
                required: &[&str],
                output: Value,
                hints: [bool; 3]| {
        let all: Vec<&str> = output
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| &**key)
            .collect();
        let [reads, again, open] = hints;
        // They may discard what is not committed.
        let loses = matches!(name, "git_worktree_remove" | "git_update");
        json!({
            "name": name,
            "description": about,
            "inputSchema": { "type": "object", "properties": input, "required": required, "additionalProperties": false },
            "outputSchema": output_schema(output.clone(), &all),
            "annotations": { "readOnlyHint": reads, "destructiveHint": loses, "idempotentHint": again, "openWorldHint": open },
        })
    };
    let one = |about: &str| json!({ "type": "string", "minLength": 1, "maxLength": MAX_MESSAGE, "description": about });
    let path = json!({ "type": "string", "minLength": 1, "maxLength": MAX_PATH });
    let paths = json!({ "type": "array", "maxItems": MAX_PATHS, "items": path, "description": "Of these files and directories alone" });
    let conflicts = "Each with path and kind";
    let objects = |about: &str| json!({ "type": "array", "items": { "type": "object" }, "description": about });
    json!([
        tool(
            "git_fetch",
            "Fetches origin's branches. Nothing in worktrees changes.",
            json!({}),
            &[],
            json!({ "branch": branch, "sha": sha }),
            [false, true, true]
        ),
        tool(
            "git_worktree_add",
            "Makes the worktree .worktrees/claude/SLUG on a new branch feature/SLUG at origin/main.",
            json!({ "slug": slug }),
            &["slug"],
            json!({ "slug": slug, "branch": branch, "sha": sha, "worktree": text("Where it is, in the repository") }),
            [false, false, false]
        ),
        tool(
            "git_worktree_remove",
            "Removes a worktree and its branch; the slug is free again. Refused while something is not committed or not at origin.",
            json!({ "slug": slug, "discard": { "type": "boolean", "default": false, "description": "Even so" } }),
            &["slug"],
            json!({ "slug": slug, "branch": branch, "sha": text("The commit that the branch was at"),
                "left": text("What could not be deleted, if anything") }),
            [false, false, false]
        ),
        tool(
            "git_worktrees",
            "Lists the worktrees.",
            json!({}),
            &[],
            json!({ "worktrees": objects("Each with slug, branch, sha and problem"), "truncated": truncated }),
            [true, true, false]
        ),
        tool(
            "git_update",
            "Takes origin/main, as fetched, into a worktree's branch. Conflicts stand in files, between <<<<<<< and >>>>>>> \
             with BRANCH and ORIGIN: edit them, then continue, or abort.",
            json!({ "slug": slug, "action": { "enum": ["merge", "rebase", "continue", "abort"] } }),
            &["slug", "action"],
            json!({ "slug": slug, "branch": branch, "sha": sha, "conflicts": objects(conflicts),
                "update": { "enum": ["done", "current", "conflicts", "aborted"] } }),
            [false, false, false]
        ),
        tool(
            "git_commit",
            "Commits files of a worktree on its branch: as they are there now, new and removed ones too.",
            json!({ "slug": slug, "message": one("What the commit says"), "paths": {
                "type": "array", "minItems": 1, "maxItems": MAX_PATHS, "items": path,
                "description": "Files and directories, by their paths in the worktree; \".\" is all of it" } }),
            &["slug", "message", "paths"],
            json!({ "slug": slug, "branch": branch, "sha": sha, "parent": text("The commit before"),
                "files": { "type": "integer", "minimum": 1, "description": "How many files changed" } }),
            [false, false, false]
        ),
        tool(
            "git_status",
            "Which files of a worktree are not as its branch has them, and which conflict while an update is going on.",
            json!({ "slug": slug }),
            &["slug"],
            json!({ "slug": slug, "branch": branch, "sha": sha, "truncated": truncated,
                "changes": objects("Each with path, and state: two letters as git-status(1) has them"),
            "update": { "enum": ["none", "merge", "rebase"] },
            "conflicts": objects("Each with path, kind, and markers: whether the file has them still") }),
            [true, true, false]
        ),
        tool(
            "git_diff",
            "What changed in a worktree since its last commit, or on its branch since it left origin/main.",
            json!({ "slug": slug, "against": { "enum": ["branch", "origin/main"], "default": "branch",
                "description": "The worktree against its branch, or the branch against origin/main" }, "paths": paths }),
            &["slug"],
            json!({ "slug": slug, "branch": branch, "sha": sha, "diff": text("A patch"), "truncated": truncated }),
            [true, true, false]
        ),
        tool(
            "git_log",
            "The last commits of a worktree's branch, or of origin/main if no slug is given.",
            json!({ "slug": slug, "count": { "type": "integer", "minimum": 1, "maximum": MAX_COUNT, "default": 20 },
            "paths": paths }),
            &[],
            json!({ "branch": branch, "sha": sha, "commits": objects("Each with sha, author, date and subject") }),
            [true, true, false]
        ),
        tool(
            "git_show",
            "A commit, and what it changed.",
            json!({ "commit": { "type": "string", "pattern": COMMIT_PATTERN }, "paths": paths }),
            &["commit"],
            json!({ "sha": text("The commit"), "author": text("Name and address"), "date": text("When"),
                "parents": { "type": "array", "items": { "type": "string" } }, "message": text("What it says"),
                "diff": text("A patch"), "truncated": truncated }),
            [true, true, false]
        ),
        tool(
            "git_blame",
            "The commit, author and date of each line of a file on a worktree's branch.",
            json!({ "slug": slug, "path": path, "from": { "type": "integer", "minimum": 1, "default": 1 },
                "count": { "type": "integer", "minimum": 1, "maximum": MAX_LINES, "default": 200 } }),
            &["slug", "path"],
            json!({ "slug": slug, "branch": branch, "sha": sha, "blame": text("A line each"), "truncated": truncated }),
            [true, true, false]
        ),
        tool(
            "git_push",
            "Asks for a branch to be pushed, which people do: it is refused, and becomes a task for a person.",
            json!({ "branch": text("What to push, as feature/SLUG"), "sha": text("The commit that is ready") }),
            &["branch"],
            json!({ "branch": branch, "sha": sha }),
            [false, true, false]
        ),
    ])
}
