//! `colibri-mcp add`, `import`, `remove`, `enable`, `disable` and `restart`, over the built
//! programs. What needs package registries is `tests/interop/bring.py`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use colibri_tests::{Daemon, Place};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

#[cfg(target_os = "linux")]
use super::service::{GROUP, Host};

/// A place whose registry is that of a user: `colibri` below the directories of XDG is the place
/// itself.
pub(super) fn users_own() -> Place {
    let place = Place::new();
    symlink(".", place.path("colibri")).unwrap();
    place
}

/// The client, with nobody to ask.
pub(super) fn client(place: &Place, args: &[&str]) -> Command {
    let mut command = place.colibri_mcp(args);
    for variable in [
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
    ] {
        command.env(variable, place.path(""));
    }
    command.stdin(Stdio::null());
    command
}

/// Runs the client: exit status, and all that it said.
pub(super) fn run(place: &Place, args: &[&str]) -> (Option<i32>, String) {
    let output = client(place, args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

pub(super) fn good(place: &Place, args: &[&str]) -> String {
    let (status, said) = run(place, args);
    assert_eq!(status, Some(0), "{args:?}: {said}");
    said
}

pub(super) fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Every file of the place, with its content, but for what the daemon and the fixtures write.
pub(super) fn files(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(directory: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if matches!(name.as_str(), "state" | "log" | "colibri.sock")
                || name.ends_with(".record")
            {
                continue;
            }
            match path.symlink_metadata().unwrap().is_dir() {
                true => walk(&path, found),
                false if path.is_symlink() => {}
                false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&place.path(""), &mut found);
    found
}

/// What was kept of a registry, by what a command said.
fn backup(said: &str) -> PathBuf {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("The registry as it was: "));
    PathBuf::from(line.unwrap_or_else(|| panic!("no backup: {said}")))
}

/// Starts a daemon that finds what is installed in a user's place.
fn start(place: &Place) -> Daemon<'_> {
    let data = place.path("").display().to_string();
    place.start_in(&[("XDG_DATA_HOME", &data)], &["--external-call"])
}

/// The directory of a server's package.
fn installed(place: &Place, id: &str) -> PathBuf {
    let below = fs::read_dir(place.path(&format!("servers/{id}"))).unwrap();
    let below: Vec<PathBuf> = below.map(|entry| entry.unwrap().path()).collect();
    let [prefix] = below.as_slice() else {
        panic!("{below:?}");
    };
    prefix.clone()
}

/// The words of a fixture's command line, for `add`.
pub(super) fn words(entry: &Value) -> Vec<String> {
    let args = entry["args"].as_array().unwrap().iter();
    let words = [&entry["command"]].into_iter().chain(args);
    words
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_server_is_added_called_restarted_disabled_enabled_and_removed() {
    let place = users_own();
    let _daemon = place.start(&[]);
    let before = files(&place);
    let original = fs::read(place.path("external-mcp.json")).unwrap();
    let fixture = words(&place.fixture("fx", &[], json!({})));
    let mut add = vec![
        "add",
        "fx",
        "--yes",
        "--env",
        "FX_TOKEN=tell-nobody-this",
        "--env",
        "LOG=warn",
        "--",
    ];
    add.extend(fixture.iter().map(String::as_str));
    let said = good(&place, &add);
    for part in [
        "FX_TOKEN [not shown]",
        "(0600)",
        "LOG=warn",
        "by nothing: it runs as you",
        "has read the registry again",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("tell-nobody-this"), "{said}");
    let first = backup(&said);
    assert_eq!(fs::read(&first).unwrap(), original);

    let registry = json_of(&place.path("external-mcp.json"));
    assert_eq!(
        registry["servers"]["fx"]["env"]["FX_TOKEN"],
        json!({ "secret": "fx-fx-token" })
    );
    let secret = place.path("daemon-secrets/fx-fx-token");
    assert_eq!(
        fs::metadata(&secret).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    assert_eq!(fs::read_to_string(&secret).unwrap(), "tell-nobody-this");
    let consent = place.path("consent.json");
    assert_eq!(
        fs::metadata(&consent).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    let digest = |place: &Place| {
        let text = fs::read(place.path("external-mcp.json")).unwrap();
        let registry = colibri_registry::Registry::parse(&text, "r").unwrap();
        registry.servers["fx"].digest.clone()
    };
    assert_eq!(
        json_of(&consent),
        json!({ "servers": { "fx": digest(&place) } })
    );

    // The daemon has it, and restarting it ends its process.
    good(&place, &["call", "fx", "echo"]);
    assert_eq!(place.started("fx").len(), 2, "one to find out the era");
    assert!(good(&place, &["server", "restart", "fx"]).contains("1 process ended"));
    good(&place, &["call", "fx", "echo"]);
    assert_eq!(place.started("fx").len(), 3);
    assert_eq!(run(&place, &["server", "restart", "no"]).0, Some(65));

    let said = good(&place, &["server", "disable", "fx", "--yes"]);
    assert_eq!(
        json_of(&place.path("external-mcp.json"))["servers"]["fx"]["disabled"],
        true
    );
    assert_ne!(run(&place, &["call", "fx", "echo"]).0, Some(0));
    let kept = backup(&said);
    good(&place, &["server", "enable", "fx", "--yes"]);
    assert_eq!(
        fs::read(place.path("external-mcp.json")).unwrap(),
        fs::read(kept).unwrap()
    );
    assert_eq!(
        json_of(&consent),
        json!({ "servers": { "fx": digest(&place) } })
    );
    good(&place, &["call", "fx", "echo"]);

    // Each backup is the file as it was.
    let with_server = fs::read(place.path("external-mcp.json")).unwrap();
    let said = good(&place, &["remove", "fx", "--yes"]);
    assert!(said.contains("daemon-secrets/fx-fx-token"), "{said}");
    assert_eq!(fs::read(backup(&said)).unwrap(), with_server);
    let mut after = files(&place);
    after.retain(|path, _| !path.to_string_lossy().contains(".colibri-backup-"));
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
    assert_eq!(after, before);
    assert!(!place.path("daemon-secrets").exists());
}

#[test]
fn a_server_that_does_not_start_is_no_success_at_a_daemon_that_is_named_either() {
    let place = users_own();
    let daemon = place.start(&[]);
    let add = |id: &str| {
        run(
            &place,
            &[
                "add",
                id,
                "--yes",
                "--",
                "/bin/sh",
                "-c",
                "echo no such module >&2; exit 1",
            ],
        )
    };
    let (status, said) = add("dead");
    assert_eq!(status, Some(69), "{said}");
    for part in [
        "Added dead to",
        "dead is there and does not work",
        "no such module",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    daemon.stop();
    let (status, said) = add("unknown");
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("unknown was not started: colibri-mcpd is not running"),
        "{said}"
    );
    // A daemon that reads another registry.
    let other = Place::new();
    let _daemon = other.start(&[]);
    let mut command = other.colibri_mcp(&["add", "elsewhere", "--yes", "--", "/bin/true"]);
    command.envs(
        client(&place, &[])
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("elsewhere was not started: "),
        "{output:?}"
    );
}

#[test]
fn what_is_left_of_a_server_whose_entry_is_gone_is_removed_too() {
    let place = users_own();
    place.registry(&json!({ "fx-two": { "command": "/bin/sh", "env": { "T": { "secret": "fx-two-token" } } } }));
    let add = [
        "add",
        "fx",
        "--yes",
        "--env",
        "FX_TOKEN=tell-nobody-this",
        "--",
        "sh",
    ];
    let first = backup(&good(&place, &add));
    // As the person does who wants the registry back as it was.
    fs::copy(first, place.path("external-mcp.json")).unwrap();
    fs::write(place.path("daemon-secrets/fx-two-token"), "another's").unwrap();
    fs::create_dir_all(place.path("oauth")).unwrap();
    let tokens = |name: &str| place.path(&format!("oauth/login.{name}.1000.json"));
    fs::write(tokens("fx"), "{}").unwrap();
    fs::write(tokens("fx-two"), "{}").unwrap();
    let said = good(&place, &["remove", "fx", "--yes"]);
    assert!(
        said.contains("it has no entry, but this is left of it"),
        "{said}"
    );
    assert!(!place.path("daemon-secrets/fx-fx-token").exists() && !tokens("fx").exists());
    assert!(place.path("daemon-secrets/fx-two-token").exists() && tokens("fx-two").exists());
    assert_eq!(run(&place, &["remove", "fx", "--yes"]).0, Some(65));
    good(&place, &["remove", "fx-two", "--yes"]);
    assert!(!place.path("daemon-secrets").exists() && !place.path("oauth").exists());
}

#[test]
fn a_server_never_takes_the_secret_of_another() {
    let place = users_own();
    let oauth = json!({ "grant": "client_credentials", "issuer": "https://login.example.org", "client_id": "c",
        "client_secret": { "secret": "fx-fx-token" } });
    place.registry(&json!({ "crm": { "url": "https://crm.example.org/mcp", "oauth": oauth } }));
    fs::create_dir(place.path("daemon-secrets")).unwrap();
    fs::write(place.path("daemon-secrets/fx-fx-token"), "of crm").unwrap();
    let before = files(&place);
    let add = [
        "add",
        "fx",
        "--yes",
        "--env",
        "FX_TOKEN=tell-nobody-this",
        "--",
        "sh",
    ];
    let (status, said) = run(&place, &add);
    assert_eq!(status, Some(65), "{said}");
    assert!(said.contains("fx-fx-token, which is crm's"), "{said}");
    assert_eq!(files(&place), before);
}

#[test]
fn two_that_add_at_once_wait_for_each_other() {
    let place = users_own();
    place.registry(&json!({}));
    // Whoever changes the registry holds this; so both have seen that there is no such server yet.
    let held = Flock::lock(
        fs::File::open(place.path("")).unwrap(),
        FlockArg::LockExclusive,
    )
    .unwrap();
    let adds: Vec<_> = ["one-of-them", "the-other-one"]
        .iter()
        .map(|secret| {
            let value = format!("FX_TOKEN={secret}");
            let mut add = client(&place, &["add", "fx", "--yes", "--env", &value, "--", "sh"]);
            let mut add = add
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = BufReader::new(add.stderr.take().unwrap());
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert!(line.contains("waiting for another"), "{line}");
            (*secret, add, said)
        })
        .collect();
    drop(held);
    let mut done: Vec<_> = adds
        .into_iter()
        .map(|(secret, mut add, mut said)| {
            let mut rest = String::new();
            said.read_to_string(&mut rest).unwrap();
            (add.wait().unwrap().code(), secret, rest)
        })
        .collect();
    done.sort();
    let [(Some(0), first, _), (Some(65), _, why)] = done.as_slice() else {
        panic!("{done:?}");
    };
    assert!(why.contains("there is a server fx already"), "{why}");
    assert_eq!(
        fs::read_to_string(place.path("daemon-secrets/fx-fx-token")).unwrap(),
        *first
    );
}

#[test]
fn a_registry_that_the_daemon_would_not_read_is_not_written() {
    let place = users_own();
    let registry = place.path("external-mcp.json");
    fs::rename(&registry, place.path("elsewhere.json")).unwrap();
    symlink("elsewhere.json", &registry).unwrap();
    let before = files(&place);
    let (status, said) = run(&place, &["add", "fx", "--yes", "--", "sh"]);
    assert_eq!(status, Some(65), "{said}");
    assert!(said.contains("is a symbolic link"), "{said}");
    assert_eq!(files(&place), before);
}

#[test]
fn without_consent_nothing_is_written() {
    let place = users_own();
    place.registry(&json!({ "fx": { "command": "/bin/sh", "env": { "T": "plain-value-of-it" } } }));
    let before = files(&place);
    fs::write(
        place.path("file.json"),
        r#"{"mcpServers":{"x":{"command":"/bin/sh","env":{"A_KEY":"v"}}}}"#,
    )
    .unwrap();
    let file = place.path("file.json").display().to_string();
    for args in [
        &["add", "new", "--", "sh", "-c", "x"][..],
        &[
            "add",
            "new",
            "--url",
            "https://x.example.org/mcp",
            "--header",
            "Authorization=abc",
        ],
        &["import", &file],
        &["remove", "fx"],
        &["server", "disable", "fx"],
    ] {
        let (status, said) = run(&place, args);
        assert_eq!(status, Some(1), "{args:?}: {said}");
        assert!(said.contains("--yes"), "{said}");
        assert!(!said.contains("plain-value-of-it"), "{said}");
    }
    fs::remove_file(place.path("file.json")).unwrap();
    assert_eq!(files(&place), before);
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let place = users_own();
    let before = files(&place);
    for (args, why, code) in [
        (
            &[
                "add",
                "x",
                "--yes",
                "--",
                "/nonexistent/docker",
                "run",
                "image",
            ][..],
            "is not there",
            65,
        ),
        (
            &["add", "x", "--yes", "--", "no-such-program-here"],
            "is not on PATH",
            65,
        ),
        (
            &["add", "x", "--yes", "--", "npx", "github:owner/repo"],
            "not the name of a package",
            65,
        ),
        (
            &[
                "add",
                "x",
                "--yes",
                "--",
                "uvx",
                "--from",
                "git+https://h/x",
                "x",
            ],
            "not the name of a package",
            65,
        ),
        (&["add", "X_Y", "--yes", "--", "sh"], "a-z, 0-9 and -", 64),
        (&["add", "x", "--yes", "--url", "ftp://h/"], "https://", 65),
        (
            &["add", "x", "--yes", "--env", "UNSET_HERE", "--", "sh"],
            "no such variable",
            64,
        ),
        (&["add", "x", "--yes"], "", 64),
        (
            &["add", "x", "--yes", "--", "/etc/passwd"],
            "not an executable file",
            65,
        ),
        (
            &["add", "x", "--yes", "--", "sh", "-c", "exec npx -y y"],
            "would fetch",
            65,
        ),
        (&["add", "colibri", "--yes", "--", "sh"], "calls itself", 65),
        (
            &["add", "x", "--yes", "--url", "https://u:p@h/"],
            "user or password",
            65,
        ),
        (
            &["add", "x", "--yes", "--url", "https://h:99999/"],
            "port",
            65,
        ),
        (
            &[
                "add",
                "x",
                "--yes",
                "--url",
                "https://h/",
                "--header",
                "Host=x",
            ],
            "belongs to the transport",
            65,
        ),
        (
            &[
                "add",
                "x",
                "--yes",
                "--url",
                "https://h/",
                "--header",
                "X=a\nb",
            ],
            "printable ASCII",
            65,
        ),
        (&["remove", "x", "--yes"], "has no server x", 65),
        (&["server", "enable", "x", "--yes"], "has no server x", 65),
        (&["import", "zed", "--yes"], "no settings here", 65),
        (
            &["import", "/nonexistent/x.json", "--yes"],
            "No such file",
            66,
        ),
        (
            &["import", "windsrf", "--yes"],
            "did you mean windsurf?",
            65,
        ),
        (
            &["import", "gemini-cli", "--yes"],
            ".gemini/settings.json",
            65,
        ),
    ] {
        let (status, said) = run(&place, args);
        assert_eq!(status, Some(code), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
    assert_eq!(files(&place), before);
    // What is no file to be read whole is neither waited for nor read.
    let odd = place.path("odd");
    nix::unistd::mkfifo(&odd, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let large = place.path("large.mcpb");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    for path in [&odd, &large, &PathBuf::from("/dev/zero"), &place.path("")] {
        let (status, said) = run(&place, &["import", path.to_str().unwrap(), "--yes"]);
        assert_eq!(status, Some(65), "{said}");
        assert!(
            said.contains("not a regular file of at most 256 MiB"),
            "{said}"
        );
    }
}

#[test]
fn an_editors_servers_come_in_and_odd_ones_do_not_hinder_them() {
    let place = users_own();
    let file = place.path("settings.json");
    fs::write(
        &file,
        r#"{
          // Zed's, with comments
          "context_servers": {
            "My Shell": { "source": "custom", "command": "sh", "args": ["-c", "x"], "env": { "SHELL_SECRET": "hide-me-please" } },
            "boxed": { "command": "/nonexistent/docker", "args": ["run", "x"] },
            "kept": { "command": "/bin/sh" },
            "my-shell": { "command": "/bin/sh" },
            "remote": { "url": "https://r.example.org/mcp", "headers": { "X-Team": "blue" } },
            "extension": { "source": "extension" },
          },
        }"#,
    )
    .unwrap();
    place.registry(&json!({ "kept": { "command": "/bin/true" } }));
    let said = good(&place, &["import", file.to_str().unwrap(), "--yes"]);
    for part in [
        "My Shell becomes my-shell-2",
        "boxed is refused: /nonexistent/docker is not there",
        "kept is refused: there is a server kept already",
        "extension is refused",
        "Added my-shell-2, my-shell, remote",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("hide-me-please"), "{said}");
    let servers = json_of(&place.path("external-mcp.json"))["servers"].clone();
    let mut ids: Vec<&String> = servers.as_object().unwrap().keys().collect();
    ids.sort();
    assert_eq!(ids, ["kept", "my-shell", "my-shell-2", "remote"]);
    assert_eq!(servers["kept"]["command"], "/bin/true");
    assert!(
        servers["my-shell-2"]["command"]
            .as_str()
            .unwrap()
            .ends_with("/sh")
    );
    assert_eq!(servers["remote"]["headers"], json!({ "X-Team": "blue" }));
    // An entry that reads a secret of another keeps it.
    let shared =
        json!({ "command": "/bin/sh", "env": { "S": { "secret": "my-shell-2-shell-secret" } } });
    let mut more = servers;
    more["other"] = shared;
    place.registry(&more);
    good(&place, &["remove", "my-shell-2", "--yes"]);
    assert!(
        place
            .path("daemon-secrets/my-shell-2-shell-secret")
            .exists()
    );
    good(&place, &["remove", "other", "--yes"]);
    assert!(
        !place
            .path("daemon-secrets/my-shell-2-shell-secret")
            .exists()
    );
}

#[test]
fn a_container_is_a_command_like_any_other_and_gets_its_secrets_by_name() {
    let place = users_own();
    let _daemon = place.start(&[]);
    let (docker, seen) = (place.path("docker"), place.path("seen"));
    let fixture = words(&place.fixture("boxed", &[], json!({})));
    let script = format!(
        "#!/bin/sh\necho \"$* $BOX_TOKEN\" >'{}'\nexec '{}'\n",
        seen.display(),
        fixture.join("' '")
    );
    fs::write(&docker, script).unwrap();
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    let docker = docker.to_str().unwrap();
    let add = [
        "add",
        "boxed",
        "--yes",
        "--",
        docker,
        "run",
        "-i",
        "--rm",
        "-e",
        "BOX_TOKEN=tell-nobody-this",
        "image",
    ];
    let said = good(&place, &add);
    for part in [
        "a container that docker starts",
        "run -i --rm -e BOX_TOKEN image",
        "BOX_TOKEN [not shown]",
        "@sha256:... in its name",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("tell-nobody-this"), "{said}");
    let registry = fs::read_to_string(place.path("external-mcp.json")).unwrap();
    assert!(!registry.contains("tell-nobody-this"), "{registry}");
    good(&place, &["call", "boxed", "echo"]);
    assert_eq!(
        fs::read_to_string(seen).unwrap(),
        "run -i --rm -e BOX_TOKEN image tell-nobody-this\n"
    );
}

#[test]
fn mcp_remote_becomes_the_address_that_it_leads_to() {
    let place = users_own();
    let file = place.path("mcp.json");
    let remote = |args: &[&str]| {
        let args = [&["-y", "mcp-remote", "https://r.example.org/mcp"][..], args].concat();
        json!({ "command": "npx", "args": args, "env": { "R_TOKEN": "tell-nobody-this" } })
    };
    let servers = json!({ "mcpServers": {
        "r": remote(&["--header", "Authorization: Bearer ${R_TOKEN}", "--ignore-tool", "delete_*", "--debug"]),
        "odd": remote(&["--resource", "https://tenant.example.org/"]),
        "new": remote(&["--never-heard-of", "x"]),
    } });
    fs::write(&file, servers.to_string()).unwrap();
    let said = good(&place, &["import", file.to_str().unwrap(), "--yes"]);
    for part in [
        "mcp-remote is left out: the server is reached by its address",
        "odd is refused: mcp-remote: --resource is not taken over",
        "new is refused: mcp-remote: the option --never-heard-of is not known here",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("tell-nobody-this"), "{said}");
    let wanted = json!({ "url": "https://r.example.org/mcp", "headers": { "Authorization": { "secret": "r-authorization" } },
        "tools": { "deny": ["delete_*"] } });
    assert_eq!(
        json_of(&place.path("external-mcp.json"))["servers"],
        json!({ "r": wanted })
    );
    let secret = fs::read_to_string(place.path("daemon-secrets/r-authorization")).unwrap();
    assert_eq!(secret, "Bearer tell-nobody-this");
}

/// The client at a terminal, and what it says there: its output, and what is shown of what is
/// typed. Each answer is typed once its question stands there.
fn at_terminal(
    place: &Place,
    args: &[&str],
    answers: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut command = client(place, args);
    command
        .stdin(terminal.slave)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut keyboard = fs::File::from(terminal.master);
    let (mut said, mut stderr) = (Vec::new(), child.stderr.take().unwrap());
    for (question, answer) in answers {
        while !String::from_utf8_lossy(&said).ends_with(question) {
            let mut byte = [0];
            assert_eq!(
                stderr.read(&mut byte).unwrap(),
                1,
                "{question}: {}",
                String::from_utf8_lossy(&said)
            );
            said.extend(byte);
        }
        keyboard.write_all(answer.as_bytes()).unwrap();
    }
    stderr.read_to_end(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    let mut shown = vec![0; 4096];
    // What the terminal showed is there at once, or nothing is: nobody has it open any longer.
    let length = keyboard.read(&mut shown).unwrap_or_default();
    let all = [output.stdout, said].concat();
    let shown = String::from_utf8_lossy(&shown[..length]).into_owned();
    (
        output.status.code(),
        String::from_utf8_lossy(&all).into_owned(),
        shown,
    )
}

#[test]
fn a_variable_without_a_value_is_asked_for_and_a_secret_is_not_shown() {
    let place = users_own();
    let add = [
        "add", "fx", "--yes", "--env", "FX_TOKEN", "--env", "LEVEL", "--env", "HOME", "--", "sh",
    ];
    let answers = [("FX_TOKEN: ", "tell-nobody-this\n"), ("LEVEL: ", "loud\n")];
    let (status, said, shown) = at_terminal(&place, &add, &answers);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        shown.contains("loud") && !shown.contains("tell-nobody-this"),
        "{shown}"
    );
    assert!(
        !said.contains("tell-nobody-this") && said.contains("LEVEL=loud"),
        "{said}"
    );
    let secret = fs::read_to_string(place.path("daemon-secrets/fx-fx-token")).unwrap();
    assert_eq!(secret, "tell-nobody-this");
    let env = json_of(&place.path("external-mcp.json"))["servers"]["fx"]["env"].clone();
    assert_eq!(
        (&env["LEVEL"], &env["HOME"]),
        (
            &json!("loud"),
            &json!(place.path("").to_str().unwrap().trim_end_matches('/'))
        )
    );
    // Nothing typed is no value.
    let add = ["add", "x", "--yes", "--env", "X_TOKEN", "--", "sh"];
    let (status, said, _) = at_terminal(&place, &add, &[("X_TOKEN: ", "\n")]);
    assert!(
        status == Some(64) && said.contains("--env X_TOKEN: it has no value"),
        "{said}"
    );
}

#[test]
fn the_bridge_at_a_terminal_says_what_it_is() {
    let place = users_own();
    let _daemon = place.start(&[]);
    for args in [&[][..], &["--read-only"]] {
        let (status, said, _) = at_terminal(&place, args, &[("Ctrl-D ends it.\n", "\u{4}")]);
        assert_eq!(status, Some(0), "{said}");
        assert!(
            said.contains("which an editor starts") && said.contains("--help"),
            "{said}"
        );
    }
    // An editor is told nothing of that.
    let output = client(&place, &[]).output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn a_default_of_a_published_server_stands_in_the_plan() {
    let place = users_own();
    let file = place.path("server.json");
    let headers = json!([{ "name": "X-Region", "value": "{region}", "variables": { "region": { "default": "eu" } } },
        { "name": "X-Level", "default": "low" }, { "name": "X-Unset" }]);
    let remote = json!({ "type": "streamable-http", "url": "https://r.example.org/mcp", "headers": headers });
    let server = json!({ "name": "com.example/remote", "version": "1.0.0", "remotes": [remote] });
    fs::write(&file, server.to_string()).unwrap();
    let said = good(&place, &["import", file.to_str().unwrap(), "--yes"]);
    assert!(
        said.contains("X-Region=eu") && said.contains("X-Level=low") && !said.contains("X-Unset"),
        "{said}"
    );
    let entry = json_of(&place.path("external-mcp.json"))["servers"]["remote"].clone();
    assert_eq!(
        entry["headers"],
        json!({ "X-Region": "eu", "X-Level": "low" })
    );
}

/// A zip file of files that are not compressed (APPNOTE.TXT 4.3), each of which may be executed.
fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let crc = content.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
            })
        });
        let mut facts = [20_u16, 0, 0, 0, 0x21].map(u16::to_le_bytes).concat();
        facts.extend((!crc).to_le_bytes());
        facts.extend([content.len() as u32; 2].map(u32::to_le_bytes).concat());
        facts.extend((name.len() as u16).to_le_bytes());
        facts.extend(0_u16.to_le_bytes());
        let offset = bytes.len() as u32;
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&facts);
        bytes.extend(name.as_bytes());
        bytes.extend(*content);
        directory.extend(b"PK\x01\x02");
        directory.extend((0x0314_u16).to_le_bytes());
        directory.extend(&facts);
        directory.extend([0_u16; 3].map(u16::to_le_bytes).concat());
        directory.extend((0o100_755_u32 << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, number) = (bytes.len() as u32, (files.len() as u16).to_le_bytes());
    let length = (directory.len() as u32).to_le_bytes();
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend([number, number].concat());
    bytes.extend(length);
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn a_bundle_is_unpacked_run_checked_and_removed() {
    let place = users_own();
    let _daemon = start(&place);
    let fixture = words(&place.fixture("bundled", &[], json!({})));
    let script = format!("#!/bin/sh\nexec '{}'\n", fixture.join("' '"));
    let manifest = json!({ "manifest_version": "0.3", "name": "Bundled Server", "version": "1.0.0",
        "server": { "type": "binary", "entry_point": "bin/run", "mcp_config": { "command": "${__dirname}/bin/run",
            "args": ["${user_config.level}"], "env": { "PASS": "${user_config.pass}" } } },
        "user_config": { "pass": { "type": "string", "sensitive": true, "required": true },
                         "level": { "type": "string", "default": "low" } } });
    let bytes = zip_of(&[
        ("manifest.json", manifest.to_string().as_bytes()),
        ("bin/run", script.as_bytes()),
    ]);
    let file = place.path("b.mcpb");
    fs::write(&file, &bytes).unwrap();
    let file = file.to_str().unwrap();
    let (status, said) = run(&place, &["import", file, "--yes"]);
    assert_eq!(status, Some(65), "{said}");
    assert!(said.contains("it needs pass"), "{said}");
    let (status, said) = run(
        &place,
        &["import", file, "--yes", "--sha256", &"0".repeat(64)],
    );
    assert_eq!(status, Some(65), "{said}");
    assert!(said.contains("another than the one named"), "{said}");

    let hash = colibri_registry::sha256_hex(&bytes);
    let set = "pass=open-sesame-1";
    let said = good(
        &place,
        &["import", file, "--yes", "--sha256", &hash, "--set", set],
    );
    assert!(
        said.contains(&hash) && !said.contains("open-sesame-1"),
        "{said}"
    );
    let prefix = installed(&place, "bundled-server");
    let entry = &json_of(&place.path("external-mcp.json"))["servers"]["bundled-server"];
    assert_eq!(entry["from"], format!("mcpb:sha256:{hash}"));
    assert!(entry.get("command").is_none(), "{entry}");
    let record = json_of(&prefix.join("installed.json"));
    assert_eq!(
        (&record["from"], &record["lock"]),
        (&entry["from"], &entry["lock"])
    );
    let lock = entry["lock"].as_str().unwrap().replace("sha256:", "");
    assert!(place.path(&format!("locks/{lock}.json")).exists());
    good(&place, &["call", "bundled-server", "echo"]);
    good(&place, &["server", "enable", "bundled-server", "--yes"]);

    fs::write(prefix.join("bundle/bin/run"), "#!/bin/sh\n").unwrap();
    let (status, said) = run(&place, &["server", "enable", "bundled-server", "--yes"]);
    assert_eq!(status, Some(65), "{said}");
    assert!(said.contains("not as it was installed"), "{said}");
    let (status, said) = run(&place, &["sync", "--yes"]);
    assert_eq!(status, Some(65), "{said}");
    assert!(
        said.contains("its bundle was a file: sync --bundle FILE"),
        "{said}"
    );
    let said = good(&place, &["sync", "--yes", "--bundle", file]);
    assert!(
        said.contains("Installed and turned on: bundled-server"),
        "{said}"
    );
    good(&place, &["call", "bundled-server", "echo"]);

    // No registry has a newer one: that is no failure of all updates, but one of its own.
    let way = "colibri-mcp remove bundled-server, and colibri-mcp import FILE";
    let said = good(&place, &["update"]);
    assert!(
        said.contains(way) && said.contains("Nothing to update."),
        "{said}"
    );
    let (status, said) = run(&place, &["update", "bundled-server"]);
    assert!(status == Some(65) && said.contains(way), "{said}");
    good(&place, &["remove", "bundled-server", "--yes"]);
    assert!(
        !prefix.exists()
            && !place.path("locks").exists()
            && !place.path("daemon-secrets/bundled-server-pass").exists()
    );
}

#[test]
fn what_was_planted_in_pythons_caches_does_not_run() {
    // Python takes such a cache without a look at its source (PEP 552).
    const PLANT: &str = "import importlib.util, py_compile, sys\n\
        cache = importlib.util.cache_from_source(sys.argv[2])\n\
        py_compile.compile(sys.argv[1], cache, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\n";
    let place = users_own();
    let _daemon = start(&place);
    let fixture = words(&place.fixture("cached", &[], json!({})));
    let script = format!(
        "import helper, os\nwords = {}\nos.execv(words[0], words)\n",
        json!(fixture)
    );
    let manifest = json!({ "manifest_version": "0.3", "name": "cached", "server": { "type": "python",
        "entry_point": "s.py", "mcp_config": { "command": "python3", "args": ["${__dirname}/s.py"] } } });
    let file = place.path("c.mcpb");
    let bytes = zip_of(&[
        ("manifest.json", manifest.to_string().as_bytes()),
        ("s.py", script.as_bytes()),
        ("helper.py", b""),
    ]);
    fs::write(&file, bytes).unwrap();
    good(&place, &["import", file.to_str().unwrap(), "--yes"]);
    let (evil, ran) = (place.path("evil.py"), place.path("evil.ran"));
    fs::write(&evil, format!("open({ran:?}, 'w')\n")).unwrap();
    let helper = installed(&place, "cached").join("bundle/helper.py");
    let plant_and = |first: &[&str]| {
        let mut python = Command::new("python3");
        let planted = python.args(["-c", PLANT]).args([&evil, &helper]).status();
        assert!(planted.unwrap().success());
        good(&place, first);
        good(&place, &["server", "restart", "cached"]);
        good(&place, &["call", "cached", "echo"]);
        ran.exists()
    };
    assert!(
        plant_and(&["status"]),
        "what is planted runs where nothing looks for it"
    );
    fs::remove_file(&ran).unwrap();
    assert!(!plant_and(&["server", "enable", "cached", "--yes"]));
}

/// Serves bytes by HTTP to whoever asks, under `/bundle.mcpb`; the address.
fn serve(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let asked = lines.next().unwrap().unwrap();
            lines
                .take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()))
                .for_each(drop);
            let (status, bytes) = match asked.contains(" /bundle.mcpb ") {
                true => ("200 OK", bytes.as_slice()),
                false => ("404 Not Found", &b""[..]),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                bytes.len()
            );
            stream
                .write_all(&[head.as_bytes(), bytes].concat())
                .unwrap();
        }
    });
    address
}

