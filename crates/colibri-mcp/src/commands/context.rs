//! The context of every command, and its requests to the daemon.

use std::io::{self, Write as _};
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::connection::{DaemonAddress, DaemonConnection};
use crate::failure::CommandError;
use crate::terminal;
use colibri_api::Overview;
use colibri_api::paths::{self, SERVICE};

/// The context of every command.
#[derive(Clone, Debug)]
pub(crate) struct CommandContext {
    /// The daemon's address.
    pub place: DaemonAddress,
    /// The socket that a flag names.
    pub chosen: Option<PathBuf>,
    /// True if this client keeps both gates closed for itself.
    pub read_only: bool,
    /// True if the answer is for a program.
    pub json: bool,
}

impl CommandContext {
    /// The flags with which a bridge reaches the same daemon with the same gates.
    pub(crate) fn flags(&self) -> Result<Vec<String>, CommandError> {
        let mut flags = Vec::new();
        if let Some(socket) = &self.chosen {
            let absolute = std::path::absolute(socket).unwrap_or_else(|_| socket.clone());
            let socket = absolute.into_os_string().into_string();
            let socket = socket.map_err(|path| {
                CommandError::Usage(format!(
                    "--socket {path:?} is not UTF-8, so no settings file can name it"
                ))
            })?;
            flags.extend(["--socket".to_owned(), socket]);
        }
        if self.read_only {
            flags.push("--read-only".to_owned());
        }
        Ok(flags)
    }

    /// The state directory of the daemon: `given` by a flag or the environment, else as the daemon
    /// says to operators. The user's own daemon is not asked, since its state is always in one
    /// place. A service that does not say is taken to have its state where the package puts it.
    ///
    /// # Errors
    /// [`CommandError::StateUnknown`]: a socket is named, and its daemon does not say. No other directory is taken for it.
    pub(crate) fn state_dir(&self, given: Option<PathBuf>) -> Result<PathBuf, CommandError> {
        if let Some(given) = given {
            return Ok(given);
        }
        let untold = || {
            CommandError::Machine(
                "the daemon is of a version that does not say where its state is".to_owned(),
            )
        };
        let is_named = paths::named_socket(self.chosen.clone()).is_some();
        let answer = match self.place.private {
            true => return Ok(paths::private().state_dir),
            false => self.ask::<Overview>("colibri/overview", &json!({})),
        };
        match answer.and_then(|(overview, _)| overview.state_dir.ok_or_else(untold)) {
            Ok(told) => Ok(told.into()),
            Err(why) if is_named => Err(CommandError::StateUnknown(Box::new(why))),
            Err(_) => Ok(SERVICE.state.into()),
        }
    }

    /// Connects to the daemon.
    pub(crate) fn connect(&self) -> Result<DaemonConnection, CommandError> {
        Ok(DaemonConnection::open(&self.place, self.read_only)?)
    }

    /// Calls one of Colibri's own tools, and prints its structured content: as it came, or as
    /// `show` makes it.
    pub(crate) fn show<T: DeserializeOwned>(
        &self,
        tool: &str,
        arguments: &Value,
        show: impl FnOnce(&T) -> String,
    ) -> Result<(), CommandError> {
        let (answer, raw) = self.connect()?.own_tool::<T>(tool, arguments)?;
        self.print(&raw, || show(&answer))
    }

    /// Sends an operator's request; the answer, read and as it came.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<(T, Box<RawValue>), CommandError> {
        Ok(self.connect()?.ask(method, params)?)
    }

    /// Prints a note for a person beside the answer.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn tell(&self, text: &str) -> Result<(), CommandError> {
        match self.json {
            true => Ok(writeln!(io::stderr(), "{text}")?),
            false => terminal::print(text),
        }
    }

    /// Prints an answer that this program makes itself.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn answer(&self, facts: &Value, text: &str) -> Result<(), CommandError> {
        match self.json {
            true => terminal::print(&colibri_text::json(&facts.to_string())),
            false => terminal::print(text),
        }
    }

    /// Prints an answer: as it came, or as `show` makes it.
    pub(crate) fn print(
        &self,
        raw: &RawValue,
        show: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        terminal::print(&if self.json {
            colibri_text::json(raw.get()).into_owned()
        } else {
            show()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    proptest! {
        #[test]
        fn json_stays_the_same_value(text in any::<String>()) {
            let value = json!({ "k": text, "esc": "\u{7f}\u{9b}\u{e0041}" });
            let shown = colibri_text::json(&value.to_string()).into_owned();
            prop_assert!(!shown.chars().any(colibri_text::is_hidden));
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
