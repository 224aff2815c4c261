//! The address of the board's database: libpq's URL, with its parameters for passwords and
//! certificates.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nix::unistd::{Uid, User};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The time within which a server must be connected to, and a statement ends. A lease is longer.
pub(super) const CONNECT: Duration = Duration::from_secs(3);
/// The settings of each session. A daemon that stands still in a transaction must not hold up
/// others.
const SESSION: &str = "-c search_path=colibri -c statement_timeout=4000 -c lock_timeout=3000 \
    -c idle_in_transaction_session_timeout=5000";
/// The most bytes of a password file.
const MAX_PASSFILE: u64 = 64 << 10;

/// The address of the board's database.
#[derive(Clone)]
pub struct BoardAddress {
    pub(super) config: Config,
    /// TLS, where the server is not reached over a socket or on this host.
    pub(super) tls: Option<ClientConfig>,
    /// The role.
    pub(super) role: String,
    /// The address as it may be shown.
    pub(super) shown: String,
}

impl std::fmt::Debug for BoardAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BoardAddress({})", self.shown)
    }
}

/// The parameters of a URL that are files.
#[derive(Default)]
struct AddressFiles {
    passfile: Option<PathBuf>,
    sslrootcert: Option<PathBuf>,
    sslcert: Option<PathBuf>,
    sslkey: Option<PathBuf>,
}

impl BoardAddress {
    /// Reads a URL, `postgres://[ROLE@]HOST[:PORT]/DATABASE[?PARAMETER=VALUE&…]`, and the files
    /// that it names.
    ///
    /// # Errors
    /// What is wrong with it or them.
    pub fn parse(url: &str) -> anyhow::Result<BoardAddress> {
        ensure!(
            url.starts_with("postgres://") || url.starts_with("postgresql://"),
            "the board's address must begin with postgres://"
        );
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut files = AddressFiles::default();
        let mut rest = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let file = match &*name {
                "passfile" => &mut files.passfile,
                "sslrootcert" => &mut files.sslrootcert,
                "sslcert" => &mut files.sslcert,
                "sslkey" => &mut files.sslkey,
                // The server's certificate is always checked whole.
                "sslmode" if matches!(&*value, "verify-full" | "require" | "verify-ca") => {
                    rest.append_pair("sslmode", "require");
                    continue;
                }
                "options" | "application_name" => {
                    bail!("the board's address must not have {name}: Colibri sets it")
                }
                _ => {
                    rest.append_pair(&name, &value);
                    continue;
                }
            };
            *file = Some(PathBuf::from(&*value));
        }
        let query = rest.finish();
        let mark = if query.is_empty() { "" } else { "?" };
        // Its own error may have the password in it.
        let config = Config::from_str(&format!("{base}{mark}{query}"));
        let mut config = config.ok().context(
            "the board's address is no URL of PostgreSQL: postgres://ROLE@HOST:PORT/DATABASE?passfile=FILE&sslrootcert=FILE",
        )?;
        ensure!(
            config.get_password().is_none(),
            "the board's address has a password, which others can read: name a file that has it, passfile=FILE"
        );
        ensure!(
            !config.get_hosts().is_empty(),
            "the board's address has no host: postgres://HOST/DATABASE"
        );
        let own = || {
            User::from_uid(Uid::effective())
                .ok()
                .flatten()
                .map(|user| user.name)
        };
        let role = config.get_user().map(str::to_owned).or_else(own);
        let role =
            role.context("the board's address has no role, and this process's user has no name")?;
        let database = config.get_dbname().unwrap_or(&role).to_owned();
        let tls = tls(&config, &files)?;
        let hosts: Vec<_> = config.get_hosts().iter().map(host_name).collect();
        let shown = format!("postgres://{}/{database}", hosts.join(","));
        if let Some(path) = &files.passfile {
            let port = config.get_ports().first().copied().unwrap_or(5432);
            let wanted = [
                hosts[0].clone(),
                port.to_string(),
                database.clone(),
                role.clone(),
            ];
            config.password(password(path, &wanted)?);
        }
        config
            .user(&role)
            .dbname(&database)
            .options(SESSION)
            .application_name("colibri-mcpd")
            .ssl_mode(if tls.is_some() {
                SslMode::Require
            } else {
                SslMode::Disable
            })
            .connect_timeout(CONNECT)
            .tcp_user_timeout(Duration::from_secs(5))
            .keepalives_idle(Duration::from_secs(5));
        Ok(BoardAddress {
            config,
            tls,
            role,
            shown,
        })
    }
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

