//! Many hosts: notifications and what becomes of lost ones, wrong clocks, versions side by side,
//! and the program that checks what a campaign leaves.

use std::fs;
use std::process::Command;

use colibri_tests::fleet::{Cable, CableBreak, JOURNAL, faketime, wrong_clock};
use colibri_tests::{Client, Daemon, LEGACY, Place, Postgres, code_of, program, wait_for};
use serde_json::{Value, json};

use super::agents::{registry, worker};
use super::postgres::{
    board, create, goes_on, host, introduce, joined, own_name, serve, taken_over,
};
use super::tasks::{ok, refused};

/// A host that starts an agent for each task.
fn starter() -> Place {
    let place = host();
    let args = ["--as", "w", "--tool", "fix__echo", "--tasks", "1"];
    let user = nix::unistd::Uid::effective().to_string();
    let entry = worker(
        &place,
        &args,
        json!({ "autospawn": true, "users": [user], "tools": { "fix": { "allow": ["*"] } } }),
    );
    registry(&place, json!({ "w": entry }));
    place
}

fn status(client: &mut Client, task: u64) -> Value {
    ok(client, "colibri_get_task", json!({ "task": task }))["task"]["status"].take()
}

fn starting<'a>(place: &'a Place, url: &str) -> Daemon<'a> {
    let daemon = place.start(&["--write", "--autospawn", "--host", "two", "--board", url]);
    daemon.wait_for_log("the board is there");
    daemon
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_change_on_one_host_wakes_another_at_once() {
    let postgres = board();
    let (one, two) = (host(), starter());
    introduce(&[(&one, "one"), (&two, "two")]);
    let (here, there) = (
        joined(&one, &postgres, "one"),
        starting(&two, &postgres.url("board")),
    );
    let (mut client, mut other) = (here.quiet(LEGACY), there.quiet(LEGACY));
    let beat = || {
        postgres.sql("board", "SELECT beat FROM colibri.hosts WHERE name = 'two'")[0]
            .parse::<u64>()
            .unwrap()
    };
    // The end of an agent is a reason to look, too: two renewals of the lease later that is over.
    // By the look of every 30 s alone three tasks, one after the other, would take longer than is
    // waited for.
    let (mut tasks, mut quiet_at) = (Vec::new(), None);
    wait_for("three tasks, each created when all was quiet", || {
        let is_done = tasks
            .last()
            .is_none_or(|task| status(&mut client, *task) == "done");
        let mut agents = other.ask("colibri/agents", json!({}));
        let agents = agents["result"]["instances"].take();
        let mut agents = agents.as_array().unwrap().iter();
        if !is_done || agents.any(|agent| agent["ended_at"].is_null()) {
            return None;
        }
        if tasks.len() == 3 {
            return Some(());
        }
        let now = beat();
        if now >= *quiet_at.get_or_insert(now) + 2 {
            tasks.push(create(&mut client, "on the other host"));
            quiet_at = None;
        }
        None
    });
    here.stop();
    there.stop();
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn what_a_lost_notification_said_is_seen_at_the_next_look() {
    let postgres = board();
    let (one, two) = (host(), starter());
    introduce(&[(&one, "one"), (&two, "two")]);
    let cable = Cable::to(postgres.socket());
    let (here, there) = (
        joined(&one, &postgres, "one"),
        starting(&two, &cable.url("board")),
    );
    let mut client = here.quiet(LEGACY);
    cable.drop_notifications(true);
    let task = create(&mut client, "nobody is told");
    wait_for("the other host to look", || {
        (status(&mut client, task) == "done").then_some(())
    });
    assert!(
        cable.drops() > 0,
        "there was a notification, and it was lost"
    );
    here.stop();
    there.stop();
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_renewal_that_arrives_late_is_no_restore() {
    let postgres = board();
    let place = host();
    let daemon = joined(&place, &postgres, "one");
    let beat = |change: &str| {
        let sql = format!("UPDATE colibri.hosts SET beat = beat + {change} RETURNING beat");
        postgres.sql("board", &sql)[0].parse::<u64>().unwrap()
    };
    // One that was no longer waited for, and was made nevertheless.
    let late = beat("1");
    wait_for("two renewals", || (beat("0") >= late + 2).then_some(()));
    assert_eq!(
        postgres.sql("board", "SELECT epoch FROM colibri.board"),
        ["1"]
    );
    assert!(!daemon.log().contains("was restored"), "{}", daemon.log());
    daemon.stop();
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn a_snapshot_that_is_restored_below_a_daemon_at_work_ends_every_claim() {
    let mut postgres = board();
    let place = host();
    let daemon = joined(&place, &postgres, "one");
    let mut client = daemon.quiet(LEGACY);
    let task = create(&mut client, "before the snapshot");
    postgres.snapshot();
    let claimed = wait_for("the board to be back", || {
        let result = client.call("colibri_next_task", json!({}));
        (result["isError"] != true).then(|| result["structuredContent"]["task"].clone())
    });
    assert_eq!(
        (&claimed["id"], &claimed["claim"]),
        (&json!(task), &json!(1))
    );
    let beat = || {
        postgres.sql("board", "SELECT beat FROM colibri.hosts")[0]
            .parse::<u64>()
            .unwrap()
    };
    let before = beat();
    wait_for("a renewal", || (beat() > before + 1).then_some(()));
    postgres.snapshot();
    let epoch = || postgres.try_sql("board", "SELECT epoch FROM colibri.board");
    wait_for("the epoch to be raised", || {
        (epoch().ok()? == ["2"]).then_some(())
    });
    let again = wait_for("the board to be back", || {
        let result = client.call("colibri_next_task", json!({}));
        (result["isError"] != true).then(|| result["structuredContent"]["task"]["claim"].clone())
    });
    assert_eq!(again, 1_000_001, "no claim of before is in force");
    daemon.stop();
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn what_is_kept_for_an_instance_is_free_where_its_daemon_does_not_learn_that() {
    let postgres = board();
    let (place, cable) = (starter(), Cable::to(postgres.socket()));
    let daemon = place.start(&["--write", "--host", "one", "--board", &cable.url("board")]);
    daemon.wait_for_log("the board is there");
    let mut client = daemon.quiet(LEGACY);
    // Another COMMIT may be the one behind which the connection breaks.
    let task = wait_for("a reservation whose answer is lost", || {
        let created = client.call("colibri_create_task", json!({ "title": "for an instance" }));
        let task = created["structuredContent"]["task"]["id"].as_u64()?;
        let breaks = cable.breaks();
        cable.break_at(CableBreak::Commit);
        let answer = client.ask("colibri/spawn-agent", json!({ "agent": "w", "task": task }));
        (answer.get("error").is_some() && cable.breaks() > breaks).then_some(task)
    });
    let kept = format!("SELECT status, for_session IS NULL FROM colibri.tasks WHERE id = {task}");
    wait_for("nobody to have it", || {
        (postgres.sql("board", &kept) == ["queued|t"]).then_some(())
    });
    daemon.stop();
}

/// Starts a daemon whose clock is wrong: a day ahead on the host `two`, a day behind on every
/// other.
fn wrongly<'a>(place: &'a Place, postgres: &Postgres, name: &str) -> Daemon<'a> {
    let clock = place.path("clock");
    fs::write(&clock, if name == "two" { "+1d" } else { "-1d" }).unwrap();
    let environment = wrong_clock(&faketime().unwrap(), &clock);
    let environment: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let url = postgres.url("board");
    let flags = [
        "--external-call",
        "--write",
        "--host",
        name,
        "--board",
        &url,
    ];
    let daemon = place.start_in(&environment, &flags);
    daemon.wait_for_log("the board is there");
    daemon
}

#[test]
#[cfg_attr(
    not(all(postgres, faketime)),
    ignore = "needs PostgreSQL and libfaketime"
)]
fn claims_and_times_are_by_the_databases_clock_whatever_the_hosts_say() {
    let postgres = board();
    let (one, two) = (host(), host());
    let (behind, ahead) = (
        wrongly(&one, &postgres, "one"),
        wrongly(&two, &postgres, "two"),
    );
    let day = |place: &Place| place.trail()[0]["timestamp"].as_str().unwrap()[..10].to_owned();
    assert_ne!(day(&one), day(&two), "the clocks are wrong indeed");
    let (mut here, mut there) = (behind.quiet(LEGACY), ahead.quiet(LEGACY));
    for client in [&mut here, &mut there] {
        create(client, "of a day");
    }
    let claimed = ok(&mut here, "colibri_next_task", json!({}))["task"].take();
    let other = ok(&mut there, "colibri_next_task", json!({}))["task"].take();
    let right =
        "SELECT id, abs(created_at - colibri.now_ms()) < 3600000, lease_until - colibri.now_ms() BETWEEN 1 AND 900000
        FROM colibri.tasks ORDER BY id";
    assert_eq!(postgres.sql("board", right), ["1|t|t", "2|t|t"]);
    // Each host looks at the board again once something is finished: what the other's person has
    // stays theirs.
    for (client, task) in [(&mut here, &claimed), (&mut there, &other)] {
        let done = json!({ "task": task["id"], "claim": task["claim"], "result": 1 });
        ok(client, "colibri_finish_task", done);
    }
    let tasks = "SELECT status, claim, attempts FROM colibri.tasks";
    assert_eq!(postgres.sql("board", tasks), ["done|1|0", "done|1|0"]);
    behind.stop();
    ahead.stop();
}

