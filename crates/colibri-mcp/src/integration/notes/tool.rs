//! The tool: what a call asks, and what a run has to say.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use colibri_text::{brief, counted};
use serde_json::{Value, json};

use super::mirror_error::MirrorError;
use super::places::Places;
use super::sync::{Strategy, Sync, present};
use super::tree::{MirrorLimits, OmittedEntries, TreeReader};
use crate::failure::CommandError;
use crate::integration::serve::ToolServer;
use crate::integration::tool_call_error::{ToolCallError, output_schema, result};

/// The most characters of an argument's name that are told.
const MAX_WORD: usize = 64;

/// The repository, and the mirror.
#[derive(Debug, clap::Args)]
pub(crate) struct NotesArguments {
    /// The repository, whose docs/ is mirrored: an absolute path without symbolic links
    #[arg(long, value_name = "DIRECTORY", requires = "mirror")]
    repository: Option<PathBuf>,
    /// The directory that becomes the mirror: empty, or one already; an absolute path without
    /// symbolic links
    #[arg(long, value_name = "DIRECTORY", requires = "repository")]
    mirror: Option<PathBuf>,
}

/// The mirror, as it is reached.
pub(crate) struct Notes {
    places: Option<Places>,
}

impl Notes {
    /// The mirror of a command line.
    pub(crate) fn new(arguments: NotesArguments) -> Result<Notes, CommandError> {
        let (Some(repository), Some(mirror)) = (arguments.repository, arguments.mirror) else {
            return Ok(Notes { places: None });
        };
        for (flag, path) in [("--repository", &repository), ("--mirror", &mirror)] {
            if !path.is_absolute() {
                return Err(CommandError::Usage(format!(
                    "integration notes: {flag} must be an absolute path"
                )));
            }
        }
        Ok(Notes {
            places: Some(Places { repository, mirror }),
        })
    }

    async fn sync(&self, arguments: &Value) -> Result<Value, ToolCallError> {
        let (strategy, is_dry) = asked(arguments)
            .map_err(|why| ToolCallError::permanent("ARGUMENTS_INVALID", format!("{why:#}")))?;
        let Some(places) = self.places.clone() else {
            let why = "the entry's command names no --repository and --mirror".to_owned();
            return Err(MirrorError::NotConnected(why).into());
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        // A call that is cancelled drops this; the thread looks at it between files.
        let _guard = CancelFlag(cancelled.clone());
        let run = tokio::task::spawn_blocking(move || {
            run(&places, strategy, is_dry, &MirrorLimits::USUAL, &cancelled)
        });
        match run.await {
            Ok(result) => result.map_err(ToolCallError::from),
            Err(error) => Err(ToolCallError::permanent("NOTES_FAILED", error.to_string())),
        }
    }
}

struct CancelFlag(Arc<AtomicBool>);

impl Drop for CancelFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads the arguments of a call: these two, and nothing else.
fn asked(arguments: &Value) -> anyhow::Result<(Strategy, bool)> {
    const KEYS: [&str; 2] = ["strategy", "dry_run"];
    let members = arguments
        .as_object()
        .context("the arguments must be an object")?;
    if let Some(odd) = members.keys().find(|key| !KEYS.contains(&key.as_str())) {
        bail!(
            "{} is no argument: there are {}",
            brief(odd, MAX_WORD),
            KEYS.join(", ")
        );
    }
    let strategy = match members.get("strategy").and_then(Value::as_str) {
        Some("add") => Strategy::Add,
        Some("mirror") => Strategy::Mirror,
        _ => bail!("strategy must be add or mirror"),
    };
    let is_dry = members.get("dry_run").and_then(Value::as_bool);
    Ok((strategy, is_dry.context("dry_run must be true or false")?))
}

/// One run: reads what is to be there, then makes it so.
fn run(
    places: &Places,
    strategy: Strategy,
    is_dry: bool,
    limits: &MirrorLimits,
    cancelled: &AtomicBool,
) -> Result<Value, MirrorError> {
    let opened = places.open(is_dry)?;
    let mut left_out = OmittedEntries::default();
    let tree = TreeReader::new(limits, cancelled, &mut left_out).read(&opened.docs)?;
    let tree = tree.ok_or_else(|| {
        MirrorError::NotConnected("docs/ has a .colibri-mirror: it is a mirror itself".to_owned())
    })?;
    let mut sync = Sync::new(limits, strategy, is_dry, cancelled, &mut left_out);
    sync.directory(&tree, opened.docs.as_fd(), Some(opened.mirror.as_fd()))?;
    let (written, unchanged, removed, bytes) =
        (sync.written, sync.unchanged, sync.removed, sync.bytes);
    let files = written + unchanged;
    if !is_dry {
        match present(&tree, opened.mirror.as_fd()) {
            found if found < files => return Err(MirrorError::Incomplete(files - found)),
            _ => {}
        }
    }
    Ok(json!({
        "files": files,
        "strategy": match strategy { Strategy::Add => "add", Strategy::Mirror => "mirror" },
        "dry_run": is_dry,
        "bytes": bytes,
        "written": written,
        "unchanged": unchanged,
        "removed": removed,
        "left_out": left_out,
        "mirror": places.mirror.to_string_lossy(),
    }))
}

impl ToolServer for Notes {
    const NAME: &'static str = "colibri-notes";

