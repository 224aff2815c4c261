//! The board on PostgreSQL, which several daemons share.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use colibri_tests::remote::Authority;
use colibri_tests::{Client, Daemon, LEGACY, Place, Postgres, text_of, wait_for};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use serde_json::{Value, json};

use super::agents::{registry, start, until, worker};
use super::tasks::{ok, refused};

/// The name of the account that runs the test, which is its role.
pub(super) fn own_name() -> String {
    User::from_uid(Uid::effective()).unwrap().unwrap().name
}

/// A server with a database `board` of the test's own role.
pub(super) fn board() -> Postgres {
    let postgres = Postgres::new();
    postgres.database("board", &own_name());
    postgres
}

/// A host's place, where the account that runs the test is the person `ann`.
pub(super) fn host() -> Place {
    let place = Place::new();
    registry(
        &place,
        json!({ "w": worker(&place, &["--as", "w", "--tool", "fix__echo"], json!({})) }),
    );
    let all = json!({
        "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true, "person": "ann"
    });
    place.clients(&json!({ "users": { Uid::effective().to_string(): all } }).to_string());
    place
}

/// The key of a place's trail.
pub(super) fn key(place: &Place) -> String {
    let path = place.path("state/trail.pub");
    if !path.exists() {
        place.start(&[]).stop();
    }
    fs::read_to_string(path).unwrap().trim().to_owned()
}

/// Has each of these hosts count for everybody at all of them.
pub(super) fn introduce(hosts: &[(&Place, &str)]) {
    let all: serde_json::Map<_, _> = hosts
        .iter()
        .map(|(place, name)| {
            (
                (*name).to_owned(),
                json!({ "key": key(place), "persons": ["*"] }),
            )
        })
        .collect();
    for (place, _) in hosts {
        place.hosts(&json!({ "hosts": all }).to_string());
    }
}

pub(super) fn serve<'a>(place: &'a Place, postgres: &Postgres, name: &str) -> Daemon<'a> {
    place.start(&["--write", "--host", name, "--board", &postgres.url("board")])
}

pub(super) fn joined<'a>(place: &'a Place, postgres: &Postgres, name: &str) -> Daemon<'a> {
    let daemon = serve(place, postgres, name);
    daemon.wait_for_log("the board is there");
    daemon
}

