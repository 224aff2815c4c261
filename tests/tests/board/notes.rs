//! The mirror of notes: real trees, hostile ones on both sides, and that nothing ever goes from the
//! vault to the repository.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use colibri_tests::{Client, LEGACY, MODERN, Place, code_of, copy_program, program, wait_for};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The names that are neither read nor written, some as a file system that folds them would take
/// them.
const OUT_OF_BOUNDS: [&str; 9] = [
    ".git",
    "_vault",
    ".worktrees",
    "node_modules",
    "temp",
    ".GIT",
    "Node_Modules",
    "TEMP",
    "_Vault",
];
/// Whom files belong to that the adapter may not touch.
const STRANGER: u32 = 54_321;

/// A repository and a directory for its mirror, side by side.
struct Trees {
    _top: tempfile::TempDir,
    top: PathBuf,
}

impl Trees {
    fn new() -> Trees {
        let top = tempfile::Builder::new()
            .prefix("colibri-notes-")
            .tempdir()
            .unwrap();
        let trees = Trees {
            top: top.path().canonicalize().unwrap(),
            _top: top,
        };
        fs::create_dir_all(trees.docs("")).unwrap();
        fs::create_dir(trees.mirror("")).unwrap();
        trees
    }

    fn repository(&self) -> PathBuf {
        self.top.join("repository")
    }

    fn docs(&self, path: impl AsRef<Path>) -> PathBuf {
        self.repository().join("docs").join(path)
    }

    fn mirror(&self, path: impl AsRef<Path>) -> PathBuf {
        self.top.join("mirror").join(path)
    }

    fn args(&self) -> [String; 4] {
        let [repository, mirror] =
            [self.repository(), self.top.join("mirror")].map(|path| path.display().to_string());
        [
            "--repository".to_owned(),
            repository,
            "--mirror".to_owned(),
            mirror,
        ]
    }

    fn adapter(&self) -> Adapter {
        Adapter::start(Command::new(program("colibri-mcp")), &self.args())
    }

    /// That the mirror has what `docs/` has, and nothing else but its mark.
    fn assert_equal(&self) {
        let mut mirrored = contents(&self.mirror(""));
        assert!(
            mirrored.remove(OsStr::new(".colibri-mirror")).is_some(),
            "the mark"
        );
        let docs = contents(&self.docs(""));
        assert!(
            docs == mirrored,
            "{:?}\n{:?}",
            docs.keys().take(20),
            mirrored.keys().take(20)
        );
    }
}

fn put(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Visits what is below a directory, directories before what is in them.
fn visit(top: &Path, at: &Path, look: &mut impl FnMut(&Path, &Path)) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        look(path.strip_prefix(top).unwrap(), &path);
        if path.symlink_metadata().is_ok_and(|about| about.is_dir()) {
            visit(top, &path, look);
        }
    }
}

/// Relative paths, with the content of files and a word for everything else.
fn contents(top: &Path) -> BTreeMap<std::ffi::OsString, Vec<u8>> {
    let mut found = BTreeMap::new();
    visit(top, top, &mut |name, path| {
        let about = path.symlink_metadata().unwrap();
        let content = match about.file_type() {
            kind if kind.is_file() => fs::read(path).unwrap(),
            kind if kind.is_dir() => b"directory".to_vec(),
            kind => format!("{kind:?}").into_bytes(),
        };
        found.insert(name.as_os_str().to_owned(), content);
    });
    found
}

/// A digest of all that a tree is: names, contents, modes, owners, links, and the times of changes
/// down to the inode's.
fn digest(top: &Path) -> String {
    let mut lines = BTreeMap::new();
    let mut note = |name: &Path, path: &Path| {
        let about = path.symlink_metadata().unwrap();
        let content = match about.file_type() {
            kind if kind.is_file() => Sha256::digest(fs::read(path).unwrap()).to_vec(),
            kind if kind.is_symlink() => fs::read_link(path)
                .unwrap()
                .into_os_string()
                .as_bytes()
                .to_vec(),
            _ => Vec::new(),
        };
        let times = (
            about.mtime(),
            about.mtime_nsec(),
            about.ctime(),
            about.ctime_nsec(),
        );
        let facts = (
            about.ino(),
            about.mode(),
            about.nlink(),
            about.uid(),
            about.len(),
            times,
        );
        lines.insert(name.to_owned(), format!("{facts:?} {content:?}"));
    };
    note(Path::new(""), top);
    visit(top, top, &mut note);
    colibri_text::hex(&Sha256::digest(format!("{lines:?}")))
}

/// The adapter, started as the daemon does.
struct Adapter {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    id: u64,
}

impl Adapter {
    fn start(mut command: Command, args: &[String]) -> Adapter {
        command
            .args(["integration", "notes"])
            .args(args)
            .env_clear();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Adapter {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            id: 0,
        }
    }

    fn send(&mut self, arguments: &Value) {
        self.id += 1;
        let params = json!({ "name": "notes_sync", "arguments": arguments });
        let request =
            json!({ "jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params });
        writeln!(self.stdin.as_mut().unwrap(), "{request}").unwrap();
    }

    fn call(&mut self, arguments: &Value) -> Value {
        self.send(arguments);
        let mut answer: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["id"], self.id, "{answer}");
        answer["result"].take()
    }

    /// What a run says that must succeed.
    fn sync(&mut self, strategy: &str) -> Value {
        let mut result = self.call(&asked(strategy));
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].take()
    }

    /// Code and message of one that must fail.
    fn refused(&mut self, arguments: &Value) -> (String, String) {
        failure(&self.call(arguments))
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.stdin.take();
        let _ = self.child.wait();
    }
}

fn asked(strategy: &str) -> Value {
    json!({ "strategy": strategy, "dry_run": false })
}

fn failure(result: &Value) -> (String, String) {
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    let text = |key: &str| {
        error[key]
            .as_str()
            .unwrap_or_else(|| panic!("{result}"))
            .to_owned()
    };
    assert!(text("message").len() <= 512, "{result}");
    (text("code"), text("message"))
}

