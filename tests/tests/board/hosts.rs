//! All hosts of a board are shown on each of them.

use colibri_tests::{LEGACY, Place, wait_for};

use super::agents::{start, until};
use super::postgres::{board, create, host, introduce, joined};

/// What the client says, on both outputs.
fn said(place: &Place, args: &[&str]) -> String {
    let output = place.colibri_mcp(args).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
#[cfg_attr(not(postgres), ignore = "needs PostgreSQL")]
fn tasks_and_agents_of_all_hosts_are_shown_and_the_road_to_them() {
    let postgres = board();
    let (one, two) = (host(), host());
    introduce(&[(&one, "one"), (&two, "two")]);
    let here = joined(&one, &postgres, "one");
    create(&mut here.quiet(LEGACY), "Update the mirror");
    let heading = |text: &str| text.lines().next().unwrap_or_default().to_ascii_lowercase();
    let alone = said(&one, &["tasks"]);
    assert!(alone.contains("Update the mirror"), "{alone}");
    assert!(
        !heading(&alone).contains("host"),
        "one host has no column: {alone}"
    );
    let there = joined(&two, &postgres, "two");
    let session = start(&one, &["w", "{\"do\":\"hang\"}"]);
    until(&one, &session, "the agent to work", |seen| {
        seen["task_status"] == "started" || seen["state"] == "working"
    });
    let listed = wait_for("the other host's agent to be shown", || {
        let listed = said(&two, &["agent", "list"]);
        listed.contains(&session).then_some(listed)
    });
    let row = listed.lines().find(|line| line.contains(&session)).unwrap();
    assert!(row.contains(" one ") && row.contains(" ann "), "{listed}");
    let tasks = wait_for("the host to be a column", || {
        let tasks = said(&two, &["tasks"]);
        heading(&tasks).contains("host").then_some(tasks)
    });
    let row = tasks
        .lines()
        .find(|line| line.contains("Update the mirror"))
        .unwrap();
    assert!(row.contains(" one "), "{tasks}");
    // By its first digits, too.
    for (command, id) in [
        ("log", &session[..]),
        ("log", &session[..6]),
        ("stop", &session[..]),
    ] {
        let text = said(&two, &["agent", command, id]);
        let road = format!("runs on the host one: ssh one colibri-mcp agent {command} {session}");
        assert!(text.contains(&road), "{text}");
    }
    let panes = said(&two, &["--json", "glasspane"]);
    assert!(panes.contains("colibri.glasspane.snapshot.v1"), "{panes}");
    assert!(
        !panes.contains(&session),
        "that form is of one host: {panes}"
    );
    let panes = said(&two, &["glasspane", "--once"]);
    let row = panes
        .lines()
        .find(|line| line.contains(&session[..8]))
        .unwrap();
    assert!(panes.contains("HOST") && row.contains(" one "), "{panes}");
    let page = two.path("page.html");
    said(&two, &["glasspane", "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&session) && page.contains("\"host\":\"one\""));
    let stopped = said(&one, &["agent", "stop", &session]);
    assert!(stopped.contains("has ended"), "{stopped}");
    wait_for("the instance to be shown no more", || {
        let listed = said(&two, &["agent", "list"]);
        (!listed.contains(&session)).then_some(())
    });
    here.stop();
    there.stop();
}