#[test]
#[cfg_attr(
    not(all(postgres, faketime)),
    ignore = "needs PostgreSQL and libfaketime"
)]
fn a_host_whose_clock_is_wrong_takes_over_when_a_lease_is_over_and_not_before() {
    taken_over(wrongly, goes_on);
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn daemons_at_work_go_on_beside_a_newer_one_that_adds_to_their_schema() {
    let postgres = board();
    let (one, two, three) = (host(), host(), host());
    introduce(&[(&one, "one"), (&two, "two")]);
    let (here, there) = (
        joined(&one, &postgres, "one"),
        joined(&two, &postgres, "two"),
    );
    let (mut here_client, mut there_client) = (here.quiet(LEGACY), there.quiet(LEGACY));
    let before = create(&mut here_client, "of before");
    let claimed = ok(&mut there_client, "colibri_next_task", json!({}))["task"].take();
    assert_eq!(claimed["id"], before);
    // Statements that are prepared meet columns, tables and an index that they do not know.
    let migration = format!(
        "SET ROLE \"{}\"; SET search_path = colibri;
         ALTER TABLE tasks ADD COLUMN later TEXT, ADD COLUMN number BIGINT NOT NULL DEFAULT 7;
         ALTER TABLE hosts ADD COLUMN later TEXT NOT NULL DEFAULT 'new';
         CREATE TABLE later (id BIGINT PRIMARY KEY);
         CREATE INDEX tasks_later ON tasks (later, status);
         INSERT INTO migrations (version) SELECT max(version) + 1 FROM migrations",
        own_name()
    );
    postgres.sql("board", &migration);
    let done = json!({ "task": before, "claim": claimed["claim"], "result": 1 });
    ok(&mut here_client, "colibri_finish_task", done);
    for (one, other) in [(0, 1), (1, 0)] {
        let clients = [&mut here_client, &mut there_client];
        let task = create(clients[one], "of after");
        let claimed = ok(clients[other], "colibri_next_task", json!({}))["task"].take();
        assert_eq!(claimed["id"], task);
        let held = json!({ "task": task, "claim": claimed["claim"] });
        ok(clients[other], "colibri_start_task", held.clone());
        let mut done = held;
        done["result"] = json!("done");
        ok(clients[one], "colibri_finish_task", done);
        let seen = ok(clients[other], "colibri_get_task", json!({ "task": task }));
        assert_eq!(seen["task"]["status"], "done");
    }
    // The leases go on, too: three renewals.
    let beats = || {
        postgres.sql("board", "SELECT min(beat) FROM colibri.hosts")[0]
            .parse::<u64>()
            .unwrap()
    };
    let first = beats();
    wait_for("the leases to be renewed", || {
        (beats() >= first + 3).then_some(())
    });
    // One that starts, or connects anew, leaves the board alone, and says why.
    let late = serve(&three, &postgres, "three");
    late.wait_for_log("is of a newer Colibri");
    late.assert_serves("fix__echo");
    postgres.sql(
        "board",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'colibri-mcpd'",
    );
    here.wait_for_log("is of a newer Colibri");
    let why = refused(&mut here_client, "colibri_list_tasks", json!({}));
    assert!(why.contains("upgrade this host"), "{why}");
    let result = here_client.call("colibri_list_tasks", json!({}));
    assert_eq!(code_of(&result), Some("STORE_UNAVAILABLE"));
    here.assert_serves("fix__echo");
    assert_eq!(
        postgres.sql(
            "board",
            "SELECT count(*) FROM colibri.hosts WHERE name = 'three'"
        ),
        ["0"]
    );
    for daemon in [here, there, late] {
        daemon.stop();
    }
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn the_checker_names_a_lost_a_doubled_and_a_forged_task() {
    let postgres = board();
    let (one, two) = (host(), host());
    introduce(&[(&one, "one"), (&two, "two")]);
    let (here, there) = (
        joined(&one, &postgres, "one"),
        joined(&two, &postgres, "two"),
    );
    postgres.sql("board", JOURNAL);
    let (mut here_client, mut there_client) = (here.quiet(LEGACY), there.quiet(LEGACY));
    for _ in 0..6 {
        create(&mut here_client, "a task");
        let claimed = ok(&mut there_client, "colibri_next_task", json!({}))["task"].take();
        let done = json!({ "task": claimed["id"], "claim": claimed["claim"], "result": 1 });
        ok(&mut here_client, "colibri_finish_task", done);
    }
    let check = || {
        let mut command = Command::new(program("fleet-check"));
        command.arg(postgres.socket()).arg("board");
        let output = command
            .args([one.trail_directory(), two.trail_directory()])
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let (status, text) = check();
    assert!(
        status == Some(0) && text.contains("tasks: 6 done;"),
        "{text}"
    );
    let deeds = [
        // A row that is deleted; and one that is deleted so that the database knows nothing of it.
        "DELETE FROM colibri.tasks WHERE id = 1",
        "ALTER TABLE colibri.tasks DISABLE TRIGGER journal;
         DELETE FROM colibri.tasks WHERE id = 2; DELETE FROM journal.changes WHERE task = 2;
         ALTER TABLE colibri.tasks ENABLE TRIGGER journal",
        // A second result.
        "UPDATE colibri.tasks SET status = 'started', result = NULL WHERE id = 3;
         UPDATE colibri.tasks SET status = 'done', result = '2' WHERE id = 3",
        // A task that nobody created, and a result that nobody gave, the database's journal aside.
        "INSERT INTO colibri.tasks (id, title, description, source, status, required_capabilities, priority, created_by,
             created_at, updated_at) VALUES (77, 'forged', '', '', 'queued', '[]', 5, 1, 0, 0)",
        "UPDATE colibri.tasks SET status = 'done', result = '{}' WHERE id = 77",
        "ALTER TABLE colibri.tasks DISABLE TRIGGER journal;
         INSERT INTO colibri.tasks (id, title, description, source, status, required_capabilities, priority, created_by,
             created_at, updated_at) VALUES (78, 'forged', '', '', 'cancelled', '[]', 5, 1, 0, 0);
         ALTER TABLE colibri.tasks ENABLE TRIGGER journal",
    ];
    for deed in deeds {
        postgres.sql("board", deed);
    }
    let (status, text) = check();
    assert_eq!(status, Some(1), "{text}");
    for fault in [
        "lost: task 1: was done, and was deleted",
        "lost: task 2: a caller was told that it is done under claim 1, and the board never had that",
        "doubled: task 3: 2 results were accepted",
        "forged: task 77: came from \"\" to \"queued\" under claim 0 1 times, and the hosts recorded 0",
        "forged: task 77: came from \"queued\" to \"done\" under claim 0 1 times, and the hosts recorded 0",
        "forged: task 78: is on the board, and nobody put it there",
    ] {
        assert!(text.contains(fault), "{fault}:\n{text}");
    }
    for untouched in ["task 4:", "task 5:", "task 6:"] {
        assert!(!text.contains(untouched), "{text}");
    }
    here.stop();
    there.stop();
}
