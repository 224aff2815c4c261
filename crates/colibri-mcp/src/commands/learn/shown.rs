//! A proposal as people and programs read it.

use std::path::Path;

use colibri_api::paths::{JAIL_ROOTS, SERVICE};
use colibri_text::{counted, visible, visible_lines};
use serde_json::{Map, Value, json};

use super::observation::Observation;
use super::permission;
use super::proposal::{JailProposal, PartKind, contract};
use crate::commands::context::CommandContext;
use crate::failure::CommandError;

/// The directory of places to work in (`make-root.sh`).
const PLACES: &str = "/usr/local/colibri/work";
/// The uid and gid that a proposal has in the place of the administrator's.
const IDS: u32 = 60801;
/// The address that a proposal has in the place of one of the host's (RFC 5737).
const ADDRESS: &str = "192.0.2.1";

/// The most refused accesses that are shown to a person.
const MAX_REFUSED: usize = 20;

/// A proposal as the files have it.
#[derive(Debug)]
pub(super) struct ProposalFiles {
    /// The entry of the registry.
    pub entry: Value,
    /// The lines of the policy.
    pub policy: Value,
    /// The contract.
    pub contract: Value,
    /// The commands that make root and places.
    pub commands: Vec<String>,
    /// The rules of the packet filter.
    pub filter: Vec<String>,
}

impl ProposalFiles {
    /// The files of a proposal.
    pub(super) fn of(seen: &Observation, proposal: &JailProposal) -> ProposalFiles {
        let id = &seen.server;
        let root = format!("{JAIL_ROOTS}/{id}");
        let (mut jail, mut policy) = (Map::new(), Map::new());
        jail.insert("path".to_owned(), json!(root));
        policy.insert("servers".to_owned(), json!([id]));
        policy.insert("ephemeral".to_owned(), json!([root]));
        policy.insert(
            "users".to_owned(),
            json!({ id: { "uid": IDS, "gid": IDS } }),
        );
        let mut commands = vec![format!("make-root.sh {}{root}", package(seen))];
        let (mut mounts, mut allowed) = (Vec::new(), Vec::new());
        let shown = proposal.parts.iter().filter_map(|part| match part.kind {
            PartKind::Mount => Some((&part.value, false)),
            PartKind::WritableMount => Some((&part.value, true)),
            _ => None,
        });
        for (number, (at, write)) in shown.enumerate() {
            let place = match number {
                0 => format!("{PLACES}/{id}"),
                _ => format!("{PLACES}/{id}-{}", number + 1),
            };
            commands.push(format!(
                "make-root.sh -w {IDS}:{IDS} -f {} {place}",
                quoted(at)
            ));
            commands.push(format!("mkdir -p {}", quoted(&format!("{root}{at}"))));
            mounts.push(json!({ "path": place, "at": at, "write": write }));
            allowed.push(json!({ "path": place, "owner": IDS, "at": at, "write": write }));
        }
        if !mounts.is_empty() {
            jail.insert("mounts".to_owned(), json!(mounts));
            policy.insert("mounts".to_owned(), json!(allowed));
        }
        let mut filter = Vec::new();
        for address in proposal.values(PartKind::Address) {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, "443"));
            let host = host.trim_matches(['[', ']']);
            filter.push(format!(
                "pass out quick proto {{ tcp udp }} from {ADDRESS} to {host} port {port}"
            ));
        }
        if !filter.is_empty() {
            filter.push(format!("block out quick from {ADDRESS}"));
            jail.insert("ip4".to_owned(), json!([ADDRESS]));
            policy.insert("network".to_owned(), json!([ADDRESS]));
        }
        let processes = proposal
            .values(PartKind::Processes)
            .find_map(|text| text.parse::<u64>().ok());
        jail.insert(
            "limits".to_owned(),
            json!({ "processes": processes.unwrap_or(1) }),
        );
        let (program, arguments) = command_in_jail(seen);
        let mut entry = json!({ "command": program, "args": arguments });
        if seen.directory != Path::new("/") {
            entry["cwd"] = json!(seen.directory);
        }
        let variables = proposal.values(PartKind::Variable);
        let env: Map<String, Value> = variables
            .map(|name| (name.to_owned(), json!({ "secret": secret_name(name) })))
            .collect();
        if !env.is_empty() {
            entry["env"] = Value::Object(env);
        }
        entry["jail"] = Value::Object(jail);
        let confirmed: Vec<&str> = proposal.values(PartKind::ConfirmedTool).collect();
        let called: Vec<&str> = proposal
            .values(PartKind::Tool)
            .chain(confirmed.iter().copied())
            .collect();
        entry["tools"] = json!({ "allow": called });
        if !confirmed.is_empty() {
            entry["tools"]["confirm"] = json!(confirmed);
        }
        entry["may_ask"] = json!(proposal.values(PartKind::Request).collect::<Vec<_>>());
        entry["contract"] = json!(SERVICE.contract(id));
        ProposalFiles {
            entry: json!({ id: entry }),
            policy: Value::Object(policy),
            contract: contract(seen),
            commands,
            filter,
        }
    }
}

