//! The values for the gaps of a source: from the person's arguments, the person's environment, and
//! questions at the terminal.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use anyhow::bail;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};

use crate::failure::CommandError;
use crate::interrupt;
use colibri_api::paths;
use colibri_mcp::importers::{self, Homes, Proposal, Want};
use colibri_text::visible;

/// The known values of gaps.
#[derive(Debug, Default)]
pub(crate) struct InputAnswers {
    /// By key, as the person said.
    said: importers::TemplateValues,
}

impl InputAnswers {
    /// Those of `KEY=VALUE` and, from files, `KEY=FILE`.
    ///
    /// # Errors
    /// One has no `=`, or a file cannot be read.
    pub(crate) fn new(set: &[String], from_files: &[String]) -> Result<InputAnswers, CommandError> {
        let mut said = importers::TemplateValues::new();
        for pair in set {
            let (key, value) = pair_of(pair, "--set KEY=VALUE")?;
            said.entry(key).or_default().push(value);
        }
        for pair in from_files {
            let (key, file) = pair_of(pair, "--set-file KEY=FILE")?;
            let value = read_value(Path::new(&file)).map_err(|source| CommandError::File {
                path: file.into(),
                source,
            })?;
            said.entry(key).or_default().push(value);
        }
        Ok(InputAnswers { said })
    }

    /// The values for one server: a missing one is asked for, if there is somebody to ask. Of what
    /// was taken from the environment or from files the proposal gets a note.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) fn of(&self, proposal: &mut Proposal) -> anyhow::Result<importers::TemplateValues> {
        let mut known = self.said.clone();
        let mut taken = Vec::new();
        for key in proposal.wants.keys() {
            if known.contains_key(key) {
                continue;
            }
            let found = match (key.as_str(), key.strip_prefix("file:")) {
                ("HOME", _) => Homes::find(paths::home()).home.to_str().map(str::to_owned),
                (_, Some(file)) => read_value(&expanded(file)).ok(),
                _ => std::env::var(key).ok(),
            };
            if let Some(value) = found.filter(|value| !value.is_empty()) {
                if key != "HOME" {
                    taken.push(visible(key).into_owned());
                }
                known.insert(key.clone(), vec![value]);
            }
        }
        if !taken.is_empty() {
            proposal.notes.push(format!(
                "taken as they are now, from your environment or files: {}",
                taken.join(", ")
            ));
        }
        let missing: Vec<String> = proposal
            .missing(&known)
            .into_iter()
            .map(str::to_owned)
            .collect();
        if !missing.is_empty() && io::stdin().is_terminal() {
            eprintln!("{} asks for:", visible(&proposal.name));
            for key in &missing {
                if let Some(value) = ask(key, &proposal.wants[key]).map_err(anyhow::Error::msg)? {
                    known.insert(key.clone(), vec![value]);
                }
            }
        }
        // What is written is what is shown: a default too.
        for (key, want) in &proposal.wants {
            if let (false, Some(default)) = (known.contains_key(key), &want.default) {
                known.insert(key.clone(), vec![default.clone()]);
            }
        }
        let missing = proposal.missing(&known);
        if !missing.is_empty() {
            let missing: Vec<String> = missing
                .into_iter()
                .map(|key| describe(key, &proposal.wants[key]))
                .collect();
            bail!(
                "it needs {}; say each with --set KEY=VALUE or --set-file KEY=FILE",
                missing.join(", ")
            );
        }
        for (key, want) in &proposal.wants {
            let legal = |value: &String| want.choices.is_empty() || want.choices.contains(value);
            if !known.get(key).is_none_or(|values| values.iter().all(legal)) {
                bail!(
                    "{} must be one of {}",
                    visible(key),
                    visible(&want.choices.join(", "))
                );
            }
        }
        Ok(known)
    }
}

