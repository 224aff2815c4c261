//! Origin: its credential, its faults, and calls that are given up while it says nothing.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;

use colibri_tests::remote::{Port, Request, answer};
use colibri_tests::{processes_with, wait_for};
use serde_json::json;

use super::stage::{Adapter, GIT, Stage};

const TOKEN: &str = "t0k3n-0123456789";

fn adapter(stage: &Stage, url: &str, token: &str) -> Adapter {
    let mut arguments = stage.arguments();
    let at = arguments
        .iter()
        .position(|argument| argument == "--origin")
        .unwrap();
    arguments[at + 1] = url.to_owned();
    stage.adapter_of(&arguments, &[("GIT_ORIGIN_TOKEN", token)])
}

/// The origin's files by HTTP, as git's oldest way has them, for who has the token.
fn serve(root: PathBuf) -> Port {
    // `git:t0k3n-0123456789`
    let wanted = "Basic Z2l0OnQwazNuLTAxMjM0NTY3ODk=";
    Port::answering(move |request: &Request, stream: &mut TcpStream| {
        if request.field("authorization") != Some(wanted) {
            return answer(
                stream,
                "401 Unauthorized",
                "WWW-Authenticate: Basic realm=\"x\"\r\n",
                "",
            );
        }
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        let path = path
            .split('?')
            .next()
            .unwrap_or_default()
            .trim_start_matches("/p.git/");
        match fs::read(root.join(path)) {
            Ok(bytes) => {
                use std::io::Write as _;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
                stream
                    .write_all(&[head.as_bytes(), &bytes].concat())
                    .is_ok()
            }
            Err(_) => answer(stream, "404 Not Found", "", ""),
        }
    })
}

#[test]
fn a_credential_goes_to_origin_and_a_revoked_one_is_final() {
    let stage = Stage::new();
    stage.git("origin.git", &["update-server-info"]);
    let port = serve(stage.path("origin.git"));
    let head = stage.git("origin.git", &["rev-parse", "main"]);
    let done = adapter(&stage, &port.url("/p.git"), TOKEN).done("git_fetch", json!({}));
    assert_eq!(done["sha"], head);
    for token in ["revoked", ""] {
        // What the repository would ask for one instead is not asked.
        let program = stage.trap("trap.sh");
        stage.git(
            "repo",
            &["config", "credential.helper", &format!("!{program}")],
        );
        stage.git("repo", &["config", "core.askPass", &program]);
        stage
            .plain("repo", &["fetch", &port.url("/p.git")])
            .output()
            .unwrap();
        assert!(stage.mark().exists());
        fs::remove_file(stage.mark()).unwrap();
        let result = adapter(&stage, &port.url("/p.git"), token).call("git_fetch", json!({}));
        let error = &result["structuredContent"]["error"];
        assert_eq!(
            (&error["code"], &error["transient"]),
            (&json!("GIT_DENIED"), &json!(false)),
            "{result}"
        );
        assert!(!stage.mark().exists());
    }
}

