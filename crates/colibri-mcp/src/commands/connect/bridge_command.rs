//! The command by which an editor starts the bridge.

use std::path::PathBuf;

use crate::commands::context::CommandContext;
use crate::failure::CommandError;

/// The command that an editor starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct BridgeCommand {
    pub(super) command: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
}

impl BridgeCommand {
    /// This program, without flags.
    pub(crate) fn here() -> Result<BridgeCommand, CommandError> {
        Ok(BridgeCommand {
            command: own_path()?,
            ..BridgeCommand::default()
        })
    }

    /// The bridge that reaches the same daemon with the same gates, from this machine or through
    /// ssh from another.
    pub(super) fn of(
        context: &CommandContext,
        ssh: Option<&str>,
    ) -> Result<BridgeCommand, CommandError> {
        let here = BridgeCommand {
            arguments: context.flags()?,
            ..BridgeCommand::here()?
        };
        match ssh {
            Some(host) => here.through(host),
            None if context.place.private => Ok(BridgeCommand {
                environment: own_directories(|name| std::env::var(name).ok()),
                ..here
            }),
            None => Ok(here),
        }
    }

    pub(super) fn through(self, host: &str) -> Result<BridgeCommand, CommandError> {
        if host.starts_with('-') || host.is_empty() {
            return Err(CommandError::Usage(format!(
                "--ssh {host:?}: this is no host name"
            )));
        }
        // ssh joins its arguments with spaces and the other side's shell splits them again.
        let words = [self.command].into_iter().chain(self.arguments);
        let words = words.map(|word| shell_word(&word));
        Ok(BridgeCommand {
            command: "ssh".to_owned(),
            arguments: ["-T".to_owned(), host.to_owned()]
                .into_iter()
                .chain(words)
                .collect(),
            environment: Vec::new(),
        })
    }
}

/// The variables that say where the user's own daemon is. Agents keep from what they start what
/// they do not know.
pub(super) fn own_directories(variable: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), variable(name)?)))
        .filter(|(_, path)| PathBuf::from(path).is_absolute())
        .collect()
}

/// The absolute path of this program, as it will be started.
pub(crate) fn own_path() -> Result<String, CommandError> {
    let path = std::env::current_exe().map_err(|error| {
        CommandError::Machine(format!("cannot find out where this program is: {error}"))
    })?;
    path.into_os_string().into_string().map_err(|path| {
        CommandError::Machine(format!(
            "the path {path:?} is not UTF-8, so no settings file can name it"
        ))
    })
}

/// A word as a POSIX shell reads it back unchanged.
pub(super) fn shell_word(word: &str) -> String {
    if word
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@%".contains(&byte))
    {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
