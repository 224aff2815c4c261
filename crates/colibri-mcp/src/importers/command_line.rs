//! The arguments of `colibri-mcp add`.

use std::collections::BTreeMap;

use anyhow::anyhow;

use super::entry::process_of;
use super::mcp_remote;
use super::proposal::{Field, Proposal, ProposedRemote, Runs};
use super::template::Template;

/// A server by the words of its command line.
pub fn command(
    name: &str,
    words: &[String],
    env: BTreeMap<String, String>,
    cwd: Option<&str>,
) -> Proposal {
    let mut words = words.iter().map(|word| Template::from(word.as_str()));
    let runs = match words.next() {
        None => Err(anyhow!("no command is named")),
        Some(command) => process_of(
            command,
            words.collect(),
            fields(env),
            cwd.map(Template::from),
        ),
    };
    let mut proposal = Proposal::new(name, runs);
    mcp_remote::replace(&mut proposal);
    proposal
}

/// A server by its address.
pub fn url(name: &str, url: &str, headers: BTreeMap<String, String>, sse: bool) -> Proposal {
    let url = Template::from(url);
    let headers = fields(headers);
    Proposal::new(name, Ok(Runs::Remote(ProposedRemote { url, headers, sse })))
}

fn fields(values: BTreeMap<String, String>) -> BTreeMap<String, Field> {
    let field = |value: String| Field {
        text: Template::from(value.as_str()),
        secret: false,
        optional: false,
    };
    values
        .into_iter()
        .map(|(name, value)| (name, field(value)))
        .collect()
}