    fn list(&self) -> Value {
        let number = |about: &str| json!({ "type": "integer", "minimum": 0, "description": about });
        json!([{
            "name": "notes_sync",
            "title": "Mirror docs/",
            "description": "Mirrors the repository's docs/ into the vault of notes, one way: what was changed in the mirror is \
                overwritten, and nothing is ever written to the repository. Says how many files were written, removed and left \
                out. With dry_run it only says what it would do.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "strategy": { "enum": ["add", "mirror"],
                        "description": "mirror removes from the mirror what is in docs/ no more; add removes nothing" },
                    "dry_run": { "type": "boolean", "description": "Whether to write nothing" },
                },
                "required": ["strategy", "dry_run"],
                "additionalProperties": false,
            },
            "outputSchema": output_schema(
                json!({
                    "files": number("Files of docs/ that the mirror has"),
                    "strategy": { "enum": ["add", "mirror"] },
                    "dry_run": { "type": "boolean" },
                    "bytes": number("Bytes of these files"),
                    "written": number("Files that were not there, or were others"),
                    "unchanged": number("Files that were there as they are"),
                    "removed": number("Files, directories and other entries that were removed from the mirror"),
                    "left_out": { "type": "object", "additionalProperties": number("Entries that were left out for this reason") },
                    "mirror": { "type": "string", "description": "The directory that was written to" },
                }),
                &["files", "strategy", "dry_run", "bytes", "written", "unchanged", "removed", "left_out", "mirror"],
            ),
            "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false },
        }])
    }

    async fn call(&self, name: &str, arguments: &Value) -> Option<Value> {
        if name != "notes_sync" {
            return None;
        }
        Some(result(self.sync(arguments).await, told))
    }
}

