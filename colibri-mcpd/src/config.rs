//! Flags, `COLIBRI_*` environment, defaults: resolved once, at start.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser};
use hyper::Uri;
use hyper::http::uri::Authority;

use crate::notices;
use colibri_api::paths::Private;
use colibri_api::{CostMode, PrivMode, check_url, is_host_name, paths};
use colibri_http::{AllowedTarget, UrlOrigin};
use colibri_store::BoardAddress;

/// The time for which a private daemon waits for another client, in seconds.
const END_IDLE_S: u64 = 600;
/// The most bytes of a model's name.
const MAX_MODEL: usize = 200;

/// Serves MCP on a Unix socket: Colibri's own tools and those of the external servers in the
/// registry.
#[derive(Debug, Parser)]
#[command(name = "colibri-mcpd", version, max_term_width = 100)]
pub struct DaemonFlags {
    /// Serve the user who starts it, from the user's own files: of the registry, and of gates, what
    /// the user agreed to
    #[arg(long, conflicts_with_all = ["write", "external_call", "socket_group", "syslog"])]
    private: bool,
    /// End after this many seconds without a client; with --private 600 if nothing is said
    #[arg(long, value_name = "SECONDS", env = "COLIBRI_MCP_END_IDLE", value_parser = clap::value_parser!(u64).range(1..))]
    end_idle: Option<u64>,
    /// Listen on this Unix socket [env: COLIBRI_MCP_SOCKET, then COLIBRI_DAEMON_SOCKET]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Warn unless the socket has this group, whose members are to open it [env:
    /// COLIBRI_MCP_SOCKET_GROUP]
    #[arg(
        long,
        value_name = "NAME",
        env = "COLIBRI_MCP_SOCKET_GROUP",
        hide_env = true
    )]
    socket_group: Option<String>,
    /// Read the registry of external servers from this file, which must be there
    #[arg(long, value_name = "PATH", env = "COLIBRI_MCP_EXTERNAL_CONFIG")]
    external_config: Option<PathBuf>,
    /// Read from this file, which must be there, who may call what
    #[arg(long, value_name = "PATH", env = "COLIBRI_MCP_CLIENTS")]
    clients: Option<PathBuf>,
    /// Keep the store and the trail in this directory
    #[arg(long, value_name = "PATH", env = "COLIBRI_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Keep tasks and schedules in this PostgreSQL, which many hosts share:
    /// postgres://ROLE@HOST:PORT/DATABASE, of which ROLE and PORT may be left out, with passfile=,
    /// sslrootcert=, sslcert=, sslkey=
    #[arg(
        long,
        value_name = "URL",
        env = "COLIBRI_BOARD",
        hide_env_values = true
    )]
    board: Option<String>,
    /// Be this host on that board; without it the first part of the host's name
    #[arg(long, value_name = "NAME", env = "COLIBRI_HOST", value_parser = board_host)]
    host: Option<String>,
    /// Read from this file, which must be there, which other hosts of that board count, and for
    /// whom
    #[arg(
        long,
        value_name = "PATH",
        env = "COLIBRI_MCP_HOSTS",
        requires = "board"
    )]
    hosts: Option<PathBuf>,
    /// Look for skills (directories with a SKILL.md) in this directory; may be given more than once
    #[arg(
        long,
        value_name = "PATH",
        env = "COLIBRI_MCP_SKILLS",
        value_delimiter = ':'
    )]
    skills: Vec<PathBuf>,
    /// Answer to this host name over HTTP, beside localhost; may be given more than once
    #[arg(long, value_name = "HOST", env = "COLIBRI_MCP_HTTP_HOST", hide_env = true, value_delimiter = ',',
          value_parser = http_host)]
    http_host: Vec<String>,
    /// Open the write gate: tasks and cost mode may be changed [env: COLIBRI_MCP_WRITE=1]
    #[arg(long)]
    write: bool,
    /// Open the external-call gate: tools of external servers may be called [env:
    /// COLIBRI_MCP_EXTERNAL_CALL=1]
    #[arg(long)]
    external_call: bool,
    /// The cost mode of users for whom none is set: fast, smart or max; without it, agents alone,
    /// to smart
    #[arg(long, value_name = "MODE", env = "COLIBRI_COST_MODE")]
    cost_mode: Option<CostMode>,
    /// Have servers that were never seen started with the daemon, so that no list waits for them;
    /// --private does, too
    #[arg(long)]
    learn: bool,
    /// Start agents whose entries have "autospawn" when a task fits them [env:
    /// COLIBRI_AUTOSPAWN=YES]
    #[arg(long)]
    autospawn: bool,
    /// Have a model write a sentence about each tool, for searches: definitions are sent to its
    /// provider through the server model-api [env: COLIBRI_SUMMARIES=1]
    #[arg(long)]
    summaries: bool,
    /// The model of the server model-api that writes them
    #[arg(long, value_name = "MODEL", env = "COLIBRI_SUMMARY_MODEL", default_value = "ratatoskr:free/text-generation",
          value_parser = model_name)]
    summary_model: String,
    /// Post what happens to this URL, signed with the key daemon-secrets/webhook
    #[arg(long, value_name = "URL", env = "COLIBRI_WEBHOOK_URL", hide_env_values = true, value_parser = webhook_url)]
    webhook: Option<Uri>,
    /// Let that URL lead to these addresses beside public ones: loopback, private, link-local, an
    /// address or a network; may be given more than once
    #[arg(long, value_name = "ADDRESSES", env = "COLIBRI_WEBHOOK_ALLOW", value_delimiter = ',', requires = "webhook",
          value_parser = addresses)]
    webhook_allow: Vec<AllowedTarget>,
    /// Refuse to start servers outside a jail [env: COLIBRI_MCP_REQUIRE_JAIL=1]
    #[arg(long)]
    require_jail: bool,
    /// Trust no definition of a tool until an operator has accepted it [env:
    /// COLIBRI_MCP_PIN_STRICT=1]
    #[arg(long)]
    pin_strict: bool,
    /// Read from this file, which is never written, pins that come with an image
    #[arg(long, value_name = "PATH", env = "COLIBRI_MCP_PINS")]
    pins: Option<PathBuf>,
    /// End a call after this many milliseconds without an answer or progress
    #[arg(long, value_name = "MS", env = "COLIBRI_MCP_TIMEOUT", default_value_t = 30_000,
          value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    timeout: u64,
    /// Reach root for jailed servers through: helper (setuid), mdo or sudo
    #[arg(
        long,
        value_name = "MODE",
        env = "COLIBRI_JAIL_PRIV_MODE",
        default_value = "helper"
    )]
    priv_mode: PrivMode,
    /// Answer only when the trail's records are on the disk, not just written
    #[arg(long)]
    trail_sync: bool,
    /// Serve Prometheus metrics on this Unix socket
    #[arg(long, value_name = "PATH")]
    metrics_socket: Option<PathBuf>,
    /// Log to syslog instead of standard error
    #[arg(long)]
    syslog: bool,
    /// Log events of this level and above: error, warn, info, debug
    #[arg(
        long,
        value_name = "LEVEL",
        env = "COLIBRI_MCP_LOG",
        default_value = "info"
    )]
    log_level: tracing::Level,
    /// Run although the process has root or, on Linux, a capability: for containers and tests
    /// [env: COLIBRI_MCP_ALLOW_ROOT=1]
    #[arg(long)]
    allow_root: bool,
    /// Check the configuration and exit: 0 if it is good, 78 if not
    #[arg(long)]
    pub check: bool,
    /// Check as this user, for root: away from root's terminal, with root's ids given up
    #[arg(long = "as", value_name = "USER", requires = "check")]
    pub as_user: Option<String>,
}