/// The TLS settings for these hosts; `None`: none of them is reached over a network.
fn tls(config: &Config, files: &AddressFiles) -> anyhow::Result<Option<ClientConfig>> {
    let is_near = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        }
    };
    if config
        .get_hosts()
        .iter()
        .all(|host| matches!(host, Host::Unix(_)))
    {
        return Ok(None);
    }
    if config.get_ssl_mode() == SslMode::Disable {
        ensure!(
            config.get_hosts().iter().all(is_near),
            "sslmode=disable is for a server on this host alone: over a network the board needs TLS, with sslrootcert=FILE"
        );
        return Ok(None);
    }
    let path = files.sslrootcert.as_deref().context(
        "the board's address has no sslrootcert=FILE: the certificate of the authority that signed the server's",
    )?;
    let named = |path: &Path| {
        format!(
            "{}: no certificate in PEM can be read from it",
            path.display()
        )
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).with_context(|| named(path))? {
        roots.add(certificate.with_context(|| named(path))?)?;
    }
    ensure!(!roots.is_empty(), named(path));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let tls = tls.with_root_certificates(roots);
    match (&files.sslcert, &files.sslkey) {
        (None, None) => Ok(Some(tls.with_no_client_auth())),
        (Some(certificate), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
                .with_context(|| named(certificate))?
                .collect();
            let chain = chain.with_context(|| named(certificate))?;
            let text = secret(key)?;
            let parsed = PrivateKeyDer::from_pem_slice(text.as_bytes());
            let parsed = parsed
                .with_context(|| format!("{}: no private key in PEM is in it", key.display()))?;
            let tls = tls.with_client_auth_cert(chain, parsed);
            Ok(Some(tls.with_context(|| {
                format!("{} and {} do not fit", certificate.display(), key.display())
            })?))
        }
        _ => bail!("sslcert and sslkey go together: the daemon's certificate, and its key"),
    }
}

/// Reads a file that is a secret.
fn secret(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("{}: cannot be read", path.display());
    let file = File::open(path).with_context(cannot)?;
    let metadata = file.metadata().with_context(cannot)?;
    ensure!(
        metadata.is_file(),
        "{}: is not a regular file",
        path.display()
    );
    let (mode, uid) = (metadata.mode() & 0o7777, metadata.uid());
    ensure!(
        mode & 0o077 == 0,
        "{}: others can read it (mode {mode:04o}): chmod 0600, and change what is in it",
        path.display()
    );
    ensure!(
        uid == 0 || uid == Uid::effective().as_raw(),
        "{}: belongs to uid {uid}: chown it to uid {}",
        path.display(),
        Uid::effective()
    );
    let mut text = String::new();
    file.take(MAX_PASSFILE)
        .read_to_string(&mut text)
        .with_context(cannot)?;
    Ok(text)
}

/// The password for host, port, database and role in a file as libpq has it:
/// `host:port:database:role:password` lines, `*` for any, a backslash before a colon or a backslash
/// in a field.
fn password(path: &Path, wanted: &[String; 4]) -> anyhow::Result<String> {
    let text = secret(path)?;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = vec![String::new()];
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                ':' if fields.len() < 5 => fields.push(String::new()),
                letter => {
                    let letter = if letter == '\\' {
                        letters.next()
                    } else {
                        Some(letter)
                    };
                    fields
                        .iter_mut()
                        .last()
                        .into_iter()
                        .for_each(|field| field.extend(letter));
                }
            }
        }
        let fits = |(field, wanted): (&String, &String)| field == "*" || field == wanted;
        if fields.len() == 5 && fields.iter().zip(wanted).all(fits) {
            return Ok(fields.swap_remove(4));
        }
    }
    let [host, port, database, role] = wanted;
    bail!(
        "{}: no line of it is for {host}:{port}:{database}:{role}: (host:port:database:role:password)",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    fn refusal(url: &str) -> String {
        format!("{:#}", BoardAddress::parse(url).unwrap_err())
    }

    #[test]
    fn a_socket_needs_nothing_more_and_a_network_a_certificate() {
        let near = BoardAddress::parse("postgres://%2Frun%2Fpostgresql/board").unwrap();
        assert!(near.tls.is_none());
        assert_eq!(near.shown, "postgres:///run/postgresql/board");
        assert!(refusal("postgres://db.example/board").contains("sslrootcert=FILE"));
        assert!(refusal("postgres://db.example/board?sslmode=disable").contains("over a network"));
        assert!(BoardAddress::parse("postgres://127.0.0.1/board?sslmode=disable").is_ok());
        assert!(refusal("mysql://db/board").contains("postgres://"));
        assert!(refusal("postgres://db/board?speed=9").contains("no URL of PostgreSQL"));
        let said = refusal("postgres://me:geheim@db/board");
        assert!(
            said.contains("passfile=FILE") && !said.contains("geheim"),
            "{said}"
        );
        assert!(refusal("postgres:///board").contains("no host"));
    }

    #[test]
    fn a_password_is_read_from_a_file_that_nobody_else_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pass");
        fs::write(
            &file,
            "# all\nother:*:*:*:no\n*:5433:bo\\:ard:me:a:b\\\\c\n",
        )
        .unwrap();
        let url = format!(
            "postgres://me@127.0.0.1:5433/bo:ard?sslmode=disable&passfile={}",
            file.display()
        );
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert!(refusal(&url).contains("others can read it (mode 0640): chmod 0600"));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let address = BoardAddress::parse(&url).unwrap();
        assert_eq!(address.config.get_password(), Some(&b"a:b\\c"[..]));
        assert!(!format!("{address:?}").contains("a:b"));
        assert!(
            refusal(&url.replace("5433", "5432"))
                .contains("no line of it is for 127.0.0.1:5432:bo:ard:me")
        );
        assert!(
            refusal(&url.replace("pass&", "&").replace("/pass", "/none"))
                .contains("none: cannot be read")
        );
    }
}
