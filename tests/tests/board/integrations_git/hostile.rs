//! What a repository may have that was written by an enemy. Each trap leaves a mark where it is
//! sprung: plain git(1) springs it, and no call of the adapter does.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::stage::{Stage, text};

/// Commands of plain git: in which directory, and its arguments.
type Springs = Vec<(String, Vec<&'static str>)>;

/// A trap: how it is laid, which plain git springs it, and the code with which the adapter refuses
/// such a repository, if it does.
struct Trap {
    what: &'static str,
    lay: fn(&Stage, &str),
    spring: fn(&Stage) -> Springs,
    refused: Option<&'static str>,
}

/// In the worktree.
fn tree(arguments: &[&'static str]) -> Springs {
    vec![("repo/.worktrees/claude/x".to_owned(), arguments.to_vec())]
}

/// In the repository.
fn root(arguments: &[&'static str]) -> Springs {
    vec![("repo".to_owned(), arguments.to_vec())]
}

fn set(stage: &Stage, key: &str, value: &str) {
    stage.git("repo", &["config", key, value]);
}

/// Hooks of all names that git has in these operations.
fn hooks(stage: &Stage, directory: &str, trap: &str) {
    for name in [
        "pre-commit",
        "prepare-commit-msg",
        "commit-msg",
        "post-commit",
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-auto-gc",
        "post-rewrite",
        "fsmonitor-watchman",
    ] {
        let hook = stage.path(directory).join(name);
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::copy(trap, &hook).unwrap();
    }
}

/// A repository of its own whose status springs the trap.
fn nested(stage: &Stage, directory: &str, trap: &str) {
    stage.git(".", &["init", "--quiet", directory]);
    stage.write(&format!("{directory}/file"), "x");
    stage.git(directory, &["add", "."]);
    stage.git(directory, &["commit", "--quiet", "-m", "Nested"]);
    stage.git(directory, &["config", "core.fsmonitor", trap]);
}

/// A driver of that name for everything, and no more.
fn filters(stage: &Stage, trap: &str) {
    for key in ["clean", "smudge"] {
        set(stage, &format!("filter.evil.{key}"), trap);
    }
}

const TRAPS: &[Trap] = &[
    Trap {
        what: "core.fsmonitor",
        lay: |stage, trap| set(stage, "core.fsmonitor", trap),
        spring: |_| tree(&["status"]),
        refused: None,
    },
    Trap {
        what: "hooks",
        lay: |stage, trap| hooks(stage, "repo/.git/hooks", trap),
        spring: |_| tree(&["commit", "--allow-empty", "-m", "x"]),
        refused: None,
    },
    Trap {
        what: "core.hooksPath",
        lay: |stage, trap| {
            hooks(stage, "evil-hooks", trap);
            set(
                stage,
                "core.hooksPath",
                &stage.path("evil-hooks").display().to_string(),
            );
        },
        spring: |_| tree(&["update-ref", "refs/heads/side", "HEAD"]),
        refused: None,
    },
    Trap {
        what: "core.sshCommand",
        lay: |stage, trap| {
            set(stage, "core.sshCommand", trap);
            set(stage, "remote.origin.url", "ssh://host/path");
        },
        spring: |_| root(&["fetch", "origin"]),
        refused: None,
    },
    Trap {
        what: "core.gitProxy",
        lay: |stage, trap| {
            set(stage, "core.gitProxy", trap);
            set(stage, "remote.origin.url", "git://host/path");
        },
        spring: |_| root(&["fetch", "origin"]),
        refused: None,
    },
    Trap {
        what: "core.editor",
        lay: |stage, trap| set(stage, "core.editor", trap),
        spring: |_| tree(&["commit", "--allow-empty"]),
        refused: None,
    },
    Trap {
        what: "alias",
        lay: |stage, trap| {
            for name in ["st", "status", "fetch", "update-ref", "for-each-ref"] {
                set(stage, &format!("alias.{name}"), &format!("!{trap}"));
            }
        },
        spring: |_| tree(&["st"]),
        refused: None,
    },
    Trap {
        what: "diff.external",
        lay: |stage, trap| set(stage, "diff.external", trap),
        spring: |_| tree(&["diff"]),
        refused: None,
    },
    Trap {
        what: "diff.NAME.command by .gitattributes",
        lay: |stage, trap| {
            set(stage, "diff.evil.command", trap);
            stage.write("repo/.worktrees/claude/x/.gitattributes", "* diff=evil\n");
        },
        spring: |_| tree(&["diff"]),
        refused: None,
    },
    Trap {
        what: "textconv by .gitattributes",
        lay: |stage, trap| {
            set(stage, "diff.evil.textconv", trap);
            stage.write("repo/.worktrees/claude/x/.gitattributes", "* diff=evil\n");
        },
        spring: |_| tree(&["diff"]),
        refused: None,
    },
    Trap {
        what: "filters by .gitattributes, as a file is added",
        lay: |stage, trap| {
            filters(stage, trap);
            stage.write("repo/.worktrees/claude/x/.gitattributes", "* filter=evil\n");
        },
        spring: |_| tree(&["add", "a.txt"]),
        refused: None,
    },
    Trap {
        what: "a filter that stays, by .git/info/attributes",
        lay: |stage, trap| {
            set(stage, "filter.evil.process", trap);
            stage.write("repo/.git/info/attributes", "* filter=evil\n");
        },
        spring: |_| tree(&["add", "a.txt"]),
        refused: None,
    },
    Trap {
        what: "filters by core.attributesFile, as a file is checked out",
        lay: |stage, trap| {
            filters(stage, trap);
            stage.write("evil-attributes", "* filter=evil\n");
            set(
                stage,
                "core.attributesFile",
                &stage.path("evil-attributes").display().to_string(),
            );
        },
        spring: |_| root(&["worktree", "add", "--detach", "../plain"]),
        refused: None,
    },
    Trap {
        what: "gpg.program",
        lay: |stage, trap| {
            set(stage, "gpg.program", trap);
            set(stage, "commit.gpgSign", "true");
        },
        spring: |_| tree(&["commit", "--allow-empty", "-m", "x"]),
        refused: None,
    },
    Trap {
        what: "gpg.program as signatures are shown",
        lay: |stage, trap| {
            set(stage, "gpg.program", trap);
            set(stage, "log.showSignature", "true");
            stage.git(
                &stage.tree("x"),
                &["commit", "--quiet", "--allow-empty", "-m", "Unsigned"],
            );
            let commit = stage.git("repo", &["cat-file", "commit", "feature/x"]);
            let armor =
                "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n";
            stage.write(
                "signed",
                &(commit.replacen("\n\n", &format!("\n{armor}"), 1) + "\n"),
            );
            let signed = stage.path("signed").display().to_string();
            let sha = stage.git("repo", &["hash-object", "-t", "commit", "-w", &signed]);
            stage.git("repo", &["update-ref", "refs/heads/feature/x", &sha]);
        },
        spring: |_| tree(&["log"]),
        refused: None,
    },
    Trap {
        what: "include.path",
        lay: |stage, trap| {
            stage.write("evil-config", &format!("[core]\n\tfsmonitor = {trap}\n"));
            set(
                stage,
                "include.path",
                &stage.path("evil-config").display().to_string(),
            );
        },
        spring: |_| tree(&["status"]),
        refused: None,
    },
    Trap {
        what: "the user's configuration",
        lay: |stage, trap| {
            stage.write(
                "home/.gitconfig",
                &format!("[core]\n\tfsmonitor = {trap}\n"),
            )
        },
        spring: |_| tree(&["status"]),
        refused: None,
    },
    Trap {
        what: "a worktree's own configuration",
        lay: |stage, trap| {
            set(stage, "extensions.worktreeConfig", "true");
            stage.write(
                "repo/.git/worktrees/x/config.worktree",
                &format!("[core]\n\tfsmonitor = {trap}\n"),
            );
        },
        spring: |_| tree(&["status"]),
        refused: None,
    },
    Trap {
        what: "url.insteadOf of the pinned address",
        lay: |stage, trap| {
            set(
                stage,
                &format!("url.ext::{trap}.insteadOf"),
                &stage.origin(),
            );
            set(stage, "protocol.ext.allow", "always");
        },
        spring: |stage| vec![("repo".to_owned(), vec!["fetch", stage.origin().leak()])],
        refused: None,
    },
    Trap {
        what: "origin as a command",
        lay: |stage, trap| {
            set(stage, "remote.origin.url", &format!("ext::{trap}"));
            set(stage, "protocol.ext.allow", "always");
        },
        spring: |_| root(&["fetch", "origin"]),
        refused: None,
    },
    Trap {
        what: "remote.NAME.uploadpack, the name being the pinned address",
        lay: |stage, trap| {
            set(stage, "remote.origin.uploadpack", trap);
            set(
                stage,
                &format!("remote.{}.uploadpack", stage.origin()),
                trap,
            );
        },
        spring: |stage| vec![("repo".to_owned(), vec!["fetch", stage.origin().leak()])],
        refused: None,
    },
    Trap {
        what: "a submodule with its own configuration",
        lay: |stage, trap| {
            let tree = stage.tree("x");
            nested(stage, &format!("{tree}/sub"), trap);
            let sha = stage.git(&format!("{tree}/sub"), &["rev-parse", "HEAD"]);
            stage.git(
                &tree,
                &[
                    "update-index",
                    "--add",
                    "--cacheinfo",
                    &format!("160000,{sha},sub"),
                ],
            );
            stage.git(&tree, &["commit", "--quiet", "-m", "Add a submodule"]);
            stage.write(
                &format!("{tree}/.gitmodules"),
                "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n",
            );
            set(stage, "submodule.recurse", "true");
            set(stage, "diff.ignoreSubmodules", "none");
        },
        spring: |_| tree(&["status"]),
        refused: None,
    },
    Trap {
        what: "a submodule that is fetched as well",
        lay: |stage, trap| {
            nested(stage, "repo/sub", trap);
            stage.git(
                "repo/sub",
                &["config", "remote.origin.url", &format!("ext::{trap}")],
            );
            stage.git(
                "repo/sub",
                &[
                    "config",
                    "remote.origin.fetch",
                    "+refs/heads/*:refs/remotes/origin/*",
                ],
            );
            stage.git("repo/sub", &["config", "protocol.ext.allow", "always"]);
            let sha = stage.git("repo/sub", &["rev-parse", "HEAD"]);
            stage.git(
                "repo",
                &[
                    "update-index",
                    "--add",
                    "--cacheinfo",
                    &format!("160000,{sha},sub"),
                ],
            );
            stage.write(
                "repo/.gitmodules",
                "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n",
            );
            set(stage, "submodule.sub.url", "./sub");
            set(stage, "submodule.sub.active", "true");
            set(stage, "fetch.recurseSubmodules", "true");
        },
        spring: |_| root(&["fetch", "origin"]),
        refused: None,
    },
    Trap {
        what: "a worktree's .git that leads elsewhere",
        lay: |stage, trap| {
            nested(stage, "evil", trap);
            let there = stage.path("evil/.git").display().to_string();
            stage.write(
                "repo/.worktrees/claude/x/.git",
                &format!("gitdir: {there}\n"),
            );
        },
        spring: |_| tree(&["status"]),
        refused: None,
    },
    Trap {
        what: "a worktree's .git that is a repository",
        lay: |stage, trap| {
            fs::remove_file(stage.path("repo/.worktrees/claude/x/.git")).unwrap();
            nested(stage, "repo/.worktrees/claude/x", trap);
        },
        spring: |_| tree(&["status"]),
        refused: None,
    },
    Trap {
        what: "a worktree's commondir that leads elsewhere",
        lay: |stage, trap| {
            nested(stage, "evil", trap);
            let there = stage.path("evil/.git").display().to_string();
            stage.write("repo/.git/worktrees/x/commondir", &format!("{there}\n"));
        },
        spring: |_| tree(&["status"]),
        refused: None,
    },
    Trap {
        what: "core.alternateRefsCommand and alternates",
        lay: |stage, trap| {
            stage.git(
                ".",
                &["clone", "--quiet", "--bare", "origin.git", "other.git"],
            );
            let objects = stage.path("other.git/objects").display().to_string();
            stage.write("repo/.git/objects/info/alternates", &format!("{objects}\n"));
            set(stage, "core.alternateRefsCommand", trap);
            // Something to be fetched, so that what is here is asked for.
            stage.git(".", &["clone", "--quiet", "origin.git", "other"]);
            stage.git(
                "other",
                &["commit", "--quiet", "--allow-empty", "-m", "Newer"],
            );
            stage.git("other", &["push", "--quiet", "origin", "main"]);
        },
        spring: |_| root(&["fetch", "origin"]),
        refused: Some("GIT_REFUSED"),
    },
    Trap {
        what: "objects that are promised by a command",
        lay: |stage, trap| {
            set(stage, "extensions.partialClone", "origin");
            set(stage, "remote.origin.promisor", "true");
            set(stage, "remote.origin.url", &format!("ext::{trap}"));
            set(stage, "protocol.ext.allow", "always");
        },
        spring: |_| root(&["cat-file", "-p", "0123456789012345678901234567890123456789"]),
        refused: Some("GIT_REFUSED"),
    },
];

/// Every operation once, in the worktree `x` and in a new one.
fn all(stage: &Stage, number: usize) -> [(&'static str, Value); 13] {
    let first = stage.git("origin.git", &["rev-parse", "main"]);
    let more = format!("more{number}");
    [
        ("git_fetch", json!({})),
        ("git_status", json!({ "slug": "x" })),
        ("git_diff", json!({ "slug": "x" })),
        (
            "git_commit",
            json!({ "slug": "x", "message": "m", "paths": [format!("new{number}"), "a.txt", "dir"] }),
        ),
        ("git_diff", json!({ "slug": "x", "against": "origin/main" })),
        ("git_log", json!({ "slug": "x" })),
        ("git_log", json!({})),
        ("git_update", json!({ "slug": "x", "action": "rebase" })),
        ("git_show", json!({ "commit": first })),
        ("git_blame", json!({ "slug": "x", "path": "a.txt" })),
        ("git_worktree_add", json!({ "slug": more })),
        ("git_worktrees", json!({})),
        ("git_worktree_remove", json!({ "slug": more })),
    ]
}

#[test]
fn no_trap_in_a_repository_is_sprung() {
    for (number, trap) in TRAPS.iter().enumerate() {
        let what = trap.what;
        let stage = Stage::new();
        let mut adapter = stage.adapter();
        adapter.done("git_worktree_add", json!({ "slug": "x" }));
        let program = stage.trap("trap.sh");
        (trap.lay)(&stage, &program);
        let tree = stage.tree("x");
        stage.write(&format!("{tree}/a.txt"), "changed\n");
        let _ = fs::remove_file(stage.mark());
        for (directory, arguments) in (trap.spring)(&stage) {
            // What it says and whether it succeeds does not matter.
            stage.plain(&directory, &arguments).output().unwrap();
        }
        assert!(
            stage.mark().exists(),
            "{what}: plain git(1) does not spring it, so this test shows nothing"
        );
        stage.write(&format!("{tree}/a.txt"), "changed again\n");
        stage.write(&format!("{tree}/new{number}"), "");
        fs::remove_file(stage.mark()).unwrap();
        for (tool, arguments) in all(&stage, number) {
            match trap.refused {
                None => {
                    let result = adapter.call(tool, arguments);
                    assert!(result["isError"].is_null(), "{what}: {tool}: {result}");
                }
                Some(code) => assert_eq!(adapter.fails(tool, arguments).0, code, "{what}"),
            }
            assert!(!stage.mark().exists(), "{what}: {tool} springs it");
        }
        if trap.refused.is_none() {
            let said = stage.git(
                "origin.git",
                &[
                    "--git-dir",
                    &stage.path("repo/.git").display().to_string(),
                    "log",
                    "-1",
                    "--format=%s",
                    "refs/heads/feature/x",
                ],
            );
            assert_eq!(said, "m", "{what}");
        }
    }
}

#[test]
fn a_pager_is_never_asked() {
    // Only before a terminal is it, so plain git is given one by script(1).
    let stage = Stage::new();
    let trap = stage.trap("trap.sh");
    set(&stage, "core.pager", &trap);
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &format!("{} log", super::stage::GIT), "/dev/null"]);
    command
        .current_dir(stage.path("repo"))
        .env("HOME", stage.path("home"))
        .env_remove("GIT_PAGER");
    command
        .env_remove("PAGER")
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::null());
    command.output().expect("script(1) must be installed");
    assert!(stage.mark().exists());
    fs::remove_file(stage.mark()).unwrap();
    stage.adapter().done("git_log", json!({}));
    assert!(!stage.mark().exists());
}

#[test]
fn history_is_what_it_is_whatever_replaces_it() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    let head = stage.git("repo", &["rev-parse", "HEAD"]);
    let forged = stage.git("repo", &["commit-tree", "-m", "Forged", "HEAD^{tree}"]);
    stage.git("repo", &["replace", &head, &forged]);
    assert_eq!(stage.git("repo", &["log", "--format=%s", "-1"]), "Forged");
    let log = adapter.done("git_log", json!({}));
    assert_eq!(log["commits"][0]["subject"], "First");
    // Nor by a graft.
    stage.git("repo", &["replace", "-d", &head]);
    stage.write("repo/.git/info/grafts", &format!("{head} {forged}\n"));
    assert_eq!(stage.git("repo", &["log", "--format=%s"]), "First\nForged");
    let log = adapter.done("git_log", json!({}));
    assert_eq!(log["commits"].as_array().unwrap().len(), 1);
}