/// Reads a host name, as a `Host` header has it before the port.
fn http_host(text: &str) -> anyhow::Result<String> {
    let is_host = text
        .parse()
        .is_ok_and(|authority: Authority| authority.host() == text);
    let name = is_host.then(|| text.to_owned());
    name.context("it is no host name: leave out the scheme, the port and the path")
}

/// Reads a host's name on the board.
fn board_host(text: &str) -> anyhow::Result<String> {
    let name = is_host_name(text).then(|| text.to_owned());
    name.context("it is no name for a host: 1 to 64 letters, digits, dots and hyphens, with a letter or digit first")
}

/// The first part of the host's name.
fn own_host() -> anyhow::Result<String> {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    let first = name.split('.').next().unwrap_or_default();
    board_host(first).with_context(|| format!("the host's name is {name:?}: say --host"))
}

/// A refusal of the command line that repeats nothing of the webhook's URL, in which a token may
/// be.
pub(crate) fn without_url(mut refusal: clap::Error) -> clap::Error {
    let is_url = matches!(refusal.get(ContextKind::InvalidArg),
        Some(ContextValue::String(argument)) if argument.starts_with("--webhook "));
    if is_url {
        refusal.insert(
            ContextKind::InvalidValue,
            ContextValue::String("…".to_owned()),
        );
    }
    refusal
}

