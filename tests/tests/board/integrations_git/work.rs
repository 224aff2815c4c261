//! Every operation, allowed and forbidden.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::UNIX_EPOCH;

use colibri_tests::{copy_program, wait_for};
use serde_json::{Value, json};

use super::stage::{AUTHOR, Stage, text};

#[test]
fn an_agents_way_from_fetch_to_log() {
    let stage = Stage::new();
    stage.git(".", &["clone", "--quiet", "origin.git", "other"]);
    stage.write("other/new.txt", "new\n");
    stage.git("other", &["add", "."]);
    stage.git("other", &["commit", "--quiet", "-m", "Second"]);
    stage.git("other", &["push", "--quiet", "origin", "main", "main:side"]);
    let head = stage.git("other", &["rev-parse", "HEAD"]);
    let mut adapter = stage.adapter();
    assert_eq!(
        adapter.done("git_fetch", json!({})),
        json!({ "branch": "origin/main", "sha": head })
    );
    assert_eq!(stage.git("repo", &["rev-parse", "origin/side"]), head);

    let made = adapter.done("git_worktree_add", json!({ "slug": "p0.3.2" }));
    let place = ".worktrees/claude/p0.3.2";
    assert_eq!(
        made,
        json!({ "slug": "p0.3.2", "branch": "feature/p0.3.2", "sha": head, "worktree": place })
    );
    // It is what git's own would have been.
    let tree = stage.tree("p0.3.2");
    let listed = stage.git("repo", &["worktree", "list", "--porcelain"]);
    let here = stage.path(&tree).display().to_string();
    assert!(
        listed.contains(&format!(
            "worktree {here}\nHEAD {head}\nbranch refs/heads/feature/p0.3.2"
        )),
        "{listed}"
    );
    assert!(
        !listed.contains("locked") && !listed.contains("prunable"),
        "{listed}"
    );
    assert_eq!(stage.git(&tree, &["status", "--porcelain"]), "");
    assert_eq!(text(&stage.path(&tree).join("new.txt")), "new\n");

    // Changed, new, removed, executable, a link, names that could be something else.
    let inside = |name: &str| format!("{tree}/{name}");
    stage.write(&inside("a.txt"), "changed\n");
    fs::remove_file(stage.path(&inside("new.txt"))).unwrap();
    for name in [
        "-x",
        ":(top)y",
        "*",
        "sp ace/\u{fc}.txt",
        "deep/er/z",
        "run.sh",
        "left.tmp",
        "not-asked",
    ] {
        stage.write(&inside(name), name);
    }
    fs::set_permissions(
        stage.path(&inside("run.sh")),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    symlink("/etc/passwd", stage.path(&inside("link"))).unwrap();
    let status = adapter.done("git_status", json!({ "slug": "p0.3.2" }));
    let state = |path: &str| {
        let changes = status["changes"].as_array().unwrap();
        changes
            .iter()
            .find(|change| change["path"] == path)
            .map(|change| change["state"].clone())
    };
    assert_eq!(state("a.txt"), Some(json!(" M")));
    assert_eq!(state("new.txt"), Some(json!(" D")));
    assert_eq!(state("sp ace/\u{fc}.txt"), Some(json!("??")));
    assert_eq!(state("left.tmp"), None);
    assert_eq!(
        (&status["truncated"], &status["sha"]),
        (&json!(false), &json!(head))
    );
    let diff = adapter.done("git_diff", json!({ "slug": "p0.3.2" }));
    assert!(
        diff["diff"].as_str().unwrap().contains("-one\n+changed\n"),
        "{diff}"
    );

    let paths = [
        "a.txt", "new.txt", "-x", ":(top)y", "*", "sp ace", "deep/", "run.sh", "link",
    ];
    let commit = json!({ "slug": "p0.3.2", "message": "Do it\n\nBecause.\n", "paths": paths });
    let done = adapter.done("git_commit", commit);
    let sha = stage.git("repo", &["rev-parse", "refs/heads/feature/p0.3.2"]);
    let expected = json!({ "slug": "p0.3.2", "branch": "feature/p0.3.2", "sha": sha, "parent": head, "files": 9 });
    assert_eq!(done, expected);
    let shown = stage.git(
        "repo",
        &["show", "-s", "--format=%an <%ae>|%cn <%ce>|%P|%B", &sha],
    );
    assert_eq!(shown, format!("{AUTHOR}|{AUTHOR}|{head}|Do it\n\nBecause."));
    let listed = stage.git("repo", &["-c", "core.quotePath=off", "ls-tree", "-r", &sha]);
    for (mode, name) in [
        ("100755", "run.sh"),
        ("120000", "link"),
        ("100644", ":(top)y"),
        ("100644", "deep/er/z"),
    ] {
        assert!(
            listed
                .lines()
                .any(|line| line.starts_with(mode) && line.ends_with(&format!("\t{name}"))),
            "{listed}"
        );
    }
    assert!(
        !listed.contains("not-asked") && !listed.contains("new.txt"),
        "{listed}"
    );
    // What was not asked for is as it was, and people's git sees nothing else.
    assert_eq!(stage.git(&tree, &["status", "--porcelain"]), "?? not-asked");
    assert_eq!(
        stage.git("repo", &["rev-parse", "main"]),
        stage.git("repo", &["rev-parse", "HEAD"])
    );

    let log = adapter.done("git_log", json!({ "slug": "p0.3.2", "count": 2 }));
    let subjects: Vec<&Value> = log["commits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|commit| &commit["subject"])
        .collect();
    assert_eq!(subjects, ["Do it", "Second"]);
    assert_eq!(
        (&log["commits"][0]["sha"], &log["commits"][0]["author"]),
        (&json!(sha), &json!(AUTHOR))
    );
    let log = adapter.done("git_log", json!({}));
    assert_eq!(
        (&log["branch"], &log["sha"]),
        (&json!("origin/main"), &json!(head))
    );
    let diff = adapter.done(
        "git_diff",
        json!({ "slug": "p0.3.2", "against": "origin/main" }),
    );
    assert!(
        diff["diff"].as_str().unwrap().contains("+changed")
            && !diff["diff"].as_str().unwrap().contains("not-asked")
    );
    // An agent of the group may write there, and not in git's own.
    let mode = |name: &str| fs::metadata(stage.path(name)).unwrap().mode() & 0o777;
    assert_eq!((mode(&tree), mode(&inside("dir/b.txt"))), (0o775, 0o664));
    let object = format!("repo/.git/objects/{}", &sha[..2]);
    assert_eq!(
        (mode(&object), mode("repo/.git/refs/heads/feature/p0.3.2")),
        (0o755, 0o644)
    );
    for name in ["HEAD", "commondir", "gitdir", "index"] {
        assert_eq!(
            mode(&format!("repo/.git/worktrees/p0.3.2/{name}")),
            0o644,
            "{name}"
        );
    }
    // And a person removes it again as any other.
    stage.git("repo", &["worktree", "remove", "--force", place]);
    adapter.end();
    assert_eq!(stage.git("repo", &["fsck", "--strict"]), "");
}

#[test]
fn each_commit_is_of_the_named_paths_alone_and_leaves_what_others_staged() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    let tree = stage.tree("x");
    stage.write(&format!("{tree}/staged"), "by a person\n");
    stage.git(&tree, &["add", "staged"]);
    // A file becomes a directory, and a directory a file.
    fs::remove_file(stage.path(&tree).join("a.txt")).unwrap();
    stage.write(&format!("{tree}/a.txt/inner"), "x\n");
    fs::remove_dir_all(stage.path(&tree).join("dir")).unwrap();
    stage.write(&format!("{tree}/dir"), "a file now\n");
    let done = adapter.done(
        "git_commit",
        json!({ "slug": "x", "message": "Swap", "paths": ["a.txt", "dir"] }),
    );
    let names = stage.git(
        "repo",
        &[
            "ls-tree",
            "-r",
            "--name-only",
            done["sha"].as_str().unwrap(),
        ],
    );
    assert_eq!(names, ".gitignore\na.txt/inner\ndir");
    assert_eq!(stage.git(&tree, &["status", "--porcelain"]), "A  staged");
    // All of it.
    adapter.done(
        "git_commit",
        json!({ "slug": "x", "message": "All", "paths": ["."] }),
    );
    assert_eq!(stage.git(&tree, &["status", "--porcelain"]), "");
    assert_eq!(
        stage.git("repo", &["log", "--format=%s", "feature/x"]),
        "All\nSwap\nFirst"
    );
}

#[test]
fn a_change_in_the_second_of_the_checkout_is_seen() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    // The same size, and in whole seconds the same times: git can tell by the age of the index
    // alone.
    let (slug, second) = (0..)
        .find_map(|number: u32| {
            let slug = format!("x{number}");
            adapter.done("git_worktree_add", json!({ "slug": slug }));
            let name = format!("{}/a.txt", stage.tree(&slug));
            stage.write(&name, "two\n");
            let index = stage.path(&format!("repo/.git/worktrees/{slug}/index"));
            let second = fs::metadata(index).unwrap().mtime();
            let is_same = fs::metadata(stage.path(&name)).unwrap().ctime() == second;
            is_same.then_some((slug, second))
        })
        .unwrap();
    wait_for("the next second", || {
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
        (now > second.cast_unsigned()).then_some(())
    });
    let status = adapter.done("git_status", json!({ "slug": slug }));
    assert_eq!(
        status["changes"],
        json!([{ "state": " M", "path": "a.txt" }])
    );
    let diff = adapter.done("git_diff", json!({ "slug": slug }));
    assert!(diff["diff"].as_str().unwrap().contains("+two"), "{diff}");
    // Nor does a commit of something else hide it.
    let tree = stage.tree(&slug);
    stage.write(&format!("{tree}/new"), "");
    adapter.done(
        "git_commit",
        json!({ "slug": slug, "message": "m", "paths": ["new"] }),
    );
    assert_eq!(stage.git(&tree, &["status", "--porcelain"]), " M a.txt");
}

