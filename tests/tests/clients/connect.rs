//! `colibri-mcp connect EDITOR`: an entry in the file that the editor reads, and the rest of that
//! file as it was.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use colibri_tests::program;

/// An editor, its own file and that of a project, and what stands in one before the entry comes.
const EDITORS: &[(&str, &str, Option<&str>, &str)] = &[
    (
        "zed",
        ".config/zed/settings.json",
        Some(".zed/settings.json"),
        "// mine\n{\n  \"theme\": \"One\", // dark\n}\n",
    ),
    (
        "cursor",
        ".cursor/mcp.json",
        Some(".cursor/mcp.json"),
        "{\"mcpServers\":{\"a\":{\"command\":\"x\"}}}",
    ),
    (
        "windsurf",
        ".codeium/windsurf/mcp_config.json",
        None,
        "{\n\t\"mcpServers\": {}\n}",
    ),
    (
        "vscode",
        ".config/Code/User/mcp.json",
        Some(".vscode/mcp.json"),
        "{\n    // none\n    \"servers\": {},\n}\n",
    ),
    (
        "claude-code",
        ".claude.json",
        Some(".mcp.json"),
        "{\n  \"numStartups\": 3,\n  \"projects\": {}\n}",
    ),
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        None,
        "{}",
    ),
    (
        "codex",
        ".codex/config.toml",
        Some(".codex/config.toml"),
        "# mine\nmodel = \"m\" # this\n\n[tui]\na = 1\n",
    ),
    (
        "gemini",
        ".gemini/settings.json",
        Some(".gemini/settings.json"),
        "{ \"ui\": { \"theme\": \"x\" } }\n",
    ),
    (
        "opencode",
        ".config/opencode/opencode.json",
        Some("opencode.json"),
        "{ \"$schema\": \"s\" /* s */ }\n",
    ),
];

fn connect(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program("colibri-mcp"));
    command
        .env_clear()
        .env("HOME", home)
        .current_dir(home.join("project"))
        .stdin(Stdio::null());
    command.arg("connect").args(args).output().unwrap()
}

fn good(home: &Path, args: &[&str]) -> String {
    let output = connect(home, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// All files below a directory but empty directories, with what is in them.
fn files(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), fs::read_to_string(path).unwrap()));
        }
    }
    found.sort();
    found
}

fn home() -> tempfile::TempDir {
    let home = tempfile::Builder::new()
        .prefix("colibri-connect-")
        .tempdir()
        .unwrap();
    fs::create_dir(home.path().join("project")).unwrap();
    home
}

#[test]
fn an_entry_is_written_kept_and_taken_out_again_in_every_editors_file() {
    for (editor, own, project, before) in EDITORS {
        let home = home();
        let home = home.path();
        // From nothing, to nothing.
        good(home, &[editor, "--yes"]);
        let path = home.join(own);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text.trim_end(),
            good(home, &[editor, "--print"]).trim_end(),
            "{editor}"
        );
        assert!(
            text.contains(program("colibri-mcp").to_str().unwrap()),
            "{editor}: {text}"
        );
        let said = good(home, &[editor, "--yes"]);
        assert!(said.contains("has this entry already"), "{said}");
        assert_eq!(files(home).len(), 1, "{editor}");
        good(home, &[editor, "--remove", "--yes"]);
        assert!(!path.exists(), "{editor}");
        let kept = files(home);
        assert!(kept.len() == 1 && kept[0].1 == text, "{editor}: {kept:?}");
        fs::remove_file(&kept[0].0).unwrap();

        // Into a file that says other things, and out of it.
        fs::write(&path, before).unwrap();
        let said = good(home, &[editor, "--yes"]);
        assert!(
            said.contains("colibri") && said.contains("As it was: "),
            "{said}"
        );
        let with = fs::read_to_string(&path).unwrap();
        for word in before
            .split_whitespace()
            .filter(|word| word.len() > 4 && !word.contains(['{', '}']))
        {
            assert!(with.contains(word), "{editor}: {word} in {with}");
        }
        let kept = files(home)
            .into_iter()
            .find(|(path, _)| path.to_string_lossy().contains(".colibri-backup-"));
        assert_eq!(kept.unwrap().1, *before, "{editor}");
        good(home, &[editor, "--remove", "--yes"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), *before, "{editor}");

        // The project's file, where there are such.
        let output = connect(home, &[editor, "--project", "--yes"]);
        match project {
            Some(name) => assert!(
                home.join("project").join(name).exists(),
                "{editor}: {output:?}"
            ),
            None => assert_eq!(output.status.code(), Some(64), "{editor}: {output:?}"),
        }
    }
}

#[test]
fn a_project_does_not_choose_by_its_links_which_file_is_written() {
    let home = home();
    let home = home.path();
    let (own, project) = (home.join("docker.json"), home.join("project"));
    fs::write(&own, "{}").unwrap();
    fs::create_dir(home.join("elsewhere")).unwrap();
    // The file, the directory it stands in, and a link to nothing.
    symlink(&own, project.join(".mcp.json")).unwrap();
    symlink(home.join("elsewhere"), project.join(".cursor")).unwrap();
    fs::create_dir(project.join(".vscode")).unwrap();
    symlink(home.join("new.json"), project.join(".vscode/mcp.json")).unwrap();
    for editor in ["claude-code", "cursor", "vscode"] {
        for more in [&["--yes"][..], &["--remove", "--yes"]] {
            let output = connect(home, &[&[editor, "--project"], more].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && said.contains("symbolic link"),
                "{editor}: {output:?}"
            );
        }
    }
    assert_eq!(fs::read_to_string(&own).unwrap(), "{}");
    assert_eq!(fs::read_dir(home.join("elsewhere")).unwrap().count(), 0);
    assert!(!home.join("new.json").exists());
}

#[test]
fn flags_go_with_the_entry_and_nothing_is_written_unasked() {
    let home = home();
    let home = home.path();
    let output = connect(home, &["cursor"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("+++ ") && text.contains("\"mcpServers\"") && text.contains("--yes"),
        "{text}"
    );
    assert_eq!(files(home), []);

    good(
        home,
        &["cursor", "--yes", "--socket", "/run/x.sock", "--read-only"],
    );
    let text = fs::read_to_string(home.join(".cursor/mcp.json")).unwrap();
    let squeezed: String = text.split_whitespace().collect();
    assert!(
        squeezed.contains(r#""args":["--socket","/run/x.sock","--read-only"]"#),
        "{text}"
    );

    // A file that cannot be read is left alone, and its fault is named.
    fs::create_dir(home.join(".gemini")).unwrap();
    let path = home.join(".gemini/settings.json");
    fs::write(&path, "{\n  \"a\": 1\n  \"b\": 2\n}\n").unwrap();
    let output = connect(home, &["gemini", "--yes"]);
    assert_eq!(output.status.code(), Some(65), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("settings.json:2:9: ") && said.contains("nothing was written"),
        "{said}"
    );
    assert_eq!(
        fs::read_to_string(path).unwrap(),
        "{\n  \"a\": 1\n  \"b\": 2\n}\n"
    );

    // What is for another machine is shown, and nothing is written here.
    let said = good(home, &["codex", "--ssh", "devbox"]);
    assert!(
        said.contains("[mcp_servers.colibri]\ncommand = \"ssh\"\nargs = [\"-T\", \"devbox\", "),
        "{said}"
    );
    assert!(!home.join(".codex").exists());
}