/// Reads the webhook's URL.
fn webhook_url(text: &str) -> anyhow::Result<Uri> {
    let no_url = || anyhow!("it is no URL that can be connected to");
    check_url(text).map_err(anyhow::Error::msg)?;
    let url: Uri = text.parse().map_err(|_| no_url())?;
    UrlOrigin::of(&url).map_err(|_| no_url())?;
    Ok(url)
}

/// Reads addresses that a URL may lead to.
fn addresses(text: &str) -> anyhow::Result<AllowedTarget> {
    let wanted =
        "it must be loopback, private, link-local, an address, or a network like 10.1.0.0/16";
    AllowedTarget::parse(text).context(wanted)
}

/// Reads a model's name.
fn model_name(text: &str) -> anyhow::Result<String> {
    let is_name =
        (1..=MAX_MODEL).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let name = is_name.then(|| text.to_owned());
    name.with_context(|| {
        format!(
            "it is no model's name: 1 to {MAX_MODEL} visible characters of ASCII, without spaces"
        )
    })
}

/// The settings that the daemon runs with.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    /// It is one user's own: the entries that the user agreed to are in this file, and no others
    /// are served.
    pub consent: Option<PathBuf>,
    /// It ends after this time without a client.
    pub end_idle: Option<Duration>,
    /// The log, where it is a file.
    pub log_file: Option<PathBuf>,
    /// The Unix socket to listen on.
    pub socket: PathBuf,
    /// The group that the socket is to have.
    pub socket_group: Option<String>,
    /// The registry of external servers.
    pub registry: PathBuf,
    /// A flag or variable names it, so it must be there.
    pub registry_named: bool,
    /// The client policy.
    pub clients: PathBuf,
    /// A flag or variable names it, so it must be there.
    pub clients_named: bool,
    /// Store and trail.
    pub state_dir: PathBuf,
    /// The board of many hosts, and this host's name there.
    pub board: Option<(BoardAddress, String)>,
    /// The hosts that count there.
    pub hosts: PathBuf,
    /// A flag or variable names it, so it must be there.
    pub hosts_named: bool,
    /// The directories of skills.
    pub skills: Vec<PathBuf>,
    /// The host names that are answered to over HTTP, beside localhost.
    pub http_hosts: Vec<String>,
    /// The write gate.
    pub write: bool,
    /// The external-call gate.
    pub external_call: bool,
    /// Servers that were never seen are started with the daemon.
    pub learn: bool,
    /// Agents are started by themselves where their entries say so.
    pub autospawn: bool,
    /// The model that summarises tools, if one does.
    pub summaries: Option<String>,
    /// The webhook to which notices are posted, if there is one.
    pub webhook: Option<notices::WebhookSettings>,
    /// Only jailed servers.
    pub require_jail: bool,
    /// No definition is trusted on first use.
    pub pin_strict: bool,
    /// Pins that come with an image, if any do.
    pub pins: Option<PathBuf>,
    /// Of a call, restarted by progress.
    pub call_timeout: Duration,
    /// The privilege backend.
    pub priv_mode: PrivMode,
    /// The cost mode of whoever nothing nearer says one for; `None`: none acts.
    pub cost_mode: Option<CostMode>,
    /// Records are on the disk before a call goes on.
    pub trail_sync: bool,
    /// The socket at which metrics are served, if they are.
    pub metrics_socket: Option<PathBuf>,
    /// Log to syslog.
    pub syslog: bool,
    /// Least severe level that is logged.
    pub log_level: tracing::Level,
    /// Root is no reason to refuse.
    pub allow_root: bool,
}

