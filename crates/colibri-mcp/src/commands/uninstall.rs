//! `colibri-mcp uninstall`: the user's own daemon ends, and its servers, agents, state and backups
//! are removed. A service and the editors' own files stay as they are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::connect::{EditorSettings, editor_settings};
use super::context::CommandContext;
use crate::connection::{DaemonAddress, DaemonConnection, RequestError};
use crate::failure::CommandError;
use crate::install::InstallScope;
use crate::owned_file::{OwnedFile, agree};
use crate::private;
use colibri_api::paths::{self, Private, SERVICE};
use colibri_text::{brief, counted, visible};
use colibri_trail::TrailLock;

/// The longest time in which the daemon ends: its calls, clients, servers and agents each have
/// seconds of their own.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks whether it has.
const PAUSE: Duration = Duration::from_millis(20);
/// The most bytes of names on a line.
const MAX_NAMES: usize = 200;

/// The confirmation.
#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArguments {
    /// Removes without asking
    #[arg(long)]
    yes: bool,
}

/// The files that go, each with what it is.
struct Belongings {
    files: Vec<(PathBuf, String)>,
    /// The directories that go if nothing else is in them.
    directories: Vec<PathBuf>,
    editors: Vec<EditorSettings>,
    /// What is left, and why.
    left: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &UninstallArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    if context.chosen.is_some() {
        return Err(CommandError::Usage(
            "uninstall removes what is your own daemon's: leave --socket out".to_owned(),
        ));
    }
    let own = paths::private();
    // Where others could put files, they could have chosen what is removed.
    own.check().map_err(CommandError::Machine)?;
    let found = Belongings::find(&own)?;
    if found.files.is_empty() {
        let text = found.with_what_stays("There is nothing of Colibri's to remove.");
        return context.answer(&found.facts(&[]), &text);
    }
    context.tell(&found.show(&own))?;
    agree("Remove all this?", arguments.yes)?;
    // Another may be installing for minutes.
    let place = DaemonAddress::find(Some(own.socket.clone()));
    let scope = InstallScope::find(false, &place)
        .ok()
        .filter(|_| own.registry.exists());
    let _alone = scope.map(|scope| scope.lock()).transpose()?;
    // Editors that are open start another daemon meanwhile, unless they wait for this.
    let start = own
        .state_dir
        .exists()
        .then(|| private::hold_start(&own))
        .transpose();
    let start = start.map_err(|error| CommandError::Machine(format!("{error:#}")))?;
    let lock = own
        .state_dir
        .exists()
        .then(|| end_daemon(&own))
        .transpose()?;
    for (path, _) in &found.files {
        remove(path)?;
    }
    for directory in &found.directories {
        // Something else is in it, which is not ours.
        let _ = fs::remove_dir(directory);
    }
    drop((lock, start));
    let removed: Vec<&Path> = found.files.iter().map(|(path, _)| path.as_path()).collect();
    let text = found.with_what_stays("Colibri's own files of yours are removed.");
    context.answer(&found.facts(&removed), &text)
}

/// Ends the user's daemon, if it runs, and keeps another one from its state.
fn end_daemon(own: &Private) -> Result<TrailLock, CommandError> {
    match DaemonConnection::open(&own.socket.clone().into(), false) {
        // It may be gone before it answers.
        Ok(mut daemon) => match daemon.request("colibri/end", &json!({})) {
            Ok(_) | Err(RequestError::Lost { .. }) => {}
            Err(error) => {
                return Err(CommandError::Machine(format!(
                    "your daemon does not end: {error}; nothing was removed. Close your editors, and try again later"
                )));
            }
        },
        Err(error) if private::is_absent(&error.source) => {}
        Err(error) => return Err(error.into()),
    }
    let until = Instant::now() + LIMIT;
    loop {
        match TrailLock::take(&own.state_dir) {
            Ok(lock) => return Ok(lock),
            Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(error) => {
                return Err(CommandError::Machine(format!(
                    "{error}; nothing was removed: try again"
                )));
            }
        }
    }
}