#[test]
fn faults_of_origin_have_their_codes() {
    let stage = Stage::new();
    let elsewhere =
        Port::answering(|_: &Request, stream: &mut TcpStream| answer(stream, "200 OK", "", ""));
    let location = format!("Location: {}\r\n", elsewhere.url("/q.git/info/refs"));
    for (status, head, code) in [
        ("500 Oops", "", "GIT_UNREACHABLE"),
        ("503 Busy", "", "GIT_UNREACHABLE"),
        ("403 Forbidden", "", "GIT_DENIED"),
        ("404 Not Found", "", "GIT_FAILED"),
        ("301 Moved Permanently", &*location, "GIT_UNREACHABLE"),
    ] {
        let head = head.to_owned();
        let port = Port::answering(move |request: &Request, stream: &mut TcpStream| {
            let told = format!(
                "no \u{1b}[2J\u{202e} {TOKEN} {}",
                request.field("authorization").unwrap_or_default()
            );
            answer(
                stream,
                status,
                &format!("{head}Content-Type: text/plain\r\n"),
                &told,
            )
        });
        let (found, message) =
            adapter(&stage, &port.url("/p.git"), TOKEN).fails("git_fetch", json!({}));
        assert_eq!(found, code, "{status}: {message}");
        let is_safe = !message.contains(['\u{1b}', '\u{202e}'])
            && !message.contains(TOKEN)
            && !message.contains("Z2l0");
        assert!(is_safe && message.contains("status 128"), "{message}");
    }
    // A redirect is not followed, and so the token is nobody else's.
    assert_eq!(elsewhere.connections(), 0);
    let (code, _) =
        adapter(&stage, "http://127.0.0.1:1/p.git", TOKEN).fails("git_fetch", json!({}));
    assert_eq!(code, "GIT_UNREACHABLE");
    // The clone's own branch main is not origin's.
    let nowhere = format!("file://{}", stage.path("nowhere.git").display());
    assert_eq!(
        adapter(&stage, &nowhere, "")
            .fails("git_fetch", json!({}))
            .0,
        "GIT_FAILED"
    );
}

#[test]
fn a_credential_is_not_shown_in_part_either() {
    let stage = Stage::new();
    // What is kept of git's words ends in the middle of it.
    for (length, shown) in [(14, TOKEN), (13, "Z2l0OnQwazNuLTAxMjM0NTY3ODk=")] {
        let said = format!("{}{shown}", "x".repeat(512 - "remote: ".len() - length));
        let port = Port::answering(move |_: &Request, stream: &mut TcpStream| {
            answer(stream, "500 Oops", "Content-Type: text/plain\r\n", &said)
        });
        let (_, message) =
            adapter(&stage, &port.url("/p.git"), TOKEN).fails("git_fetch", json!({}));
        assert!(
            message.contains("xxx") && message.ends_with("x[secret]"),
            "{message}"
        );
    }
}

#[test]
fn a_branch_in_the_way_of_another_is_no_lock() {
    let stage = Stage::new();
    let mut adapter = stage.adapter();
    stage.git("origin.git", &["branch", "side", "main"]);
    adapter.done("git_fetch", json!({}));
    stage.git("origin.git", &["branch", "-D", "side"]);
    stage.git("origin.git", &["branch", "side/one", "main"]);
    let (code, message) = adapter.fails("git_fetch", json!({}));
    assert_eq!(code, "GIT_FAILED", "{message}");
    assert!(message.contains("git remote prune"), "{message}");
}

/// The processes that git has for this stage.
fn children(stage: &Stage) -> Vec<(i32, String)> {
    let mark = stage.path("silent").display().to_string();
    processes_with(&mark)
}

#[test]
fn a_call_that_is_given_up_leaves_no_process() {
    let stage = Stage::new();
    // A git of the operator's that never ends, nor lets its children be seen to.
    let silent = stage.path("silent").display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *fetch*) ;; *) exec {GIT} \"$@\" ;; esac\nsh -c 'trap \"\" TERM; sleep 600' {silent} &\n\
         trap '' TERM\nwhile :; do sleep 600; done\n"
    );
    stage.write("silent", &script);
    fs::set_permissions(
        stage.path("silent"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let mut arguments = stage.arguments();
    *arguments.last_mut().unwrap() = silent;
    let mut adapter = stage.adapter_of(&arguments, &[]);
    let own = adapter.pid() as i32;
    let others = || {
        children(&stage)
            .into_iter()
            .filter(|(pid, _)| *pid != own)
            .count()
    };
    for is_cancelled in [true, false] {
        let id = adapter.ask("git_fetch", json!({}));
        wait_for("git and its child", || (others() >= 2).then_some(()));
        if is_cancelled {
            let params = json!({ "requestId": id });
            adapter.send(
                &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
            );
            wait_for("the end of them", || (others() == 0).then_some(()));
        }
    }
    adapter.end();
    assert_eq!(children(&stage), []);
}
