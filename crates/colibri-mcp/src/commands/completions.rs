//! `colibri-mcp completions SHELL`: completion scripts.

use clap::Command;
use clap_complete::Shell;

use crate::failure::CommandError;
use crate::terminal;

/// For which shell.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// The shell that will read the script
    shell: Shell,
}

/// Runs the command: completes this command line.
pub(crate) fn run(arguments: &CompletionsArguments, command_line: &Command) -> Result<(), CommandError> {
    terminal::print(script(arguments.shell, command_line).trim_end())
}

fn script(shell: Shell, all: &Command) -> String {
    // What is hidden from people is not offered to them; clap_complete would.
    let mut offered = Command::new("colibri-mcp")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments())
        .subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()));
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered, "colibri-mcp", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        // clap_complete 4.6 writes a hyphen in the program's name in two ways, and finds no command below the first
        // word.
        Shell::Bash => script.replace("colibri__subcmd__mcp", "colibri__mcp"),
        _ => script,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;
    use clap::ValueEnum as _;
    use std::process;

    #[test]
    fn hidden_commands_are_offered_by_no_shell() {
        for shell in Shell::value_variants() {
            let script = script(*shell, &command_line());
            assert!(script.contains("trail") && !script.contains("demo-daemon"), "{shell}");
            assert!(!script.contains("demo-server"), "{shell}");
        }
    }

    #[test]
    fn bash_completes_below_the_first_word() {
        let script = script(Shell::Bash, &command_line());
        let named = script
            .lines()
            .filter_map(|line| line.trim().strip_prefix("cmd=\"")?.strip_suffix('"'));
        for command in named.filter(|command| !command.is_empty()) {
            assert!(
                script.contains(&format!("\n        {command})\n")),
                "nothing completes {command}"
            );
        }
        let ask = "COMP_WORDS=(colibri-mcp trail ver); COMP_CWORD=2; _colibri__mcp colibri-mcp ver trail; echo ${COMPREPLY[@]}";
        let function = script.lines().next().unwrap().trim_end_matches("() {").to_owned();
        let ask = ask.replace("_colibri__mcp ", &format!("{function} "));
        // Longer than a word of a command line may be.
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("ask");
        std::fs::write(&file, format!("{script}\n{ask}")).unwrap();
        match process::Command::new("bash").arg(&file).output() {
            Ok(said) => assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "verify", "{said:?}"),
            // FreeBSD's base system has no bash; the names above are what went wrong.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
}
