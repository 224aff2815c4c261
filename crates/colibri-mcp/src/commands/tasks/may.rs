//! The tools that a new task may have change something: as the command line names them, or, at a
//! terminal, as they are proposed and then edited by the person.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::json;

use super::super::context::CommandContext;
use crate::failure::CommandError;
use crate::interrupt;
use crate::terminal::{Style, TextTable};
use colibri_api::{MayPattern, ProposeMayResponse};
use colibri_text::visible;

/// The word for a task that changes nothing.
const NONE: &str = "none";
/// The word for a task that may change whatever its taker may.
const ANY: &str = "any";

/// The list of a new task with this text; `None`: it has no list.
///
/// # Errors
/// A pattern that is none; the daemon has no proposal; the terminal cannot be read.
pub(super) fn of_task(
    given: &[String],
    text: &str,
    context: &CommandContext,
) -> Result<Option<Vec<MayPattern>>, CommandError> {
    if !given.is_empty() || context.json || !io::stdin().is_terminal() {
        return read(given.iter().map(String::as_str));
    }
    let (proposed, _): (ProposeMayResponse, _) =
        context.ask("colibri/propose-may", &json!({ "text": text }))?;
    if !proposed.any_changes {
        return Ok(None);
    }
    eprint!("{}", question(&proposed));
    io::stderr().flush()?;
    interrupt::hold_back()?;
    let line = interrupt::read_line()?;
    match line.trim() {
        "" => Ok(Some(
            proposed
                .tools
                .into_iter()
                .map(|one| MayPattern::Tools(one.tool))
                .collect(),
        )),
        list if list.starts_with(['[', '{']) => read_json(list),
        list => read(list.split([' ', ',', '\t']).filter(|word| !word.is_empty())),
    }
}

fn question(proposed: &ProposeMayResponse) -> String {
    let mut text = "Going by its words, this task may need to change something with:\n".to_owned();
    if proposed.tools.is_empty() {
        text.push_str("  nothing\n");
    } else {
        let mut table = TextTable::new(&["tool", "what it does"]);
        for one in &proposed.tools {
            table.row(&[(&one.tool, Style::Plain), (&one.description, Style::Plain)]);
        }
        text.push_str(&format!("{}\n", table.text()));
    }
    text.push_str(
        "Enter takes this list. Or type what it may change: names or patterns such as mail/send_*, none, or any for all \
         that whoever takes it may.\nMay change: ",
    );
    text
}

fn read<'w>(words: impl Iterator<Item = &'w str>) -> Result<Option<Vec<MayPattern>>, CommandError> {
    let words: Vec<&str> = words.collect();
    match words[..] {
        [] | [ANY] => return Ok(None),
        [NONE] => return Ok(Some(Vec::new())),
        _ => {}
    }
    if let Some(word) = words.iter().find(|word| [NONE, ANY].contains(word)) {
        return Err(CommandError::Usage(format!(
            "--may {word} stands alone: leave it out, or the rest"
        )));
    }
    let pattern = |word: &&str| {
        let wrong = |error| CommandError::Usage(format!("--may {}: {error}", visible(word)));
        word.parse::<MayPattern>().map_err(wrong)
    };
    words
        .iter()
        .map(pattern)
        .collect::<Result<_, _>>()
        .map(Some)
}

fn read_json(text: &str) -> Result<Option<Vec<MayPattern>>, CommandError> {
    let text = if text.starts_with('{') {
        format!("[{text}]")
    } else {
        text.to_owned()
    };
    let list = serde_json::from_str(&text);
    list.map(Some)
        .map_err(|error| CommandError::Usage(format!("that is no list of patterns: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_api::ProposedTool;

    #[test]
    fn words_and_json_name_the_same() {
        let list = |words: &[&str]| read(words.iter().copied());
        assert_eq!((list(&[]).unwrap(), list(&["any"]).unwrap()), (None, None));
        assert_eq!(list(&["none"]).unwrap(), Some(Vec::new()));
        let object = r#"{"tool":"mail/send","where":{"to":["a"]}}"#;
        let two = list(&["mail/*", object]).unwrap().unwrap();
        assert_eq!(two.len(), 2);
        assert_eq!(
            read_json(&format!("[\"mail/*\",{object}]")).unwrap(),
            Some(two.clone())
        );
        assert_eq!(read_json(object).unwrap().unwrap()[0], two[1]);
        for wrong in [&["none", "mail/*"][..], &["any", "none"], &["{\"tool\":1}"]] {
            assert!(
                matches!(list(wrong), Err(CommandError::Usage(_))),
                "{wrong:?}"
            );
        }
        assert!(read_json("[1]").is_err());
    }

    #[test]
    fn the_question_shows_the_proposal_and_nothing_that_a_terminal_acts_on() {
        let mut proposed = ProposeMayResponse {
            tools: vec![ProposedTool {
                tool: "mail/send".to_owned(),
                description: "Sends\u{1b}[2J.".to_owned(),
            }],
            any_changes: true,
        };
        let text = question(&proposed);
        assert!(
            text.contains("mail/send")
                && !text.contains('\u{1b}')
                && text.ends_with("May change: "),
            "{text}"
        );
        proposed.tools.clear();
        assert!(question(&proposed).contains("  nothing\n"));
    }
}
