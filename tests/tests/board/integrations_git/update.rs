//! A newer origin taken in, worktrees that go again, and what is read of history.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use colibri_tests::wait_for;
use serde_json::{Value, json};

use super::stage::{AUTHOR, Adapter, Stage, text};

/// A stage whose worktree `x` has these files committed on its branch, one commit each, after which
/// origin has those.
fn diverged(ours: &[(&str, &str)], theirs: &[(&str, &str)]) -> (Stage, Adapter) {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    for (path, contents) in ours {
        stage.write(&format!("{}/{path}", stage.tree("x")), contents);
        let message = format!("Change {path}");
        adapter.done(
            "git_commit",
            json!({ "slug": "x", "message": message, "paths": [path] }),
        );
    }
    stage.git(".", &["clone", "--quiet", "origin.git", "other"]);
    for (path, contents) in theirs {
        stage.write(&format!("other/{path}"), contents);
    }
    push(&stage);
    adapter.done("git_fetch", json!({}));
    (stage, adapter)
}

/// Commits all of `other`, and has origin have it.
fn push(stage: &Stage) {
    stage.git("other", &["add", "--all"]);
    stage.git(
        "other",
        &["commit", "--quiet", "--allow-empty", "-m", "Newer"],
    );
    stage.git("other", &["push", "--quiet", "origin", "HEAD:main"]);
}

fn update(adapter: &mut Adapter, action: &str) -> Value {
    adapter.done("git_update", json!({ "slug": "x", "action": action }))
}

fn refused(adapter: &mut Adapter, action: &str) -> String {
    let (code, message) = adapter.fails("git_update", json!({ "slug": "x", "action": action }));
    assert_eq!(code, "GIT_REFUSED", "{message}");
    message
}

fn clean(stage: &Stage) {
    assert_eq!(stage.git(&stage.tree("x"), &["status", "--porcelain"]), "");
    assert!(!stage.path("repo/.git/worktrees/x/colibri-update").exists());
    let left = fs::read_dir(stage.path("repo/.git/worktrees/x")).unwrap();
    let left: Vec<_> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.starts_with("update-") || name == "index.lock"),
        "{left:?}"
    );
}