#[test]
fn links_lead_nowhere() {
    // Each takes the place of something on the way to a worktree; what it leads to stays as it is.
    for at in [
        ".worktrees",
        ".worktrees/claude",
        ".worktrees/claude/x",
        ".git/worktrees",
        ".git/worktrees/x",
        ".git/objects",
        ".git/refs",
    ] {
        let stage = Stage::new();
        let mut adapter = stage.adapter();
        adapter.done("git_worktree_add", json!({ "slug": "x" }));
        let (here, there) = (stage.path("repo").join(at), stage.path("elsewhere"));
        fs::rename(&here, &there).unwrap();
        symlink(&there, &here).unwrap();
        stage.write(&format!("{}/new", stage.tree("x")), "");
        let names = |path: &Path| {
            let mut names: Vec<_> = fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        let before = names(&there);
        for (tool, arguments) in [
            ("git_worktree_add", json!({ "slug": "y" })),
            (
                "git_commit",
                json!({ "slug": "x", "message": "m", "paths": ["new"] }),
            ),
            ("git_status", json!({ "slug": "x" })),
            ("git_diff", json!({ "slug": "x" })),
        ] {
            // Where one worktree alone is another's, another one is nobody's.
            if tool == "git_worktree_add" && at.ends_with("/x") {
                continue;
            }
            let (code, message) = adapter.fails(tool, arguments);
            assert!(
                code == "GIT_REFUSED" || code == "INTEGRATION_UNAVAILABLE",
                "{at}: {tool}: {code} {message}"
            );
        }
        assert_eq!(names(&there), before, "{at}");
        assert!(
            !stage.path("repo/.git/refs/heads/feature/y").exists(),
            "{at}"
        );
    }
    // Inside a worktree they are what they are: nothing behind them is read.
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    stage.write("elsewhere/b.txt", "of nobody's");
    let directory = stage.path(&stage.tree("x")).join("dir");
    fs::remove_dir_all(&directory).unwrap();
    symlink(stage.path("elsewhere"), &directory).unwrap();
    let diff = adapter.done("git_diff", json!({ "slug": "x" })).to_string();
    assert!(!diff.contains("of nobody's"), "{diff}");
    adapter.done(
        "git_commit",
        json!({ "slug": "x", "message": "m", "paths": ["dir/b.txt", "dir"] }),
    );
    let listed = stage.git("repo", &["ls-tree", "-r", "feature/x"]);
    assert!(
        listed.contains("120000") && !listed.contains("dir/b.txt"),
        "{listed}"
    );
}

#[test]
fn a_branch_that_is_another_is_left_alone() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    stage.write(&format!("{}/new", stage.tree("x")), "");
    let main = stage.git("repo", &["rev-parse", "main"]);
    let commit = json!({ "slug": "x", "message": "m", "paths": ["new"] });
    // Its name stands for main.
    stage.git(
        "repo",
        &["symbolic-ref", "refs/heads/feature/x", "refs/heads/main"],
    );
    assert_eq!(adapter.fails("git_commit", commit.clone()).0, "GIT_REFUSED");
    stage.git(
        "repo",
        &["symbolic-ref", "--delete", "refs/heads/feature/x"],
    );
    stage.git("repo", &["update-ref", "refs/heads/feature/x", &main]);
    // The worktree is on another, or on none.
    for head in [
        "ref: refs/heads/main\n",
        &format!("{main}\n"),
        "",
        "ref: refs/heads/feature/x/../../main",
    ] {
        stage.write("repo/.git/worktrees/x/HEAD", head);
        for tool in ["git_commit", "git_status", "git_diff"] {
            let arguments = if tool == "git_commit" {
                commit.clone()
            } else {
                json!({ "slug": "x" })
            };
            assert_eq!(adapter.fails(tool, arguments).0, "GIT_REFUSED", "{head}");
        }
    }
    assert_eq!(stage.git("repo", &["rev-parse", "main"]), main);
    // What should be a file is none, and nothing waits for it.
    for name in ["HEAD", "index"] {
        let path = stage.path("repo/.git/worktrees/x").join(name);
        let kept = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        adapter.fails("git_status", json!({ "slug": "x" }));
        fs::remove_file(&path).unwrap();
        fs::write(&path, kept).unwrap();
        if name == "HEAD" {
            fs::write(&path, "ref: refs/heads/feature/x\n").unwrap();
        }
    }
    adapter.done("git_commit", commit);
    assert_eq!(stage.git("repo", &["rev-parse", "main"]), main);
}

