//! `colibri-mcp import`: the servers of an editor's file, of `mcp-bridge.toml`, of a registry's
//! `server.json`, of an MCPB bundle.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::anyhow;
use nix::fcntl::OFlag;

use super::add::{Choices, ServerProposal, bring_in};
use super::connect::{Editor, Replacement};
use super::context::CommandContext;
use crate::failure::CommandError;
use crate::install::InputAnswers;
use colibri_api::paths;
use colibri_json::nearest;
use colibri_mcp::importers::{self, Homes, ImportSource, Proposal, map_names};
use colibri_text::{counted, visible};

/// From where.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArguments {
    /// A file, or an editor: claude-desktop, claude-code, cursor, windsurf, zed, vscode, codex,
    /// gemini, opencode, mcp-bridge; without one, all of these that are there
    #[arg(value_name = "FILE|EDITOR")]
    from: Option<String>,
    /// This server alone, by its name there; may be given more than once
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// A value that a server needs; may be given more than once for one that takes several
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The same, with the value in a file
    #[arg(long, value_name = "KEY=FILE")]
    set_file: Vec<String>,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Takes them out of the editor's own file once they are here, and puts the bridge there
    #[arg(long, requires = "from", conflicts_with = "sha256")]
    replace: bool,
    #[command(flatten)]
    pub choices: Choices,
}

/// The content of a file: its source unless it is a bundle, its servers, and its bytes if it is
/// one.
type FileProposals = (Option<ImportSource>, Vec<Proposal>, Option<Rc<[u8]>>);

/// Runs the command.
pub(crate) fn run(
    arguments: &ImportArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let answers = InputAnswers::new(&arguments.set, &arguments.set_file)?;
    let mut found: Vec<(Proposal, Option<Rc<[u8]>>)> = Vec::new();
    let files = files(arguments.from.as_deref())?;
    let replacement = match (arguments.replace, files.first()) {
        (true, Some((Some(source), _))) => Some(Replacement::open(*source, context)?),
        (true, _) => {
            return Err(CommandError::Usage(
                "--replace is for an editor's own file: name the editor, as `connect` does"
                    .to_owned(),
            ));
        }
        (false, _) => None,
    };
    let mut sources = Vec::new();
    if let Some(replacement) = &replacement {
        for (_, path) in files.iter().filter(|(_, path)| path != replacement.path()) {
            context.tell(&format!(
                "{} stays as it is",
                visible(&path.display().to_string())
            ))?;
        }
        found.extend(
            replacement
                .proposals()?
                .into_iter()
                .map(|proposal| (proposal, None)),
        );
    } else {
        let alone = files.len() == 1;
        for (source, path) in files {
            match read(source, &path, arguments.sha256.as_deref()) {
                Ok((source, proposals, bundle)) => {
                    sources.extend(SourceFile::of(source, path, &proposals));
                    found.extend(
                        proposals
                            .into_iter()
                            .map(|proposal| (proposal, bundle.clone())),
                    );
                }
                Err(failure) if alone => return Err(failure),
                Err(failure) => eprintln!(
                    "colibri-mcp: {}",
                    colibri_text::visible_lines(&failure.to_string())
                ),
            }
        }
    }
    let names: Vec<String> = found
        .iter()
        .map(|(proposal, _)| proposal.name.clone())
        .collect();
    if let Some(name) = arguments.server.iter().find(|name| !names.contains(name)) {
        return Err(CommandError::Data(format!(
            "there is no server {} to be imported{}; nothing was written",
            visible(name),
            if names.is_empty() {
                String::new()
            } else {
                format!("; there are: {}", visible(&names.join(", ")))
            }
        )));
    }
    if !arguments.server.is_empty() {
        found.retain(|(proposal, _)| arguments.server.contains(&proposal.name));
    }
    // The bridge that `connect` put there is no server of anybody's.
    found.retain(|(proposal, _)| !proposal.is_colibri());
    if found.is_empty() {
        let from = arguments.from.as_deref().map_or_else(
            || "the settings of the editors that are known here".to_owned(),
            |from| visible(from).into_owned(),
        );
        return Err(CommandError::Data(format!(
            "no server is there to be imported, in {from}; nothing was written"
        )));
    }
    let mapped = map_names(found.iter().map(|(proposal, _)| proposal.name.as_str()));
    for one in mapped.iter().filter(|one| one.name != one.id) {
        context.tell(&format!("{} becomes {}", visible(&one.name), one.id))?;
    }
    let offers: Vec<ServerProposal> = mapped
        .into_iter()
        .zip(found)
        .map(|(mapped, (proposal, bundle))| (mapped.id, proposal, bundle))
        .collect();
    let outcome = bring_in(offers, &answers, &arguments.choices, replacement, context);
    if matches!(outcome, Ok(_) | Err(CommandError::DeadServer(_))) {
        for source in sources {
            context.tell(&source.warning())?;
        }
    }
    outcome
}