#[test]
fn what_does_not_conflict_is_taken_in_whole() {
    for action in ["merge", "rebase"] {
        let (stage, mut adapter) = diverged(
            &[("mine.txt", "mine\n")],
            &[("dir/new\tname\n\"q\"", "theirs\n")],
        );
        stage.git("other", &["rm", "--quiet", "a.txt"]);
        stage.write("other/a.txt/inner", "a directory now\n");
        stage.git("other", &["rm", "--quiet", "-r", "dir/b.txt"]);
        stage.write("other/run.sh", "#!/bin/sh\n");
        fs::set_permissions(
            stage.path("other/run.sh"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        symlink("/etc/passwd", stage.path("other/link")).unwrap();
        push(&stage);
        adapter.done("git_fetch", json!({}));
        let before = stage.git("repo", &["rev-parse", "feature/x"]);
        let onto = stage.git("repo", &["rev-parse", "origin/main"]);
        let done = update(&mut adapter, action);
        let sha = stage.git("repo", &["rev-parse", "feature/x"]);
        let expected = json!({ "slug": "x", "branch": "feature/x", "sha": sha, "update": "done", "conflicts": [] });
        assert_eq!(done, expected);
        clean(&stage);
        let parents = stage.git(
            "repo",
            &["show", "-s", "--format=%P|%an <%ae>|%cn <%ce>", &sha],
        );
        let expected = match action {
            "merge" => format!("{before} {onto}|{AUTHOR}|{AUTHOR}"),
            _ => format!("{onto}|{AUTHOR}|{AUTHOR}"),
        };
        assert_eq!(parents, expected);
        let tree = stage.path(&stage.tree("x"));
        assert_eq!(text(&tree.join("a.txt/inner")), "a directory now\n");
        assert_eq!(text(&tree.join("dir/new\tname\n\"q\"")), "theirs\n");
        assert_eq!(
            fs::read_link(tree.join("link")).unwrap().to_str(),
            Some("/etc/passwd")
        );
        assert_eq!(
            fs::metadata(tree.join("run.sh"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o775
        );
        // Once more there is nothing to take in, and a branch with nothing of its own just comes
        // along.
        assert_eq!(update(&mut adapter, action)["update"], "current");
        adapter.done("git_worktree_add", json!({ "slug": "y" }));
        stage.write("other/later", "");
        push(&stage);
        adapter.done("git_fetch", json!({}));
        let done = adapter.done("git_update", json!({ "slug": "y", "action": action }));
        assert_eq!(
            done["sha"],
            stage.git("repo", &["rev-parse", "origin/main"])
        );
        assert_eq!(
            stage.git("repo", &["fsck", "--strict", "--no-dangling"]),
            ""
        );
    }
}

#[test]
fn a_merge_with_conflicts_goes_on_when_they_are_resolved() {
    let (stage, mut adapter) = diverged(
        &[("a.txt", "mine\n"), ("b\tc", "b\n")],
        &[("a.txt", "theirs\n")],
    );
    let before = stage.git("repo", &["rev-parse", "feature/x"]);
    let said = update(&mut adapter, "merge");
    let conflicts = json!([{ "path": "a.txt", "kind": "contents" }]);
    assert_eq!(
        (&said["update"], &said["conflicts"], &said["sha"]),
        (&json!("conflicts"), &conflicts, &json!(before))
    );
    let file = format!("{}/a.txt", stage.tree("x"));
    let marked = "<<<<<<< BRANCH\nmine\n=======\ntheirs\n>>>>>>> ORIGIN\n";
    assert_eq!(text(&stage.path(&file)), marked);
    // Everybody sees it.
    assert_eq!(
        stage.git(&stage.tree("x"), &["status", "--porcelain"]),
        "UU a.txt"
    );
    let status = adapter.done("git_status", json!({ "slug": "x" }));
    assert_eq!(status["update"], "merge");
    let conflict =
        |markers: bool| json!([{ "path": "a.txt", "kind": "contents", "markers": markers }]);
    assert_eq!(status["conflicts"], conflict(true));
    assert_eq!(
        status["changes"][0],
        json!({ "path": "a.txt", "state": "UU" })
    );
    // Nothing else is done meanwhile, in another process either.
    let mut adapter = stage.adapter();
    let (code, message) = adapter.fails(
        "git_commit",
        json!({ "slug": "x", "message": "m", "paths": ["."] }),
    );
    assert!(
        code == "GIT_REFUSED" && message.contains("continue or abort"),
        "{message}"
    );
    assert!(refused(&mut adapter, "merge").contains("going on"));
    assert!(refused(&mut adapter, "rebase").contains("going on"));
    assert!(refused(&mut adapter, "continue").contains("a.txt has markers"));
    stage.write(&file, "both\n");
    assert_eq!(
        adapter.done("git_status", json!({ "slug": "x" }))["conflicts"],
        conflict(false)
    );
    let said = update(&mut adapter, "continue");
    let sha = stage.git("repo", &["rev-parse", "feature/x"]);
    assert_eq!(
        (&said["update"], &said["sha"]),
        (&json!("done"), &json!(sha))
    );
    let onto = stage.git("repo", &["rev-parse", "origin/main"]);
    let shown = stage.git("repo", &["show", "-s", "--format=%P|%s", "feature/x"]);
    assert_eq!(
        shown,
        format!("{before} {onto}|Merge origin/main into feature/x")
    );
    assert_eq!(stage.git("repo", &["show", "feature/x:a.txt"]), "both");
    clean(&stage);
    for action in ["continue", "abort"] {
        assert!(refused(&mut adapter, action).contains("no update"));
    }
    assert_eq!(
        adapter.done("git_status", json!({ "slug": "x" }))["update"],
        "none"
    );
}

#[test]
fn a_rebase_stops_at_each_commit_that_conflicts() {
    let ours = [
        ("one", "1\n"),
        ("a.txt", "mine\n"),
        ("two", "2\n"),
        ("dir/b.txt", "mine too\n"),
        ("same", "s\n"),
    ];
    let (stage, mut adapter) = diverged(
        &ours,
        &[
            ("a.txt", "theirs\n"),
            ("same", "s\n"),
            ("dir/b.txt", "theirs too\n"),
        ],
    );
    let before = stage.git("repo", &["rev-parse", "feature/x"]);
    // Made by somebody else, which stays so.
    stage.git(
        &stage.tree("x"),
        &[
            "commit",
            "--quiet",
            "--amend",
            "--reset-author",
            "--no-edit",
        ],
    );
    let original = stage.git("repo", &["rev-parse", "feature/x"]);
    assert_ne!(original, before);
    let said = update(&mut adapter, "rebase");
    assert_eq!(said["conflicts"][0]["path"], "a.txt");
    let file = |name: &str| format!("{}/{name}", stage.tree("x"));
    assert_eq!(
        text(&stage.path(&file("a.txt"))),
        "<<<<<<< ORIGIN\ntheirs\n=======\nmine\n>>>>>>> BRANCH\n"
    );
    assert_eq!(
        (
            text(&stage.path(&file("one"))),
            stage.path(&file("two")).exists()
        ),
        ("1\n".to_owned(), false)
    );
    assert_eq!(stage.git("repo", &["rev-parse", "feature/x"]), original);
    stage.write(&file("a.txt"), "both\n");
    let said = update(&mut adapter, "continue");
    assert_eq!(
        (&said["update"], &said["conflicts"][0]["path"]),
        (&json!("conflicts"), &json!("dir/b.txt"))
    );
    stage.write(&file("dir/b.txt"), "both too\n");
    assert_eq!(update(&mut adapter, "continue")["update"], "done");
    clean(&stage);
    let log = stage.git(
        "repo",
        &["log", "--format=%s|%an", "origin/main..feature/x"],
    );
    let agent = "Agent Smith";
    // The last one had nothing left.
    let expected = [
        "Change dir/b.txt",
        "Change two",
        "Change a.txt",
        "Change one",
    ];
    assert_eq!(
        log,
        expected
            .map(|subject| format!("{subject}|{agent}"))
            .join("\n")
    );
    assert_eq!(
        stage.git("repo", &["show", "feature/x:dir/b.txt"]),
        "both too"
    );
    assert_eq!(
        stage.git("repo", &["fsck", "--strict", "--no-dangling"]),
        ""
    );
}

#[test]
fn what_is_given_up_is_as_before() {
    for action in ["merge", "rebase"] {
        let ours = [("a.txt", "mine\n"), ("gone", "g\n"), ("bin", "x\0y")];
        let (stage, mut adapter) = diverged(
            &ours,
            &[("a.txt", "theirs\n"), ("deep/new", "n\n"), ("bin", "x\0z")],
        );
        let tree = stage.tree("x");
        stage.write(&format!("{tree}/untracked"), "stays\n");
        let before = stage.git("repo", &["rev-parse", "feature/x"]);
        let said = update(&mut adapter, action);
        assert_eq!(said["update"], "conflicts", "{said}");
        assert!(stage.path(&tree).join("deep/new").exists());
        stage.write(&format!("{tree}/a.txt"), "half done\n");
        let _ = fs::remove_file(stage.path(&tree).join("gone"));
        symlink("/etc", stage.path(&tree).join("gone")).unwrap();
        assert_eq!(update(&mut adapter, "abort")["sha"], before);
        assert_eq!(stage.git("repo", &["rev-parse", "feature/x"]), before);
        assert_eq!(stage.git(&tree, &["status", "--porcelain"]), "?? untracked");
        assert!(!stage.path(&tree).join("deep").exists());
        assert_eq!(text(&stage.path(&tree).join("untracked")), "stays\n");
        assert!(!stage.path("repo/.git/worktrees/x/colibri-update").exists());
    }
}

#[test]
fn conflicts_that_are_no_text_have_a_kind() {
    let (stage, mut adapter) =
        diverged(&[("bin", "x\0y"), ("a.txt", "mine\n")], &[("bin", "x\0z")]);
    stage.git("other", &["rm", "--quiet", "a.txt"]);
    push(&stage);
    adapter.done("git_fetch", json!({}));
    let said = update(&mut adapter, "merge");
    let expected =
        json!([{ "path": "a.txt", "kind": "modify/delete" }, { "path": "bin", "kind": "binary" }]);
    assert_eq!(said["conflicts"], expected);
    fs::remove_file(stage.path(&stage.tree("x")).join("a.txt")).unwrap();
    assert_eq!(update(&mut adapter, "continue")["update"], "done");
    clean(&stage);
    assert_eq!(
        stage.git(
            "repo",
            &["ls-tree", "--name-only", "feature/x", "a.txt", "bin"]
        ),
        "bin"
    );
}

#[test]
fn nothing_of_anybodys_is_overwritten() {
    let (stage, mut adapter) = diverged(&[], &[("new", "theirs\n"), ("a.txt", "theirs\n")]);
    let tree = stage.tree("x");
    // A change that is not committed, staged or not.
    for staged in [false, true] {
        stage.write(&format!("{tree}/a.txt"), "mine\n");
        if staged {
            stage.git(&tree, &["add", "a.txt"]);
        }
        assert!(refused(&mut adapter, "merge").contains("not committed"));
        assert_eq!(text(&stage.path(&tree).join("a.txt")), "mine\n");
    }
    stage.git(&tree, &["checkout", "--quiet", "HEAD", "a.txt"]);
    // Something new where origin has a file, ignored or not, and a link.
    for lay in [
        |stage: &Stage, path: &str| stage.write(path, "mine\n"),
        |stage: &Stage, path: &str| symlink("/etc/passwd", stage.path(path)).unwrap(),
    ] {
        let path = format!("{tree}/new");
        lay(&stage, &path);
        assert!(refused(&mut adapter, "rebase").contains("new comes from origin"));
        assert_eq!(stage.git(&tree, &["status", "--porcelain"]), "?? new");
        assert!(refused(&mut adapter, "abort").contains("no update"));
        fs::remove_file(stage.path(&path)).unwrap();
    }
    // A directory with something in it: what was begun is given up.
    stage.write(&format!("{tree}/new/inner"), "mine\n");
    assert!(refused(&mut adapter, "merge").contains("new cannot be replaced"));
    assert!(refused(&mut adapter, "continue").contains("cut short"));
    assert_eq!(update(&mut adapter, "abort")["update"], "aborted");
    assert_eq!(stage.git(&tree, &["status", "--porcelain"]), "?? new/");
    fs::remove_dir_all(stage.path(&tree).join("new")).unwrap();
    assert_eq!(update(&mut adapter, "merge")["update"], "done");
    clean(&stage);
}

#[test]
fn an_update_runs_nothing_and_writes_nowhere_else() {
    // A driver for every merge, committed on both sides and named by the configuration, and markers
    // of a length that no memory has.
    let attributes = "* merge=evil conflict-marker-size=2000000000\n";
    let ours = [(".gitattributes", attributes), ("a.txt", "mine\n")];
    let (stage, mut adapter) = diverged(
        &ours,
        &[(".gitattributes", attributes), ("a.txt", "theirs\n")],
    );
    let trap = stage.trap("trap.sh");
    for key in [
        "merge.evil.driver",
        "core.fsmonitor",
        "core.editor",
        "sequence.editor",
    ] {
        stage.git("repo", &["config", key, &trap]);
    }
    stage.git("repo", &["config", "merge.default", "evil"]);
    stage.write("repo/.git/info/attributes", attributes);
    for name in [
        "post-merge",
        "pre-merge-commit",
        "pre-rebase",
        "post-rewrite",
        "post-checkout",
        "reference-transaction",
    ] {
        let hook = stage.path("repo/.git/hooks").join(name);
        fs::copy(&trap, hook).unwrap();
    }
    let _ = fs::remove_file(stage.mark());
    let before = stage.git("repo", &["rev-parse", "feature/x"]);
    stage
        .plain(&stage.tree("x"), &["merge", "origin/main"])
        .output()
        .unwrap();
    assert!(stage.mark().exists(), "plain git(1) does not spring it");
    stage.git(&stage.tree("x"), &["reset", "--hard", "--quiet", &before]);
    fs::remove_file(stage.mark()).unwrap();
    for action in ["merge", "abort", "rebase"] {
        let said = update(&mut adapter, action);
        assert_eq!(
            said["update"],
            if action == "abort" {
                "aborted"
            } else {
                "conflicts"
            },
            "{said}"
        );
    }
    stage.write(&format!("{}/a.txt", stage.tree("x")), "both\n");
    assert_eq!(update(&mut adapter, "continue")["update"], "done");
    assert!(!stage.mark().exists());
    assert!(!stage.path("repo/.git/worktrees/x/colibri-update").exists());
}

#[test]
fn no_link_and_no_forged_update_leads_out_of_a_worktree() {
    let (stage, mut adapter) = diverged(
        &[("a.txt", "mine\n")],
        &[("a.txt", "theirs\n"), ("dir/b.txt", "theirs\n")],
    );
    let tree = stage.tree("x");
    assert_eq!(update(&mut adapter, "merge")["update"], "conflicts");
    // A directory becomes a link to one that an abort would write to.
    stage.write("elsewhere/b.txt", "of nobody's\n");
    fs::remove_dir_all(stage.path(&tree).join("dir")).unwrap();
    symlink(stage.path("elsewhere"), stage.path(&tree).join("dir")).unwrap();
    assert!(refused(&mut adapter, "abort").contains("dir/b.txt cannot be replaced"));
    assert_eq!(text(&stage.path("elsewhere/b.txt")), "of nobody's\n");
    fs::remove_file(stage.path(&tree).join("dir")).unwrap();
    assert_eq!(update(&mut adapter, "abort")["update"], "aborted");
    clean(&stage);
    // A file that says that something is going on.
    let sha = stage.git("repo", &["rev-parse", "feature/x"]);
    let pending = "repo/.git/worktrees/x/colibri-update";
    let forged = |key: &str, value: Value| {
        let mut forged = json!({ "rebase": true, "onto": sha, "original": sha, "tip": sha, "commits": [], "tree": sha,
            "is_placed": true, "conflicts": [] });
        forged[key] = value;
        forged.to_string()
    };
    for odd in [
        String::new(),
        "[".repeat(100_000),
        forged("onto", json!("--output=x")),
        forged("tree", json!("HEAD")),
        forged("commits", json!(["--all"])),
        forged("more", json!(1)),
        "x".repeat(5 << 20),
    ] {
        stage.write(pending, &odd);
        for action in ["merge", "continue", "abort"] {
            let (code, _) = adapter.fails("git_update", json!({ "slug": "x", "action": action }));
            assert_eq!(code, "INTEGRATION_UNAVAILABLE");
        }
        adapter.fails("git_status", json!({ "slug": "x" }));
    }
    fs::remove_file(stage.path(pending)).unwrap();
    nix::unistd::mkfifo(&stage.path(pending), nix::sys::stat::Mode::S_IRWXU).unwrap();
    adapter.fails("git_status", json!({ "slug": "x" }));
    fs::remove_file(stage.path(pending)).unwrap();
    stage.write(
        pending,
        &forged(
            "conflicts",
            json!([{ "path": "../../../../elsewhere/b.txt", "kind": "x" }]),
        ),
    );
    let none = "0123456789012345678901234567890123456789";
    stage.write(pending, &forged("tree", json!(none)));
    adapter.fails("git_update", json!({ "slug": "x", "action": "continue" }));
    assert_eq!(stage.git("repo", &["rev-parse", "feature/x"]), sha);
    // A tree whose names lead out, which no git checks out.
    fs::remove_file(stage.path(pending)).unwrap();
    let blob = stage.git("repo", &["rev-parse", "main:a.txt"]);
    let raw = |name: &str| {
        let id: Vec<u8> = (0..20)
            .map(|at| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        [format!("100644 {name}\0").as_bytes(), &id].concat()
    };
    for name in ["..", ".git", "../../../../MARK"] {
        fs::write(stage.path("tree"), raw(name)).unwrap();
        let path = stage.path("tree").display().to_string();
        let evil = stage.git(
            "repo",
            &["hash-object", "-t", "tree", "-w", "--literally", &path],
        );
        let commit = stage.git(
            "repo",
            &["commit-tree", &evil, "-p", "origin/main", "-m", "Evil"],
        );
        stage.git("repo", &["update-ref", "refs/remotes/origin/main", &commit]);
        for action in ["merge", "rebase"] {
            adapter.fails("git_update", json!({ "slug": "x", "action": action }));
            assert!(!stage.mark().exists());
            if stage.path(pending).exists() {
                adapter.done("git_update", json!({ "slug": "x", "action": "abort" }));
            }
        }
        assert_eq!(stage.git("repo", &["rev-parse", "feature/x"]), sha);
        clean(&stage);
        adapter.done("git_fetch", json!({}));
    }
}

#[test]
fn submodules_of_origin_are_empty_directories_and_their_conflicts_a_persons() {
    let (stage, mut adapter) = diverged(&[("mine", "m\n")], &[]);
    let first = stage.git("repo", &["rev-parse", "main"]);
    let link = |directory: &str, sha: &str| {
        stage.git(
            directory,
            &[
                "update-index",
                "--add",
                "--cacheinfo",
                &format!("160000,{sha},sub"),
            ],
        );
        stage.git(directory, &["commit", "--quiet", "-m", "Link"]);
    };
    link("other", &first);
    stage.git("other", &["push", "--quiet", "origin", "HEAD:main"]);
    adapter.done("git_fetch", json!({}));
    assert_eq!(update(&mut adapter, "merge")["update"], "done");
    assert!(stage.path(&stage.tree("x")).join("sub").is_dir());
    clean(&stage);
    // Both change it.
    let newer = |name: &str| stage.git("repo", &["rev-parse", name]);
    let (mine, theirs) = (newer("feature/x"), newer("origin/main"));
    link(&stage.tree("x"), &mine);
    link("other", &theirs);
    stage.git("other", &["push", "--quiet", "origin", "HEAD:main"]);
    adapter.done("git_fetch", json!({}));
    let message = refused(&mut adapter, "merge");
    assert!(message.contains("for a person"), "{message}");
    assert!(!stage.path("repo/.git/worktrees/x/colibri-update").exists());
}

#[test]
fn a_slug_is_free_again() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    let remove = |slug: &str, discard: bool| json!({ "slug": slug, "discard": discard });
    let first = adapter.done("git_worktree_add", json!({ "slug": "x" }))["sha"].clone();
    let listed = adapter.done("git_worktrees", json!({}));
    let expected = json!([{ "slug": "x", "branch": "feature/x", "sha": first, "problem": "" }]);
    assert_eq!(listed, json!({ "worktrees": expected, "truncated": false }));
    for round in 0..2 {
        let done = adapter.done("git_worktree_remove", remove("x", false));
        assert_eq!(
            done,
            json!({ "slug": "x", "branch": "feature/x", "sha": first, "left": "" }),
            "{round}"
        );
        assert!(!stage.path(&stage.tree("x")).exists());
        assert_eq!(
            fs::read_dir(stage.path("repo/.worktrees/claude"))
                .unwrap()
                .count(),
            0
        );
        assert!(!stage.git("repo", &["worktree", "list"]).contains("claude"));
        assert_eq!(stage.git("repo", &["branch", "--list", "feature/*"]), "");
        adapter.done("git_worktree_add", json!({ "slug": "x" }));
    }
    // What would be lost is not, but if it is to be.
    let tree = stage.tree("x");
    stage.write(&format!("{tree}/new"), "");
    let (code, message) = adapter.fails("git_worktree_remove", remove("x", false));
    assert!(
        code == "GIT_REFUSED" && message.contains("not committed"),
        "{message}"
    );
    let sha = adapter.done(
        "git_commit",
        json!({ "slug": "x", "message": "m", "paths": ["."] }),
    )["sha"]
        .clone();
    let (_, message) = adapter.fails("git_worktree_remove", remove("x", false));
    assert!(message.contains("origin does not have"), "{message}");
    assert!(stage.path(&tree).join("new").exists());
    symlink(stage.path("origin.git"), stage.path(&tree).join("link")).unwrap();
    let done = adapter.done("git_worktree_remove", remove("x", true));
    assert_eq!((&done["sha"], &done["left"]), (&sha, &json!("")));
    assert!(stage.path("origin.git/HEAD").exists());
    let kept = format!("refs/removed/x/{}", sha.as_str().unwrap());
    assert_eq!(
        stage.git("repo", &["rev-parse", &kept]),
        sha.as_str().unwrap()
    );
    assert_eq!(
        adapter.done("git_worktrees", json!({}))["worktrees"],
        json!([])
    );
    // What people left half removed.
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    stage.git(
        "repo",
        &[
            "worktree",
            "remove",
            &stage.path(&tree).display().to_string(),
        ],
    );
    let listed = adapter.done("git_worktrees", json!({}));
    assert!(
        listed["worktrees"][0]["problem"]
            .as_str()
            .unwrap()
            .contains("there is no worktree"),
        "{listed}"
    );
    adapter.done("git_worktree_remove", remove("x", false));
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    fs::remove_dir_all(stage.path(&tree)).unwrap();
    adapter.done("git_worktree_remove", remove("x", false));
    assert!(!stage.path("repo/.git/worktrees/x").exists());
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    // What a person has locked, or another git works in.
    stage.git(
        "repo",
        &["worktree", "lock", &stage.path(&tree).display().to_string()],
    );
    assert!(
        adapter
            .fails("git_worktree_remove", remove("x", true))
            .1
            .contains("locked")
    );
    stage.git(
        "repo",
        &[
            "worktree",
            "unlock",
            &stage.path(&tree).display().to_string(),
        ],
    );
    stage.write("repo/.git/worktrees/x/index.lock", "");
    assert_eq!(
        adapter.fails("git_worktree_remove", remove("x", true)).0,
        "GIT_BUSY"
    );
    stage.write("repo/.git/refs/heads/feature/x.lock", "");
    fs::remove_file(stage.path("repo/.git/worktrees/x/index.lock")).unwrap();
    assert_eq!(
        adapter.fails("git_worktree_remove", remove("x", true)).0,
        "GIT_BUSY"
    );
    assert!(stage.path(&tree).join("a.txt").exists());
    fs::remove_file(stage.path("repo/.git/refs/heads/feature/x.lock")).unwrap();
    // In the middle of an update, too.
    adapter.done("git_worktree_remove", remove("x", true));
    for (slug, code) in [
        ("none", "GIT_REFUSED"),
        ("../x", "ARGUMENTS_INVALID"),
        ("-x", "ARGUMENTS_INVALID"),
    ] {
        assert_eq!(
            adapter.fails("git_worktree_remove", remove(slug, true)).0,
            code
        );
    }
    assert_eq!(
        stage.git("repo", &["fsck", "--strict", "--no-dangling"]),
        ""
    );
}

#[test]
fn a_worktree_is_not_removed_through_a_link() {
    for at in [
        ".worktrees",
        ".worktrees/claude",
        ".worktrees/claude/x",
        ".git/worktrees",
        ".git/worktrees/x",
    ] {
        let stage = Stage::new();
        let mut adapter = stage.adapter();
        adapter.done("git_worktree_add", json!({ "slug": "x" }));
        let (here, there) = (stage.path("repo").join(at), stage.path("elsewhere"));
        fs::rename(&here, &there).unwrap();
        symlink(&there, &here).unwrap();
        let count = fs::read_dir(&there).unwrap().count();
        assert_eq!(
            adapter
                .fails(
                    "git_worktree_remove",
                    json!({ "slug": "x", "discard": true })
                )
                .0,
            "GIT_REFUSED",
            "{at}"
        );
        assert_eq!(fs::read_dir(&there).unwrap().count(), count, "{at}");
        assert!(
            stage.path("repo/.git/refs/heads/feature/x").exists(),
            "{at}"
        );
    }
}

#[test]
fn history_is_read_commit_by_commit_and_line_by_line() {
    let (stage, mut adapter) = diverged(
        &[
            ("a.txt", "one\nmore\n"),
            ("-x", "dash\n"),
            ("q\t\"'\n", "odd\n"),
        ],
        &[],
    );
    // Names of people that a repository would have others read.
    stage.write(
        &format!("{}/.mailmap", stage.tree("x")),
        "Evil <evil@example.org> <smith@example.org>\n",
    );
    adapter.done(
        "git_commit",
        json!({ "slug": "x", "message": "Map", "paths": [".mailmap"] }),
    );
    let log = |adapter: &mut Adapter, paths: Value| {
        adapter.done("git_log", json!({ "slug": "x", "paths": paths }))["commits"].clone()
    };
    let subjects = |commits: &Value| -> Vec<String> {
        commits
            .as_array()
            .unwrap()
            .iter()
            .map(|commit| commit["subject"].as_str().unwrap().to_owned())
            .collect()
    };
    let of_a = log(&mut adapter, json!(["a.txt"]));
    assert_eq!(subjects(&of_a), ["Change a.txt", "First"]);
    assert_eq!(subjects(&log(&mut adapter, json!(["-x"]))), ["Change -x"]);
    assert_eq!(
        log(&mut adapter, json!(["q\t\"'\n"]))
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(log(&mut adapter, json!(["*", ":(top)a.txt"])), json!([]));
    let sha = of_a[0]["sha"].as_str().unwrap();
    for name in [sha, &sha[..7]] {
        let shown = adapter.done("git_show", json!({ "commit": name }));
        assert_eq!(
            (&shown["sha"], &shown["author"], &shown["message"]),
            (&json!(sha), &json!(AUTHOR), &json!("Change a.txt"))
        );
        assert!(shown["diff"].as_str().unwrap().contains("+more"), "{shown}");
        assert_eq!(shown["parents"], json!([of_a[1]["sha"]]));
    }
    assert_eq!(
        adapter.done("git_show", json!({ "commit": sha, "paths": ["dir"] }))["diff"],
        ""
    );
    // A branch that is named like a commit is none.
    stage.git("repo", &["branch", &sha[..8], "main"]);
    let shown = adapter.call("git_show", json!({ "commit": &sha[..8] }));
    assert!(
        shown["isError"] == true || shown["structuredContent"]["sha"] == sha,
        "{shown}"
    );
    assert_eq!(
        adapter
            .fails("git_show", json!({ "commit": "0123456789" }))
            .0,
        "GIT_REFUSED"
    );
    for commit in [
        "HEAD",
        "main",
        "--all",
        "-n1",
        "abc",
        "main:a.txt",
        "ABCDEF0",
        &"a".repeat(41),
    ] {
        assert_eq!(
            adapter.fails("git_show", json!({ "commit": commit })).0,
            "ARGUMENTS_INVALID"
        );
    }
    let blame = |adapter: &mut Adapter, more: Value| {
        let mut arguments = json!({ "slug": "x", "path": "a.txt" });
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        adapter.done("git_blame", arguments)["blame"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let lines = blame(&mut adapter, json!({}));
    let (first, second) = lines.split_once('\n').unwrap();
    assert!(
        first.contains("(Person ") && first.ends_with(" 1) one"),
        "{lines}"
    );
    assert!(
        second.starts_with(&sha[..12])
            && second.contains("(Agent Smith ")
            && second.ends_with(" 2) more\n"),
        "{lines}"
    );
    assert_eq!(
        blame(&mut adapter, json!({ "from": 2, "count": 1 })),
        second
    );
    for (arguments, code) in [
        (
            json!({ "slug": "x", "path": "a.txt", "from": 0 }),
            "ARGUMENTS_INVALID",
        ),
        (
            json!({ "slug": "x", "path": "a.txt", "count": 1_001 }),
            "ARGUMENTS_INVALID",
        ),
        (
            json!({ "slug": "x", "path": "../a.txt" }),
            "ARGUMENTS_INVALID",
        ),
        (
            json!({ "slug": "x", "path": "a.txt", "from": 1_000 }),
            "GIT_FAILED",
        ),
        (json!({ "slug": "x", "path": "nothing" }), "GIT_FAILED"),
        (
            json!({ "slug": "x", "path": "--contents=/etc/passwd" }),
            "GIT_FAILED",
        ),
    ] {
        assert_eq!(adapter.fails("git_blame", arguments).0, code);
    }
    // Paths of a diff.
    for name in ["a.txt", "dir/b.txt"] {
        stage.write(&format!("{}/{name}", stage.tree("x")), "changed\n");
    }
    let diff = adapter.done("git_diff", json!({ "slug": "x", "paths": ["dir"] }));
    let diff = diff["diff"].as_str().unwrap();
    assert!(
        diff.contains("dir/b.txt") && !diff.contains("a.txt"),
        "{diff}"
    );
    let diff = adapter.done(
        "git_diff",
        json!({ "slug": "x", "against": "origin/main", "paths": ["-x"] }),
    );
    let diff = diff["diff"].as_str().unwrap();
    assert!(diff.contains("+dash") && !diff.contains("a.txt"), "{diff}");
    for tool in ["git_diff", "git_log"] {
        assert_eq!(
            adapter
                .fails(tool, json!({ "slug": "x", "paths": ["../x"] }))
                .0,
            "ARGUMENTS_INVALID"
        );
    }
}

#[test]
fn odd_names_are_reported_and_committed() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    let names = [
        "a\tb", "a\nb", "a\"b", "a'b", "a\rb", " a ", "a\u{7f}b", "--a\t",
    ];
    for name in names {
        stage.write(&format!("{}/{name}", stage.tree("x")), "x");
    }
    let status = adapter.done("git_status", json!({ "slug": "x" }));
    let mut found: Vec<&str> = status["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["path"].as_str().unwrap())
        .collect();
    found.sort_unstable();
    let mut expected = names;
    expected.sort_unstable();
    assert_eq!(found, expected);
    let done = adapter.done(
        "git_commit",
        json!({ "slug": "x", "message": "Odd", "paths": names }),
    );
    assert_eq!(done["files"], names.len());
    clean(&stage);
    // They are restored, too.
    let (_, message) = adapter.fails(
        "git_commit",
        json!({ "slug": "x", "message": "m", "paths": ["a\0b"] }),
    );
    assert!(message.contains("inside the worktree"), "{message}");
}

/// A process that writes on while its worktree is updated and removed.
#[test]
fn a_writer_in_the_worktree_is_in_nobodys_way() {
    let (stage, mut adapter) = diverged(&[], &[("dir/b.txt", "theirs\n"), ("dir/deep/c", "c\n")]);
    let tree = stage.path(&stage.tree("x"));
    let script =
        "while :; do mv dir away; ln -s ../../../../elsewhere dir; rm dir; mv away dir; done";
    fs::create_dir(stage.path("elsewhere")).unwrap();
    let mut writer = std::process::Command::new("/bin/sh");
    let mut writer = writer
        .args(["-c", script])
        .current_dir(&tree)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..20 {
        for action in ["merge", "abort"] {
            adapter.call("git_update", json!({ "slug": "x", "action": action }));
        }
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(fs::read_dir(stage.path("elsewhere")).unwrap().count(), 0);
    let removed = wait_for("the worktree is gone", || {
        let result = adapter.call(
            "git_worktree_remove",
            json!({ "slug": "x", "discard": true }),
        );
        result["isError"].is_null().then_some(result)
    });
    assert_eq!(removed["structuredContent"]["left"], "");
}
