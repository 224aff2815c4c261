//! `colibri-mcp ssh-gate`: all that an SSH key can do here, as its forced command in authorized_keys (sshd(8)).
//!
//! sshd(8) puts what the other side asked for into `SSH_ORIGINAL_COMMAND`. No shell ever reads it, and none of it is
//! executed: it is matched, word by word, against the two things that are allowed, and those are done in this process.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use super::context::CommandContext;
use super::tools;
use crate::bridge;
use crate::connection::Hello;
use crate::failure::CommandError;
use colibri_text::visible;

/// Longest command that is looked at, bytes.
const MAX_COMMAND: usize = 4096;
/// Characters of a refused command that are shown.
const SHOWN: usize = 200;
/// The required name of the first word's file.
const PROGRAM: &str = "colibri-mcp";

/// The permissions of a key.
#[derive(Debug, PartialEq, Eq)]
enum KeyPermission {
    Bridge { read_only: bool },
    Tools { json: bool, server: Option<String> },
}

/// Runs the command.
pub(crate) fn run(context: &CommandContext) -> Result<ExitCode, CommandError> {
    match parse(std::env::var_os("SSH_ORIGINAL_COMMAND"))? {
        KeyPermission::Bridge { read_only } => {
            let hello = Hello {
                read_only: context.read_only || read_only,
                only: None,
            };
            Ok(bridge::run(context.place.clone(), hello))
        }
        KeyPermission::Tools { json, server } => {
            let json = context.json || json;
            let context = CommandContext {
                json,
                ..context.clone()
            };
            tools::run(&tools::ToolsArguments { server, tool: None }, &context)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The request of the command, if that is allowed. Words are separated by single spaces, and nothing is quoted.
fn parse(command: Option<OsString>) -> Result<KeyPermission, CommandError> {
    let command = command.unwrap_or_default();
    if command.is_empty() {
        return Ok(KeyPermission::Bridge { read_only: false });
    }
    let refuse = |why: &str| {
        let shown: String = command.to_string_lossy().chars().take(SHOWN).collect();
        CommandError::Refused(format!(
            "this SSH key may only start the bridge (`{PROGRAM}`, `{PROGRAM} --read-only`) and list tools \
             (`{PROGRAM} tools [SERVER]`); refused, because {why}: {}",
            visible(&shown)
        ))
    };
    if command.len() > MAX_COMMAND {
        return Err(refuse("the command is too long"));
    }
    let text = command.to_str().ok_or_else(|| refuse("the command is no UTF-8"))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" /._-".contains(&byte);
    if !text.bytes().all(plain) {
        return Err(refuse(
            "no shell reads the command, so it cannot have quotes, variables or other signs",
        ));
    }
    let mut words = text.split(' ');
    // Only a name here: what runs is this program, wherever the other side believes it to be.
    let program = words.next().unwrap_or_default();
    if program != PROGRAM && !program.starts_with('/')
        || Path::new(program).file_name().is_none_or(|name| name != PROGRAM)
    {
        return Err(refuse("it is another program"));
    }
    let words: Vec<&str> = words.collect();
    let tools = |json, server: Option<&str>| KeyPermission::Tools {
        json,
        server: server.map(str::to_owned),
    };
    match words[..] {
        [] => Ok(KeyPermission::Bridge { read_only: false }),
        ["--read-only"] => Ok(KeyPermission::Bridge { read_only: true }),
        ["tools"] => Ok(tools(false, None)),
        ["tools", "--json"] => Ok(tools(true, None)),
        ["tools", server] if is_server(server) => Ok(tools(false, Some(server))),
        ["tools", server, "--json"] if is_server(server) => Ok(tools(true, Some(server))),
        _ => Err(refuse("these arguments are not allowed")),
    }
}

/// True if a word has the form of a server's id, so that it cannot be an option.
fn is_server(word: &str) -> bool {
    word.len() <= 32
        && word.starts_with(|first: char| first.is_ascii_lowercase())
        && word
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn parsed(command: &str) -> Option<KeyPermission> {
        match parse(Some(command.into())) {
            Ok(allowed) => Some(allowed),
            Err(failure) => {
                assert_eq!(failure.exit_code(), 77);
                assert!(!failure.to_string().chars().any(char::is_control), "{failure}");
                None
            }
        }
    }

    #[test]
    fn the_bridge_and_the_list_of_tools_are_allowed() {
        assert_eq!(parse(None).unwrap(), KeyPermission::Bridge { read_only: false });
        for (command, read_only) in [
            ("", false),
            ("colibri-mcp", false),
            ("/usr/local/bin/colibri-mcp", false),
            ("/usr/local/bin/colibri-mcp --read-only", true),
        ] {
            assert_eq!(parsed(command), Some(KeyPermission::Bridge { read_only }), "{command}");
        }
        for (command, json, server) in [
            ("colibri-mcp tools", false, None),
            ("colibri-mcp tools --json", true, None),
            ("colibri-mcp tools github", false, Some("github")),
            ("colibri-mcp tools git-hub2 --json", true, Some("git-hub2")),
        ] {
            let server = server.map(str::to_owned);
            assert_eq!(
                parsed(command),
                Some(KeyPermission::Tools { json, server }),
                "{command}"
            );
        }
    }

    #[test]
    fn nothing_else_is() {
        for command in [
            " ",
            "sh",
            "colibri-mcpd",
            "../colibri-mcp",
            "x/colibri-mcp",
            "/",
            "/usr/local/bin/",
            "colibri-mcp ",
            "colibri-mcp  tools",
            " colibri-mcp",
            "colibri-mcp\ttools",
            "colibri-mcp\ntools",
            "colibri-mcp call demo echo",
            "colibri-mcp trail show",
            "colibri-mcp demo",
            "colibri-mcp ssh-gate",
            "colibri-mcp --socket /tmp/evil",
            "colibri-mcp --read-only --socket /tmp/evil",
            "colibri-mcp --write",
            "colibri-mcp tools --socket /tmp/evil",
            "colibri-mcp tools -h",
            "colibri-mcp tools --json --json",
            "colibri-mcp tools a b",
            "colibri-mcp tools Git",
            "colibri-mcp; sh",
            "colibri-mcp && sh",
            "colibri-mcp | sh",
            "colibri-mcp $(sh)",
            "colibri-mcp `sh`",
            "'colibri-mcp'",
            "colibri-mcp \u{1b}[2J",
            "colibri-mcp \u{202e}slooT",
            "env colibri-mcp",
            "internal-sftp",
            "colibri-mcp --confine-keeper",
        ] {
            assert_eq!(parsed(command), None, "{command:?}");
        }
        assert_eq!(parsed(&format!("/{}/colibri-mcp", "a".repeat(MAX_COMMAND))), None);
        assert!(parse(Some(OsString::from_vec(b"colibri-mcp \xff".to_vec()))).is_err());
    }
}