/// A word of a shell's command line.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The name of a secret's file for a variable.
fn secret_name(variable: &str) -> String {
    let lower = variable.to_ascii_lowercase().replace('_', "-");
    let name: String = lower.chars().take(32).collect();
    match colibri_registry::is_secret_name(&name) {
        true => name,
        false => "variable".to_owned(),
    }
}

/// The package of a server, as an option of `make-root.sh`.
fn package(seen: &Observation) -> String {
    let from = seen.from.as_deref().and_then(|from| from.split_once(':'));
    if let Some((kind @ ("npm" | "pypi"), name)) = from {
        return format!("-{} {} ", &kind[..1], quoted(name));
    }
    let of_npm = |word: &String| {
        let real = Path::new(word).canonicalize().ok()?;
        let (_, inner) = real.to_str()?.split_once("/node_modules/")?;
        let mut parts = inner.split('/');
        let first = parts.next()?;
        Some(match (first.starts_with('@'), parts.next()) {
            (true, Some(second)) => format!("{first}/{second}"),
            _ => first.to_owned(),
        })
    };
    if let Some(name) = seen.command.iter().take(2).find_map(of_npm) {
        return format!("-n {} ", quoted(&name));
    }
    match seen
        .programs
        .values()
        .any(|what| what.contains("virtual environment"))
    {
        true => "-p ITS-PACKAGE ".to_owned(),
        false => String::new(),
    }
}

/// The command in a root of `make-root.sh`: what it installs stands in /usr/local/mcp/bin.
fn command_in_jail(seen: &Observation) -> (String, Vec<String>) {
    let Some((program, arguments)) = seen.command.split_first() else {
        return (String::new(), Vec::new());
    };
    let is_package = |word: &str| {
        let real = Path::new(word).canonicalize().unwrap_or_default();
        let is_in = |path: &Path| {
            seen.programs
                .keys()
                .any(|directory| path.starts_with(directory))
        };
        is_in(Path::new(word)) || is_in(&real)
    };
    let name = |word: &str| {
        let stem = Path::new(word)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        format!("/usr/local/mcp/bin/{stem}")
    };
    match arguments.first() {
        // An interpreter with a script of the package.
        Some(script) if script.starts_with('/') && is_package(script) => {
            (name(script), arguments[1..].to_vec())
        }
        _ if is_package(program) => (name(program), arguments.to_vec()),
        _ => (program.clone(), arguments.to_vec()),
    }
}

