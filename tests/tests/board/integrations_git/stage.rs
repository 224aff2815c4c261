//! An origin, a repository that was cloned from it, and the adapter over it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use colibri_tests::program;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const GIT: &str = "/usr/bin/git";
pub(crate) const AUTHOR: &str = "Agent Smith <smith@example.org>";

/// A directory with an origin (`origin.git`), a clone of it (`repo`), and a home (`home`).
pub(crate) struct Stage {
    directory: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let directory = tempfile::Builder::new()
            .prefix("colibri-git-test-")
            .tempdir()
            .unwrap();
        let stage = Stage { directory };
        fs::create_dir(stage.path("home")).unwrap();
        stage.git(
            ".",
            &[
                "init",
                "--quiet",
                "--bare",
                "--initial-branch=main",
                "origin.git",
            ],
        );
        stage.git(".", &["clone", "--quiet", "origin.git", "repo"]);
        stage.git("repo", &["switch", "--quiet", "--orphan", "main"]);
        stage.write("repo/a.txt", "one\n");
        stage.write("repo/dir/b.txt", "two\n");
        stage.write("repo/.gitignore", "*.tmp\n");
        stage.git("repo", &["add", "."]);
        stage.git("repo", &["commit", "--quiet", "-m", "First"]);
        stage.git("repo", &["push", "--quiet", "origin", "main"]);
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// An executable that leaves `MARK` in the stage's directory.
    pub(crate) fn trap(&self, name: &str) -> String {
        let mark = self.mark();
        self.write(name, &format!("#!/bin/sh\ntouch '{}'\n", mark.display()));
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        self.path(name).display().to_string()
    }

    pub(crate) fn mark(&self) -> PathBuf {
        self.path("MARK")
    }

    pub(crate) fn origin(&self) -> String {
        format!("file://{}", self.path("origin.git").display())
    }

    /// The tree of a worktree, by its slug.
    pub(crate) fn tree(&self, slug: &str) -> String {
        format!("repo/.worktrees/claude/{slug}")
    }

    /// git as anybody would run it, in a directory of the stage.
    pub(crate) fn plain(&self, directory: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(GIT);
        command
            .current_dir(self.path(directory))
            .args(arguments)
            .stdin(Stdio::null());
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"));
        command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0");
        for role in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{role}_NAME"), "Person")
                .env(format!("GIT_{role}_EMAIL"), "p@example.org");
        }
        command
    }

    /// The same, which must succeed; what it says.
    pub(crate) fn git(&self, directory: &str, arguments: &[&str]) -> String {
        let output = self
            .plain(directory, arguments)
            .output()
            .expect("git(1) must be installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Gives it all to a user.
    pub(crate) fn own(&self, uid: u32) {
        let mut command = Command::new("chown");
        command
            .arg("-Rh")
            .arg(format!("{uid}:{uid}"))
            .arg(self.directory.path());
        assert!(command.status().unwrap().success());
    }

    /// What the adapter's command line says of this stage.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let repository = self.path("repo").display().to_string();
        let all = [
            "integration",
            "git",
            "--repository",
            &repository,
            "--origin",
            &self.origin(),
            "--author",
            AUTHOR,
            "--git",
            GIT,
        ];
        all.map(str::to_owned).to_vec()
    }

    /// The adapter over the repository.
    pub(crate) fn adapter(&self) -> Adapter {
        self.adapter_of(&self.arguments(), &[])
    }

    /// The same with another command line, and more in its environment.
    pub(crate) fn adapter_of(&self, arguments: &[String], environment: &[(&str, &str)]) -> Adapter {
        self.adapter_by(Command::new(program("colibri-mcp")), arguments, environment)
    }

    /// The same, run by a command that is begun.
    pub(crate) fn adapter_by(
        &self,
        mut command: Command,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) -> Adapter {
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"));
        command.envs(environment.iter().copied());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Adapter {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            last: 0,
        }
    }
}

/// A running adapter.
pub(crate) struct Adapter {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last: u64,
}

impl Adapter {
    pub(crate) fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Asks and does not wait; the request's id.
    pub(crate) fn ask(&mut self, tool: &str, arguments: Value) -> u64 {
        self.last += 1;
        let params = json!({ "name": tool, "arguments": arguments });
        self.send(
            &json!({ "jsonrpc": "2.0", "id": self.last, "method": "tools/call", "params": params }),
        );
        self.last
    }

    pub(crate) fn read(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The result of a call.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.ask(tool, arguments);
        let answer = self.read();
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }

    /// What a call that must succeed says.
    pub(crate) fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone());
        assert!(result["isError"].is_null(), "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// Code and message of a call that must fail.
    pub(crate) fn fails(&mut self, tool: &str, arguments: Value) -> (String, String) {
        let result = self.call(tool, arguments.clone());
        let error = &result["structuredContent"]["error"];
        let text = |key: &str| {
            error[key]
                .as_str()
                .unwrap_or_else(|| panic!("{tool} {arguments}: {result}"))
                .to_owned()
        };
        assert_eq!(result["isError"], true, "{result}");
        (text("code"), text("message"))
    }

    /// Ends its input and waits for its end.
    pub(crate) fn end(mut self) {
        self.stdin = None;
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// What stands in a file.
pub(crate) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