pub(super) fn create(client: &mut Client, title: &str) -> u64 {
    let new = json!({ "title": title, "description": "", "source": "test" });
    ok(client, "colibri_create_task", new)["task"]["id"]
        .as_u64()
        .unwrap()
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_database_outlives_the_servers_sudden_end_and_is_gone_with_the_test() {
    let mut postgres = Postgres::new();
    let place = postgres.socket().to_owned();
    postgres.database("board", "alice");
    postgres.sql("board", "CREATE TABLE t (a INT); INSERT INTO t VALUES (7)");
    assert_eq!(postgres.sql("board", "SHOW fsync"), ["on"]);
    assert!(
        postgres
            .try_sql("board", "SELECT * FROM u")
            .unwrap_err()
            .contains("does not exist")
    );
    postgres.signal(Signal::SIGKILL);
    assert!(postgres.try_sql("board", "SELECT a FROM t").is_err());
    postgres.start();
    assert_eq!(postgres.sql("board", "SELECT a FROM t"), ["7"]);
    drop(postgres);
    assert!(!place.exists());
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn what_a_person_creates_on_one_host_they_do_on_another_under_a_claim_that_is_in_force() {
    let postgres = board();
    let (one, two) = (host(), host());
    introduce(&[(&one, "one"), (&two, "two")]);
    let (here, there) = (
        joined(&one, &postgres, "one"),
        joined(&two, &postgres, "two"),
    );
    let (mut here_client, mut there_client) = (here.quiet(LEGACY), there.quiet(LEGACY));
    let id = create(&mut here_client, "Update the mirror");
    let claimed = ok(&mut there_client, "colibri_next_task", json!({}))["task"].take();
    assert_eq!((&claimed["id"], &claimed["claim"]), (&json!(id), &json!(1)));
    assert_eq!(
        ok(&mut here_client, "colibri_next_task", json!({}))["task"],
        Value::Null
    );
    // It comes back, and the first claim is worth nothing any more, on whichever host.
    let back = json!({ "task": id, "claim": 1, "reason": "later" });
    ok(&mut there_client, "colibri_release_task", back);
    let again = ok(&mut here_client, "colibri_next_task", json!({}))["task"].take();
    assert_eq!(again["claim"], 2);
    let old = json!({ "task": id, "claim": 1, "result": 1 });
    for client in [&mut here_client, &mut there_client] {
        let why = refused(client, "colibri_finish_task", old.clone());
        assert!(why.contains("claim 1") && why.contains("is over"), "{why}");
    }
    let done = json!({ "task": id, "claim": 2, "result": { "files": 3 } });
    ok(&mut there_client, "colibri_finish_task", done);
    let seen = ok(&mut here_client, "colibri_get_task", json!({ "task": id }));
    assert_eq!(
        (&seen["task"]["status"], &seen["result"]["files"]),
        (&json!("done"), &json!(3))
    );
    let steps = |place: &Place| {
        let task = |rec: &Value| rec["event"] == "task";
        place
            .trail()
            .into_iter()
            .filter(task)
            .map(|rec| rec["details"]["to"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(steps(&one), ["queued", "claimed"]);
    assert_eq!(steps(&two), ["claimed", "queued", "done"]);
    let hosts = postgres.sql(
        "board",
        "SELECT name, lease_until > colibri.now_ms() FROM colibri.hosts ORDER BY name",
    );
    assert_eq!(hosts, ["one|t", "two|t"]);
    there.stop();
    assert_eq!(
        postgres.sql(
            "board",
            "SELECT lease_until FROM colibri.hosts WHERE name = 'two'"
        ),
        ["0"],
        "who ends gives its lease back"
    );
    here.stop();
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn without_its_database_a_host_says_so_and_serves_all_else() {
    let mut postgres = board();
    let place = host();
    let daemon = joined(&place, &postgres, "one");
    let mut client = daemon.quiet(LEGACY);
    let id = create(&mut client, "before");
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        postgres.signal(signal);
        let why = wait_for("the board to be away", || {
            let result = client.call("colibri_list_tasks", json!({}));
            (result["isError"] == true).then(|| text_of(&result).to_owned())
        });
        assert!(why.contains("the board postgres:///"), "{why}");
        ok(&mut client, "fix__echo", json!({ "text": "still here" }));
        postgres.start();
        wait_for("the board to be back", || {
            let result = client.call("colibri_list_tasks", json!({}));
            (result["isError"] != true).then_some(())
        });
        assert_eq!(
            ok(&mut client, "colibri_get_task", json!({ "task": id }))["task"]["title"],
            "before"
        );
    }
    // One that is away when the daemon starts is no reason not to.
    daemon.stop();
    postgres.signal(Signal::SIGINT);
    let daemon = serve(&place, &postgres, "one");
    daemon.wait_for_log("is not used");
    let mut client = daemon.quiet(LEGACY);
    ok(&mut client, "fix__echo", json!({ "text": "still here" }));
    refused(&mut client, "colibri_next_task", json!({}));
    postgres.start();
    wait_for("the board to be there", || {
        let result = client.call("colibri_next_task", json!({}));
        (result["structuredContent"]["task"]["id"] == id).then_some(())
    });
    daemon.stop();
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_database_that_is_no_board_or_another_ones_is_left_alone_with_the_reason() {
    let postgres = board();
    let place = host();
    let says = |what: &str| {
        let daemon = serve(&place, &postgres, "one");
        daemon.wait_for_log(what);
        daemon.assert_serves("fix__echo");
        daemon.stop();
    };
    let own = own_name();
    postgres.sql(
        "board",
        "CREATE SCHEMA colibri; CREATE TABLE colibri.cats (a INT)",
    );
    says("has tables, but not Colibri's: give the board a database of its own");
    postgres.sql("board", "DROP SCHEMA colibri CASCADE");
    joined(&place, &postgres, "one").stop();
    postgres.sql("board", "INSERT INTO colibri.migrations VALUES (99)");
    says("is of a newer Colibri (version 99, this one knows 4): upgrade this host");
    postgres.sql("board", "DELETE FROM colibri.migrations WHERE version = 99");
    postgres.sql("board", "ALTER TABLE colibri.schedules RENAME TO away");
    says("is not whole (no column schedules.signature): restore it whole from a backup");
    postgres.sql("board", "ALTER TABLE colibri.away RENAME TO schedules");
    postgres.sql(
        "board",
        &format!("REVOKE UPDATE ON colibri.tasks FROM \"{own}\""),
    );
    says("has no right to UPDATE colibri.tasks: GRANT");
    postgres.sql(
        "board",
        &format!("GRANT UPDATE ON colibri.tasks TO \"{own}\""),
    );
    // A name that another key has, and a key that has another name.
    let other = host();
    let daemon = serve(&other, &postgres, "one");
    daemon.wait_for_log("the name one is another key's");
    daemon.stop();
    let daemon = serve(&place, &postgres, "two");
    daemon.wait_for_log("this host's key is the host one's already");
    daemon.stop();
    // A role that may not make what is missing.
    postgres.sql(
        "board",
        &format!(
            "DROP SCHEMA colibri CASCADE; ALTER DATABASE board OWNER TO {}",
            Postgres::ADMIN
        ),
    );
    says("may not make the board's tables: GRANT CREATE ON DATABASE");
    let url = postgres.url("nowhere");
    let daemon = place.start(&["--write", "--host", "one", "--board", &url]);
    daemon.wait_for_log("make it (createdb)");
    daemon.stop();
    // What is wrong with the address is said before anything is served.
    let (status, text) = place.refused(&["--allow-root", "--board", "postgres://db.example/board"]);
    assert!(
        status == Some(78) && text.contains("sslrootcert=FILE"),
        "{text}"
    );
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn over_a_network_a_host_shows_a_certificate_or_a_password_and_believes_its_authority_alone() {
    let mut postgres = Postgres::new();
    postgres.database("board", "ann");
    postgres.sql(
        "board",
        "CREATE ROLE bob LOGIN PASSWORD 'geheim' IN ROLE ann",
    );
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (certificate, key) = authority.certify("127.0.0.1");
    let hba = "hostssl board ann 127.0.0.1/32 cert\nhostssl board bob 127.0.0.1/32 scram-sha-256";
    let port = postgres.serve_tls([&certificate, &key, &authority.pem()], hba);
    let place = host();
    let put = |name: &str, text: &str, mode| {
        let path = place.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let ca = put("ca.pem", &authority.pem(), 0o644);
    let other_ca = put("other.pem", &stranger.pem(), 0o644);
    let (certificate, key) = authority.certify("ann");
    let (certificate, key) = (
        put("ann.crt", &certificate, 0o644),
        put("ann.key", &key, 0o600),
    );
    let says = |role: &str, query: &str, what: &str| {
        let url = format!("postgres://{role}@127.0.0.1:{port}/board?{query}");
        let daemon = place.start(&["--write", "--host", "one", "--board", &url]);
        daemon.wait_for_log(what);
        daemon.stop();
    };
    says(
        "ann",
        &format!("sslrootcert={ca}&sslcert={certificate}&sslkey={key}"),
        "the board is there",
    );
    says(
        "ann",
        &format!("sslrootcert={other_ca}&sslcert={certificate}&sslkey={key}"),
        "invalid peer certificate",
    );
    says(
        "ann",
        &format!("sslrootcert={ca}"),
        "let this role in from this host in pg_hba.conf",
    );
    let pass = put("pass", "*:*:board:bob:geheim\n", 0o600);
    says(
        "bob",
        &format!("sslrootcert={ca}&passfile={pass}"),
        "the board is there",
    );
    let wrong = put("wrong", "*:*:board:bob:falsch\n", 0o600);
    says(
        "bob",
        &format!("sslrootcert={ca}&passfile={wrong}"),
        "put the right password into the file of passfile",
    );
    let open = put("open", "*:*:board:bob:geheim\n", 0o644);
    let url = format!("postgres://bob@127.0.0.1:{port}/board?sslrootcert={ca}&passfile={open}");
    let (status, text) = place.refused(&["--allow-root", "--host", "one", "--board", &url]);
    assert!(
        status == Some(78) && text.contains("others can read it (mode 0644): chmod 0600"),
        "{text}"
    );
    assert!(!text.contains("geheim"), "{text}");
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_restore_ends_every_claim() {
    let postgres = board();
    let (one, two) = (host(), host());
    introduce(&[(&one, "one"), (&two, "two")]);
    let (here, there) = (
        joined(&one, &postgres, "one"),
        joined(&two, &postgres, "two"),
    );
    let mut client = here.quiet(LEGACY);
    let id = create(&mut client, "before the backup");
    let claimed = ok(&mut client, "colibri_next_task", json!({}))["task"].take();
    assert_eq!(claimed["claim"], 1);
    let epoch = || postgres.sql("board", "SELECT epoch FROM colibri.board");
    assert_eq!(epoch(), ["1"]);
    // The host's row is what it was some renewals ago.
    postgres.sql(
        "board",
        "UPDATE colibri.hosts SET beat = beat - 2 WHERE name = 'one'",
    );
    wait_for("the epoch to be raised", || {
        (epoch() == ["2"]).then_some(())
    });
    here.wait_for_log("it was restored to what it was before");
    there.wait_for_log("it was restored to what it was before");
    let done = json!({ "task": id, "claim": 1, "result": 1 });
    let why = wait_for("the board to be back", || {
        let result = client.call("colibri_finish_task", done.clone());
        assert_eq!(result["isError"], true, "{result}");
        let why = text_of(&result).to_owned();
        (!why.contains("cannot be used")).then_some(why)
    });
    assert!(why.contains("claim 1 of task 1 is over"), "{why}");
    let again = ok(&mut client, "colibri_next_task", json!({}))["task"].take();
    assert_eq!(
        (&again["id"], &again["claim"]),
        (&json!(id), &json!(1_000_002))
    );
    // What Colibri does not notice, its operator says.
    here.stop();
    postgres.sql("board", "UPDATE colibri.board SET incarnation = 'restored'");
    joined(&one, &postgres, "one").stop();
    assert_eq!(epoch(), ["3"]);
    there.stop();
}

/// A host whose agent has claimed task 1, and another; `join` starts their daemons, and `end` does
/// something to the first, after which the second gets the task.
pub(super) fn taken_over(
    join: impl for<'a> Fn(&'a Place, &Postgres, &str) -> Daemon<'a>,
    end: impl FnOnce(Daemon<'_>, &Place, &str),
) {
    let postgres = board();
    let (one, two) = (host(), host());
    introduce(&[(&one, "one"), (&two, "two")]);
    let first = join(&one, &postgres, "one");
    let second = join(&two, &postgres, "two");
    let session = start(&one, &["w", "{\"do\":\"hang\"}"]);
    until(&one, &session, "the agent to work", |seen| {
        seen["task_status"] == "started" || seen["state"] == "working"
    });
    let holder = || {
        postgres.sql(
            "board",
            "SELECT claimed_session FROM colibri.tasks WHERE id = 1",
        )
    };
    wait_for("the agent to have its task", || {
        (holder() == [format!("one:{session}")]).then_some(())
    });
    let mut client = second.quiet(LEGACY);
    assert_eq!(
        ok(&mut client, "colibri_next_task", json!({}))["task"],
        Value::Null
    );
    first.signal(Signal::SIGSTOP);
    let claimed = wait_for("its task to be another's", || {
        let task = ok(&mut client, "colibri_next_task", json!({}))["task"].take();
        (!task.is_null()).then_some(task)
    });
    assert_eq!((&claimed["id"], &claimed["claim"]), (&json!(1), &json!(2)));
    assert!(
        claimed["reason"]
            .as_str()
            .unwrap()
            .contains("lost its lease"),
        "{claimed}"
    );
    end(first, &one, &session);
    let done = json!({ "task": 1, "claim": 2, "result": "by two" });
    ok(&mut client, "colibri_finish_task", done);
    let row = postgres.sql("board", "SELECT status, claim, result FROM colibri.tasks");
    assert_eq!(row, ["done|2|\"by two\""]);
    second.stop();
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_host_that_stood_still_ends_its_agents_when_it_goes_on() {
    taken_over(joined, goes_on);
}

/// Has a host that stood still go on: it ends its agent.
pub(super) fn goes_on(first: Daemon<'_>, one: &Place, session: &str) {
    first.signal(Signal::SIGCONT);
    let seen = until(one, session, "the agent to be ended", |seen| {
        !seen["ended_at"].is_null()
    });
    assert!(
        seen["reason"].as_str().unwrap().contains("lost its lease"),
        "{seen}"
    );
    first.stop();
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_host_that_was_killed_is_followed_by_another() {
    taken_over(joined, |first, _, _| first.kill());
}