#[test]
fn a_bundle_of_a_registry_is_fetched_by_its_hash() {
    let place = users_own();
    let manifest = json!({ "dxt_version": "0.1", "name": "b", "server": { "type": "python", "entry_point": "s.py",
        "mcp_config": { "command": "python3", "args": ["${__dirname}/s.py"], "env": { "A": "1" } } } });
    let bytes = zip_of(&[
        ("manifest.json", manifest.to_string().as_bytes()),
        ("s.py", b"print()"),
    ]);
    let hash = colibri_registry::sha256_hex(&bytes);
    let address = serve(bytes);
    let file = place.path("server.json");
    let import = |name: &str, hash: &str| {
        let package = json!({ "registryType": "mcpb", "identifier": format!("{address}/{name}"), "fileSha256": hash,
            "transport": { "type": "stdio" },
            "environmentVariables": [{ "name": "B_KEY", "isSecret": true, "isRequired": true }] });
        let server =
            json!({ "name": "com.example/published", "version": "1.0.0", "packages": [package] });
        fs::write(&file, server.to_string()).unwrap();
        run(
            &place,
            &[
                "import",
                file.to_str().unwrap(),
                "--yes",
                "--set",
                "B_KEY=open-sesame-1",
            ],
        )
    };
    fs::write(&file, "").unwrap();
    let mut before = files(&place);
    for (name, wanted, why) in [
        ("bundle.mcpb", "0".repeat(64), "and must be 0000"),
        ("gone.mcpb", hash.clone(), "404"),
    ] {
        let (status, said) = import(name, &wanted);
        assert!(status == Some(65) && said.contains(why), "{said}");
        let mut after = files(&place);
        before.remove(&file);
        after.remove(&file);
        assert_eq!(after, before);
    }
    let (status, said) = import("bundle.mcpb", &hash);
    assert_eq!(status, Some(0), "{said}");
    let entry = &json_of(&place.path("external-mcp.json"))["servers"]["published"];
    let secret = json!({ "secret": "published-b-key" });
    assert_eq!(entry["env"], json!({ "A": "1", "B_KEY": secret }));
    assert!(installed(&place, "published").join("bundle/s.py").exists());
    // It is fetched again where it is not: its lock has the address.
    fs::remove_dir_all(place.path("servers")).unwrap();
    good(&place, &["sync", "--yes"]);
    assert!(installed(&place, "published").join("bundle/s.py").exists());
    good(&place, &["remove", "published", "--yes"]);
    let mut after = files(&place);
    after.retain(|path, _| *path != file && !path.to_string_lossy().contains(".colibri-backup-"));
    assert_eq!(after, before);
}

