//! A bundle that a registry's `server.json` names by address and hash.

use std::fs;
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context as _, anyhow, bail};

use super::tools::{find, run};
use crate::progress;
use colibri_mcp::importers::{self, MAX_ARCHIVE, Proposal, PublishedBundle};

/// Fetches a bundle by curl(1), or fetch(1) of FreeBSD: it, and its server. It must have the hash
/// that is published, so whoever brings it cannot change it.
///
/// # Errors
/// It cannot be fetched, is another, or no bundle.
pub(crate) fn fetch(published: &PublishedBundle) -> anyhow::Result<(Rc<[u8]>, Proposal)> {
    let PublishedBundle { url, sha256, .. } = published;
    let stage = tempfile::tempdir().context("no temporary directory")?;
    let file = stage.path().join("bundle.mcpb");
    let mut command = match (find("curl"), find("fetch")) {
        (Some(curl), _) => {
            let mut curl = Command::new(curl);
            // -q: nothing of a .curlrc.
            curl.args([
                "-q",
                "--fail",
                "--silent",
                "--show-error",
                "--location",
                "--max-redirs",
                "5",
            ]);
            curl.args([
                "--proto",
                "=http,https",
                "--max-filesize",
                &MAX_ARCHIVE.to_string(),
                "--output",
            ]);
            curl
        }
        (None, Some(fetch)) => {
            let mut fetch = Command::new(fetch);
            fetch.args(["-q", "-o"]);
            fetch
        }
        (None, None) => bail!("curl is not on PATH: install it first, to fetch the bundle"),
    };
    let _step = progress::step(format!("fetching {url}"));
    let at = |error: anyhow::Error| error.context(url.clone());
    run(command.arg(&file).arg(url)).map_err(at)?;
    let length = file.metadata().map_or(0, |facts| facts.len());
    if length > MAX_ARCHIVE as u64 {
        return Err(at(anyhow!("it has more than 256 MiB")));
    }
    let bytes = fs::read(&file).with_context(|| url.clone())?;
    let hash = colibri_registry::sha256_hex(&bytes);
    if hash != *sha256 {
        return Err(at(anyhow!("its SHA-256 is {hash}, and must be {sha256}")));
    }
    let proposal = importers::bundle(&bytes, std::env::consts::OS)
        .map_err(at)?
        .proposal;
    Ok((bytes.into(), proposal))
}
