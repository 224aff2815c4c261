//! `colibri-mcp trail …`: reading, verifying and keeping the trail. Its files are read directly. A
//! daemon is asked at most where they are.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use nix::unistd::User;

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::proofs;
use crate::records::{self, NamedWitnesses};
use colibri_text::counted;
use colibri_trail::{RecordFilter, Verifier, directory};

/// Records that a person is shown who did not say how many.
const SHOWN: usize = 1000;

/// The trail, and the action on it.
#[derive(Debug, clap::Args)]
pub(crate) struct TrailArguments {
    /// The daemon's state directory, where the trail is [default: what a daemon that is named says
    /// to operators, else that of the service, or your own]
    #[arg(long, global = true, value_name = "DIR", env = "COLIBRI_STATE_DIR")]
    state_dir: Option<PathBuf>,
    #[command(subcommand)]
    action: TrailAction,
}

#[derive(Debug, clap::Subcommand)]
enum TrailAction {
    /// Shows records, oldest first
    Show {
        #[command(flatten)]
        filter: FilterArguments,
        /// Only so many, the newest [default: 1000, unless --json, --all or --follow]
        #[arg(long, value_name = "N", conflicts_with_all = ["follow", "all"])]
        last: Option<usize>,
        /// All that there are
        #[arg(long)]
        all: bool,
        /// Goes on as the daemon writes, until interrupted
        #[arg(short, long)]
        follow: bool,
    },
    /// Verifies the whole trail, and says how far the promise reaches
    Verify {
        /// Verifies copies of complete segments in this directory instead
        #[arg(long, value_name = "DIR")]
        archive: Option<PathBuf>,
        /// Compares with the heads in this log; `-` reads standard input
        #[arg(long, value_name = "FILE")]
        syslog: Option<PathBuf>,
        /// Checks the checkpoints against this public key instead of the one in the state directory
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Compares with this checkpoint that witnesses signed, besides trail.cosigned in the state
        /// directory
        #[arg(long, value_name = "FILE")]
        cosigned: Vec<PathBuf>,
        /// The public keys of witnesses whose signatures count, one a line
        #[arg(long, value_name = "FILE")]
        witness: Vec<PathBuf>,
    },
    /// Writes the trail as tiles, a directory that any web server can serve, or goes on there
    Tiles {
        /// The directory
        dir: PathBuf,
        /// Writes the records too, which name people and tools, not their hashes alone
        #[arg(long)]
        entries: bool,
        /// Checks the checkpoints against this public key instead of the one in the state directory
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Proves that a record is in the trail, or that the trail only grew; prints the proof
    Proof {
        /// The record's number
        #[arg(required_unless_present = "old")]
        number: Option<u64>,
        /// Up to this checkpoint of the trail, a cosigned one for example [default: that of the
        /// next seal]
        #[arg(long, value_name = "FILE", conflicts_with = "old")]
        checkpoint: Option<PathBuf>,
        /// That the last sealed records continue the first N, for somebody who knows those
        #[arg(long, value_name = "N", conflicts_with = "number")]
        old: Option<u64>,
    },
    /// Cosigns, as a witness, a checkpoint of another trail that continues the last one signed;
    /// prints it
    Cosign {
        /// The witness's own directory, made if there is none: its key, and the last checkpoint of
        /// each trail
        dir: PathBuf,
        /// The output of `trail proof --old N` there; `-` reads standard input
        #[arg(default_value = "-")]
        request: PathBuf,
        /// The public key of the trail
        #[arg(long, value_name = "FILE")]
        log: PathBuf,
    },
    /// Checks a proof, on any machine
    CheckProof {
        /// The proof
        file: PathBuf,
        /// Against this published root, 64 hex digits
        #[arg(long, value_name = "HEX", value_parser = root)]
        root: Option<String>,
        /// Against the checkpoint in the proof, signed by the owner of this public key [default:
        /// the key in the state directory, unless a root is given]
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Counts calls, errors and latency by server and tool
    Stats(FilterArguments),
    /// Lists the segments that are complete
    Segments,
    /// Writes a complete segment to standard output
    Export {
        /// Only what retention keeps of it: its seal
        #[arg(long)]
        seal: bool,
        /// The segment, as `trail segments` names it
        name: String,
    },
    /// Drops complete segments that are older, and keeps their seals
    Drop {
        /// Keeps records for so many days
        #[arg(long, value_name = "N")]
        keep_days: u32,
    },
}

/// The filter of records.
#[derive(Debug, clap::Args)]
struct FilterArguments {
    /// Not before this time, UTC: 2026-11-21 or 2026-11-21T22:30:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Calls of this user, by name or number, and of agents that run for them
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Calls of this agent and what became of it: its id, or the session of one instance
    #[arg(long, value_name = "ID|SESSION")]
    agent: Option<String>,
    /// Calls to this server
    #[arg(long)]
    server: Option<String>,
    /// Calls of this tool or method
    #[arg(long)]
    tool: Option<String>,
    /// Only ends of calls with this result
    #[arg(long, ignore_case = true, value_parser = ["success", "retry", "fail"])]
    result: Option<String>,
    /// Calls made for this task, and what became of it
    #[arg(long, value_name = "N")]
    task: Option<u64>,
    /// Calls of clients that give themselves this name, which nothing checks
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
}

impl FilterArguments {
    fn filter(&self) -> Result<RecordFilter, CommandError> {
        Ok(RecordFilter {
            since: self.since.clone(),
            until: self.until.clone(),
            uid: self.user.as_deref().map(uid).transpose()?,
            agent: self.agent.clone(),
            server: self.server.clone(),
            tool: self.tool.clone(),
            result: self
                .result
                .as_ref()
                .map(|result| result.to_ascii_uppercase()),
            task: self.task,
            client: self.client.clone(),
        })
    }
}

/// A user's number. As chown(8) does it: a name first, since a name may be made of digits.
fn uid(user: &str) -> Result<u32, CommandError> {
    match User::from_name(user) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        Ok(None) => user.parse().map_err(|_| {
            CommandError::Usage(format!(
                "--user {user:?}: there is no such user, and it is no number"
            ))
        }),
        Err(error) => Err(CommandError::Machine(format!(
            "the user database cannot be read: {error}"
        ))),
    }
}

fn root(text: &str) -> anyhow::Result<String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(anyhow!("a root has 64 hex digits"))
    }
}