#[test]
fn a_bundle_that_leads_elsewhere_is_refused_whole() {
    let place = users_own();
    let before = files(&place);
    for bytes in [
        zip_of(&[("manifest.json", b"{}"), ("../evil", b"x")]),
        zip_of(&[("manifest.json", b"{}"), ("/etc/evil", b"x")]),
        zip_of(&[("manifest.json", b"{}"), ("a", b"x"), ("a", b"y")]),
        zip_of(&[("manifest.json", b"{}")]),
        b"PK\x05\x06".to_vec(),
    ] {
        let file = place.path("evil.mcpb");
        fs::write(&file, bytes).unwrap();
        let (status, said) = run(&place, &["import", file.to_str().unwrap(), "--yes"]);
        assert_eq!(status, Some(65), "{said}");
        fs::remove_file(file).unwrap();
    }
    assert_eq!(files(&place), before);
}

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(not(root), ignore = "needs root")]
fn root_adds_to_the_service_and_nobody_starts_a_daemon_beside_it() {
    let host = Host::new();
    host.enable();
    let place = &host.place;
    let own = fs::read(place.path("external-mcp.json")).unwrap();

    let (status, said) = host.run(&["add", "fx", "--yes", "--", "sh"]);
    assert!(status == Some(77) && said.contains("--service"), "{said}");
    let bundle = place.path("b.mcpb");
    let manifest =
        br#"{"manifest_version":"0.3","name":"b","server":{"type":"python","entry_point":"s.py"}}"#;
    fs::write(
        &bundle,
        zip_of(&[("manifest.json", manifest), ("s.py", b"")]),
    )
    .unwrap();
    let before = files(place);
    let add = [
        "add",
        "fx",
        "--service",
        "--yes",
        "--env",
        "FX_TOKEN=tell-nobody-this",
        "--",
        "sh",
        "-c",
        "x",
    ];
    let (status, said) = host.run(&add);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("fx was not started: colibri-mcpd is not running"),
        "{said}"
    );
    let facts = |path: &str| {
        let facts = fs::metadata(host.path(path)).unwrap();
        (
            facts.permissions().mode() & 0o7777,
            facts.uid(),
            facts.gid(),
        )
    };
    let (status, said) = host.run(&["import", bundle.to_str().unwrap(), "--service", "--yes"]);
    assert_eq!(status, Some(0), "{said}");
    let below = |path: &str| {
        let mut names = fs::read_dir(host.path(path)).unwrap();
        let name = names
            .next()
            .unwrap()
            .unwrap()
            .file_name()
            .into_string()
            .unwrap();
        format!("{path}/{name}")
    };
    let of_bundle = below("libexec/colibri/servers/b");
    for (path, expected) in [
        ("etc/colibri", (0o755, 0, 0)),
        ("etc/colibri/external-mcp.json", (0o640, 0, GROUP)),
        ("etc/colibri/daemon-secrets", (0o750, 0, GROUP)),
        ("etc/colibri/daemon-secrets/fx-fx-token", (0o440, 0, GROUP)),
        ("libexec/colibri/servers/b", (0o755, 0, 0)),
        (&of_bundle, (0o755, 0, 0)),
        (&format!("{of_bundle}/installed.json"), (0o644, 0, 0)),
        (&format!("{of_bundle}/bundle/s.py"), (0o755, 0, 0)),
        (&below("etc/colibri/locks"), (0o644, 0, 0)),
    ] {
        assert_eq!(facts(path), expected, "{path}");
    }
    // What root alone can run, the daemon cannot.
    fs::create_dir(place.path("roots-own")).unwrap();
    fs::set_permissions(place.path("roots-own"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::copy("/bin/true", place.path("roots-own/server")).unwrap();
    let own_program = place.path("roots-own/server").display().to_string();
    let (status, said) = host.run(&["add", "no", "--service", "--yes", "--", &own_program]);
    assert!(
        status == Some(65) && said.contains("closed to others"),
        "{said}"
    );
    fs::remove_dir_all(place.path("roots-own")).unwrap();

    // The service is down: that is said, and no daemon of the user's own takes its place.
    for args in [&["tools"][..], &["status"], &["call", "fx", "echo"]] {
        let (status, said) = host.run(args);
        assert!(
            status == Some(69) && said.contains("systemctl start colibri-mcpd"),
            "{said}"
        );
    }
    for id in ["fx", "b"] {
        let (status, said) = host.run(&["remove", id, "--service", "--yes"]);
        assert_eq!(status, Some(0), "{said}");
    }
    let mut after = files(place);
    let registry = host.path("etc/colibri/external-mcp.json");
    assert_eq!(after.remove(&registry).unwrap(), b"{}\n");
    after.retain(|path, _| !path.to_string_lossy().contains(".colibri-backup-"));
    assert_eq!(after, before);
    assert_eq!(fs::read(place.path("external-mcp.json")).unwrap(), own);
}

#[test]
fn commands_that_write_answer_as_json_too() {
    let place = users_own();
    let _daemon = place.start(&[]);
    let registry = json!(place.path("colibri/external-mcp.json"));
    let answer = |args: &[&str]| -> Value {
        let output = client(&place, args).arg("--json").output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {output:?}"))
    };
    let file = place.path("x.json");
    let x = place.fixture("x", &[], json!({ "env": { "A_KEY": "v" } }));
    let servers = json!({ "mcpServers": { "x": x, "y": { "command": "/nonexistent/docker" } } });
    fs::write(&file, servers.to_string()).unwrap();
    let added = answer(&["import", file.to_str().unwrap(), "--yes"]);
    assert_eq!(
        (&added["added"], &added["registry"]),
        (&json!(["x"]), &registry)
    );
    assert_eq!(added["refused"][0]["server"], "y");
    assert_eq!(added["daemon"]["reloaded"], true);
    assert!(
        Path::new(added["backup"].as_str().unwrap()).exists(),
        "{added}"
    );
    let disabled = answer(&["server", "disable", "x", "--yes"]);
    assert_eq!(
        (&disabled["server"], &disabled["enabled"]),
        (&json!("x"), &json!(false))
    );
    assert_eq!(answer(&["server", "enable", "x", "--yes"])["enabled"], true);
    let removed = answer(&["remove", "x", "--yes"]);
    assert_eq!(
        removed["files"],
        json!([place.path("colibri/daemon-secrets/x-a-key")])
    );
    let editor = place.path(".cursor/mcp.json");
    let connected = answer(&["connect", "cursor", "--yes"]);
    assert_eq!(
        connected,
        json!({ "file": editor, "changed": true, "backup": null })
    );
    assert_eq!(
        answer(&["connect", "cursor", "--yes"]),
        json!({ "file": editor, "changed": false })
    );
    answer(&["connect", "cursor", "--remove", "--yes"]);
    assert!(!editor.exists());
}

/// A directory with programs that stand in for npm(1) and node(1), of which the first installs by
/// these commands.
fn stand_in_npm(place: &Place, installs: &str) -> PathBuf {
    let directory = place.path("programs");
    fs::create_dir(&directory).unwrap();
    let lock = r#"{"lockfileVersion":3,"packages":{"":{},"node_modules/p":{"version":"1.0.0","integrity":"sha512-00","bin":"p.js"}}}"#;
    let npm = format!(
        "#!/bin/sh\ncase \"$*\" in\n*--package-lock-only*) echo '{lock}' >package-lock.json ;;\n*) {installs} ;;\nesac\n"
    );
    for (name, text) in [("npm", npm.as_str()), ("node", "#!/bin/sh\necho /bin/sh\n")] {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

#[test]
fn one_that_is_interrupted_undoes_what_is_half_done() {
    let place = users_own();
    let started = place.path("started");
    let endless = format!(
        "echo half >half; sleep 300 & echo $! >'{}'; wait",
        started.display()
    );
    let programs = stand_in_npm(&place, &endless);
    fs::create_dir(place.path("tmp")).unwrap();
    let before = files(&place);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut add = client(
            &place,
            &[
                "add",
                "p",
                "--yes",
                "--env",
                "P_TOKEN=abc",
                "--",
                "npx",
                "-y",
                "p",
            ],
        );
        add.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        add.env("TMPDIR", place.path("tmp"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let add = add.spawn().unwrap();
        let sleeps = until(|| fs::read_to_string(&started).ok()?.trim().parse().ok());
        assert!(installed(&place, "p").join("half").exists());
        kill(Pid::from_raw(i32::try_from(add.id()).unwrap()), signal).unwrap();
        let output = add.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(said.contains("interrupted: nothing was written"), "{said}");
        // What the installer started is ended too.
        until(|| kill(Pid::from_raw(sleeps), None).is_err().then_some(()));
        fs::remove_file(&started).unwrap();
        assert_eq!(files(&place), before);
        assert!(!place.path("servers").exists());
        assert_eq!(fs::read_dir(place.path("tmp")).unwrap().count(), 0);
    }
}

#[test]
fn long_work_says_what_it_is() {
    let place = users_own();
    let go = place.path("go");
    let waits = format!(
        "while [ ! -e '{}' ]; do sleep 0.1; done; exit 1",
        go.display()
    );
    let programs = stand_in_npm(&place, &waits);
    for as_events in [false, true] {
        let mut words = vec![
            "add",
            "p",
            "--yes",
            "--env",
            "P_TOKEN=abc",
            "--",
            "npx",
            "-y",
            "p",
        ];
        words.splice(0..0, as_events.then_some("--json"));
        let mut add = client(&place, &words);
        add.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        let mut add = add
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(add.stderr.take().unwrap())
            .lines()
            .map(Result::unwrap);
        // The installer goes on once it was said what is waited for.
        let step = lines.by_ref().find(|line| line.contains("installing "));
        let step = step.expect("a sign of life");
        match serde_json::from_str::<Value>(&step) {
            Ok(event) => assert!(as_events && event["event"] == "progress", "{step}"),
            Err(_) => assert!(!as_events && step.ends_with("for p …"), "{step}"),
        }
        fs::write(&go, "").unwrap();
        let said = lines.collect::<Vec<_>>().join("\n");
        assert!(!add.wait().unwrap().success(), "{said}");
        fs::remove_file(&go).unwrap();
    }
}

#[test]
fn a_package_of_which_a_part_could_not_be_written_is_refused() {
    let place = users_own();
    let warns = "mkdir -p node_modules/p; : >node_modules/p/p.js; echo 'npm warn tar TAR_ENTRY_ERROR ENOSPC: no space' >&2";
    let programs = stand_in_npm(&place, warns);
    let before = files(&place);
    let mut add = client(&place, &["add", "p", "--yes", "--", "npx", "-y", "p"]);
    let output = add
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{said}");
    assert!(
        said.contains("npm did not unpack all") && said.contains("ENOSPC"),
        "{said}"
    );
    assert_eq!(files(&place), before);
}

#[test]
fn one_that_cannot_be_written_says_why_and_leaves_nothing() {
    let place = users_own();
    fs::remove_file(place.path("external-mcp.json")).unwrap();
    // Where its secret would be is no directory.
    fs::write(place.path("daemon-secrets"), "").unwrap();
    let before = files(&place);
    let (status, said) = run(
        &place,
        &["add", "fx", "--yes", "--env", "FX_TOKEN=abc", "--", "sh"],
    );
    assert_eq!(status, Some(65), "{said}");
    assert!(
        said.contains("fx was not written") && said.contains("daemon-secrets: File exists"),
        "{said}"
    );
    assert_eq!(files(&place), before);
}

/// Waits until something is there.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it did not come to be");
}

#[test]
fn no_two_secrets_of_one_import_are_one_file() {
    let place = users_own();
    let file = place.path("mcp.json");
    let entry = |env: Value| json!({ "command": "/bin/sh", "env": env });
    let servers = json!({
        "a": entry(json!({ "B_TOKEN": "first", "b_token": "second" })),
        "a-b": entry(json!({ "TOKEN": "third" })),
    });
    fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let said = run(&place, &["import", file.to_str().unwrap(), "--yes"]).1;
    assert!(
        said.contains("its secret would be the file a-b-token, which is a's"),
        "{said}"
    );
    let registry = json_of(&place.path("external-mcp.json"));
    let env = registry["servers"]["a"]["env"].as_object().unwrap();
    let kept = |name: &str| {
        let file = env[name]["secret"].as_str().unwrap();
        fs::read_to_string(place.path("daemon-secrets").join(file)).unwrap()
    };
    assert_eq!(
        (kept("B_TOKEN").trim(), kept("b_token").trim()),
        ("first", "second")
    );
    assert!(registry["servers"].get("a-b").is_none(), "{registry}");
}