/// A result in a sentence.
fn told(said: &Value) -> String {
    let number = |key: &str| said[key].as_u64().unwrap_or(0);
    let left_out = said["left_out"]
        .as_object()
        .map_or(0, |counts| counts.values().filter_map(Value::as_u64).sum());
    format!(
        "{}The mirror has {}: {} written, {} unchanged; {} removed, {} left out.",
        if said["dry_run"] == true {
            "Nothing was done; it would be: "
        } else {
            ""
        },
        counted(number("files"), "file"),
        number("written"),
        number("unchanged"),
        number("removed"),
        left_out
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    const SMALL: MirrorLimits = MirrorLimits {
        entries: 10,
        bytes: 100,
        file: 20,
        depth: 3,
    };

    fn places() -> (TempDir, Places) {
        let top = tempfile::tempdir().unwrap();
        let real = top.path().canonicalize().unwrap();
        let places = Places {
            repository: real.join("repository"),
            mirror: real.join("mirror"),
        };
        fs::create_dir_all(places.repository.join("docs")).unwrap();
        fs::create_dir(&places.mirror).unwrap();
        (top, places)
    }

    fn write(path: &Path, bytes: usize) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; bytes]).unwrap();
    }

    fn mirror(places: &Places) -> Result<Value, MirrorError> {
        run(
            places,
            Strategy::Mirror,
            false,
            &SMALL,
            &AtomicBool::new(false),
        )
    }

    #[test]
    fn what_is_over_a_limit_writes_nothing_and_says_so() {
        let (_top, places) = places();
        let docs = places.repository.join("docs");
        for index in 0..5 {
            write(&docs.join(format!("{index}")), 20);
        }
        assert_eq!(mirror(&places).unwrap()["bytes"], 100);
        write(&docs.join("5"), 1);
        let failed = ToolCallError::from(mirror(&places).unwrap_err());
        assert_eq!(failed.code, "NOTES_TOO_MUCH");
        assert!(
            failed.message.contains("over 100 bytes"),
            "{}",
            failed.message
        );
        assert!(!places.mirror.join("5").exists());
        // Whatever they are, entries are counted.
        for index in 0..6 {
            std::os::unix::fs::symlink("nowhere", docs.join(format!("link{index}"))).unwrap();
        }
        fs::remove_file(docs.join("4")).unwrap();
        let failed = ToolCallError::from(mirror(&places).unwrap_err());
        assert_eq!(failed.code, "NOTES_TOO_MUCH");
        assert!(
            failed.message.contains("over 10 files"),
            "{}",
            failed.message
        );
        // And a vault that is stuffed is not read without end.
        fs::remove_file(docs.join("link0")).unwrap();
        for index in 0..21 {
            write(&places.mirror.join(format!("stuffing{index}")), 0);
        }
        let failed = ToolCallError::from(mirror(&places).unwrap_err());
        assert!(
            failed.message.contains("in the mirror than"),
            "{}",
            failed.message
        );
    }

    #[test]
    fn what_is_too_large_or_too_deep_is_left_out_and_its_copy_stays() {
        let (_top, places) = places();
        let docs = places.repository.join("docs");
        write(&docs.join("a/b/deepest"), 20);
        write(&docs.join("grows"), 20);
        assert_eq!(mirror(&places).unwrap()["files"], 2);
        write(&docs.join("grows"), 21);
        write(&docs.join("a/b/c/deeper"), 1);
        let said = mirror(&places).unwrap();
        assert_eq!(
            (&said["left_out"]["large"], &said["left_out"]["deep"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(
            (&said["unchanged"], &said["removed"]),
            (&json!(1), &json!(0))
        );
        assert_eq!(fs::metadata(places.mirror.join("grows")).unwrap().len(), 20);
        assert!(!places.mirror.join("a/b/c").exists());
        // What a stranger buried too deep stays too, and all above it.
        write(&places.mirror.join("x/y/z/w/buried"), 1);
        let said = mirror(&places).unwrap();
        assert_eq!(said["left_out"]["deep"], 2);
        assert!(places.mirror.join("x/y/z/w/buried").exists());
    }

    #[test]
    fn a_run_that_is_cancelled_does_nothing_more() {
        let (_top, places) = places();
        write(&places.repository.join("docs/a"), 1);
        let stopped = run(
            &places,
            Strategy::Mirror,
            false,
            &SMALL,
            &AtomicBool::new(true),
        );
        assert!(
            matches!(stopped, Err(MirrorError::Cancelled)),
            "{stopped:?}"
        );
        assert!(!places.mirror.join("a").exists());
        mirror(&places).unwrap();
    }

    #[test]
    fn a_file_that_changes_while_it_is_copied_is_left_out() {
        let (_top, places) = places();
        let docs = places.repository.join("docs");
        write(&docs.join("a"), 20);
        mirror(&places).unwrap();
        let opened = places.open(false).unwrap();
        let (limits, cancelled, mut left_out) =
            (SMALL, AtomicBool::new(false), OmittedEntries::default());
        write(&docs.join("b"), 5);
        let tree = TreeReader::new(&limits, &cancelled, &mut left_out)
            .read(&opened.docs)
            .unwrap()
            .unwrap();
        // Between the two passes: one grows beyond what may be, one becomes a link, a FIFO comes.
        write(&docs.join("a"), 21);
        fs::remove_file(docs.join("b")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", docs.join("b")).unwrap();
        let mut sync = Sync::new(&limits, Strategy::Mirror, false, &cancelled, &mut left_out);
        sync.directory(&tree, opened.docs.as_fd(), Some(opened.mirror.as_fd()))
            .unwrap();
        assert_eq!((sync.written, sync.removed), (0, 0));
        assert_eq!(left_out.changed, 2);
        assert_eq!(fs::metadata(places.mirror.join("a")).unwrap().len(), 20);
        assert!(!places.mirror.join("b").exists());
    }
}