/// The key that checks the checkpoints: the one in a file, or that of the state directory.
fn chosen_key(file: Option<&Path>, state_dir: &Path) -> Result<Option<Verifier>, CommandError> {
    match file {
        Some(file) => records::named_verifier(file).map(Some),
        None => records::verifier(state_dir),
    }
}

/// Runs the command.
pub(crate) fn run(
    arguments: &TrailArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let status = act(arguments, context, &mut out)?;
    out.flush()?;
    Ok(ExitCode::from(status))
}

fn act(
    arguments: &TrailArguments,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<u8, CommandError> {
    let json = context.json;
    let state_dir = || context.state_dir(arguments.state_dir.clone());
    let dir = || state_dir().map(|state_dir| directory(&state_dir));
    match &arguments.action {
        TrailAction::Show {
            filter,
            last,
            all,
            follow,
        } => {
            // Nothing stops it but the end of this process.
            let endless = AtomicBool::new(false);
            let last = last.or((!all && !follow && !json).then_some(SHOWN));
            let filter = filter.filter()?;
            let left_out = records::print_show(
                &dir()?,
                &filter,
                last,
                follow.then_some(&endless),
                json,
                out,
            )?;
            if left_out > 0 {
                out.flush()?;
                eprintln!(
                    "colibri-mcp: {} not shown: --last N, --since TIME or --all shows more",
                    counted(left_out, "earlier record")
                );
            }
        }
        TrailAction::Verify {
            archive,
            syslog,
            key,
            cosigned,
            witness,
        } => {
            let state_dir = state_dir()?;
            let key = chosen_key(key.as_deref(), &state_dir)?;
            let witnesses = NamedWitnesses {
                log: syslog.as_deref(),
                cosigned,
                keys: witness,
            };
            let archive = archive.as_deref();
            return records::print_verify(&state_dir, archive, &witnesses, key.as_ref(), json, out);
        }
        TrailAction::Tiles { dir, entries, key } => {
            let state_dir = state_dir()?;
            let key = chosen_key(key.as_deref(), &state_dir)?;
            proofs::print_tiles(&state_dir, dir, key.as_ref(), *entries, out)?;
        }
        TrailAction::Proof {
            number,
            checkpoint,
            old,
        } => match (number, old) {
            (Some(number), _) => proofs::print_proof(&dir()?, *number, checkpoint.as_deref(), out)?,
            (None, old) => proofs::print_growth(&dir()?, old.unwrap_or(0), out)?,
        },
        TrailAction::Cosign { dir, request, log } => {
            proofs::print_cosign(dir, &records::named_verifier(log)?, request, out)?;
        }
        TrailAction::CheckProof { file, root, key } => {
            let key = match (root, key) {
                (_, Some(file)) => Some(records::named_verifier(file)?),
                (Some(_), None) => None,
                (None, None) => records::verifier(&state_dir()?)?,
            };
            proofs::print_check_proof(file, root.as_deref(), key.as_ref(), out)?;
        }
        TrailAction::Stats(filter) => {
            let filter = filter.filter()?;
            records::print_stats(&dir()?, &filter, json, out)?;
        }
        TrailAction::Segments => records::print_segments(&dir()?, out)?,
        TrailAction::Export { seal, name } => records::export(&dir()?, name, *seal, out)?,
        TrailAction::Drop { keep_days } => records::print_drop(&state_dir()?, *keep_days, out)?,
    }
    Ok(0)
}