fn remove(path: &Path) -> Result<(), CommandError> {
    let removed = match path.is_dir() && !path.is_symlink() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(CommandError::File {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

impl Belongings {
    fn find(own: &Private) -> Result<Belongings, CommandError> {
        let mut files = Vec::new();
        let mut add = |path: &Path, what: String| {
            if path.symlink_metadata().is_ok() {
                files.push((path.to_owned(), what));
            }
        };
        let names = names_in(&own.registry);
        add(&own.registry, format!("your registry{names}"));
        add(
            &own.clients,
            "the rules for your daemon's clients".to_owned(),
        );
        let secrets = own.registry.with_file_name("daemon-secrets");
        add(&secrets, count_in(&secrets, "secret"));
        add(
            &own.servers,
            format!(
                "what was installed for {}",
                count_in(&own.servers, "server")
            ),
        );
        add(
            &own.registry.with_file_name("locks"),
            "the locks of packages".to_owned(),
        );
        let agents = own.servers.with_file_name("agents");
        add(
            &agents,
            format!(
                "the home of {}, with what was made there",
                count_in(&agents, "agent")
            ),
        );
        let editors = editor_settings();
        for path in [&own.registry, &own.clients] {
            for kept in OwnedFile::read(path)
                .map(|file| file.kept())
                .unwrap_or_default()
            {
                add(&kept, "a backup".to_owned());
            }
        }
        for settings in editors.iter().filter(|settings| !settings.starts_bridge) {
            for kept in &settings.backups {
                add(kept, format!("a backup of {}'s", settings.editor.name()));
            }
        }
        // Last: whatever ends this too early leaves what can be begun again.
        add(
            &own.state_dir,
            "your daemon's trail, tasks, pins, results, consent and log".to_owned(),
        );
        let configuration = own.registry.parent().map(Path::to_owned);
        let data = own.servers.parent().map(Path::to_owned);
        let mut left = Vec::new();
        if own.skills.exists() {
            left.push(format!(
                "{} stays: the skills are your own",
                own.skills.display()
            ));
        }
        if let Some(file) = SERVICE.installed() {
            left.push(format!("the service stays ({})", file.display()));
        }
        Ok(Belongings {
            files,
            directories: configuration.into_iter().chain(data).collect(),
            editors,
            left,
        })
    }

    fn show(&self, own: &Private) -> String {
        let mut lines = vec!["To be removed:".to_owned()];
        if let Ok(true) = own.socket.try_exists() {
            lines.push(
                "  your daemon ends, with its servers and agents; editors that are open lose their tools".to_owned(),
            );
        }
        let line = |(path, what): &(PathBuf, String)| {
            format!(
                "  {}: {}",
                visible(&path.display().to_string()),
                visible(what)
            )
        };
        lines.extend(self.files.iter().map(line));
        self.with_what_stays(&lines.join("\n"))
    }

    /// A text, and what stays all the same.
    fn with_what_stays(&self, text: &str) -> String {
        let mut lines = vec![text.to_owned()];
        for settings in self
            .editors
            .iter()
            .filter(|settings| settings.starts_bridge)
        {
            lines.push(format!(
                "{} still starts the bridge, as {} says: colibri-mcp connect {} --remove",
                settings.editor.name(),
                visible(&settings.path.display().to_string()),
                settings.word
            ));
        }
        lines.extend(self.left.iter().map(|left| visible(left).into_owned()));
        if let Ok(program) = std::env::current_exe() {
            lines.push(format!(
                "The programs stay: remove the package, or colibri-mcp and colibri-mcpd in {}",
                visible(&program.parent().unwrap_or(&program).display().to_string())
            ));
        }
        lines.join("\n")
    }

    fn facts(&self, removed: &[&Path]) -> Value {
        let editors = self
            .editors
            .iter()
            .filter(|settings| settings.starts_bridge);
        let editors =
            editors.map(|settings| json!({ "editor": settings.word, "file": settings.path }));
        json!({ "removed": removed, "editors": editors.collect::<Vec<_>>() })
    }
}

/// The names of a registry's entries, if it can be read.
fn names_in(registry: &Path) -> String {
    let text = fs::read_to_string(registry).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let lists = ["servers", "mcpServers", "agents"]
        .into_iter()
        .filter_map(|list| value[list].as_object());
    let names: Vec<&str> = lists
        .flat_map(|list| list.keys().map(String::as_str))
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(", with {}", brief(&names.join(", "), MAX_NAMES)),
    }
}

/// The number of things in a directory, in words.
fn count_in(directory: &Path, noun: &str) -> String {
    counted(
        fs::read_dir(directory).map_or(0, Iterator::count) as u64,
        noun,
    )
}
