//! `colibri-mcp pin`: what operators approved of the servers' definitions, and what waits to be.

use std::io::{self, BufRead, IsTerminal as _};
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest as _, Sha256};

use super::context::CommandContext;
use crate::connection::{DaemonConnection, RequestError};
use crate::failure::CommandError;
use crate::terminal::{self, Style, TextTable};
use colibri_api::{
    PinAcceptRequest, PinDiffRequest, PinDiffs, PinList, PinRow, PinSeen, PinSubject, PinsAccepted,
    PinsRequest,
};
use colibri_text::{hex, visible};

/// The action.
#[derive(Debug, clap::Args)]
pub(crate) struct PinArguments {
    #[command(subcommand)]
    action: PinAction,
}

#[derive(Debug, Subcommand)]
enum PinAction {
    /// Lists what is approved and what waits to be
    List {
        /// Only of this server
        server: Option<String>,
        /// Only what waits to be accepted
        #[arg(long)]
        waiting: bool,
    },
    /// Shows what a server says now against what was approved
    Diff {
        /// The server
        server: String,
        #[command(flatten)]
        what: PinTarget,
    },
    /// Approves what a server says now
    ///
    /// With --sha256, if it is exactly what `pin diff` showed with that hash. Without, it is shown
    /// on the terminal, and accepted if you answer y.
    Accept {
        /// The server
        server: String,
        #[command(flatten)]
        what: PinTarget,
        /// All that waits of this server
        #[arg(long, conflicts_with = "PinTarget")]
        all: bool,
        /// The hash that `pin diff` showed, of one thing or of all
        #[arg(long, value_name = "HASH")]
        sha256: Option<String>,
    },
}

/// The items of a server.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct PinTarget {
    /// This tool alone, by the server's own name of it
    tool: Option<String>,
    /// This prompt alone, by the server's own name of it
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// This resource alone, by the server's own URI of it
    #[arg(long, value_name = "URI")]
    resource: Option<String>,
    /// This template of URIs alone, as the server wrote it
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// This skill alone, by the server's own URI of its SKILL.md
    #[arg(long, value_name = "URI")]
    skill: Option<String>,
    /// The instructions alone
    #[arg(long)]
    instructions: bool,
}

impl PinTarget {
    /// `None`: all of it.
    fn subject(&self) -> Option<PinSubject> {
        let named = [
            self.tool.clone().map(PinSubject::Tool),
            self.prompt.clone().map(PinSubject::Prompt),
            self.resource.clone().map(PinSubject::Resource),
            self.template.clone().map(PinSubject::Template),
            self.skill.clone().map(PinSubject::Skill),
            self.instructions.then_some(PinSubject::Instructions),
        ];
        named.into_iter().flatten().next()
    }
}