/// Some tools make directories for their user alone.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_cannot_be_read_is_neither_removed_nor_left_out() {
    const UID: u32 = 54_321;
    let stage = Stage::new();
    stage
        .adapter()
        .done("git_worktree_add", json!({ "slug": "x" }));
    let tree = stage.tree("x");
    stage.write(&format!("{tree}/new"), "");
    stage.write(&format!("{tree}/hidden/file"), "");
    // Where the programs were built another user may not reach.
    let program = stage.path("colibri-mcp");
    copy_program(&colibri_tests::program("colibri-mcp"), &program);
    stage.own(UID);
    // One that can be listed and not searched, and one that cannot be listed.
    for (name, mode) in [("dir", 0o704), ("hidden", 0o700)] {
        let path = stage.path(&tree).join(name);
        chown(&path, Some(0), Some(0)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(&program);
    command.uid(UID).gid(UID);
    let mut adapter = stage.adapter_by(command, &stage.arguments(), &[]);
    let commit = |paths: Value| json!({ "slug": "x", "message": "m", "paths": paths });
    for (paths, place) in [
        (json!(["dir"]), "dir/b.txt"),
        (json!(["dir/b.txt"]), "dir/b.txt"),
        (json!(["hidden"]), "hidden/"),
        (json!(["."]), ""),
    ] {
        let (code, message) = adapter.fails("git_commit", commit(paths));
        assert_eq!(code, "GIT_REFUSED", "{message}");
        assert!(
            message.contains(place) && message.contains("cannot be read"),
            "{message}"
        );
    }
    let done = adapter.done("git_commit", commit(json!(["new"])));
    assert_eq!(done["files"], 1);
}

#[test]
fn a_commit_without_a_subject_is_in_the_log() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    let none = [
        "commit",
        "--quiet",
        "--allow-empty",
        "--allow-empty-message",
        "-m",
        "",
    ];
    stage.git(&stage.tree("x"), &none);
    for (count, subjects) in [(1, vec![""]), (2, vec!["", "First"])] {
        let log = adapter.done("git_log", json!({ "slug": "x", "count": count }));
        let commits = log["commits"].as_array().unwrap();
        let found: Vec<&Value> = commits.iter().map(|commit| &commit["subject"]).collect();
        assert_eq!(found, subjects);
    }
}