/// Prints a proposal.
///
/// # Errors
/// It cannot be written.
pub(super) fn print(
    seen: &Observation,
    proposal: &JailProposal,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let files = ProposalFiles::of(seen, proposal);
    let report = permission::check(proposal, seen);
    let facts = json!({
        "server": seen.server,
        "sessions": seen.sessions,
        "entry": files.entry,
        "policy": files.policy,
        "contract": files.contract,
        "commands": files.commands,
        "filter": files.filter,
        "parts": proposal.parts,
        "left_out": proposal.left_out,
        "warnings": proposal.warnings,
        "permitted": report.permitted,
        "refused": report.refused,
    });
    context.answer(
        &facts,
        &visible_lines(&text(seen, proposal, &files, &report)),
    )
}

fn text(
    seen: &Observation,
    proposal: &JailProposal,
    files: &ProposalFiles,
    report: &permission::PermissionReport,
) -> String {
    let mut out = format!(
        "{}: {} observed, {} permitted by this proposal, {} refused.\n",
        seen.server,
        counted(seen.sessions, "session"),
        counted(report.permitted, "access"),
        report.refused.len()
    );
    let mut section = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            out.push_str(&format!("\n{title}\n"));
            lines
                .iter()
                .for_each(|line| out.push_str(&format!("  {line}\n")));
        }
    };
    let pretty = |value: &Value| {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        text.lines()
            .map(|line| visible(line).into_owned())
            .collect::<Vec<_>>()
    };
    section(
        "As root, on FreeBSD (the places are filled with copies):",
        &files.commands,
    );
    section(
        "external-mcp.json, among the servers:",
        &pretty(&files.entry),
    );
    section(
        "jail-policy.json, beside what is there (choose a free uid and gid):",
        &pretty(&files.policy),
    );
    if !files.filter.is_empty() {
        section(
            &format!("pf.conf ({ADDRESS} stands for an address of the host, for this jail alone):"),
            &files.filter,
        );
    }
    let path = format!(
        "{}, to be narrowed by hand:",
        SERVICE.contract(&seen.server).display()
    );
    section(&path, &pretty(&files.contract));
    let parts = proposal.parts.iter().map(|part| {
        let kind = match part.kind {
            PartKind::Root => "in the root",
            PartKind::Mount => "mount, read",
            PartKind::WritableMount => "mount, write",
            PartKind::Program => "program",
            PartKind::Address => "address",
            PartKind::Processes => "processes",
            PartKind::Tool => "tool",
            PartKind::ConfirmedTool => "tool, confirm",
            PartKind::Request => "may_ask",
            PartKind::Variable => "variable",
        };
        format!(
            "needed      {kind:<13} {}  [{}]",
            visible(&part.value),
            visible(&part.seen)
        )
    });
    section("What was seen for each line:", &parts.collect::<Vec<_>>());
    let left_out = proposal.left_out.iter().map(|left| {
        let mark = if left.is_suspicious {
            "suspicious"
        } else {
            "not needed"
        };
        format!(
            "{mark}  {}  [{}; {}]",
            visible(&left.value),
            visible(&left.seen),
            visible(&left.why)
        )
    });
    section("Left out:", &left_out.collect::<Vec<_>>());
    let lines = |all: &[String]| {
        all.iter()
            .map(|line| visible(line).into_owned())
            .collect::<Vec<_>>()
    };
    let mut refused = lines(&report.refused);
    if refused.len() > MAX_REFUSED {
        let more = refused.split_off(MAX_REFUSED).len();
        refused.push(format!("and {more} more: --json has them all"));
    }
    section("Refused by this proposal, though it was seen:", &refused);
    section("To know before you take it:", &lines(&proposal.warnings));
    if !cfg!(target_os = "freebsd") {
        section(
            "On Linux",
            &[
                "nothing confines a server: of this, args, env, cwd, tools, may_ask and contract hold there."
                    .to_owned(),
            ],
        );
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::super::access::ObservedAccess;
    use super::super::observation::{NamedThings, SessionNotes};
    use super::super::proposal::propose;
    use super::*;
    use colibri_jail_helper::policy::Policy;
    use colibri_registry::Registry;

    /// The observation of a server that did this, and whose work was named.
    fn seen(work: &Path, accesses: Vec<ObservedAccess>) -> Observation {
        let mut notes = SessionNotes {
            named: NamedThings::of(Path::new("/home/u")),
            ..SessionNotes::default()
        };
        notes
            .named
            .take(&work.display().to_string(), "argument 1 of the command");
        notes
            .named
            .take("http://[2001:db8::1]:8080/x", "an argument of fetch");
        notes.named.take("https://u@192.0.2.9/", "the variable URL");
        notes.named.take("/home/u/.ssh", "an argument of read");
        notes.named.take("/home", "an argument of read");
        notes.seen = Observation {
            server: "x".to_owned(),
            sessions: 1,
            command: vec![
                "/usr/bin/node".to_owned(),
                "/opt/x/server.js".to_owned(),
                work.display().to_string(),
            ],
            variables: vec!["URL".to_owned(), "TOKEN_2".to_owned()],
            directory: "/".into(),
            home: "/home/u".into(),
            programs: [("/opt/x".into(), "the script".to_owned())].into(),
            ..Observation::default()
        };
        accesses.into_iter().for_each(|access| notes.note(access));
        notes.seen
    }

    fn read(path: impl Into<std::path::PathBuf>) -> ObservedAccess {
        let path = path.into();
        ObservedAccess::Read {
            path,
            is_directory: false,
        }
    }

    fn write(path: impl Into<std::path::PathBuf>) -> ObservedAccess {
        ObservedAccess::Write { path: path.into() }
    }

    #[test]
    fn a_proposal_is_an_entry_and_a_policy_that_their_readers_take() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let work = place.path().canonicalize().unwrap().join("it's work");
        std::fs::create_dir_all(work.join("inner")).unwrap();
        let connect = |text: &str| ObservedAccess::Connect {
            address: text.parse().unwrap(),
        };
        let seen = seen(
            &work,
            vec![
                read("/usr/lib/libc.so"),
                read("/opt/x/server.js"),
                read(work.join("inner/a")),
                write(work.join("inner/b")),
                connect("[2001:db8::1]:8080"),
                connect("192.0.2.9:443"),
                connect("198.51.100.1:443"),
                ObservedAccess::Processes { count: 3 },
            ],
        );
        let proposal = propose(&seen, &[]);
        let values = |kind| proposal.values(kind).collect::<Vec<_>>();
        let inner = work.join("inner").display().to_string();
        assert_eq!(values(PartKind::WritableMount), [inner.as_str()]);
        assert_eq!(values(PartKind::Root), ["/opt/x", "/usr"]);
        assert_eq!(
            values(PartKind::Address),
            ["192.0.2.9:443", "[2001:db8::1]:8080"]
        );
        assert_eq!(proposal.left_out[0].value, "198.51.100.1:443");
        let files = ProposalFiles::of(&seen, &proposal);
        let registry = json!({ "servers": files.entry }).to_string();
        let registry = Registry::parse(registry.as_bytes(), "r").unwrap();
        let jail = registry.servers["x"].jail().unwrap();
        assert!(jail.mounts[0].write && jail.mounts[0].at == Path::new(&inner));
        let mut policy = files.policy.clone();
        policy["caller"] = json!("colibri");
        let policy = Policy::parse(policy.to_string().as_bytes(), "p").unwrap();
        assert_eq!(policy.mounts[0].at, jail.mounts[0].at);
        assert!(
            files.commands[1].contains("'\\''s work/inner'"),
            "{:?}",
            files.commands
        );
        assert!(
            files.filter[1].contains("to 2001:db8::1 port 8080"),
            "{:?}",
            files.filter
        );
        let report = permission::check(&proposal, &seen);
        assert_eq!(report.refused, ["connect to 198.51.100.1:443"]);
        // Accepted by the person, it is needed.
        let proposal = propose(&seen, &["198.51.100.1".to_owned()]);
        assert!(permission::check(&proposal, &seen).refused.is_empty());
    }

    #[test]
    fn a_file_that_is_made_in_a_named_place_below_the_home_makes_the_place_writable() {
        let mut seen = seen(Path::new("/home/u/notes"), vec![write("/home/u/notes/new")]);
        seen.home = "/home/u".into();
        let proposal = propose(&seen, &[]);
        let writable: Vec<&str> = proposal.values(PartKind::WritableMount).collect();
        assert_eq!(writable, ["/home/u/notes"]);
    }

    #[test]
    fn a_hostile_servers_wishes_are_no_need() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let work = place.path().canonicalize().unwrap();
        let wishes = [
            "/home/u/.ssh/id_ed25519",
            "/home/u/notes.txt",
            "/home/other/x",
            "/etc/shadow",
            "/etc/cron.d/x",
            "/proc/1/environ",
            "/opt/x/server.js",
            "/usr/bin/x",
            "/srv/data/x",
            "/tmp/of-another",
        ];
        let mut accesses: Vec<ObservedAccess> =
            wishes.iter().take(6).map(|path| read(*path)).collect();
        accesses.extend(wishes.iter().skip(6).take(3).map(|path| write(*path)));
        accesses.push(read(wishes[9]));
        accesses.push(read(work.join(".env")));
        accesses.push(ObservedAccess::Miss {
            path: "/home/u/.aws/credentials".into(),
        });
        let seen = seen(&work, accesses);
        let proposal = propose(&seen, &[]);
        let shown = [PartKind::Root, PartKind::Mount, PartKind::WritableMount];
        assert!(
            proposal
                .parts
                .iter()
                .all(|part| !shown.contains(&part.kind)),
            "{proposal:?}"
        );
        for wish in wishes.into_iter().chain(["/home/u/.aws/credentials"]) {
            let left = proposal.left_out.iter().find(|left| left.value == wish);
            assert!(
                left.is_some_and(|left| left.is_suspicious),
                "{wish}: {proposal:?}"
            );
        }
        // No word of the person's makes a secret part of it.
        let proposal = propose(
            &seen,
            &[
                "/home/u/.ssh".to_owned(),
                "/home".to_owned(),
                "/etc".to_owned(),
            ],
        );
        assert!(
            proposal
                .parts
                .iter()
                .all(|part| !shown.contains(&part.kind)),
            "{proposal:?}"
        );
    }

    #[test]
    fn a_secret_in_a_shown_directory_is_named() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let work = place.path().canonicalize().unwrap();
        std::fs::write(work.join(".env"), "").unwrap();
        let proposal = propose(&seen(&work, vec![read(work.join("a"))]), &[]);
        assert_eq!(proposal.values(PartKind::Mount).count(), 1);
        assert!(
            proposal
                .warnings
                .iter()
                .any(|warning| warning.contains(".env")),
            "{proposal:?}"
        );
    }

    #[test]
    fn names_of_files_are_harmless_on_a_terminal_and_bounded() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let work = place.path().canonicalize().unwrap();
        let odd = "x\u{1b}[2J\n  needed      mount, write  /etc";
        let seen = seen(
            &work,
            vec![read(work.join(odd)), write("/srv/one/\u{202e}two")],
        );
        assert_eq!(seen.odd_names, 2);
        assert!(
            seen.files.contains_key("/srv/one")
                && !seen.files.keys().any(|path| path.contains('\n'))
        );
        let mut notes = SessionNotes::default();
        for number in 0..30_000 {
            notes.note(write(format!("/srv/a/{}/{number}", number % 7)));
        }
        for number in 0..30_000 {
            notes.note(write(format!("/{number}/a/b/c")));
        }
        assert!(
            notes.seen.files.len() < 22_000 && notes.seen.left_out > 0,
            "{}",
            notes.seen.files.len()
        );
    }
}