fn pair_of(pair: &str, form: &str) -> Result<(String, String), CommandError> {
    match pair.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(CommandError::Usage(format!(
            "{form}: there is no =, or nothing before it"
        ))),
    }
}

fn describe(key: &str, want: &Want) -> String {
    let description = colibri_text::brief(&want.description, 80);
    match description.is_empty() {
        true => visible(key).into_owned(),
        false => format!("{} ({description})", visible(key)),
    }
}

/// The content of a file, without the end of its line.
fn read_value(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(64 * 1024)
        .read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn expanded(file: &str) -> std::path::PathBuf {
    match file.strip_prefix("~/") {
        Some(below) => Homes::find(paths::home()).home.join(below),
        None => file.into(),
    }
}

/// The value of a variable or header that a person names alone: that of the same variable of this
/// environment, or what the person types.
///
/// # Errors
/// There is none.
pub(crate) fn value_of(name: &str, flag: &str) -> Result<String, CommandError> {
    if let Ok(value) = std::env::var(name) {
        return Ok(value);
    }
    let missing = |why: &str| CommandError::Usage(format!("{flag} {}: {why}", visible(name)));
    if !io::stdin().is_terminal() {
        return Err(missing(
            "your environment has no such variable; KEY=VALUE gives it one",
        ));
    }
    let want = Want {
        secret: importers::name_says_secret(name),
        ..Want::default()
    };
    interrupt::hold_back()?;
    ask(name, &want)?.ok_or_else(|| missing("it has no value"))
}

/// Prompts for a value; `None`: nothing was typed. A secret is not shown as it is typed.
///
/// # Errors
/// The terminal cannot be read, or this is to end.
pub(crate) fn ask(key: &str, want: &Want) -> Result<Option<String>, CommandError> {
    let choices = match want.choices.is_empty() {
        true => String::new(),
        false => format!(" [{}]", visible(&want.choices.join(", "))),
    };
    let stdin = io::stdin();
    let shown = if want.secret {
        tcgetattr(&stdin).ok()
    } else {
        None
    };
    if let Some(shown) = &shown {
        let mut hidden = shown.clone();
        hidden.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&stdin, SetArg::TCSAFLUSH, &hidden).map_err(io::Error::from)?;
    }
    eprint!("  {}{choices}: ", describe(key, want));
    io::stderr().flush()?;
    let line = interrupt::read_line();
    if let Some(shown) = &shown {
        tcsetattr(&stdin, SetArg::TCSAFLUSH, shown).map_err(io::Error::from)?;
        eprintln!();
    }
    let line = line?;
    let value = line.trim_end_matches(['\r', '\n']);
    Ok(Some(value.to_owned()).filter(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_mcp::importers::ImportSource;

    #[test]
    fn a_default_is_an_answer_unless_there_is_another() {
        let text = r#"{ "name": "a/b", "packages": [{ "registryType": "npm", "identifier": "p", "version": "1.0.0",
            "environmentVariables": [{ "name": "COLIBRI_TEST_LEVEL", "default": "low", "choices": ["low", "high"] }] }] }"#;
        let read = || {
            importers::read(
                Some(ImportSource::ServerJson),
                Path::new("server.json"),
                text,
            )
            .unwrap()
            .1
            .remove(0)
        };
        for (set, wanted) in [(None, "low"), (Some("COLIBRI_TEST_LEVEL=high"), "high")] {
            let set: Vec<String> = set.into_iter().map(str::to_owned).collect();
            let answers = InputAnswers::new(&set, &[])
                .unwrap()
                .of(&mut read())
                .unwrap();
            assert_eq!(answers["COLIBRI_TEST_LEVEL"], [wanted]);
        }
        let other = InputAnswers::new(&["COLIBRI_TEST_LEVEL=odd".to_owned()], &[]).unwrap();
        assert!(
            other
                .of(&mut read())
                .unwrap_err()
                .to_string()
                .contains("one of low, high")
        );
    }
}
