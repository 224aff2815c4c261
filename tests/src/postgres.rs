//! A PostgreSQL of a test's own: an ordinary user's, on a socket in a temporary directory, with
//! every write on the disk.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User, chown};
use tempfile::TempDir;

use crate::wait_for;

/// The account that serves where the test is root, for which PostgreSQL does not run.
const ACCOUNT: &str = "nobody";
/// The lines of `pg_hba.conf` for the socket.
const AT_SOCKET: &str = "local all admin trust\nlocal all all peer\n";

/// Returns the directory of PostgreSQL's programs: the newest that is installed.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut places: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            Some((
                version.file_name().to_str()?.parse().ok()?,
                version.path().join("bin"),
            ))
        })
        .collect();
    places.push((0, PathBuf::from("/usr/local/bin")));
    places.retain(|(_, place)| place.join("initdb").exists() && place.join("postgres").exists());
    places.into_iter().max().map(|(_, place)| place)
}

/// A running PostgreSQL. Its end takes all of it away.
pub struct Postgres {
    directory: TempDir,
    programs: PathBuf,
    account: User,
    /// Its port on the loopback address, where it serves TLS.
    port: Option<u16>,
    server: Option<Child>,
}

impl Postgres {
    /// The role that owns the cluster. It is nobody's account, so that whoever runs the test is an
    /// ordinary role.
    pub const ADMIN: &str = "admin";

