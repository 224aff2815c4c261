//! Two systems have packages, and people have daemons of their own: a page that says where
//! something is, or how it is installed, says so for each.

use colibri_paths::{FREEBSD, LINUX};

use super::facts::Facts;
use super::{Finding, Findings};

/// The pages where an operator looks for logs.
const PAGES_OF_LOGS: [&str; 2] = ["docs/guide/operating.md", "docs/guide/troubleshooting.md"];

/// Paths of the service on FreeBSD, each with the same on Debian.
fn directories() -> [(&'static str, &'static str); 3] {
    [
        (FREEBSD.configuration, LINUX.configuration),
        (FREEBSD.state, LINUX.state),
        (FREEBSD.socket, LINUX.socket),
    ]
}

/// Finds manuals that the Debian package has and that name FreeBSD's directory alone.
fn check_directories(facts: &Facts, findings: &mut Findings) {
    let build = facts.text("deb/build");
    let pages = build
        .split("for page in ")
        .nth(1)
        .and_then(|rest| rest.split(';').next())
        .unwrap_or_default();
    for page in pages.split_whitespace().filter(|page| *page != "\\") {
        let file = format!("docs/man/{page}");
        for (freebsd, debian) in directories() {
            let names = |path: &str| {
                let text = facts.text(&file);
                text.match_indices(path).any(|(at, _)| {
                    !text[..at].ends_with("/usr/local") && !text[..at].ends_with("/var")
                })
            };
            if names(freebsd) && !names(debian) {
                findings.push(Finding {
                    file: file.clone(),
                    line: 0,
                    name: debian.to_owned(),
                    what: format!("it names {freebsd}, and is installed on Debian as well"),
                });
            }
        }
    }
}

/// Finds pages about logs that leave one out: of FreeBSD's service, of Debian's, of a private
/// daemon.
fn check_logs(facts: &Facts, findings: &mut Findings) {
    let syslog = facts.text("etc/syslog.conf");
    let daemons = syslog
        .split_whitespace()
        .find(|word| word.starts_with("/var/log/colibri-mcp"));
    let own = facts
        .literals
        .iter()
        .find(|text| text.starts_with("colibri-mcpd") && text.ends_with(".log"));
    let units = facts
        .files
        .iter()
        .filter_map(|file| file.strip_prefix("deb/")?.strip_suffix(".service"));
    let mut logs: Vec<String> = units
        .filter(|unit| !unit.contains('/'))
        .map(|unit| format!("journalctl -u {unit}"))
        .collect();
    logs.push(daemons.unwrap_or("the log of FreeBSD's service").to_owned());
    logs.push(format!(
        "~/.local/state/colibri/{}",
        own.map_or("", String::as_str)
    ));
    for page in PAGES_OF_LOGS {
        for log in logs
            .iter()
            .filter(|log| !facts.text(page).contains(log.as_str()))
        {
            findings.push(Finding {
                file: page.to_owned(),
                line: 0,
                name: log.clone(),
                what: "the page says where logs are, and not of this one".to_owned(),
            });
        }
    }
}

/// Finds pages that have somebody install the daemon from its sources without the programs that it
/// starts.
fn check_installations(facts: &Facts, findings: &mut Findings) {
    let installs = |package: &str| format!("cargo install --path {package}");
    for (file, text) in facts.texts.iter().filter(|(file, _)| file.ends_with(".md")) {
        if text.contains(&installs("colibri-mcpd"))
            && !text.contains(&installs("crates/colibri-script"))
        {
            findings.push(Finding {
                file: file.clone(),
                line: 0,
                name: "colibri-script".to_owned(),
                what: "the daemon is installed without it, and scripts fail".to_owned(),
            });
        }
    }
}

pub(super) fn check(facts: &Facts, findings: &mut Findings) {
    check_installations(facts, findings);
    check_directories(facts, findings);
    check_logs(facts, findings);
}