#[test]
fn what_is_not_allowed_is_refused() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    stage.git("repo", &["branch", "feature/taken"]);
    stage.write("repo/.worktrees/claude/there/file", "");
    stage.write(&format!("{}/new", stage.tree("x")), "");
    stage.write("secret", "of nobody's");
    symlink(
        stage.path("."),
        stage.path(&stage.tree("x")).join("way-out"),
    )
    .unwrap();
    let commit = |key: &str, value: Value| {
        let mut arguments = json!({ "slug": "x", "message": "m", "paths": ["new"] });
        arguments[key] = value;
        arguments
    };
    let before = stage.git("repo", &["for-each-ref"]);
    let (arguments, refused) = ("ARGUMENTS_INVALID", "GIT_REFUSED");
    let slugs = [
        "", ".", "..", "-f", "--force", ".x", "x..y", "x.lock", "x.", "a/b", "../x", "x y", "x\n",
        "@{", "x@{1}", "x~1", "x:y", "\u{e9}",
    ];
    let slugs = slugs.iter().flat_map(|slug| {
        let tools = ["git_worktree_add", "git_status", "git_diff", "git_log"];
        tools.map(|tool| (tool, json!({ "slug": slug }), arguments))
    });
    let others = [
        ("git_push", json!({}), "GIT_PUSH_REFUSED"),
        (
            "git_push",
            json!({ "branch": "feature/x", "force": true }),
            "GIT_PUSH_REFUSED",
        ),
        ("git_fetch", json!({ "url": "ext::sh -c id" }), arguments),
        ("git_fetch", json!({ "prune": true }), arguments),
        (
            "git_worktree_add",
            json!({ "slug": "y", "force": true }),
            arguments,
        ),
        (
            "git_worktree_add",
            json!({ "slug": "y", "commitish": "HEAD" }),
            arguments,
        ),
        ("git_worktree_add", json!({}), arguments),
        ("git_worktree_add", json!({ "slug": ["y"] }), arguments),
        ("git_worktree_add", json!({ "slug": "x" }), refused),
        ("git_worktree_add", json!({ "slug": "taken" }), refused),
        ("git_worktree_add", json!({ "slug": "there" }), refused),
        (
            "git_commit",
            json!({ "slug": "x", "message": "m" }),
            arguments,
        ),
        ("git_commit", commit("slug", json!("nothing")), refused),
        ("git_commit", commit("slug", json!("taken")), refused),
        ("git_commit", commit("amend", json!(true)), arguments),
        (
            "git_commit",
            commit("author", json!("root <root@localhost>")),
            arguments,
        ),
        ("git_commit", commit("message", json!("")), arguments),
        ("git_commit", commit("message", json!(" \n")), arguments),
        (
            "git_commit",
            commit("message", json!("\nfixup! First")),
            arguments,
        ),
        (
            "git_commit",
            commit("message", json!("x".repeat(10_001))),
            arguments,
        ),
        ("git_commit", commit("message", json!("a\u{0}b")), arguments),
        (
            "git_commit",
            commit("message", json!("a\u{202e}b")),
            arguments,
        ),
        ("git_commit", commit("paths", json!([])), arguments),
        ("git_commit", commit("paths", json!("new")), arguments),
        (
            "git_commit",
            commit("paths", json!(vec!["new"; 501])),
            arguments,
        ),
        (
            "git_commit",
            commit("paths", json!(["/etc/passwd"])),
            arguments,
        ),
        (
            "git_commit",
            commit("paths", json!(["../../../secret"])),
            arguments,
        ),
        ("git_commit", commit("paths", json!([".git"])), arguments),
        (
            "git_commit",
            commit("paths", json!(["dir/.GIT/config"])),
            arguments,
        ),
        // Nothing of what these would mean elsewhere is meant.
        ("git_commit", commit("paths", json!([":(glob)*"])), refused),
        ("git_commit", commit("paths", json!([":/"])), refused),
        ("git_commit", commit("paths", json!(["n*"])), refused),
        ("git_commit", commit("paths", json!(["--all"])), refused),
        ("git_commit", commit("paths", json!(["a.txt"])), refused),
        (
            "git_commit",
            commit("paths", json!(["way-out/secret"])),
            refused,
        ),
        (
            "git_diff",
            json!({ "slug": "x", "against": "HEAD" }),
            arguments,
        ),
        (
            "git_diff",
            json!({ "slug": "x", "against": "--output=/tmp/x" }),
            arguments,
        ),
        ("git_diff", json!({ "slug": "nothing" }), refused),
        ("git_status", json!({ "slug": "nothing" }), refused),
        ("git_log", json!({ "slug": "nothing" }), refused),
        ("git_log", json!({ "count": 0 }), arguments),
        ("git_log", json!({ "count": 201 }), arguments),
        (
            "git_log",
            json!({ "slug": "x", "revision": "main" }),
            arguments,
        ),
    ];
    for (tool, asked, code) in slugs.chain(others) {
        let told = format!("{tool} {asked}");
        let (found, message) = adapter.fails(tool, asked);
        assert_eq!(found, code, "{told}: {message}");
        assert!(message.chars().count() < 900, "{told}: {message}");
    }
    for tool in [
        "git_reset",
        "git_branch",
        "git_checkout",
        "git_config",
        "status",
        "",
    ] {
        adapter.ask(tool, json!({}));
        assert_eq!(adapter.read()["error"]["code"], -32602, "{tool}");
    }
    assert_eq!(stage.git("repo", &["for-each-ref"]), before);
    assert_eq!(
        stage.git("origin.git", &["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main"
    );
}

#[test]
fn a_lock_that_is_held_passes() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    stage.write(&format!("{}/new", stage.tree("x")), "");
    let commit = json!({ "slug": "x", "message": "m", "paths": ["new"] });
    for lock in ["worktrees/x/index.lock", "refs/heads/feature/x.lock"] {
        let lock = stage.path("repo/.git").join(lock);
        fs::write(&lock, "").unwrap();
        let result = adapter.call("git_commit", commit.clone());
        let error = &result["structuredContent"]["error"];
        assert_eq!(
            (&error["code"], &error["transient"]),
            (&json!("GIT_BUSY"), &json!(true)),
            "{result}"
        );
        assert!(lock.exists(), "{lock:?} is another's");
        fs::remove_file(&lock).unwrap();
    }
    // Neither try has left a lock of its own.
    adapter.done("git_commit", commit);
}