    /// Makes a cluster, and starts its server. Everybody who has a role of their account's name may
    /// come in at the socket; who comes over TCP needs TLS, and a password or a certificate.
    ///
    /// # Panics
    /// If there is none, or it does not start.
    #[expect(clippy::new_without_default, reason = "a server is started on purpose")]
    pub fn new() -> Postgres {
        let programs = programs().expect("PostgreSQL is installed");
        let own = Uid::effective();
        let account = match own.is_root() {
            true => User::from_name(ACCOUNT),
            false => User::from_uid(own),
        };
        let account = account
            .expect("the list of users")
            .expect("an account for PostgreSQL");
        let directory = tempfile::Builder::new().prefix("colibri-pg-").tempdir();
        let directory = directory.expect("a temporary directory");
        if own.is_root() {
            chown(directory.path(), Some(account.uid), Some(account.gid))
                .expect("the directory's owner");
        }
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))
            .expect("the directory's mode");
        let mut postgres = Postgres {
            directory,
            programs,
            account,
            port: None,
            server: None,
        };
        let mut initdb = postgres.program("initdb");
        initdb.args([
            "--auth=peer",
            "--username",
            Self::ADMIN,
            "--encoding=UTF8",
            "--locale=C",
            "-D",
        ]);
        let made = initdb.arg(postgres.data()).output().expect("initdb");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        fs::write(postgres.data().join("pg_hba.conf"), AT_SOCKET).expect("pg_hba.conf");
        postgres.start();
        postgres
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The directory of its socket.
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// One of PostgreSQL's programs, as the account that serves.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C");
        command.current_dir(self.directory.path());
        if let Some(port) = self.port {
            command.env("PGPORT", port.to_string());
        }
        if Uid::effective().is_root() {
            command
                .uid(self.account.uid.as_raw())
                .gid(self.account.gid.as_raw());
        }
        command
    }

    /// Starts its server on what is there.
    ///
    /// # Panics
    /// If it does not come to answer.
    pub fn start(&mut self) {
        let log = self.directory.path().join("log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let mut server = self.program("postgres");
        let listen = self
            .port
            .map_or("listen_addresses=", |_| "listen_addresses=127.0.0.1");
        server
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.socket())
            .args(["-c", listen, "-c", "fsync=on", "-c", "full_page_writes=on"])
            .args(["-c", "max_connections=80", "-c", "shared_buffers=64MB"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        self.server = Some(server.spawn().expect("postgres"));
        wait_for("PostgreSQL to answer", || {
            let mut asked = self.program("pg_isready");
            let answer = asked.arg("-q").arg("-h").arg(self.socket()).status();
            answer.ok()?.success().then_some(())
        });
    }

    /// Sends its server this signal. One that kills or ends it is waited for, with all processes
    /// that it has made.
    ///
    /// # Panics
    /// If there is none.
    pub fn signal(&mut self, signal: Signal) {
        let server = self.server.as_mut().expect("a server");
        kill(Pid::from_raw(server.id().cast_signed()), signal).expect("a signal to PostgreSQL");
        if matches!(signal, Signal::SIGSTOP | Signal::SIGCONT) {
            return;
        }
        server.wait().expect("PostgreSQL's end");
        self.server = None;
        // A server that was killed leaves its lock, and processes that notice it soon.
        wait_for("PostgreSQL's processes to end", || {
            self.workers().is_empty().then_some(())
        });
    }

    /// The processes that its server has made.
    fn workers(&self) -> Vec<i32> {
        let mark = self.directory.path().display().to_string();
        let all = crate::processes_with("postgres:")
            .into_iter()
            .map(|(pid, _)| pid);
        all.filter(|pid| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|at| at.starts_with(&mark))
        })
        .collect()
    }

    /// Has its server and all processes that it has made stand still, or go on.
    pub fn freeze(&self, stops: bool) {
        let signal = if stops {
            Signal::SIGSTOP
        } else {
            Signal::SIGCONT
        };
        let server = self.server.iter().map(|server| server.id().cast_signed());
        // The server first: it makes no further ones then.
        for pid in server.chain(self.workers()) {
            // It may have ended just now.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Stops its server, puts its files to what they were at the last call, if there was one, notes
    /// them if not, and starts it again: a file system's snapshot, and its restore.
    ///
    /// # Panics
    /// If they cannot be copied.
    pub fn snapshot(&mut self) {
        self.signal(Signal::SIGINT);
        let snapshot = self.directory.path().join("snapshot");
        let (from, to) = match snapshot.exists() {
            true => (snapshot, self.data()),
            false => (self.data(), snapshot),
        };
        let _ = fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
        assert!(
            copied.expect("cp can be started").success(),
            "the files are copied"
        );
        self.start();
    }

    /// Makes a database that belongs to a new role of this name.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn database(&self, name: &str, role: &str) {
        self.sql("postgres", &format!("CREATE ROLE \"{role}\" LOGIN"));
        self.sql(
            "postgres",
            &format!("CREATE DATABASE \"{name}\" OWNER \"{role}\""),
        );
    }

    /// Has it serve TLS on the loopback address: certificate, key and the authority of its clients
    /// as PEM, and the lines of `pg_hba.conf` for who comes in there. Returns its port.
    ///
    /// # Panics
    /// If it does not come to answer.
    pub fn serve_tls(&mut self, [certificate, key, authority]: [&str; 3], hba: &str) -> u16 {
        let put = |name: &str, text: &str| {
            let path = self.data().join(name);
            fs::write(&path, text).expect("a file of the server's");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
            chown(&path, Some(self.account.uid), Some(self.account.gid)).expect("its owner");
        };
        put("tls.crt", certificate);
        put("tls.key", key);
        put("tls.ca", authority);
        let conf = "ssl = on\nssl_cert_file = 'tls.crt'\nssl_key_file = 'tls.key'\nssl_ca_file = 'tls.ca'\n";
        put("postgresql.auto.conf", conf);
        put("pg_hba.conf", &format!("{AT_SOCKET}{hba}\n"));
        self.signal(Signal::SIGINT);
        let free =
            std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr());
        let port = free.expect("a free port").port();
        self.port = Some(port);
        self.start();
        port
    }

    /// The address of a database, for a client who comes to the socket.
    pub fn url(&self, database: &str) -> String {
        let socket = self.socket().display().to_string().replace('/', "%2F");
        format!("postgres://{socket}/{database}")
    }

    /// Runs SQL as [`Self::ADMIN`], and returns its rows, a line each, columns with `|` between
    /// them.
    ///
    /// # Panics
    /// If PostgreSQL refuses it.
    pub fn sql(&self, database: &str, sql: &str) -> Vec<String> {
        self.try_sql(database, sql)
            .expect("SQL that PostgreSQL takes")
    }

    /// The same.
    ///
    /// # Errors
    /// What PostgreSQL says against it.
    pub fn try_sql(&self, database: &str, sql: &str) -> Result<Vec<String>, String> {
        run_sql(self.socket(), self.port, database, sql)
    }
}

/// Runs SQL at this socket's directory as [`Postgres::ADMIN`], and returns its rows.
///
/// # Errors
/// What PostgreSQL, or `psql`, says against it.
pub fn run_sql(
    socket: &Path,
    port: Option<u16>,
    database: &str,
    sql: &str,
) -> Result<Vec<String>, String> {
    let mut psql = Command::new(
        programs()
            .ok_or("PostgreSQL is not installed")?
            .join("psql"),
    );
    psql.env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C");
    psql.args([
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-U",
        Postgres::ADMIN,
        "-h",
    ]);
    psql.arg(socket).args(["-d", database, "-c", sql]);
    if let Some(port) = port {
        psql.args(["-p", &port.to_string()]);
    }
    let said = psql.output().map_err(|error| format!("psql: {error}"))?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).into_owned());
    }
    let rows = String::from_utf8_lossy(&said.stdout);
    Ok(rows.lines().map(str::to_owned).collect())
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            let pid = Pid::from_raw(server.id().cast_signed());
            // One that stands still ends once it goes on. At once: its data go with it.
            let _ = kill(pid, Signal::SIGQUIT);
            self.freeze(false);
            if let Some(server) = &mut self.server {
                let _ = server.wait();
            }
        }
    }
}
