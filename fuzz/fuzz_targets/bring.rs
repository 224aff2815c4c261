//! What `colibri-mcp add` and `import` read of others: editors' files, `mcp-bridge.toml`, `server.json`, bundles and
//! command lines. Whatever stands in them, each server is a proposal or a reason, under an id that a server may have; what
//! a runner would fetch is never a command; and no file of a bundle leads out of it.
#![no_main]

use std::path::Path;

use colibri_mcp::bring::{Program, Proposal, Runs, Source, bundle, command, map_names, read};
use colibri_registry::is_server_id;
use libfuzzer_sys::fuzz_target;

fn check(proposals: &[Proposal]) {
    let ids = map_names(proposals.iter().map(|one| one.name.as_str()));
    assert_eq!(ids.len(), proposals.len());
    assert!(ids.iter().all(|one| is_server_id(&one.id)));
    for proposal in proposals {
        let Ok(runs) = &proposal.runs else { continue };
        let missing = proposal.missing(&Default::default());
        assert!(missing.iter().all(|key| proposal.wants.contains_key(*key)));
        let Runs::Process(process) = runs else { continue };
        match &process.program {
            Program::Command(word) => {
                let name = word.plain().unwrap_or_default().rsplit(['/', '\\']).next();
                assert!(!matches!(name, Some("npx" | "uvx" | "bunx" | "docker")), "a runner is a command");
            }
            Program::Package(package) => {
                let words = [&package.name].into_iter().chain(&package.with).chain(&package.version);
                for word in words {
                    assert!(!word.starts_with('-') && !word.contains("://"), "an option or an address is a package");
                }
            }
            Program::Bundled { .. } => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else { return };
    if rest.starts_with(b"PK") {
        if let Ok(mut found) = bundle(rest, "linux") {
            check(std::slice::from_ref(&found.proposal));
            let paths: Vec<String> = found.archive.files().map(|(path, _)| path.to_owned()).collect();
            for path in paths {
                assert!(!path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | "..")));
                let _ = found.archive.read(&path);
            }
        }
        return;
    }
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match Source::ALL.get(usize::from(which)) {
        Some(source) => {
            if let Ok((_, proposals)) = read(Some(*source), Path::new("file"), text) {
                check(&proposals);
            }
        }
        None if which < 0x80 => {
            if let Ok((_, proposals)) = read(None, Path::new("file.json"), text) {
                check(&proposals);
            }
        }
        None => {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            check(&[command("x", &words, Default::default(), None)]);
        }
    }
});
