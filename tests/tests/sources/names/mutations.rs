//! A check that cannot fail shows nothing: each kind of name, right and wrong.

use super::commands::Programs;
use super::documents::{Document, Form};
use super::{FACTS, check, identifiers};

/// A page, a text for it, and the same text with a name that nothing has.
const MUTATIONS: &[(&str, &str, &str)] = &[
    // Commands of our programs.
    (
        "docs/x.md",
        "`colibri-mcp server reload`",
        "`colibri-mcp reload`",
    ),
    (
        "docs/x.md",
        "```sh\ncolibri-mcp tasks enable\n```",
        "```sh\ncolibri-mcp tasks allow\n```",
    ),
    (
        "docs/x.md",
        "`sudo colibri-jail-helper sweep`",
        "`sudo colibri-jail-helper clean`",
    ),
    (
        "docs/x.md",
        "`colibri-jail-helper stop --all`",
        "`colibri-jail-helper stop --every`",
    ),
    (
        "docs/x.md",
        "`cargo run --release --bin colibri-mcp -- demo`",
        "`cargo run --release --bin colibri-mcp -- show`",
    ),
    (
        "docs/x.md",
        "`colibri-mcp status`",
        "`colibri-mcp status now`",
    ),
    (
        "docs/man/x.8",
        ".Dl # colibri-mcp doctor \\-\\-root",
        ".Dl # colibri-mcp examine \\-\\-root",
    ),
    (
        "docs/man/x.8",
        ".Bd -literal\n$ colibri-mcp tools\n.Ed",
        ".Bd -literal\n$ colibri-mcp tool\n.Ed",
    ),
    // Flags, also where their value would be taken for an argument.
    (
        "docs/x.md",
        "`colibri-mcpd --external-call`",
        "`colibri-mcpd --external-calls`",
    ),
    (
        "docs/x.md",
        "`colibri-mcp --socket /s status`",
        "`colibri-mcp --sock /s status`",
    ),
    (
        "docs/x.md",
        "`COLIBRI_MCPD_FLAGS=--write`",
        "`COLIBRI_MCPD_FLAGS=--writable`",
    ),
    (
        "docs/x.md",
        "`sh /usr/local/libexec/colibri/make-root.sh -p x /r`",
        "`sh /usr/local/libexec/colibri/make-root.sh -x x /r`",
    ),
    // Services and their variables.
    (
        "docs/x.md",
        "`service colibri_mcp reload`",
        "`service colibri_mcp reread`",
    ),
    (
        "docs/x.md",
        "`systemctl reload colibri-mcpd`",
        "`systemctl reread colibri-mcpd`",
    ),
    (
        "docs/x.md",
        "`systemctl start colibri-mcpd`",
        "`systemctl start colibri-mcp`",
    ),
    (
        "docs/x.md",
        "`sysrc colibri_mcp_write=YES`",
        "`sysrc colibri_mcp_writes=YES`",
    ),
    // Scripts and units.
    (
        "port/files/x.sh",
        "#!/bin/sh\nclient=\"/usr/local/bin/colibri-mcp\"\n\"${client}\" --socket \"${s}\" server reload\n",
        "#!/bin/sh\nclient=\"/usr/local/bin/colibri-mcp\"\n\"${client}\" --socket \"${s}\" reload\n",
    ),
    (
        "deb/x.service",
        "ExecReload=/usr/bin/colibri-mcp --socket /run/colibri/colibri.sock server reload\n",
        "ExecReload=/usr/bin/colibri-mcp --socket /run/colibri/colibri.sock reload\n",
    ),
    (
        "x.sh",
        "#!/bin/sh\ndaemon_flags=\"${daemon_flags} --write\"\n",
        "#!/bin/sh\ndaemon_flags=\"${daemon_flags} --writes\"\n",
    ),
    (
        "x.sh",
        "#!/bin/sh\nif out=$(colibri-mcp status); then :; fi\n",
        "#!/bin/sh\nif out=$(colibri-mcp state); then :; fi\n",
    ),
    // Environment, manuals, errors, types, tests.
    ("docs/x.md", "COLIBRI_MCP_SOCKET", "COLIBRI_MCP_SOKET"),
    ("docs/x.md", "colibri-mcpd(8)", "colibri-mcpd(5)"),
    ("docs/man/x.8", ".Xr hosts.json 5 ,", ".Xr host.json 5 ,"),
    ("docs/x.md", "`GATE_CLOSED`", "`GATE_SHUT`"),
    (
        "docs/architecture.md",
        "`relay::Tickets`",
        "`relay::Ticketes`",
    ),
    (
        "docs/jail-helper.md",
        "```\nplan.rs   entry → ConfinementPlan\n```",
        "```\nplan.rs   entry → Plan\n```",
    ),
    (
        "docs/later.md",
        "**A thing.** `a_call_as_a_task_is_refused_before_anything_is_sent`",
        "**A thing.** `a_call_as_a_task_is_taken_before_anything_is_sent`",
    ),
    // Paths and links.
    (
        "docs/x.md",
        "/usr/local/libexec/colibri-jail-helper",
        "/usr/local/sbin/colibri-jail-helper",
    ),
    (
        "docs/x.md",
        "/usr/local/etc/colibri/clients.json",
        "/usr/local/etc/colibri/client.json",
    ),
    (
        "docs/x.md",
        "/var/db/colibri/trail",
        "/var/db/colibri/trails",
    ),
    (
        "docs/x.md",
        "`/usr/sbin/colibri-mcpd`",
        "`/usr/bin/colibri-mcpd`",
    ),
    (
        "docs/guide/x.md",
        "[it](../policy.md#pins)",
        "[it](../policies.md)",
    ),
    (
        "docs/guide/x.md",
        "[it](../policy.md#pins)",
        "[it](../policy.md#pinned)",
    ),
    (
        "docs/x.md",
        "`tests/freebsd/run.sh`",
        "`tests/freebsd/proof.sh`",
    ),
    ("docs/x.md", "`servers/opening.rs`", "`servers/opens.rs`"),
    // Keys.
    (
        "docs/x.md",
        "```json\n{ \"servers\": { \"x\": { \"command\": \"/x\" } } }\n```",
        "```json\n{ \"servers\": { \"x\": { \"commnad\": \"/x\", \"url\": \"\" } } }\n```",
    ),
    ("docs/x.md", "`start_timeout_ms`", "`start_time_out_ms`"),
    // Messages.
    (
        "docs/x.md",
        "```message\ncolibri-mcpd is not running: nothing listens on …\n```",
        "```message\ncolibri-mcpd is not walking: nothing listens on …\n```",
    ),
    (
        "docs/x.md",
        "```message\ncannot write to trail segment …\n```",
        "```message\ncannot write to the trail's segment …\n```",
    ),
];