#[test]
fn much_is_cut_and_said_to_be() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    adapter.done("git_worktree_add", json!({ "slug": "x" }));
    let tree = stage.tree("x");
    stage.write(&format!("{tree}/a.txt"), &"line\n".repeat(400_000));
    for number in 0..1_001 {
        stage.write(&format!("{tree}/many/{number}"), "");
    }
    let diff = adapter.done("git_diff", json!({ "slug": "x" }));
    assert_eq!(
        (
            diff["truncated"].clone(),
            diff["diff"].as_str().unwrap().len()
        ),
        (json!(true), 512 * 1024)
    );
    let status = adapter.done("git_status", json!({ "slug": "x" }));
    let changes = status["changes"].as_array().unwrap();
    assert_eq!((&status["truncated"], changes.len()), (&json!(true), 1_000));
    adapter.done(
        "git_commit",
        json!({ "slug": "x", "message": "Much", "paths": ["."] }),
    );
}

#[test]
fn without_a_repository_it_says_that_none_is_connected() {
    let stage = Stage::new();
    let git = |more: &[&str]| {
        let all = ["integration", "git"].iter().chain(more);
        all.map(|text| (*text).to_owned()).collect::<Vec<_>>()
    };
    let repository = stage.path("repo").display().to_string();
    let nowhere = stage.path("nowhere").display().to_string();
    let commit = json!({ "slug": "x", "message": "m", "paths": ["."] });
    for (arguments, tool, asked) in [
        (git(&[]), "git_log", json!({})),
        (git(&["--repository", &nowhere]), "git_log", json!({})),
        (git(&["--repository", &repository]), "git_fetch", json!({})),
        (git(&["--repository", &repository]), "git_commit", commit),
        (
            git(&["--repository", &repository, "--git", &nowhere]),
            "git_log",
            json!({}),
        ),
    ] {
        let (code, message) = stage.adapter_of(&arguments, &[]).fails(tool, asked);
        assert_eq!(code, "INTEGRATION_UNAVAILABLE", "{message}");
        assert!(message.ends_with("not connected"), "{message}");
    }
    for (arguments, why) in [
        (git(&["--repository", "repo"]), "absolute"),
        (
            git(&["--repository", &repository, "--git", "git"]),
            "absolute",
        ),
        (git(&["--origin", "https://h/p"]), "--repository"),
        (
            git(&["--repository", &repository, "--origin", "ext::sh -c id"]),
            "must begin with",
        ),
        (
            git(&["--repository", &repository, "--origin", "https://u:p@h/p"]),
            "user or password",
        ),
        (
            git(&["--repository", &repository, "--author", "somebody"]),
            "NAME <ADDRESS>",
        ),
        (
            git(&[
                "--repository",
                &repository,
                "--origin",
                "http://h/p",
                "--user",
                "a",
            ]),
            "GIT_ORIGIN_TOKEN",
        ),
    ] {
        let mut command = std::process::Command::new(colibri_tests::program("colibri-mcp"));
        let output = command
            .args(&arguments)
            .env("GIT_ORIGIN_TOKEN", "t0k3n")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {said}");
        assert!(
            said.contains(why) && !said.contains("t0k3n"),
            "{arguments:?}: {said}"
        );
    }
}
