//! `colibri-mcp doctor`: what must hold for servers to run, of the service in jails and of a user's
//! own daemon, and what to do where it does not.

mod accounts;
mod entries;
mod examine;
mod fact;
mod linux_abi;
mod machine;
mod own;
mod ownership;
mod privilege;
mod release;
mod roots;
mod service;
mod system;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::terminal::{self, Style, TextTable};
use colibri_api::PrivMode;
use examine::examine;
use fact::{CheckedFact, ExaminedHost};

/// The options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Checks also what only root can see; must be run as root
    #[arg(long)]
    pub root: bool,
    /// The daemon's state directory
    #[arg(long, value_name = "DIR", env = "COLIBRI_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// The way to root to check: helper (setuid), mdo or sudo
    #[arg(
        long,
        value_name = "MODE",
        env = "COLIBRI_JAIL_PRIV_MODE",
        default_value = "helper"
    )]
    priv_mode: PrivMode,
}

/// Runs the command. The exit status is 1 if a fact does not hold.
pub(crate) fn run(
    arguments: &DoctorArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    if arguments.root && !nix::unistd::geteuid().is_root() {
        return Err(CommandError::NotRoot);
    }
    let host = ExaminedHost::here(
        &context.place,
        context.state_dir(arguments.state_dir.clone()).ok(),
        arguments.priv_mode,
        arguments.root,
    );
    let found = examine(&host);
    let text = if context.json {
        serde_json::to_string_pretty(&found)
            .map_err(|error| CommandError::Machine(error.to_string()))?
    } else {
        show(&found)
    };
    terminal::print(&text)?;
    let bad = found.iter().any(|found| found.outcome == "bad");
    Ok(ExitCode::from(u8::from(bad)))
}

/// The word for an outcome: a fact is named as it must be, so it holds or does not.
fn word(outcome: &str) -> &str {
    match outcome {
        "good" => "holds",
        "bad" => "does not hold",
        other => other,
    }
}

fn show(found: &[CheckedFact]) -> String {
    let mut table = TextTable::new(&["", "fact", "seen"]);
    for found in found {
        let style = match found.outcome {
            "good" => Style::Good,
            "bad" => Style::Bad,
            "note" => Style::Odd,
            _ => Style::Plain,
        };
        table.row(&[
            (word(found.outcome), style),
            (found.fact, Style::Plain),
            (&found.seen, Style::Plain),
        ]);
    }
    let mut text = table.text();
    for found in found {
        if let Some(remedy) = found.remedy {
            text.push_str(&format!(
                "\n\n{}: {}\n  do: {remedy}",
                word(found.outcome),
                found.fact
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_followed_by_what_to_do() {
        let found = [
            CheckedFact {
                fact: "the moon is up",
                outcome: "bad",
                seen: "clouds\x1b[31m".to_owned(),
                remedy: Some("wait for the wind"),
            },
            CheckedFact {
                fact: "the sea is wet",
                outcome: "good",
                seen: "it is".to_owned(),
                remedy: None,
            },
        ];
        let text = show(&found);
        assert!(
            text.contains("does not hold: the moon is up\n  do: wait for the wind"),
            "{text}"
        );
        assert!(
            !text.contains('\x1b') && text.contains("the sea is wet"),
            "{text}"
        );
    }
}