#[test]
fn each_kind_of_wrong_name_is_found() {
    let programs = Programs::default();
    for (path, right, wrong) in MUTATIONS {
        let names = |text: &str| -> Vec<String> {
            let document = Document::new(path, text).unwrap();
            let findings = check(&document, &FACTS, &programs);
            findings
                .into_iter()
                .map(|finding| format!("{}: {}", finding.name, finding.what))
                .collect()
        };
        assert!(names(right).is_empty(), "{right}: {:?}", names(right));
        assert!(!names(wrong).is_empty(), "{wrong} is not found");
    }
}

#[test]
fn a_wrong_command_in_a_message_is_found() {
    let programs = Programs::default();
    let count = |text: &str| {
        let document = Document {
            path: "crates/x.rs".to_owned(),
            form: Form::Message,
            text: text.to_owned(),
            offset: 0,
        };
        check(&document, &FACTS, &programs).len()
    };
    for (right, wrong) in [
        (
            "{id} is blocked: colibri-mcp server enable {id}",
            "{id} is blocked: colibri-mcp enable {id}",
        ),
        (
            "run colibri-mcp pin diff {id} first",
            "run colibri-mcp pin show {id} first",
        ),
        (
            "run colibri-jail-helper check as root",
            "run colibri-jail-helper test as root",
        ),
        (
            "run service colibri_mcp reload",
            "run service colibri_mcp reloading",
        ),
        (
            "colibri-mcp trail verify --state-dir {}",
            "colibri-mcp trail verify --state {}",
        ),
    ] {
        assert_eq!(count(right), 0, "{right}");
        assert_ne!(count(wrong), 0, "{wrong}");
    }
}

#[test]
fn a_variable_that_no_manual_has_is_found() {
    let mut facts = super::facts::Facts::default();
    facts.literals.insert("COLIBRI_MCP_SOCKET".to_owned());
    let mut findings = Vec::new();
    identifiers::check_variables(&facts, &mut findings);
    assert_eq!(findings.len(), 1);
}