/// Runs the command.
pub(crate) fn run(
    arguments: &PinArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    match &arguments.action {
        PinAction::List { server, waiting } => {
            let params = PinsRequest {
                server: server.clone(),
            };
            let (mut pins, mut raw): (PinList, _) = context.ask("colibri/pins", &params)?;
            if *waiting {
                pins = only_waiting(pins);
                raw = self::raw(&pins)?;
            }
            context.print(&raw, || show_list(&pins))?;
        }
        PinAction::Diff { server, what } => {
            let what = what.subject();
            let (diffs, raw) = ask_diffs(&mut context.connect()?, server, what.as_ref())?;
            context.print(&raw, || show_diffs(server, what.as_ref(), &diffs))?;
        }
        PinAction::Accept {
            server,
            what,
            all,
            sha256,
        } => {
            let what = what.subject();
            if what.is_none() && !all {
                return Err(CommandError::Usage(
                    "name what to accept: a tool, --prompt, --resource, --template, --skill, --instructions or --all"
                        .to_owned(),
                ));
            }
            return accept(server, what.as_ref(), sha256.as_deref(), context);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn accept(
    server: &str,
    what: Option<&PinSubject>,
    sha256: Option<&str>,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let mut connection = context.connect()?;
    let seen = match (what, sha256) {
        (Some(subject), Some(sha256)) => vec![PinSeen {
            subject: subject.clone(),
            sha256: sha256.to_owned(),
        }],
        (None, Some(sha256)) => {
            let (diffs, _) = ask_diffs(&mut connection, server, what)?;
            let now = hash_of_all(&diffs);
            if now != sha256 {
                let message = format!(
                    "what waits of {server} is {now} by now, which is not what was to be accepted; nothing was \
                     accepted. Look at it again with colibri-mcp pin diff"
                );
                return Err(RequestError::Refused {
                    code: -32602,
                    message,
                }
                .into());
            }
            diffs.diffs.iter().map(seen).collect()
        }
        (_, None) => {
            if context.json || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
                return Err(CommandError::Usage(
                    "name what you have seen with --sha256, as colibri-mcp pin diff shows it; on a terminal you would \
                     be asked instead"
                        .to_owned(),
                ));
            }
            let (diffs, _) = ask_diffs(&mut connection, server, what)?;
            terminal::print(&show_diffs(server, what, &diffs))?;
            if diffs.diffs.is_empty() || !ask(&mut io::stdin().lock(), diffs.diffs.len())? {
                terminal::print("Nothing was accepted.")?;
                return Ok(ExitCode::FAILURE);
            }
            diffs.diffs.iter().map(seen).collect()
        }
    };
    if seen.is_empty() {
        context.print(&raw(&json!({ "server": server, "accepted": [] }))?, || {
            format!("Nothing of {} waits to be accepted.", visible(server))
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let params = PinAcceptRequest {
        server: server.to_owned(),
        accept: seen,
    };
    let (PinsAccepted { accepted, .. }, raw) = connection.ask("colibri/pin-accept", &params)?;
    context.print(&raw, || {
        let lines = accepted
            .iter()
            .map(|one| format!("Accepted: {} {}", visible(server), name(&one.subject)));
        lines.collect::<Vec<_>>().join("\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prompts the person. Everything but a yes is a no.
fn ask(input: &mut impl BufRead, number: usize) -> Result<bool, CommandError> {
    let what = if number == 1 { "this" } else { "all of this" };
    terminal::print(&format!("\nAccept {what}? [y/N]"))?;
    let mut answer = String::new();
    input
        .read_line(&mut answer)
        .map_err(|error| CommandError::Machine(format!("standard input: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn ask_diffs(
    connection: &mut DaemonConnection,
    server: &str,
    what: Option<&PinSubject>,
) -> Result<(PinDiffs, Box<RawValue>), RequestError> {
    let params = PinDiffRequest {
        server: server.to_owned(),
        subject: what.cloned(),
    };
    connection.ask("colibri/pin-diff", &params)
}

fn only_waiting(mut pins: PinList) -> PinList {
    pins.pins.retain(|pin| pin.waiting.is_some());
    pins
}

/// The definition that was shown, for the daemon.
pub(crate) fn seen(pin: &PinRow) -> PinSeen {
    PinSeen {
        subject: pin.subject.clone(),
        sha256: pin.waiting.clone().unwrap_or_default(),
    }
}

/// One hash for all that is shown: SHA-256 over a line for each, its own hash and its name.
fn hash_of_all(diffs: &PinDiffs) -> String {
    let mut hash = Sha256::new();
    for pin in &diffs.diffs {
        let subject = match &pin.subject {
            PinSubject::Tool(_) | PinSubject::Instructions => json!(pin.subject)["tool"].take(),
            other => json!(other),
        };
        hash.update(format!(
            "{} {subject}\n",
            pin.waiting.as_deref().unwrap_or_default()
        ));
    }
    hex(&hash.finalize())
}

/// The subject of a row, as a person reads it.
fn name(subject: &PinSubject) -> String {
    match subject {
        PinSubject::Instructions => "(instructions)".to_owned(),
        PinSubject::Tool(tool) => visible(tool).into_owned(),
        PinSubject::Prompt(name) => format!("prompt {}", visible(name)),
        PinSubject::Resource(uri) => format!("resource {}", visible(uri)),
        PinSubject::Template(template) => format!("template {}", visible(template)),
        PinSubject::Skill(uri) => format!("skill {}", visible(uri)),
    }
}

/// A word of a command line.
fn quoted(word: &str) -> String {
    if word.starts_with('-') {
        return format!("-- '{}'", visible(word).replace('\'', "'\\''"));
    }
    escaped(word)
}

/// An option of a command line with its value.
fn option(name: &str, value: &str) -> String {
    format!("{name}={}", escaped(value))
}

fn escaped(word: &str) -> String {
    let word = visible(word);
    let plain = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, '_' | '-' | '.' | '/' | ':' | '+' | '@' | '=' | ',')
    };
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn show_list(pins: &PinList) -> String {
    let mut text = if pins.pins.is_empty() {
        "No pins to show.".to_owned()
    } else {
        let mut table =
            TextTable::new(&["server", "what", "state", "approved by", "approved", "now"]);
        let short = |hash: &Option<String>| {
            hash.as_deref()
                .map_or("-".to_owned(), |hash| hash.chars().take(12).collect())
        };
        for pin in &pins.pins {
            let style = if pin.waiting.is_some() {
                Style::Bad
            } else {
                Style::Good
            };
            table.row(&[
                (&visible(&pin.server), Style::Plain),
                (&name(&pin.subject), Style::Plain),
                (pin.state.name(), style),
                (pin.by.as_deref().unwrap_or("-"), Style::Plain),
                (&short(&pin.approved), Style::Plain),
                (&short(&pin.waiting), style),
            ]);
        }
        table.text()
    };
    for warning in &pins.look_alikes {
        text.push_str(&format!("\nlook-alike: {}", visible(warning)));
    }
    text
}

fn show_diffs(server: &str, what: Option<&PinSubject>, diffs: &PinDiffs) -> String {
    let server = visible(server);
    if diffs.diffs.is_empty() {
        return match what {
            None => format!("Nothing of {server} waits to be accepted."),
            Some(PinSubject::Instructions) => {
                format!("The instructions of {server} do not wait to be accepted.")
            }
            Some(PinSubject::Tool(tool)) => {
                format!(
                    "The tool {} of {server} does not wait to be accepted.",
                    visible(tool)
                )
            }
            Some(other) => format!(
                "The {} of {server} does not wait to be accepted.",
                name(other)
            ),
        };
    }
    let mut blocks: Vec<String> = diffs.diffs.iter().map(show_diff).collect();
    if diffs.left_out > 0 {
        blocks.push(format!(
            "{} more have no room here: accept these first, or name one at a time.",
            diffs.left_out
        ));
    }
    if diffs.diffs.len() > 1 {
        blocks.push(format!(
            "Accept all of this with:\n  colibri-mcp pin accept {} --all --sha256 {}",
            quoted(&server),
            hash_of_all(diffs)
        ));
    }
    blocks.join("\n\n")
}

fn show_diff(pin: &PinRow) -> String {
    let what = match &pin.subject {
        PinSubject::Tool(tool) => quoted(tool),
        PinSubject::Prompt(name) => option("--prompt", name),
        PinSubject::Resource(uri) => option("--resource", uri),
        PinSubject::Template(template) => option("--template", template),
        PinSubject::Skill(uri) => option("--skill", uri),
        PinSubject::Instructions => "--instructions".to_owned(),
    };
    let sha256 = pin.waiting.as_deref().unwrap_or_default();
    format!(
        "{}\nAccept it with:\n  colibri-mcp pin accept --sha256 {sha256} {} {what}",
        show_difference(pin),
        quoted(&pin.server)
    )
}

/// The difference of a definition from the approved one.
pub(crate) fn show_difference(pin: &PinRow) -> String {
    let sha256 = pin.waiting.as_deref().unwrap_or_default();
    let mut text = format!(
        "{} {}: {}",
        visible(&pin.server),
        name(&pin.subject),
        pin.state.name()
    );
    if let Some(reason) = &pin.reason {
        text.push_str(&format!(", {}", visible(reason)));
    }
    text.push_str(&format!(
        "\n  approved  {}{}",
        pin.approved.as_deref().unwrap_or("nothing"),
        pin.by
            .as_deref()
            .map(|by| format!(" ({by})"))
            .unwrap_or_default()
    ));
    text.push_str(&format!("\n  now       {sha256}"));
    for line in pin.diff.as_deref().unwrap_or_default().lines() {
        text.push_str(&format!("\n{}", visible(line)));
    }
    text
}

fn raw(value: &impl Serialize) -> Result<Box<RawValue>, CommandError> {
    to_raw_value(value).map_err(|error| CommandError::Machine(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diffs() -> PinDiffs {
        serde_json::from_value(json!({ "server": "git", "left_out": 3, "diffs": [
            { "server": "git", "tool": null, "instructions": true, "state": "new", "reason": "it was never approved: x",
              "approved": null, "by": null, "waiting": "aa", "diff": "+ : \"Hello\"\n" },
            { "server": "git", "tool": "re\u{200b}ad it", "instructions": false, "state": "changed",
              "reason": "it differs in description", "approved": "bb", "by": "first use", "waiting": "cc",
              "diff": "- /description: \"a\"\n+ /description: \"b\\u{202e}\"\n" },
        ]}))
        .unwrap()
    }

    #[test]
    fn a_difference_is_shown_with_the_command_that_accepts_it() {
        let text = show_diffs("git", None, &diffs());
        for part in [
            "git (instructions): new, it was never approved: x\n  approved  nothing\n  now       aa\n+ : \"Hello\"",
            "colibri-mcp pin accept --sha256 aa git --instructions",
            "git re\\u{200b}ad it: changed, it differs in description\n  approved  bb (first use)\n  now       cc",
            "- /description: \"a\"\n+ /description: \"b\\u{202e}\"",
            "colibri-mcp pin accept --sha256 cc git 're\\u{200b}ad it'",
            "3 more",
            &format!("pin accept git --all --sha256 {}", hash_of_all(&diffs())),
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let nothing = PinDiffs {
            server: "git".to_owned(),
            diffs: Vec::new(),
            left_out: 0,
        };
        assert!(
            show_diffs("git", Some(&PinSubject::Tool("x".to_owned())), &nothing)
                .contains("does not wait")
        );
    }

    #[test]
    fn the_hash_of_all_is_another_for_every_change() {
        let all = hash_of_all(&diffs());
        for change in [
            |diffs: &mut PinDiffs| diffs.diffs[0].waiting = Some("ab".to_owned()),
            |diffs: &mut PinDiffs| diffs.diffs[1].subject = PinSubject::Tool("other".to_owned()),
            |diffs: &mut PinDiffs| drop(diffs.diffs.pop()),
        ] {
            let mut changed = diffs();
            change(&mut changed);
            assert_ne!(hash_of_all(&changed), all);
        }
    }

    #[test]
    fn everything_but_a_yes_is_a_no() {
        for (answer, accepted) in [
            ("y\n", true),
            ("yes\n", true),
            ("\n", false),
            ("", false),
            ("yep\n", false),
        ] {
            assert_eq!(
                ask(&mut answer.as_bytes(), 1).unwrap(),
                accepted,
                "{answer:?}"
            );
        }
    }

    #[test]
    fn a_list_shows_what_waits_and_look_alikes() {
        let pins: PinList = serde_json::from_value(json!({ "look_alikes": ["tools a and b"], "pins": [
            { "server": "git", "tool": "log", "instructions": false, "state": "changed", "reason": "x", "approved": "0123456789abcdef",
              "by": "uid 1001", "waiting": "fedcba9876543210" }] }))
        .unwrap();
        let text = show_list(&pins);
        for part in [
            "log",
            "changed",
            "uid 1001",
            "0123456789ab",
            "fedcba987654",
            "look-alike: tools a and b",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn programs_are_shown_only_what_waits_too() {
        let row = |waiting: Option<&str>| {
            json!({ "server": "git", "tool": "log", "instructions": false, "state": "new", "reason": null,
                "approved": null, "by": null, "waiting": waiting })
        };
        let all = json!({ "look_alikes": [], "pins": [row(None), row(Some("ab"))] });
        let waiting = json!(only_waiting(serde_json::from_value(all).unwrap()));
        assert_eq!(
            waiting,
            json!({ "look_alikes": [], "pins": [row(Some("ab"))] })
        );
    }

    #[test]
    fn names_can_be_pasted() {
        for (name, word) in [
            ("git_log", "git_log"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("-x", "-- '-x'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(name), word);
        }
    }
}