#[test]
fn submodules_and_other_repositories_are_not_committed() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    let program = stage.trap("trap.sh");
    nested(&stage, &format!("{}/inner", stage.tree("x")), &program);
    let _ = fs::remove_file(stage.mark());
    for paths in [json!(["inner"]), json!(["."]), json!(["inner/file"])] {
        let (code, _) = adapter.fails(
            "git_commit",
            json!({ "slug": "x", "message": "m", "paths": paths }),
        );
        assert_eq!(code, "GIT_REFUSED");
    }
    assert!(!stage.mark().exists());
    assert_eq!(
        text(&stage.path("repo/.git/refs/heads/feature/x")),
        stage.git("repo", &["rev-parse", "main"]) + "\n"
    );
}

#[test]
fn an_unreadable_place_is_said_and_leaves_nothing() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    // A branch `feature` leaves no room for `feature/x`.
    stage.git("repo", &["branch", "feature"]);
    let (code, message) = adapter.fails("git_worktree_add", json!({ "slug": "x" }));
    assert_eq!(code, "GIT_FAILED", "{message}");
    assert!(message.contains("refs/heads/feature"), "{message}");
    assert!(
        !stage.path("repo/.git/worktrees/x").exists() && !stage.path(&stage.tree("x")).exists()
    );
    stage.git("repo", &["branch", "-D", "feature"]);
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    let mode = fs::metadata(stage.path("repo/.git/worktrees/x"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
}