/// The counts that are not zero.
fn left_out(said: &Value) -> BTreeMap<String, u64> {
    let counts = said["left_out"].as_object().unwrap().iter();
    counts
        .map(|(why, count)| (why.clone(), count.as_u64().unwrap()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn counts(said: &Value) -> [u64; 4] {
    ["files", "written", "unchanged", "removed"].map(|key| said[key].as_u64().unwrap())
}

/// A place whose server `notes` is the adapter of these trees, with the contract that ships, whose
/// waits are these.
fn place_of(trees: &Trees, waits: &Value) -> Place {
    place_at(trees, &trees.args()[3], waits)
}

/// The same, with a contract that expects the mirror to be there.
fn place_at(trees: &Trees, mirror: &str, waits: &Value) -> Place {
    let place = Place::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/contracts/notes-mirror.json");
    let text = fs::read_to_string(shipped).unwrap();
    let mut contract: Value = serde_json::from_str(&text.replace("/work/mirror", mirror)).unwrap();
    contract["tools"]["notes_sync"]["retries"]["NOTES_BUSY"] = waits.clone();
    let path = place.path("contract.json");
    fs::write(&path, contract.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let args = [
        &["integration".to_owned(), "notes".to_owned()][..],
        &trees.args(),
    ]
    .concat();
    let entry = json!({ "command": program("colibri-mcp"), "args": args, "contract": path, "timeout_ms": 600_000 });
    place.registry(&json!({ "notes": entry }));
    place
}

fn call(client: &mut Client, arguments: Value) -> Value {
    client.ask(
        "tools/call",
        json!({ "name": "notes__notes_sync", "arguments": arguments }),
    )
}

/// What a call through the daemon says that must succeed.
fn synced(client: &mut Client, arguments: Value) -> Value {
    let mut answer = call(client, arguments);
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    answer["result"]["structuredContent"].take()
}

/// Ten thousand files in two hundred directories, of sizes from nothing to 64 KiB.
fn ten_thousand(trees: &Trees) {
    for index in 0..10_000_usize {
        let path = format!("part {}/chapter-{}/{index}.md", index % 20, index % 200);
        let size = (index * 37) % 700 + if index % 500 == 0 { 64 * 1024 } else { 0 };
        put(trees.docs(path), format!("{index:06} ").repeat(size / 7));
    }
    put(
        trees.repository().join(".git/config"),
        "[remote \"origin\"]\n",
    );
    put(trees.repository().join("src/main.rs"), "fn main() {}\n");
}

#[test]
fn ten_thousand_files_go_one_way() {
    let trees = Trees::new();
    ten_thousand(&trees);
    let place = place_of(&trees, &json!([1]));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let before = digest(&trees.repository());
    let dry = synced(
        &mut client,
        json!({ "strategy": "mirror", "dry_run": true }),
    );
    assert_eq!(counts(&dry), [10_000, 10_000, 0, 0]);
    assert_eq!(
        fs::read_dir(trees.mirror("")).unwrap().count(),
        0,
        "a dry run writes nothing"
    );
    let first = synced(&mut client, asked("mirror"));
    assert_eq!(counts(&first), [10_000, 10_000, 0, 0]);
    assert_eq!(
        (&first["bytes"], left_out(&first).len()),
        (&dry["bytes"], 0)
    );
    assert_eq!(first["mirror"], trees.args()[3].as_str());
    trees.assert_equal();
    // A second run writes nothing: not even a time of a change is another.
    let written = digest(&trees.mirror(""));
    assert_eq!(
        counts(&synced(&mut client, asked("mirror"))),
        [10_000, 0, 10_000, 0]
    );
    assert_eq!(digest(&trees.mirror("")), written);
    // The vault's people change, remove, rename, and add.
    let file = |index: usize| {
        trees.mirror(format!(
            "part {}/chapter-{}/{index}.md",
            index % 20,
            index % 200
        ))
    };
    for index in 0..100 {
        fs::write(file(index), "mine").unwrap();
        fs::remove_file(file(index + 100)).unwrap();
        // Of the same size, where there is any.
        let mut other = fs::read(file(index + 200)).unwrap();
        other.pop();
        other.push(b'x');
        fs::write(file(index + 200), other).unwrap();
        fs::rename(file(index + 300), file(index + 300).with_extension("mine")).unwrap();
        put(trees.mirror(format!("my own/{index}.md")), "mine");
    }
    let changed = digest(&trees.mirror(""));
    let dry = synced(
        &mut client,
        json!({ "strategy": "mirror", "dry_run": true }),
    );
    assert_eq!(
        digest(&trees.mirror("")),
        changed,
        "a dry run writes nothing"
    );
    let added = synced(&mut client, asked("add"));
    assert_eq!(counts(&added), [10_000, 400, 9600, 0]);
    assert!(trees.mirror("my own/7.md").exists() && file(307).with_extension("mine").exists());
    let mirrored = synced(&mut client, asked("mirror"));
    assert_eq!(counts(&mirrored), [10_000, 0, 10_000, 201]);
    assert_eq!(counts(&dry), [10_000, 400, 9600, 201]);
    trees.assert_equal();
    // Nothing of all that was seen in the repository.
    assert_eq!(digest(&trees.repository()), before);
    // What the repository removes is removed.
    fs::remove_dir_all(trees.docs("part 3")).unwrap();
    let before = digest(&trees.repository());
    assert_eq!(
        counts(&synced(&mut client, asked("add"))),
        [9500, 0, 9500, 0]
    );
    assert_eq!(
        counts(&synced(&mut client, asked("mirror"))),
        [9500, 0, 9500, 511]
    );
    trees.assert_equal();
    assert_eq!(digest(&trees.repository()), before);
    let records = place.trail();
    let syncs: Vec<&Value> = records
        .iter()
        .filter(|record| record["event"] == "notes_sync")
        .collect();
    assert_eq!(syncs.len(), 8);
    let details = &syncs[1]["details"];
    assert_eq!(
        (
            &details["files"],
            &details["strategy"],
            &details["bytes"],
            &details["written"],
            &details["dry_run"]
        ),
        (
            &json!(10_000),
            &json!("mirror"),
            &first["bytes"],
            &json!(10_000),
            &json!(false)
        )
    );
    drop((client, daemon));
    place.assert_trail_is_sound();
}

#[test]
fn a_call_says_how_and_never_where() {
    let trees = Trees::new();
    put(trees.docs("a.md"), "a");
    let wrong = [
        json!({}),
        json!({ "strategy": "mirror" }),
        json!({ "dry_run": false }),
        json!({ "strategy": "reverse", "dry_run": false }),
        json!({ "strategy": "mirror", "dry_run": "no" }),
        json!({ "strategy": null, "dry_run": false }),
        json!({ "strategy": "mirror", "dry_run": false, "repository": "/" }),
        json!({ "strategy": "mirror", "dry_run": false, "mirror": trees.docs("") }),
        json!({ "strategy": "mirror", "dry_run": false, "path": "../../etc" }),
    ];
    let place = place_of(&trees, &json!([1]));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    let mut adapter = trees.adapter();
    for wrong in &wrong {
        let answer = call(&mut client, wrong.clone());
        assert_eq!(
            code_of(&answer),
            Some("CONTRACT_DENIED"),
            "{wrong}: {answer}"
        );
        // And where no contract has looked at them.
        assert_eq!(adapter.refused(wrong).0, "ARGUMENTS_INVALID", "{wrong}");
    }
    for odd in [json!([]), json!(null), json!("mirror")] {
        assert_eq!(adapter.refused(&odd).0, "ARGUMENTS_INVALID", "{odd}");
    }
    assert_eq!(fs::read_dir(trees.mirror("")).unwrap().count(), 0);
    for version in [LEGACY, MODERN] {
        let mut client = if version == MODERN {
            daemon.modern()
        } else {
            daemon.quiet(version)
        };
        assert_eq!(synced(&mut client, asked("add"))["files"], 1);
    }
}

#[test]
fn a_result_about_another_place_is_none() {
    let trees = Trees::new();
    put(trees.docs("a.md"), "a");
    let place = place_at(&trees, "/work/elsewhere", &json!([1]));
    let daemon = place.start(&[]);
    let answer = call(&mut daemon.quiet(LEGACY), asked("mirror"));
    assert_eq!(code_of(&answer), Some("RESULT_REFUSED"), "{answer}");
    assert!(
        place
            .trail()
            .iter()
            .all(|record| record["event"] != "notes_sync")
    );
}

#[test]
fn a_command_line_that_leads_nowhere_is_said() {
    let place = Place::new();
    for (args, why) in [
        (&["--repository", "/r"][..], "--mirror"),
        (&["--mirror", "/m"], "--repository"),
        (
            &["--repository", "r", "--mirror", "/m"],
            "--repository must be an absolute path",
        ),
        (
            &["--repository", "/r", "--mirror", "../m"],
            "--mirror must be an absolute path",
        ),
    ] {
        let mut command = place.colibri_mcp(&["integration", "notes"]);
        let output = command.args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
    let mut adapter = Adapter::start(Command::new(program("colibri-mcp")), &[]);
    let (code, message) = adapter.refused(&asked("mirror"));
    assert_eq!(code, "INTEGRATION_UNAVAILABLE");
    assert!(message.ends_with("notes not connected"), "{message}");
}

#[test]
fn places_that_are_no_repository_and_no_mirror_are_refused() {
    // What is put down, which repository and mirror are named, the code, and what is said.
    type Case<'a> = (&'a dyn Fn(&Trees), &'a str, &'a str, &'a str, &'a str);
    let cases: &[Case<'_>] = &[
        (
            &|_| {},
            "nothing",
            "mirror",
            "INTEGRATION_UNAVAILABLE",
            "No such file",
        ),
        (
            &|_| {},
            "repository",
            "nothing",
            "INTEGRATION_UNAVAILABLE",
            "No such file",
        ),
        (
            &|_| {},
            "mirror",
            "repository",
            "INTEGRATION_UNAVAILABLE",
            "docs: No such file",
        ),
        (
            &|trees| put(trees.top.join("file"), ""),
            "repository",
            "file",
            "INTEGRATION_UNAVAILABLE",
            "is no directory",
        ),
        (
            &|trees| symlink(trees.mirror(""), trees.top.join("link")).unwrap(),
            "repository",
            "link",
            "INTEGRATION_UNAVAILABLE",
            "symbolic link",
        ),
        (
            &|trees| symlink(&trees.top, trees.top.join("way")).unwrap(),
            "way/repository",
            "mirror",
            "INTEGRATION_UNAVAILABLE",
            "symbolic link",
        ),
        (
            &|trees| {
                fs::remove_dir(trees.docs("")).unwrap();
                symlink("/etc", trees.docs("").parent().unwrap().join("docs")).unwrap();
            },
            "repository",
            "mirror",
            "INTEGRATION_UNAVAILABLE",
            "symbolic link",
        ),
        (
            &|_| {},
            "repository",
            "repository",
            "INTEGRATION_UNAVAILABLE",
            "lie in each other",
        ),
        (
            &|_| {},
            "repository",
            "repository/docs",
            "INTEGRATION_UNAVAILABLE",
            "lie in each other",
        ),
        (
            &|trees| fs::create_dir_all(trees.repository().join("_vault/mirror")).unwrap(),
            "repository",
            "repository/_vault/mirror",
            "INTEGRATION_UNAVAILABLE",
            "lie in each other",
        ),
        (
            &|trees| fs::rename(trees.repository(), trees.mirror("repository")).unwrap(),
            "mirror/repository",
            "mirror",
            "INTEGRATION_UNAVAILABLE",
            "lie in each other",
        ),
        (
            &|trees| put(trees.mirror("diary.md"), "mine"),
            "repository",
            "mirror",
            "NOTES_NOT_OURS",
            "has files and no",
        ),
        (
            &|trees| put(trees.mirror(".git/HEAD"), "x"),
            "repository",
            "mirror",
            "NOTES_NOT_OURS",
            "has files and no",
        ),
        (
            &|trees| symlink("/etc/passwd", trees.mirror(".colibri-mirror")).unwrap(),
            "repository",
            "mirror",
            "NOTES_NOT_OURS",
            "is no file",
        ),
        (
            &|trees| symlink(trees.docs("new"), trees.mirror(".colibri-mirror")).unwrap(),
            "repository",
            "mirror",
            "NOTES_NOT_OURS",
            "is no file",
        ),
        (
            &|trees| mkfifo(&trees.mirror(".colibri-mirror"), Mode::S_IRWXU).unwrap(),
            "repository",
            "mirror",
            "NOTES_NOT_OURS",
            "is no file",
        ),
        (
            &|trees| fs::create_dir(trees.mirror(".colibri-mirror")).unwrap(),
            "repository",
            "mirror",
            "NOTES_NOT_OURS",
            "is no file",
        ),
        (
            &|trees| drop(UnixListener::bind(trees.mirror(".colibri-mirror")).unwrap()),
            "repository",
            "mirror",
            "NOTES_NOT_OURS",
            "is no file",
        ),
        (
            &|trees| put(trees.docs(".colibri-mirror"), ""),
            "repository",
            "mirror",
            "INTEGRATION_UNAVAILABLE",
            "it is a mirror itself",
        ),
    ];
    for (prepare, repository, mirror, code, why) in cases {
        let trees = Trees::new();
        put(trees.docs("a.md"), "a");
        if why.contains("symbolic") {
            fs::remove_file(trees.docs("a.md")).unwrap();
        }
        prepare(&trees);
        let path = |name: &str| trees.top.join(name).display().to_string();
        let args = [
            "--repository".to_owned(),
            path(repository),
            "--mirror".to_owned(),
            path(mirror),
        ];
        let before = digest(&trees.top);
        for strategy in ["add", "mirror"] {
            let mut adapter = Adapter::start(Command::new(program("colibri-mcp")), &args);
            let (found, message) = adapter.refused(&asked(strategy));
            assert_eq!(found, *code, "{repository} {mirror}: {message}");
            assert!(message.contains(why), "{repository} {mirror}: {message}");
        }
        let is_marked = trees.mirror(".colibri-mirror").is_file();
        assert!(
            digest(&trees.top) == before || is_marked && why.contains("itself"),
            "{repository} {mirror}"
        );
    }
}

#[test]
fn names_out_of_bounds_are_neither_read_nor_written_on_either_side() {
    let trees = Trees::new();
    put(trees.docs("a.md"), "a");
    put(trees.docs("below/b.md"), "b");
    put(trees.docs("temp.md"), "is not temp/");
    for name in OUT_OF_BOUNDS {
        for at in ["", "below", "below/deeper"] {
            // Whoever read them would count what is in them.
            let docs = trees.docs(at).join(name);
            put(docs.join("secret.md"), "secret");
            symlink("/etc", docs.join("link")).unwrap();
            put(trees.mirror(at).join(name).join("diary.md"), "mine");
        }
    }
    // As files, too, which .git is in a worktree.
    put(trees.docs("worktree/.git"), "gitdir: /elsewhere");
    put(trees.mirror("extra/temp"), "mine");
    put(trees.mirror("extra/old.md"), "old");
    put(trees.mirror(".colibri-mirror"), "");
    // A directory where a file is to be, with such a name in it.
    put(trees.mirror("a.md/node_modules/x"), "mine");
    let mut adapter = trees.adapter();
    let before = digest(&trees.repository());
    for strategy in ["mirror", "add", "mirror"] {
        let said = adapter.sync(strategy);
        assert_eq!(said["files"], 2, "{said}");
        let why = [
            ("in_the_way".to_owned(), 1),
            ("out_of_bounds".to_owned(), 28),
        ];
        assert_eq!(left_out(&said), why.into(), "{said}");
    }
    assert_eq!(digest(&trees.repository()), before);
    for name in OUT_OF_BOUNDS {
        for at in ["", "below", "below/deeper"] {
            let there = contents(&trees.mirror(at).join(name));
            assert_eq!(
                there,
                [("diary.md".into(), b"mine".to_vec())].into(),
                "{at}/{name}"
            );
        }
    }
    assert_eq!(fs::read(trees.mirror("extra/temp")).unwrap(), b"mine");
    assert_eq!(
        fs::read(trees.mirror("a.md/node_modules/x")).unwrap(),
        b"mine"
    );
    assert!(!trees.mirror("extra/old.md").exists() && !trees.mirror("worktree/.git").exists());
    assert_eq!(fs::read(trees.mirror("temp.md")).unwrap(), b"is not temp/");
}

#[test]
fn of_a_hostile_repository_come_files_alone() {
    let trees = Trees::new();
    let secret = trees.top.join("secret");
    put(secret.join("key.md"), "secret");
    put(trees.docs("good.md"), "good");
    // Links of all kinds, a FIFO, a socket, a hard link to a secret, and a mirror.
    symlink(secret.join("key.md"), trees.docs("link.md")).unwrap();
    symlink(&secret, trees.docs("directory")).unwrap();
    symlink("../../secret", trees.docs("relative")).unwrap();
    symlink("nowhere", trees.docs("dangling")).unwrap();
    symlink(".", trees.docs("loop")).unwrap();
    mkfifo(&trees.docs("fifo.md"), Mode::S_IRWXU).unwrap();
    drop(UnixListener::bind(trees.docs("socket.md")).unwrap());
    fs::hard_link(secret.join("key.md"), trees.docs("hard.md")).unwrap();
    put(trees.docs("other/.colibri-mirror"), "");
    put(trees.docs("other/a.md"), "a mirror is not mirrored");
    put(trees.docs(".colibri-mirror-new"), "ours alone");
    // Names that others trip over.
    let long = "l".repeat(255);
    let odd: [&[u8]; 11] = [
        b"new\nline.md",
        b"\x1b[2Jescape.md",
        b"...",
        b".. ",
        b"..md",
        b"-rf",
        b"*",
        b"\xff\xfe not UTF-8",
        "\u{202e}dm.turned".as_bytes(),
        "a\u{308}\u{e4}".as_bytes(),
        long.as_bytes(),
    ];
    for name in odd {
        put(trees.docs(OsStr::from_bytes(name)), name);
    }
    // Deeper than a mirror is.
    let mut deep = PathBuf::from("deep");
    for _ in 0..100 {
        deep.push("d");
    }
    put(trees.docs(&deep).join("deep.md"), "deep");
    put(trees.docs("deep/d/d/near.md"), "near");
    let before = digest(&trees.top);
    let mut adapter = trees.adapter();
    let dry = adapter.call(&json!({ "strategy": "mirror", "dry_run": true }));
    assert_eq!(digest(&trees.top), before);
    let said = adapter.sync("mirror");
    assert_eq!(counts(&dry["structuredContent"]), counts(&said));
    assert_eq!(said["files"], 2 + odd.len(), "{said}");
    let expected = [
        ("deep", 1),
        ("hard_links", 1),
        ("links", 5),
        ("out_of_bounds", 2),
        ("special", 2),
    ];
    assert_eq!(
        left_out(&said),
        expected.map(|(why, count)| (why.to_owned(), count)).into()
    );
    for name in odd {
        assert_eq!(
            fs::read(trees.mirror(OsStr::from_bytes(name))).unwrap(),
            name
        );
    }
    let files = contents(&trees.mirror(""));
    assert!(
        !files
            .values()
            .any(|content| content.windows(6).any(|bytes| bytes == b"secret"))
    );
    assert_eq!(
        counts(&adapter.sync("mirror")),
        [said["files"].as_u64().unwrap(), 0, 13, 0]
    );
    // Names of the repository are in no answer: they are a stranger's words.
    assert!(!said.to_string().contains("escape"), "{said}");
    // What was a file and is a link now is no file of the repository any more.
    fs::remove_file(trees.docs("good.md")).unwrap();
    symlink(secret.join("key.md"), trees.docs("good.md")).unwrap();
    let said = adapter.sync("mirror");
    assert_eq!((&said["removed"], left_out(&said)["links"]), (&json!(1), 6));
    assert!(!trees.mirror("good.md").exists());
}

#[test]
fn nobody_reads_more_of_a_copy_than_of_the_original() {
    let trees = Trees::new();
    for mode in [0o600, 0o640, 0o644, 0o755, 0o4755, 0o666, 0o400, 0o2711] {
        let path = trees.docs(format!("{mode:o}.md"));
        put(&path, "x");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(trees.docs("own")).unwrap();
    fs::set_permissions(trees.docs("own"), fs::Permissions::from_mode(0o1700)).unwrap();
    let mut adapter = trees.adapter();
    adapter.sync("add");
    let mode = |path: &str| fs::metadata(trees.mirror(path)).unwrap().mode() & 0o7777;
    for (original, copy) in [
        ("600.md", 0o600),
        ("640.md", 0o640),
        ("644.md", 0o644),
        ("755.md", 0o644),
        ("4755.md", 0o644),
        ("666.md", 0o644),
        ("400.md", 0o600),
        ("2711.md", 0o600),
        ("own", 0o700),
    ] {
        assert_eq!(mode(original), copy, "{original}");
    }
    fs::set_permissions(trees.docs("644.md"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(counts(&adapter.sync("add")), [8, 1, 7, 0]);
    assert_eq!(mode("644.md"), 0o600);
    // A directory that is closed, and one that a run which was killed had not opened yet.
    for (at_first, then) in [(0o755, 0o700), (0o700, 0o755)] {
        let directory = |mode| {
            fs::set_permissions(trees.docs("own"), fs::Permissions::from_mode(mode)).unwrap()
        };
        directory(at_first);
        adapter.sync("add");
        directory(then);
        let said = adapter.call(&json!({ "strategy": "mirror", "dry_run": true }));
        assert_eq!(
            (&said["isError"], mode("own")),
            (&Value::Null, at_first),
            "a dry run"
        );
        adapter.sync("add");
        assert_eq!(mode("own"), then);
    }
}

#[test]
fn a_hostile_vault_leads_nowhere_else() {
    for strategy in ["add", "mirror"] {
        let trees = Trees::new();
        let victim = trees.top.join("victim");
        put(victim.join("a.md"), "of the victim");
        put(victim.join("below/b.md"), "of the victim");
        for name in [
            "link.md",
            "hard.md",
            "fifo.md",
            "socket.md",
            "directory.md",
            "same.md",
            "linked/a.md",
            "sub/b.md",
        ] {
            put(trees.docs(name), "of the repository");
        }
        put(trees.mirror(".colibri-mirror"), "");
        // In the place of files.
        symlink(victim.join("a.md"), trees.mirror("link.md")).unwrap();
        fs::hard_link(victim.join("a.md"), trees.mirror("hard.md")).unwrap();
        mkfifo(&trees.mirror("fifo.md"), Mode::S_IRWXU).unwrap();
        drop(UnixListener::bind(trees.mirror("socket.md")).unwrap());
        put(trees.mirror("directory.md/mine.md"), "mine");
        // The same content, but with another name where it could be changed.
        put(trees.mirror("same.md"), "of the repository");
        fs::hard_link(trees.mirror("same.md"), trees.top.join("handle")).unwrap();
        // In the place of directories, and of what is being written.
        symlink(&victim, trees.mirror("linked")).unwrap();
        put(trees.mirror("sub/.colibri-mirror-new/x/y"), "in the way");
        symlink(victim.join("new.md"), trees.mirror(".colibri-mirror-new")).unwrap();
        // Beside them.
        symlink(&victim, trees.mirror("extra")).unwrap();
        put(trees.mirror("mine/deep.md"), "mine");
        symlink(&victim, trees.mirror("mine/link")).unwrap();
        fs::hard_link(victim.join("below/b.md"), trees.mirror("mine/hard.md")).unwrap();
        mkfifo(&trees.mirror("mine/fifo"), Mode::S_IRWXU).unwrap();
        let outside = [contents(&victim), contents(&trees.repository())];
        let repository = digest(&trees.repository());
        let mut adapter = trees.adapter();
        let said = adapter.sync(strategy);
        assert_eq!(digest(&trees.repository()), repository);
        assert_eq!(
            [contents(&victim), contents(&trees.repository())],
            outside,
            "{strategy}"
        );
        assert_eq!(
            fs::read(trees.top.join("handle")).unwrap(),
            b"of the repository"
        );
        for name in [
            "link.md",
            "hard.md",
            "fifo.md",
            "socket.md",
            "same.md",
            "linked/a.md",
            "sub/b.md",
        ] {
            let about = fs::symlink_metadata(trees.mirror(name)).unwrap();
            assert!(about.is_file() && about.nlink() == 1, "{strategy} {name}");
            assert_eq!(
                fs::read(trees.mirror(name)).unwrap(),
                b"of the repository",
                "{strategy} {name}"
            );
        }
        assert!(!trees.mirror("sub/.colibri-mirror-new").exists());
        if strategy == "mirror" {
            trees.assert_equal();
        } else {
            assert_eq!(
                left_out(&said),
                [("in_the_way".to_owned(), 1)].into(),
                "{said}"
            );
            assert!(trees.mirror("mine/deep.md").exists() && trees.mirror("extra").is_symlink());
        }
        assert_eq!(adapter.sync(strategy)["written"], 0);
    }
}

#[test]
fn another_mirror_and_what_is_mounted_in_a_mirror_are_not_emptied() {
    let trees = Trees::new();
    put(trees.docs("a.md"), "a");
    put(trees.mirror(".colibri-mirror"), "");
    put(trees.mirror("other/.colibri-mirror"), "");
    put(trees.mirror("other/below/b.md"), "of another repository");
    put(trees.mirror("deep/other/.colibri-mirror"), "");
    put(trees.mirror("deep/other/c.md"), "of another repository");
    put(trees.mirror("deep/mine.md"), "mine");
    let mut kept = vec!["other/below/b.md", "deep/other/c.md"];
    fs::create_dir(trees.mirror("disk")).unwrap();
    let is_mounted = cfg!(target_os = "linux") && nix::unistd::geteuid().is_root();
    let _disk = is_mounted.then(|| Small::mount(trees.mirror("disk"), "size=64k,mode=0755"));
    if is_mounted {
        put(trees.mirror("disk/below/d.md"), "on another disk");
        kept.push("disk/below/d.md");
    }
    let said = trees.adapter().sync("mirror");
    let removed = 1 + u64::from(!is_mounted);
    assert_eq!(
        (counts(&said), left_out(&said)),
        ([1, 1, 0, removed], BTreeMap::new()),
        "{said}"
    );
    for name in kept {
        assert!(trees.mirror(name).exists(), "{name}");
    }
    assert!(!trees.mirror("deep/mine.md").exists());
}

/// Tells threads to stop when it goes, be it in a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts now a directory, now a link to `target` at this path, until told to stop.
fn swap(path: &Path, target: &Path, stop: &AtomicBool, turns: &AtomicU64) {
    let (aside, link) = (path.with_extension("aside"), path.with_extension("link"));
    while !stop.load(Ordering::Relaxed) {
        // The other side removes and makes things meanwhile: whatever fails, the next turn goes on.
        let _ = fs::rename(path, &aside);
        if symlink(target, &link).is_ok() {
            let _ = fs::rename(&link, path);
        }
        thread::yield_now();
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(&link);
        if fs::rename(&aside, path).is_err() {
            let _ = fs::create_dir_all(path);
            let _ = fs::remove_dir_all(&aside);
        }
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn directories_that_are_swapped_for_links_meanwhile_lead_nowhere_else() {
    let trees = Trees::new();
    let (secret, victim) = (trees.top.join("secret"), trees.top.join("victim"));
    for index in 0..50 {
        put(secret.join(format!("{index}.md")), "secret");
        put(victim.join(format!("theirs-{index}.md")), "of the victim");
        put(
            trees.docs(format!("source/{index}.md")),
            "of the repository",
        );
        put(trees.docs(format!("place/{index}.md")), "of the repository");
    }
    put(trees.mirror(".colibri-mirror"), "");
    let outside = contents(&victim);
    let (stop, turns) = (
        AtomicBool::new(false),
        [AtomicU64::new(0), AtomicU64::new(0)],
    );
    thread::scope(|scope| {
        scope.spawn(|| swap(&trees.docs("source"), &secret, &stop, &turns[0]));
        scope.spawn(|| swap(&trees.mirror("place"), &victim, &stop, &turns[1]));
        let _stop = Stop(&stop);
        let mut adapter = trees.adapter();
        let mut run = 0;
        while run < 300
            || turns
                .iter()
                .any(|turns| turns.load(Ordering::Relaxed) <= 100)
        {
            // A run may fail, since what it made is taken away; it must not go astray.
            let result = adapter.call(&asked(if run % 2 == 0 { "mirror" } else { "add" }));
            if result["isError"] == true {
                assert_eq!(failure(&result).0, "NOTES_FAILED", "{result}");
            }
            if trees.mirror("source").is_dir() {
                let files = contents(&trees.mirror("source"));
                assert!(
                    !files.values().any(|content| content == b"secret"),
                    "run {run}"
                );
            }
            run += 1;
        }
    });
    assert_eq!(contents(&victim), outside);
    // Left alone, all is well again.
    for side in [trees.docs("source"), trees.docs("place")] {
        fs::create_dir_all(side).unwrap();
    }
    let mut adapter = trees.adapter();
    let _ = fs::remove_file(trees.mirror("place"));
    adapter.sync("mirror");
    trees.assert_equal();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_vault_that_cannot_be_written_is_said_and_left_as_it_is() {
    // A directory of somebody else's.
    let trees = Trees::new();
    let copy = trees.top.join("colibri-mcp");
    copy_program(&program("colibri-mcp"), &copy);
    fs::set_permissions(&trees.top, fs::Permissions::from_mode(0o755)).unwrap();
    put(trees.docs("a/b.md"), "b");
    put(trees.docs("unreadable.md"), "mine");
    fs::set_permissions(
        trees.docs("unreadable.md"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    put(trees.docs("closed/c.md"), "c");
    fs::set_permissions(trees.docs("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new(&copy);
    command.uid(STRANGER).gid(STRANGER);
    let mut adapter = Adapter::start(command, &trees.args());
    let (code, message) = adapter.refused(&asked("mirror"));
    assert_eq!(code, "NOTES_FAILED");
    assert!(
        message.contains("cannot mark: Permission denied (os error 13) in the mirror"),
        "{message}"
    );
    std::os::unix::fs::chown(trees.mirror(""), Some(STRANGER), None).unwrap();
    let said = adapter.sync("mirror");
    assert_eq!(
        (&said["files"], left_out(&said)),
        (&json!(1), [("unreadable".to_owned(), 2)].into())
    );
    std::os::unix::fs::chown(trees.mirror("a"), Some(0), None).unwrap();
    put(trees.docs("a/c.md"), "c");
    let (code, message) = adapter.refused(&asked("mirror"));
    assert_eq!(code, "NOTES_FAILED");
    assert!(
        message.contains("cannot write: Permission denied (os error 13) in the mirror/a/c.md"),
        "{message}"
    );
    drop(adapter);
    if cfg!(target_os = "linux") {
        on_a_small_disk();
    }
}

/// A full disk, and one that may only be read.
fn on_a_small_disk() {
    let trees = Trees::new();
    let small = Small::mount(trees.top.join("mirror"), "size=256k,mode=0755");
    for index in 0..20 {
        put(trees.docs(format!("{index:02}.md")), vec![b'x'; 32 * 1024]);
    }
    let before = digest(&trees.repository());
    let mut adapter = trees.adapter();
    let (code, message) = adapter.refused(&asked("mirror"));
    assert_eq!(code, "NOTES_FAILED");
    assert!(
        message.contains("No space left on device (os error 28) in the mirror/"),
        "{message}"
    );
    let written = contents(&trees.mirror(""));
    let whole = |(name, content): (&std::ffi::OsString, &Vec<u8>)| {
        name == ".colibri-mirror" || content.len() == 32 * 1024
    };
    assert!(
        (4..10).contains(&written.len()) && written.iter().all(whole),
        "{:?}",
        written.keys()
    );
    assert_eq!(digest(&trees.repository()), before);
    small.remount("size=4m");
    assert_eq!(adapter.sync("mirror")["files"], 20);
    trees.assert_equal();
    small.remount("ro");
    assert_eq!(adapter.sync("mirror")["unchanged"], 20);
    put(trees.docs("new.md"), "x");
    let (_, message) = adapter.refused(&asked("add"));
    assert!(
        message.contains("Read-only file system (os error 30)"),
        "{message}"
    );
}

/// A file system of its own.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf, options: &str) -> Small {
        let small = Small(path);
        small.run("mount", &["-t", "tmpfs", "-o", options, "tmpfs"]);
        small
    }

    fn remount(&self, options: &str) {
        self.run("mount", &["-o", &format!("remount,{options}")]);
    }

    fn run(&self, program: &str, args: &[&str]) {
        assert!(
            Command::new(program)
                .args(args)
                .arg(&self.0)
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn one_run_at_a_time_and_the_others_try_again() {
    let trees = Trees::new();
    put(trees.docs("a.md"), "a");
    put(trees.mirror(".colibri-mirror"), "");
    let hold = || {
        let mark = File::open(trees.mirror(".colibri-mirror")).unwrap();
        Flock::lock(mark, FlockArg::LockExclusiveNonblock).unwrap()
    };
    let held = hold();
    let mut adapter = trees.adapter();
    let result = adapter.call(&asked("mirror"));
    assert_eq!(failure(&result).0, "NOTES_BUSY");
    assert_eq!(result["structuredContent"]["error"]["transient"], true);
    drop(held);
    adapter.sync("mirror");
    // The daemon tries again as the contract says, whose waits are those of PARTS.
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/contracts/notes-mirror.json");
    let shipped: Value = serde_json::from_slice(&fs::read(shipped).unwrap()).unwrap();
    let waits = &shipped["tools"]["notes_sync"]["retries"]["NOTES_BUSY"];
    assert_eq!(waits, &json!([200, 1000, 5000]));
    let retries = |place: &Place| {
        place
            .trail()
            .iter()
            .filter(|record| record["kind"] == "retry")
            .count()
    };
    let held = hold();
    let place = place_of(&trees, &json!([1, 1, 1]));
    let daemon = place.start(&[]);
    let answer = call(&mut daemon.quiet(LEGACY), asked("mirror"));
    assert_eq!(
        (failure(&answer["result"]).0.as_str(), retries(&place)),
        ("NOTES_BUSY", 3)
    );
    // What is given up is a person's to look at.
    let task = answer["result"]["structuredContent"]["deferred"]["task"]
        .as_u64()
        .unwrap();
    let listed = place
        .colibri_mcp(&["tasks", "show", &task.to_string()])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("The mirror of notes was not made"),
        "{listed}"
    );
    drop((daemon, held));
    let held = hold();
    thread::scope(|scope| {
        let place = place_of(
            &trees,
            &json!([200, 200, 200, 200, 200, 200, 200, 200, 200, 200]),
        );
        let daemon = place.start(&[]);
        let mut client = daemon.quiet(LEGACY);
        let call = scope.spawn(move || synced(&mut client, asked("mirror")));
        wait_for("an attempt that finds the lock taken", || {
            (retries(&place) > 0).then_some(())
        });
        drop(held);
        assert_eq!(call.join().unwrap()["unchanged"], 1);
        let records = place.trail();
        assert!(
            records
                .iter()
                .any(|record| record["kind"] == "retry" && record["error_code"] == "NOTES_BUSY")
        );
    });
}

/// How many files the mirror has, whole; those that are not are found by their content.
fn whole_files(trees: &Trees) -> usize {
    let docs = contents(&trees.docs(""));
    let files = contents(&trees.mirror("")).into_iter();
    let files = files.filter(|(name, content)| {
        let is_ours = name
            .as_bytes()
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap()
            .starts_with(b".colibri-mirror");
        !is_ours && content != b"directory"
    });
    files
        .inspect(|(name, content)| assert_eq!(docs.get(name), Some(content), "{name:?}"))
        .count()
}

#[test]
fn a_run_that_dies_is_left_to_a_person() {
    let trees = Trees::new();
    ten_thousand(&trees);
    let place = place_of(&trees, &json!([1]));
    let daemon = place.start(&[]);
    let answer = thread::scope(|scope| {
        let mut client = daemon.quiet(LEGACY);
        let answer = scope.spawn(move || call(&mut client, asked("mirror")));
        wait_for("some files", || {
            trees.mirror("part 2").is_dir().then_some(())
        });
        let shown = daemon
            .quiet(LEGACY)
            .call("colibri_external_mcp_servers", json!({}));
        let adapter = &shown["structuredContent"]["servers"][0]["processes"][0]["pid"];
        let adapter = adapter.as_i64().unwrap();
        kill(Pid::from_raw(adapter as i32), Signal::SIGKILL).unwrap();
        answer.join().unwrap()
    });
    assert_eq!(code_of(&answer["result"]), Some("SERVER_DIED"), "{answer}");
    let task = &answer["result"]["_meta"]["org.colibri/error"]["deferred"]["task"];
    assert!(task.is_u64(), "{answer}");
}

#[test]
fn a_run_that_is_killed_leaves_whole_files_and_the_next_completes() {
    let trees = Trees::new();
    ten_thousand(&trees);
    let before = digest(&trees.repository());
    for turn in 1..=3 {
        let mut adapter = trees.adapter();
        adapter.send(&asked("mirror"));
        wait_for("some files", || {
            trees
                .mirror(format!("part {}", 2 * turn))
                .is_dir()
                .then_some(())
        });
        adapter.child.kill().unwrap();
        adapter.child.wait().unwrap();
        assert!(whole_files(&trees) < 10_000, "killed midway");
        assert_eq!(digest(&trees.repository()), before);
    }
    // What a kill may leave, left for certain.
    put(trees.mirror("part 1/.colibri-mirror-new"), "half a fi");
    let said = trees.adapter().sync("add");
    assert_eq!(
        (&said["files"], said["unchanged"].as_u64() > Some(0)),
        (&json!(10_000), true)
    );
    trees.assert_equal();
    assert_eq!(digest(&trees.repository()), before);
}

#[test]
fn a_call_that_is_cancelled_stops_between_files() {
    let trees = Trees::new();
    ten_thousand(&trees);
    let mut adapter = trees.adapter();
    adapter.send(&asked("mirror"));
    wait_for("a file", || trees.mirror("part 0").is_dir().then_some(()));
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    writeln!(adapter.stdin.as_mut().unwrap(), "{cancel}").unwrap();
    // The next call has the lock when the cancelled one has let go of it.
    let dry = wait_for("the end of the run", || {
        let result = adapter.call(&json!({ "strategy": "mirror", "dry_run": true }));
        (result["isError"] != true).then_some(result["structuredContent"].clone())
    });
    let written = whole_files(&trees) as u64;
    assert!(written < 10_000, "{written}");
    assert_eq!(counts(&dry), [10_000, 10_000 - written, written, 0]);
    assert_eq!(counts(&adapter.sync("mirror"))[0], 10_000);
    trees.assert_equal();
}

#[test]
fn the_board_makes_the_mirror_by_a_schedule() {
    let trees = Trees::new();
    put(trees.docs("guide/start.md"), "# Start");
    let place = place_of(&trees, &json!([1]));
    let daemon = place.start(&["--write"]);
    let tasks = |args: &[&str]| {
        let output = place
            .colibri_mcp(&[&["tasks"], args].concat())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let arguments = r#"{"strategy": "mirror", "dry_run": false}"#;
    tasks(&[
        "schedule",
        "--every",
        "3600",
        "--tool",
        "notes__notes_sync",
        "--args",
        arguments,
    ]);
    let mut daemon = Some(daemon);
    for (run, content) in [(1, "# Start"), (2, "# Start again")] {
        put(trees.docs("guide/start.md"), content);
        // The vault's people write where the mirror is.
        if run == 2 {
            put(trees.mirror("guide/start.md"), "mine");
            put(trees.mirror("guide/mine.md"), "mine");
        }
        let before = digest(&trees.repository());
        // An hour goes by without a daemon.
        daemon.take();
        let store = rusqlite::Connection::open(place.path("state/colibri.db")).unwrap();
        store
            .busy_timeout(std::time::Duration::from_secs(30))
            .unwrap();
        store
            .execute_batch("UPDATE schedules SET next_at = 1")
            .unwrap();
        drop(store);
        daemon = Some(place.start(&["--write"]));
        wait_for("the record of the mirror", || {
            let records = place.trail();
            let syncs = records
                .iter()
                .filter(|record| record["event"] == "notes_sync");
            (syncs.count() == run).then_some(())
        });
        trees.assert_equal();
        assert_eq!(digest(&trees.repository()), before);
        wait_for("the schedule to say so", || {
            tasks(&["schedules"]).contains("called").then_some(())
        });
    }
    drop(daemon);
    place.assert_trail_is_sound();
}

#[test]
fn what_ships_is_a_plan_with_one_way() {
    use colibri_jail_helper::plan::{ConfinementPlan, ServerPlace as Planned};
    use colibri_jail_helper::policy::Policy;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/integrations/notes-mirror.json");
    let shipped: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut entry = shipped["registry"].clone();
    entry["servers"]["notes-mirror"]["disabled"] = json!(false);
    let registry = colibri_registry::Registry::parse(entry.to_string().as_bytes(), "r").unwrap();
    let policy = Policy::parse(shipped["policy"].to_string().as_bytes(), "p").unwrap();
    let server = colibri_jail_helper::names::ServerId::parse(b"notes-mirror").unwrap();
    let caller = colibri_jail_helper::passwd::PasswdEntry { uid: 900, gid: 900 };
    let plan = ConfinementPlan::make(&server, &registry, &policy, caller).unwrap();
    let Planned::Ephemeral(jail) = &plan.place else {
        panic!()
    };
    let mounts: Vec<_> = jail
        .mounts
        .iter()
        .map(|mount| (mount.at.to_str().unwrap(), mount.write))
        .collect();
    assert_eq!(
        mounts,
        [("/work/mirror", true), ("/work/repository", false)]
    );
    assert!(plan.to_json().contains("disable"), "no network");
}

/// The entry that ships, with its policy, in the development sandbox: as its own user, with the
/// repository read-only.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
#[cfg(target_os = "linux")]
fn in_its_jail_the_one_way_is_the_kernels() {
    use colibri_tests::installed::{Installed, ROOTS, put_program};
    use std::os::unix::fs::chown;

    let system = Installed::set_up();
    let (root, places) = (
        Path::new(ROOTS).join("notes-mirror"),
        Path::new(ROOTS).join("places"),
    );
    for directory in ["dev", "tmp", "work/repository", "work/mirror"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    put_program(&program("colibri-mcp"), &root, "usr/local/bin/colibri-mcp");
    put(
        places.join("repository/docs/guide/a.md"),
        "of the repository",
    );
    fs::create_dir(places.join("mirror")).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/integrations/notes-mirror.json");
    let at = |path: &Path| path.display().to_string();
    let shipped = fs::read_to_string(path)
        .unwrap()
        .replace("/usr/local/libexec/colibri/roots/notes-mirror", &at(&root))
        .replace("/home/op/project", &at(&places.join("repository")))
        .replace("/var/db/notes/project", &at(&places.join("mirror")))
        // Where its own user could write, were it not for the mount.
        .replace("1001", "60823");
    let mut shipped: Value = serde_json::from_str(&shipped).unwrap();
    for path in [
        "repository",
        "repository/docs",
        "repository/docs/guide",
        "repository/docs/guide/a.md",
        "mirror",
    ] {
        chown(places.join(path), Some(60_823), Some(60_823)).unwrap();
    }
    let entry = "/registry/servers/notes-mirror";
    *shipped.pointer_mut(&format!("{entry}/disabled")).unwrap() = json!(false);
    system.write_policy(&shipped["policy"].to_string());
    let params = json!({ "name": "notes_sync", "arguments": asked("mirror") });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let ask = |registry: &Value| {
        system.write_registry(&registry.to_string());
        let mut running = system.run("notes-mirror").0.start();
        running.send(&format!("{request}\n"));
        let answer: Value = serde_json::from_str(&running.await_output("\n")).unwrap();
        running.end();
        answer["result"].clone()
    };
    let before = digest(&places.join("repository"));
    let said = ask(&shipped["registry"])["structuredContent"].clone();
    assert_eq!(
        (counts(&said), &said["mirror"]),
        ([1, 1, 0, 0], &json!("/work/mirror"))
    );
    let copy = places.join("mirror/guide/a.md");
    assert_eq!(fs::read(&copy).unwrap(), b"of the repository");
    assert_eq!(fs::metadata(&copy).unwrap().uid(), 60_823);
    assert_eq!(digest(&places.join("repository")), before);
    // Were the two mistaken for each other, the kernel would not let it write.
    put(places.join("mirror/docs/a.md"), "of the vault");
    put(places.join("repository/.colibri-mirror"), "");
    let before = digest(&places.join("repository"));
    let args = json!([
        "integration",
        "notes",
        "--repository",
        "/work/mirror",
        "--mirror",
        "/work/repository"
    ]);
    *shipped.pointer_mut(&format!("{entry}/args")).unwrap() = args;
    let (code, message) = failure(&ask(&shipped["registry"]));
    assert_eq!(code, "NOTES_FAILED");
    assert!(
        message.contains("Read-only file system (os error 30)"),
        "{message}"
    );
    assert_eq!(digest(&places.join("repository")), before);
}
