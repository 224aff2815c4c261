//! Finding, making, checking and upgrading the database file.

use super::error::{RESTORE, StoreError};
use colibri_text::brief;
use nix::unistd::Uid;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::warn;

/// The file's name in the state directory.
const FILE: &str = "colibri.db";

/// SQLite's `application_id` ("COLI"): tells our file from another program's before anything is
/// written to it.
const APPLICATION_ID: i64 = 0x434F_4C49;

/// The most bytes of a file that is looked through for damage when it is opened: a larger one would
/// delay the start. What is damaged there is named by whatever reads it.
const MAX_CHECKED: u64 = 256 << 20;

/// The smallest page of SQLite, in bytes; a database has one at least.
const SMALLEST: u64 = 512;

/// The time for which a statement waits for another process (the operator's `sqlite3`, say) to
/// finish its transaction.
const BUSY: Duration = Duration::from_secs(5);

/// Schema changes, oldest first: entry `n` brings `user_version` from `n` to `n + 1`. An entry that
/// was released is never edited; a change is a new entry.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE tasks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL,
        description TEXT NOT NULL,
        source TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN
            ('intake', 'queued', 'claimed', 'started', 'done', 'failed', 'cancelled')),
        required_capabilities TEXT NOT NULL,
        priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
        created_by INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX tasks_by_status ON tasks (status, id);
    CREATE INDEX tasks_by_source ON tasks (source, id);
    CREATE TABLE settings (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT;
    CREATE TABLE catalogue (
        server TEXT PRIMARY KEY,
        digest TEXT NOT NULL,
        executable TEXT NOT NULL,
        protocol_version TEXT NOT NULL,
        capabilities BLOB,
        server_info BLOB,
        instructions BLOB,
        seen_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE catalogue_tools (
        server TEXT NOT NULL REFERENCES catalogue (server) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        definition BLOB NOT NULL,
        UNIQUE (server, position)
    ) STRICT;
",
    "
    -- Tools were all that was kept: a server is asked again for the rest.
    DELETE FROM catalogue;
    DROP TABLE catalogue_tools;
    CREATE TABLE catalogue_definitions (
        server TEXT NOT NULL REFERENCES catalogue (server) ON DELETE CASCADE,
        feature TEXT NOT NULL,
        position INTEGER NOT NULL,
        definition BLOB NOT NULL,
        UNIQUE (server, feature, position)
    ) STRICT;
",
    "ALTER TABLE catalogue ADD COLUMN asks INTEGER NOT NULL DEFAULT 0;",
    "
    ALTER TABLE tasks ADD COLUMN claim INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE tasks ADD COLUMN claimed_by INTEGER;
    ALTER TABLE tasks ADD COLUMN claimed_session TEXT;
    ALTER TABLE tasks ADD COLUMN lease_until INTEGER;
    ALTER TABLE tasks ADD COLUMN for_session TEXT;
    ALTER TABLE tasks ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE tasks ADD COLUMN result TEXT;
    ALTER TABLE tasks ADD COLUMN reason TEXT;
    ALTER TABLE tasks ADD COLUMN started_at INTEGER;
    ALTER TABLE tasks ADD COLUMN ended_at INTEGER;
    CREATE INDEX tasks_to_take ON tasks (status, priority DESC, id);
    CREATE TABLE schedules (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        timing TEXT NOT NULL,
        work TEXT NOT NULL,
        created_by INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        next_at INTEGER,
        last_at INTEGER,
        last_task INTEGER,
        last_outcome TEXT,
        runs INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX schedules_due ON schedules (next_at);
",
    "
    CREATE TABLE model_tokens (
        day INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        agent TEXT NOT NULL,
        tokens_in INTEGER NOT NULL,
        tokens_out INTEGER NOT NULL,
        requests INTEGER NOT NULL,
        PRIMARY KEY (day, uid, agent)
    ) STRICT;
",
    "
    CREATE TABLE summaries (
        key TEXT NOT NULL,
        pin TEXT NOT NULL,
        text TEXT NOT NULL,
        model TEXT NOT NULL,
        made_at INTEGER NOT NULL,
        PRIMARY KEY (key, pin)
    ) STRICT;
    CREATE INDEX summaries_by_age ON summaries (made_at);
    CREATE TABLE summary_calls (
        server TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT;
",
    "
    -- The one setting was a cost mode for all, which held nothing back: nobody is to be held back by it now.
    DROP TABLE settings;
    CREATE TABLE cost (
        uid INTEGER PRIMARY KEY,
        mode TEXT,
        day INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    ) STRICT;
",
    "
    -- What agents' models cost stands there too.
    CREATE TABLE ledger (
        day INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        agent TEXT NOT NULL,
        server TEXT NOT NULL,
        method TEXT NOT NULL,
        tool TEXT NOT NULL,
        calls INTEGER NOT NULL,
        errors INTEGER NOT NULL,
        bytes_in INTEGER NOT NULL,
        bytes_out INTEGER NOT NULL,
        microseconds INTEGER NOT NULL,
        lists INTEGER NOT NULL,
        listed_bytes INTEGER NOT NULL,
        model_requests INTEGER NOT NULL,
        tokens_in INTEGER NOT NULL,
        tokens_out INTEGER NOT NULL,
        PRIMARY KEY (day, uid, agent, server, method, tool)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO ledger SELECT day, uid, agent, '', 'model', '', 0, 0, 0, 0, 0, 0, 0, requests, tokens_in, tokens_out
        FROM model_tokens;
    DROP TABLE model_tokens;
",
    "
    -- What was spent on the day before its mode was chosen, and when that was.
    ALTER TABLE cost ADD COLUMN chosen_at INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE cost ADD COLUMN bytes_before INTEGER NOT NULL DEFAULT 0;
",
    "
    -- With whom a task is shared: -1 with all, else the gid of a group.
    ALTER TABLE tasks ADD COLUMN share INTEGER;
",
    "CREATE INDEX tasks_of ON tasks (created_by, status);",
    "
    -- Clients by their own account, tasks (0: none) and models; of the tokens read those from and to a provider's cache.
    CREATE TABLE costs (
        day INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        agent TEXT NOT NULL,
        client TEXT NOT NULL,
        task INTEGER NOT NULL,
        model TEXT NOT NULL,
        server TEXT NOT NULL,
        method TEXT NOT NULL,
        tool TEXT NOT NULL,
        calls INTEGER NOT NULL,
        errors INTEGER NOT NULL,
        bytes_in INTEGER NOT NULL,
        bytes_out INTEGER NOT NULL,
        microseconds INTEGER NOT NULL,
        lists INTEGER NOT NULL,
        listed_bytes INTEGER NOT NULL,
        model_requests INTEGER NOT NULL,
        tokens_in INTEGER NOT NULL,
        tokens_out INTEGER NOT NULL,
        tokens_cached INTEGER NOT NULL,
        tokens_cache_write INTEGER NOT NULL,
        PRIMARY KEY (day, uid, agent, client, task, model, server, method, tool)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO costs SELECT day, uid, agent, '', 0, '', server, method, tool, calls, errors, bytes_in, bytes_out,
        microseconds, lists, listed_bytes, model_requests, tokens_in, tokens_out, 0, 0 FROM ledger;
    DROP TABLE ledger;
    ALTER TABLE costs RENAME TO ledger;
",
    "
    -- What may be changed in a task's name, as JSON; whether a person's own command made it, which is not known of those
    -- that are there; whether its maker had read something untrusted.
    ALTER TABLE tasks ADD COLUMN may TEXT;
    ALTER TABLE tasks ADD COLUMN by_person INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE tasks ADD COLUMN tainted INTEGER NOT NULL DEFAULT 0;
",
    "
    -- A claim finds its task by one of these at once, however many there are.
    CREATE INDEX tasks_waiting ON tasks (created_by, priority DESC, id) WHERE status = 'queued';
    CREATE INDEX tasks_shared ON tasks (share) WHERE share IS NOT NULL AND status = 'queued';
    CREATE INDEX tasks_kept ON tasks (for_session) WHERE for_session IS NOT NULL;
    CREATE INDEX tasks_held ON tasks (claimed_session) WHERE status IN ('claimed', 'started');
    DROP INDEX tasks_to_take;
",
];

/// Makes the state directory and the file where they are missing, and refuses those that others
/// could have prepared. Returns the file's path with all symbolic links of the directory resolved.
pub(super) fn prepare(state_dir: &Path) -> Result<PathBuf, StoreError> {
    let here = |why: String| StoreError::File {
        path: state_dir.to_owned(),
        why,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(|e| here(format!("cannot make the state directory: {e}")))?;
    let directory = state_dir
        .canonicalize()
        .map_err(|e| here(format!("cannot resolve the state directory: {e}")))?;
    let metadata = directory
        .metadata()
        .map_err(|e| here(format!("cannot read the state directory: {e}")))?;
    if !ours(metadata.uid()) {
        return Err(here(format!(
            "the state directory belongs to uid {}, this program runs as uid {}: chown it, or choose another \
             --state-dir",
            metadata.uid(),
            Uid::effective()
        )));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(here(format!(
            "others may write the state directory (mode {:04o}): chmod 0700",
            metadata.mode() & 0o7777
        )));
    }
    let path = directory.join(FILE);
    secure(&path)?;
    Ok(path)
}

/// Makes the file with mode 0600, or takes the permissions of group and others from an existing one
/// of ours. SQLite gives its `-wal` and `-shm` files the mode of the database.
///
/// An existing file is looked at but never opened: closing a descriptor of it would drop the locks
/// that SQLite holds on it in this process (sqlite.org, "How To Corrupt An SQLite Database File",
/// 2.2). Nobody else can swap it in between, since [`prepare`] has seen that nobody else may write
/// the directory.
fn secure(path: &Path) -> Result<(), StoreError> {
    let here = |why: String| StoreError::File {
        path: path.to_owned(),
        why,
    };
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(here(format!("cannot make: {e}"))),
    }
    let metadata = path
        .symlink_metadata()
        .map_err(|e| here(format!("cannot read: {e}")))?;
    if !metadata.is_file() {
        return Err(here("is not a regular file: remove it".to_owned()));
    }
    if !ours(metadata.uid()) {
        return Err(here(format!(
            "belongs to uid {}: chown it to uid {}",
            metadata.uid(),
            Uid::effective()
        )));
    }
    if metadata.len() == 0 {
        warn!(
            "{} is empty, as a power failure may leave it: going on with an empty store. Tasks, schedules and costs are gone; \
             to have them back stop the daemon and put a backup there",
            path.display()
        );
    }
    // To SQLite such a file is an empty database.
    if (1..SMALLEST).contains(&metadata.len()) {
        return Err(here(format!(
            "is damaged ({} bytes are left): {RESTORE}",
            metadata.len()
        )));
    }
    if metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(|e| here(format!("cannot chmod 0600: {e}")))?;
    }
    Ok(())
}

/// True if a file of this owner can be trusted: our own, or root's.
fn ours(uid: u32) -> bool {
    uid == Uid::effective().as_raw() || uid == 0
}

/// Opens the file that [`prepare`] made, checks whose it is, and brings its schema up to date.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    connect_with(path, MIGRATIONS)
}

fn connect_with(path: &Path, migrations: &[&str]) -> Result<Connection, StoreError> {
    let sqlite = |error| StoreError::Sqlite {
        path: path.to_owned(),
        error,
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(BUSY).map_err(sqlite)?;
    // Before anything that writes: a foreign or newer file must stay exactly as it is.
    check(&connection, path, migrations.len() as i64)?;
    find_damage(&connection, path)?;
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(sqlite)?;
    if mode != "wal" {
        return Err(StoreError::File {
            path: path.to_owned(),
            why: format!(
                "the file system cannot hold a write-ahead log (journal mode stays {mode}): put the state directory \
                 on a local disk"
            ),
        });
    }
    for (pragma, value) in [
        ("synchronous", "FULL"),
        ("foreign_keys", "ON"),
        ("trusted_schema", "OFF"),
        // What a large transaction has made of the log is given back after it.
        ("journal_size_limit", "1048576"),
    ] {
        connection
            .pragma_update(None, pragma, value)
            .map_err(sqlite)?;
    }
    migrate(&mut connection, path, migrations)?;
    Ok(connection)
}

/// The file's schema number; an error if the file is not ours or newer than the `known` one.
fn check(connection: &Connection, path: &Path, known: i64) -> Result<i64, StoreError> {
    let sqlite = |error| StoreError::Sqlite {
        path: path.to_owned(),
        error,
    };
    let number = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .map_err(sqlite)
    };
    let found = number("PRAGMA user_version")?;
    let application = number("PRAGMA application_id")?;
    let fresh =
        application == 0 && found == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0;
    if application != APPLICATION_ID && !fresh {
        return Err(StoreError::Foreign {
            path: path.to_owned(),
        });
    }
    if found > known {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found,
            known,
        });
    }
    Ok(found)
}

/// Looks through the file for pages that cannot be what was written, as a power failure or a
/// failing disk leaves them.
fn find_damage(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let sqlite = |error| StoreError::Sqlite {
        path: path.to_owned(),
        error,
    };
    let length = |path: &Path| path.metadata().map_or(0, |file| file.len());
    let size = length(path);
    let page = connection.query_row("PRAGMA page_size", [], |row| row.get::<_, u32>(0));
    // SQLite takes what is missing of a page for zeros. A page that the log has may be half written
    // here.
    let is_cut =
        size % u64::from(page.map_err(sqlite)?) != 0 && length(&path.with_extension("db-wal")) == 0;
    let found = match () {
        () if is_cut => "its last page is cut off".to_owned(),
        () if size > MAX_CHECKED => return Ok(()),
        () => connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(sqlite)?,
    };
    if found == "ok" {
        return Ok(());
    }
    Err(StoreError::File {
        path: path.to_owned(),
        why: format!("is damaged ({}): {RESTORE}", brief(&found, 200)),
    })
}

/// Runs the migrations that the file lacks, in one transaction with the new number: all of it
/// happens, or none.
fn migrate(
    connection: &mut Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<(), StoreError> {
    let newest = migrations.len() as i64;
    let sqlite = |error| StoreError::Sqlite {
        path: path.to_owned(),
        error,
    };
    // Asked again under the write lock: another process may have been migrating since the first
    // look.
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(sqlite)?;
    let found = check(&transaction, path, newest)?;
    for (number, sql) in (0..).zip(migrations) {
        if number >= found {
            transaction.execute_batch(sql).map_err(sqlite)?;
        }
    }
    if found < newest {
        transaction
            .pragma_update(None, "application_id", APPLICATION_ID)
            .map_err(sqlite)?;
        transaction
            .pragma_update(None, "user_version", newest)
            .map_err(sqlite)?;
    }
    transaction.commit().map_err(sqlite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CatalogueKey, Database, UserDay};
    use colibri_api::CostDay;
    use std::os::unix::fs::symlink;

    const COST: UserDay = UserDay {
        uid: 1,
        mode: None,
        chosen_at: 0,
        before: 0,
        day: CostDay(1),
        bytes: 1,
    };

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn makes_directory_and_files_for_the_owner_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let state = temporary.path().join("a/state");
        let store = Database::open(&state).unwrap();
        store.keep_costs(&[COST]).unwrap();
        assert_eq!(mode(&state), 0o700);
        for name in ["colibri.db", "colibri.db-wal", "colibri.db-shm"] {
            assert_eq!(mode(&state.join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn takes_permissions_from_a_file_that_had_too_many() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join(FILE);
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        Database::open(temporary.path()).unwrap();
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn refuses_what_others_could_have_prepared() {
        let temporary = tempfile::tempdir().unwrap();
        let refused = |wanted: &str| {
            let why = Database::open(temporary.path()).unwrap_err().to_string();
            assert!(why.contains(wanted), "{why}");
        };
        std::fs::set_permissions(temporary.path(), Permissions::from_mode(0o770)).unwrap();
        refused("mode 0770");
        std::fs::set_permissions(temporary.path(), Permissions::from_mode(0o700)).unwrap();

        let file = temporary.path().join(FILE);
        symlink("/etc/passwd", &file).unwrap();
        refused("not a regular file");
        std::fs::remove_file(&file).unwrap();

        std::fs::create_dir(&file).unwrap();
        refused("not a regular file");
        std::fs::remove_dir(&file).unwrap();

        nix::unistd::mkfifo(
            &file,
            nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR,
        )
        .unwrap();
        refused("not a regular file");
    }

    #[test]
    fn refuses_what_is_no_database_and_leaves_it_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join(FILE);
        std::fs::write(&file, "notes of somebody\n".repeat(100)).unwrap();
        let why = Database::open(temporary.path()).unwrap_err().to_string();
        assert!(why.contains("not a database"), "{why}");
        assert_eq!(
            std::fs::read(&file).unwrap(),
            "notes of somebody\n".repeat(100).into_bytes()
        );
    }

    #[test]
    fn refuses_another_programs_database() {
        let temporary = tempfile::tempdir().unwrap();
        let other = Connection::open(temporary.path().join(FILE)).unwrap();
        other
            .execute_batch("CREATE TABLE mail (body TEXT)")
            .unwrap();
        drop(other);
        assert!(matches!(
            Database::open(temporary.path()),
            Err(StoreError::Foreign { .. })
        ));
    }

    #[test]
    fn refuses_a_newer_schema_and_says_what_to_do() {
        let temporary = tempfile::tempdir().unwrap();
        drop(Database::open(temporary.path()).unwrap());
        let file = Connection::open(temporary.path().join(FILE)).unwrap();
        file.pragma_update(None, "user_version", MIGRATIONS.len() as i64 + 1)
            .unwrap();
        drop(file);
        let error = Database::open(temporary.path()).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found, known, .. } if found == known + 1));
        assert!(error.to_string().contains("newer Colibri"));
    }

    #[test]
    fn brings_an_older_schema_up_to_date_whole_or_not_at_all() {
        let temporary = tempfile::tempdir().unwrap();
        Database::open(temporary.path())
            .unwrap()
            .keep_costs(&[COST])
            .unwrap();
        let path = temporary.path().join(FILE);
        let version = |c: &Connection| {
            c.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))
                .unwrap()
        };

        let add = "ALTER TABLE cost ADD COLUMN note TEXT";
        let broken = [MIGRATIONS, &[add, "ALTER TABLE nothing ADD COLUMN x"]].concat();
        assert!(matches!(
            connect_with(&path, &broken),
            Err(StoreError::Sqlite { .. })
        ));
        let error = connect_with(&path, &broken).err().unwrap();
        let message = error.to_string();
        assert_eq!(
            format!("{:#}", anyhow::Error::from(error)),
            message,
            "the cause once"
        );
        let old = connect(&path).unwrap();
        assert_eq!(version(&old), MIGRATIONS.len() as i64);
        assert!(old.prepare("SELECT note FROM cost").is_err());
        drop(old);

        for _ in 0..2 {
            let newer = connect_with(&path, &[MIGRATIONS, &[add]].concat()).unwrap();
            assert_eq!(version(&newer), MIGRATIONS.len() as i64 + 1);
            let kept: u32 = newer
                .query_row("SELECT bytes FROM cost WHERE note IS NULL", [], |row| {
                    row.get(0)
                })
                .unwrap();
            assert_eq!(kept, 1);
        }
        let newer = Database::open(temporary.path());
        assert!(matches!(newer, Err(StoreError::Newer { found, known, .. }) if found == known + 1));
    }

    #[test]
    fn what_was_kept_of_tools_alone_is_asked_for_again() {
        let temporary = tempfile::tempdir().unwrap();
        let path = prepare(temporary.path()).unwrap();
        let old = connect_with(&path, &MIGRATIONS[..1]).unwrap();
        let kept =
            "INSERT INTO catalogue VALUES ('s', 'd', 'e', '2025-11-25', NULL, NULL, NULL, 1);
            INSERT INTO catalogue_tools VALUES ('s', 0, x'7b7d');
            INSERT INTO settings VALUES ('cost_mode', 'max')";
        old.execute_batch(kept).unwrap();
        drop(old);
        let store = Database::open(temporary.path()).unwrap();
        let key = CatalogueKey {
            server: "s",
            digest: "d",
            executable: "e",
        };
        assert_eq!(store.catalogue(key).unwrap(), None);
        assert_eq!(
            store.costs().unwrap(),
            [],
            "a mode for all that held nothing back"
        );
    }

    #[test]
    fn opens_again_what_it_made_and_what_two_made_at_once() {
        let temporary = tempfile::tempdir().unwrap();
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    Database::open(temporary.path()).unwrap();
                });
            }
        });
        let store = Database::open(temporary.path()).unwrap();
        assert_eq!(store.costs().unwrap(), []);
    }
}