/// A file from which servers were imported, and which has them too.
struct SourceFile {
    source: ImportSource,
    path: PathBuf,
    /// The number of secrets in it, in plain text.
    secrets: usize,
}

impl SourceFile {
    /// `None`: no program reads this file.
    fn of(
        source: Option<ImportSource>,
        path: PathBuf,
        proposals: &[Proposal],
    ) -> Option<SourceFile> {
        let source = source.filter(|source| *source != ImportSource::ServerJson)?;
        let secrets = proposals.iter().map(Proposal::plain_secrets).sum();
        let has_others = proposals.iter().any(|proposal| !proposal.is_colibri());
        has_others.then_some(SourceFile {
            source,
            path,
            secrets,
        })
    }

    /// Says that servers are in two places now.
    fn warning(&self) -> String {
        let path = self.path.display().to_string();
        let secrets = match self.secrets {
            0 => String::new(),
            secrets => format!(", with {} in plain text", counted(secrets as u64, "secret")),
        };
        let own = self.source.files(&Homes::find(paths::home()));
        let is_own = Editor::of(self.source).is_some() && own.contains(&self.path);
        let way = match is_own {
            true => format!("colibri-mcp import {} --replace", self.source.name()),
            false => "take them out of it".to_owned(),
        };
        format!(
            "They are in {} too{secrets}, and what reads that file starts them itself. To have them here alone: {way}",
            visible(&path)
        )
    }
}

fn files(from: Option<&str>) -> Result<Vec<(Option<ImportSource>, PathBuf)>, CommandError> {
    let homes = Homes::find(paths::home());
    let there = |source: ImportSource| {
        let files = source
            .files(&homes)
            .into_iter()
            .filter(|path| path.is_file());
        files
            .map(move |path| (Some(source), path))
            .collect::<Vec<_>>()
    };
    let Some(from) = from else {
        return Ok(ImportSource::ALL.into_iter().flat_map(there).collect());
    };
    // The command of Gemini CLI is gemini.
    let name = if from == "gemini-cli" { "gemini" } else { from };
    let editors = ImportSource::ALL
        .into_iter()
        .filter(|source| !source.files(&homes).is_empty());
    match editors.clone().find(|source| source.name() == name) {
        None if from.contains(['/', '.']) || Path::new(from).exists() => {
            Ok(vec![(None, PathBuf::from(from))])
        }
        None => {
            let known: Vec<&str> = editors.map(ImportSource::name).collect();
            let near = nearest(from, &known).map(|near| format!("; did you mean {near}?"));
            Err(CommandError::Data(format!(
                "{} is neither a file here nor an editor that is known{}",
                visible(from),
                near.unwrap_or_else(|| format!(": {}", known.join(", ")))
            )))
        }
        Some(source) => match there(source) {
            files if files.is_empty() => {
                let places: Vec<String> = source
                    .files(&homes)
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                Err(CommandError::Data(format!(
                    "{from} has no settings here: there is no {}",
                    places.join(", no ")
                )))
            }
            files => Ok(files),
        },
    }
}

/// The content of a file; `None` if it is none that is read whole. A named pipe is not waited for.
fn bytes_of(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let mut bytes = Vec::new();
    let facts = open.metadata()?;
    let fits = |length: u64| length <= importers::MAX_ARCHIVE as u64;
    if !facts.is_file() || !fits(facts.len()) {
        return Ok(None);
    }
    open.take(importers::MAX_ARCHIVE as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| fits(bytes.len() as u64)))
}

fn read(
    source: Option<ImportSource>,
    path: &Path,
    sha256: Option<&str>,
) -> Result<FileProposals, CommandError> {
    let at = |why: anyhow::Error| {
        CommandError::Data(format!("{}: {why:#}; nothing was written", path.display()))
    };
    let bytes = match bytes_of(path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(at(anyhow!("it is not a regular file of at most 256 MiB"))),
        Err(source) => {
            let path = path.to_owned();
            return Err(CommandError::File { path, source });
        }
    };
    let hash = colibri_registry::sha256_hex(&bytes);
    if sha256.is_some_and(|wanted| !wanted.eq_ignore_ascii_case(&hash)) {
        return Err(at(anyhow!(
            "its SHA-256 is {hash}, which is another than the one named"
        )));
    }
    if bytes.starts_with(b"PK") {
        let proposal = importers::bundle(&bytes, std::env::consts::OS)
            .map_err(at)?
            .proposal;
        return Ok((None, vec![proposal], Some(bytes.into())));
    }
    let text = String::from_utf8(bytes).map_err(|_| at(anyhow!("it is not UTF-8")))?;
    let (source, proposals) = importers::read(source, path, &text).map_err(at)?;
    Ok((Some(source), proposals, None))
}