/// True if an environment variable says 1; anything but 0, 1 and nothing is an error worth telling.
///
/// # Errors
/// Another value: it must not be taken for either.
pub fn switch(name: &str) -> anyhow::Result<bool> {
    match std::env::var(name).as_deref() {
        Err(std::env::VarError::NotPresent) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        _ => Err(anyhow!("{name} must be 0 or 1")),
    }
}

/// Takes a variable that is empty for one that is not set.
fn unset_if_empty(argument: Arg) -> Arg {
    match argument.get_env().and_then(std::env::var_os) {
        Some(value) if value.is_empty() => argument.env(None::<&'static str>),
        _ => argument,
    }
}

impl DaemonFlags {
    /// The flags of a command line, the program's name first, over the environment.
    ///
    /// # Errors
    /// What is wrong with them, or the text that they ask for.
    pub(crate) fn of_command_line(arguments: &[OsString]) -> Result<DaemonFlags, clap::Error> {
        let command = DaemonFlags::command().mut_args(unset_if_empty);
        DaemonFlags::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }

    /// Flags over environment over defaults.
    ///
    /// # Errors
    /// A variable that is neither 0 nor 1.
    pub fn resolve(self) -> anyhow::Result<DaemonConfig> {
        let own = self.private.then(paths::private);
        let path =
            |flag: Option<PathBuf>, of_own: fn(&Private) -> &PathBuf, default: fn() -> PathBuf| {
                flag.unwrap_or_else(|| own.as_ref().map_or_else(default, |own| of_own(own).clone()))
            };
        let board = self.board.map(|url| -> anyhow::Result<_> {
            let address = BoardAddress::parse(&url)?;
            Ok((address, self.host.map_or_else(own_host, Ok)?))
        });
        Ok(DaemonConfig {
            board: board.transpose()?,
            end_idle: self
                .end_idle
                .or(self.private.then_some(END_IDLE_S))
                .map(Duration::from_secs),
            log_file: own.as_ref().map(|own| own.log.clone()),
            socket: path(self.socket, |own| &own.socket, || paths::socket(None)),
            socket_group: self.socket_group,
            registry_named: self.external_config.is_some(),
            registry: path(self.external_config, |own| &own.registry, paths::registry),
            clients_named: self.clients.is_some(),
            clients: path(self.clients, |own| &own.clients, paths::clients),
            hosts_named: self.hosts.is_some(),
            hosts: path(self.hosts, |own| &own.hosts, paths::hosts),
            state_dir: path(self.state_dir, |own| &own.state_dir, paths::state_dir),
            skills: match &own {
                _ if !self.skills.is_empty() => self.skills,
                Some(own) => vec![own.skills.clone()],
                None => paths::skills(),
            },
            consent: own.map(|own| own.consent),
            http_hosts: self.http_host,
            write: !self.private && (self.write || switch("COLIBRI_MCP_WRITE")?),
            external_call: self.private
                || self.external_call
                || switch("COLIBRI_MCP_EXTERNAL_CALL")?,
            learn: self.private || self.learn,
            autospawn: self.autospawn
                || std::env::var_os("COLIBRI_AUTOSPAWN").is_some_and(|value| value == "YES"),
            summaries: (self.summaries || switch("COLIBRI_SUMMARIES")?)
                .then_some(self.summary_model),
            webhook: self.webhook.map(|url| notices::WebhookSettings {
                url,
                allowed: self.webhook_allow,
            }),
            require_jail: self.require_jail || switch("COLIBRI_MCP_REQUIRE_JAIL")?,
            pin_strict: self.pin_strict || switch("COLIBRI_MCP_PIN_STRICT")?,
            pins: self.pins,
            call_timeout: Duration::from_millis(self.timeout),
            priv_mode: self.priv_mode,
            cost_mode: self.cost_mode,
            trail_sync: self.trail_sync,
            metrics_socket: self.metrics_socket,
            syslog: self.syslog,
            log_level: self.log_level,
            allow_root: self.allow_root || switch("COLIBRI_MCP_ALLOW_ROOT")?,
        })
    }
}
