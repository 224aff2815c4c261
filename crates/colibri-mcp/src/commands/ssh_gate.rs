//! `colibri-mcp ssh-gate`: all that an SSH key can do here, as its forced command in
//! authorized_keys (sshd(8)).
//!
//! sshd(8) puts what the other side asked for into `SSH_ORIGINAL_COMMAND`. No shell ever reads it,
//! and none of it is executed: it is matched, word by word, against the few things that are
//! allowed, and those are done in this process.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use super::context::CommandContext;
use super::tools;
use crate::bridge;
use crate::connection::Hello;
use crate::failure::CommandError;
use colibri_registry::is_server_id;
use colibri_text::visible;

/// Longest command that is looked at, bytes.
const MAX_COMMAND: usize = 4096;
/// Characters of a refused command that are shown.
const SHOWN: usize = 200;
/// The required name of the first word's file.
const PROGRAM: &str = "colibri-mcp";

/// The server of the key.
#[derive(Debug, clap::Args)]
pub(crate) struct SshGateArguments {
    /// The one server that the key reaches [default: the one that the other side names, or all]
    server: Option<String>,
}

/// The permissions of a key.
#[derive(Debug, PartialEq, Eq)]
enum KeyPermission {
    Bridge {
        read_only: bool,
        only: Option<String>,
    },
    Tools {
        json: bool,
        server: Option<String>,
    },
}

/// Runs the command.
pub(crate) fn run(
    arguments: &SshGateArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let own = arguments.server.as_deref();
    if let Some(server) = own.filter(|server| !is_server_id(server)) {
        return Err(CommandError::Usage(format!(
            "ssh-gate {}: this is no server's id; put right the line of the key in authorized_keys",
            visible(server)
        )));
    }
    match parse(std::env::var_os("SSH_ORIGINAL_COMMAND"), own)? {
        KeyPermission::Bridge { read_only, only } => {
            let hello = Hello {
                read_only: context.read_only || read_only,
                only,
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

/// The request of the command, if that is allowed. Words are separated by single spaces, and
/// nothing is quoted.
///
/// `own` is the one server that the key reaches.
fn parse(command: Option<OsString>, own: Option<&str>) -> Result<KeyPermission, CommandError> {
    let bridge = |read_only, named: Option<&str>| KeyPermission::Bridge {
        read_only,
        only: named.or(own).map(str::to_owned),
    };
    let command = command.unwrap_or_default();
    if command.is_empty() {
        return Ok(bridge(false, None));
    }
    let refuse = |why: &str| {
        let shown: String = command.to_string_lossy().chars().take(SHOWN).collect();
        CommandError::Refused(format!(
            "this SSH key may only start the bridge (`{PROGRAM}`, `--read-only`, `--only SERVER`) and list tools \
             (`{PROGRAM} tools [SERVER]`){}; refused, because {why}: {}",
            own.map(|own| format!(", of the server {own} alone"))
                .unwrap_or_default(),
            visible(&shown)
        ))
    };
    if command.len() > MAX_COMMAND {
        return Err(refuse("the command is too long"));
    }
    let text = command
        .to_str()
        .ok_or_else(|| refuse("the command is no UTF-8"))?;
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
        || Path::new(program)
            .file_name()
            .is_none_or(|name| name != PROGRAM)
    {
        return Err(refuse("it is another program"));
    }
    let words: Vec<&str> = words.collect();
    let tools = |json, server: Option<&str>| KeyPermission::Tools {
        json,
        server: server.map(str::to_owned),
    };
    let is_reached = |server: &str| is_server_id(server) && own.is_none_or(|own| own == server);
    match words[..] {
        [] => Ok(bridge(false, None)),
        ["--read-only"] => Ok(bridge(true, None)),
        ["--only", server] if is_reached(server) => Ok(bridge(false, Some(server))),
        ["--read-only", "--only", server] if is_reached(server) => Ok(bridge(true, Some(server))),
        ["tools"] => Ok(tools(false, own)),
        ["tools", "--json"] => Ok(tools(true, own)),
        ["tools", server] if is_reached(server) => Ok(tools(false, Some(server))),
        ["tools", server, "--json"] if is_reached(server) => Ok(tools(true, Some(server))),
        _ => Err(refuse("these arguments are not allowed")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn parsed(command: &str) -> Option<KeyPermission> {
        parsed_for(command, None)
    }

    fn parsed_for(command: &str, own: Option<&str>) -> Option<KeyPermission> {
        match parse(Some(command.into()), own) {
            Ok(allowed) => Some(allowed),
            Err(failure) => {
                assert_eq!(failure.exit_code(), 77);
                assert!(
                    !failure.to_string().chars().any(char::is_control),
                    "{failure}"
                );
                None
            }
        }
    }

    #[test]
    fn the_bridge_and_the_list_of_tools_are_allowed() {
        let bridge = |read_only, only: Option<&str>| {
            let only = only.map(str::to_owned);
            Some(KeyPermission::Bridge { read_only, only })
        };
        assert_eq!(parse(None, None).ok(), bridge(false, None));
        assert_eq!(parse(None, Some("git")).ok(), bridge(false, Some("git")));
        let only = "colibri-mcp --only git";
        assert_eq!(parsed(only), bridge(false, Some("git")));
        assert_eq!(parsed_for(only, Some("git")), bridge(false, Some("git")));
        assert_eq!(
            parsed_for("colibri-mcp --read-only --only git", None),
            bridge(true, Some("git"))
        );
        assert_eq!(
            parsed_for("colibri-mcp", Some("git")),
            bridge(false, Some("git"))
        );
        for (command, read_only) in [
            ("", false),
            ("colibri-mcp", false),
            ("/usr/local/bin/colibri-mcp", false),
            ("/usr/local/bin/colibri-mcp --read-only", true),
        ] {
            assert_eq!(parsed(command), bridge(read_only, None), "{command}");
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
            "colibri-mcp --only",
            "colibri-mcp --only Git",
            "colibri-mcp --only --read-only",
            "colibri-mcp --only git --read-only",
            "colibri-mcp --only git x",
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
        assert_eq!(
            parsed(&format!("/{}/colibri-mcp", "a".repeat(MAX_COMMAND))),
            None
        );
        assert!(parse(Some(OsString::from_vec(b"colibri-mcp \xff".to_vec())), None).is_err());
        for command in [
            "colibri-mcp --only docs",
            "colibri-mcp tools docs",
            "colibri-mcp tools docs --json",
        ] {
            assert_eq!(parsed_for(command, Some("git")), None, "{command}");
        }
    }
}
