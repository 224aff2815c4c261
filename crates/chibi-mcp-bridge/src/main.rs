//! `chibi-mcp-bridge`: Colibri's tools for programs that speak to a bridge over loopback TCP. A
//! process of the user's own and never part of the daemon, which opens no port and knows who calls.
#![forbid(unsafe_code)]

mod answers;
mod claim;
mod config;
mod connection;
mod ending;
mod own_servers;
mod say;
mod sources;
mod strangers;
mod summaries;

use std::fs::DirBuilder;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::Parser;
use colibri_api::paths;

use answers::AnswerSources;
use claim::BridgeLock;
use config::BridgeConfig;
use connection::ChibiBridge;
use say::say;

/// Serves Colibri's tools to programs that speak to the chibi bridge, over loopback, to its own
/// user alone.
///
/// The home is CHIBI_HOME, else ~/.chibi. Servers are those of mcp-bridge.toml there, and those of
/// this machine's service. It ends by itself when nobody has connected for a while.
#[derive(Debug, Parser)]
#[command(name = "chibi-mcp-bridge", version, verbatim_doc_comment)]
struct BridgeFlags {}

fn main() -> ExitCode {
    BridgeFlags::parse();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&format!("{why:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    // Before any thread starts: threads inherit the mask, so that only the one that waits for
    // signals gets them.
    let signals = ending::block().context("cannot block signals")?;
    let home = home()?;
    let config = BridgeConfig::load(&home);
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
    let address = loopback(
        listener
            .local_addr()
            .context("cannot read the address of the listener")?,
    )?;
    let claim = Arc::new(BridgeLock::take(&home, address, config.limit)?);
    ending::on_signals(signals, claim.clone());
    say(&format!("listening on {address}"));
    for server in config
        .servers
        .iter()
        .filter(|server| server.name != server.id)
    {
        say(&format!(
            "the server {:?} is called {} here",
            server.name, server.id
        ));
    }
    let (idle, limit) = (config.idle, config.limit);
    let answers = Arc::new(AnswerSources::new(&home, config));
    answers.begin();
    ChibiBridge::new(answers, claim, limit).serve(&listener, idle)
}

/// The address of the listener. In a jail that has addresses but none of loopback, 127.0.0.1 is the
/// first of them (jail(8)).
fn loopback(address: SocketAddr) -> anyhow::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) if address.ip().is_loopback() => Ok(address),
        other => Err(anyhow!(
            "127.0.0.1 is {} in this jail, which other hosts can reach: give the jail a loopback address (ip4.addr in jail(8))",
            other.ip()
        )),
    }
}

/// The home, which is made where it is not there.
fn home() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("CHIBI_HOME").filter(|home| !home.is_empty());
    let home = named.map_or_else(|| paths::home().join(".chibi"), PathBuf::from);
    let at = || home.display().to_string();
    if !home.is_absolute() {
        // It would be another in each directory, and a project could bring one along.
        bail!("{}: CHIBI_HOME must be an absolute path", at());
    }
    paths::check_place(&home).map_err(anyhow::Error::msg)?;
    let mut make = DirBuilder::new();
    make.recursive(true)
        .mode(0o700)
        .create(&home)
        .with_context(at)?;
    paths::check_place(&home).map_err(anyhow::Error::msg)?;
    Ok(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_listens_on_loopback_alone() {
        for own in ["127.0.0.1:4000", "127.0.1.5:4000"] {
            assert_eq!(loopback(own.parse().unwrap()).unwrap().to_string(), own);
        }
        for others in ["192.0.2.7:4000", "[::1]:4000"] {
            assert!(loopback(others.parse().unwrap()).is_err(), "{others}");
        }
    }
}
