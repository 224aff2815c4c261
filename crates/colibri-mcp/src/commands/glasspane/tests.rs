use std::sync::mpsc::Receiver;

use serde_json::{Value, json};

use super::super::screen::{as_text, buffer_of, is_coloured};
use super::*;

/// A hostile text, as an agent or a server can make names and texts of.
const EVIL: &str = "\u{1b}[2J\u{202e}evil\u{9b}31m\u{7}";

fn instance(number: usize) -> Value {
    let (state, ended) = match number % 5 {
        0 => ("working", Value::Null),
        1 => ("blocked", Value::Null),
        2 => ("idle", Value::Null),
        3 => ("done", json!(990_000)),
        _ => ("error", json!(990_000)),
    };
    json!({ "id": format!("{number:016x}"), "agent": "coder", "uid": 0, "task": 10 + number, "state": state,
        "stalled": number % 5 == 2, "attention": matches!(number % 5, 1 | 2 | 4),
        "reason": (state == "error").then(|| format!("budget {EVIL}")), "session_id": EVIL, "started_at": 700_000,
        "ended_at": ended, "exit": ended.as_u64().map(|_| "exit status 0"), "last_event_at": 995_000, "events": 7,
        "skipped_lines": 2, "calls": 34, "approvals": u8::from(state == "blocked"), "bytes": 12_345,
        "tokens_in": 120_000, "tokens_out": 800,
        "jail": if number.is_multiple_of(2) { format!("colibri-{number:016x}") } else { format!("jail{EVIL}") },
        "cwd": format!("/work/{EVIL}") })
}

/// So many instances, with a call of the first one and a call that is no agent's; `operator` sees
/// those.
fn seen(count: usize, operator: bool) -> GlasspaneState {
    let agents = json!({ "agents": [
        { "agent": "coder", "capabilities": ["rust", EVIL], "max": 2, "running": 1, "jailed": true, "model": true,
          "autospawn": true, "refusal": null },
        { "agent": "writer", "capabilities": [], "max": 1, "running": 0, "jailed": false, "model": false,
          "autospawn": false, "refusal": format!("the write gate is closed {EVIL}") } ],
        "instances": (0..count).map(instance).collect::<Vec<_>>() });
    let row = |n: u64, more: Value| {
        let mut row = json!({ "n": n, "kind": "enter", "timestamp": "2026-11-23T01:02:03.000004Z", "uid": 0,
            "server": "git", "tool": "log\u{7}", "method": "tools/call", "result": null, "error_code": null,
            "event": null });
        row.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        row
    };
    let tail = [
        row(
            1,
            json!({ "agent": "coder", "session": format!("{:016x}", 0), "for": 0, "client": "codex" }),
        ),
        row(2, json!({ "server": "secret" })),
        row(
            3,
            json!({ "kind": "exit", "enter": 1, "result": "FAIL", "error_code": "TOOL_ERROR", "latency_ms": 1.25 }),
        ),
    ];
    let overview = json!({ "version": "1", "time": 1_000_000, "uptime_s": 1, "write_gate": false,
        "external_gate": true, "clients": 1, "in_flight": 0, "resident": null, "registry_error": null, "servers": [],
        "approvals": [{ "id": "1", "uid": 0, "server": "git", "tool": "push", "rule": "r", "expires": 1 }],
        "trail": { "records": 3, "witnessed": 3, "failing": null, "tail": [], "agents": tail } });
    let servers = json!([
        { "id": "git", "transport": "jail", "state": "ready", "since": 0, "tools": 1,
          "jail": { "name": "ephemeral", "network": "none" },
          "processes": [{ "pid": 7, "jail": "colibri-00000000000000ff", "jid": 4, "unbounded": true }] },
        { "id": "secret", "transport": "host", "state": "ready", "since": 0, "tools": 1 } ]);
    let event = |n: u64| {
        json!({ "id": format!("{:016x}", 0), "n": n, "at": 1, "state": "working",
            "event": { "type": "assistant", "text": EVIL, "call": { "name": "Bash", "input": {} } } })
    };
    GlasspaneState {
        time: 1_000_000,
        agents: serde_json::from_value(agents).unwrap(),
        servers: serde_json::from_value(servers).unwrap(),
        overview: operator.then(|| serde_json::from_value(overview).unwrap()),
        events: Some((
            format!("{:016x}", 0),
            (1..=7)
                .map(|n| serde_json::from_value(event(n)).unwrap())
                .collect(),
        )),
    }
}

fn pane(count: usize) -> (GlasspaneScreen, Receiver<FeedOrder>) {
    let (orders, ordered) = channel();
    let mut pane = GlasspaneScreen {
        model: GlasspaneModel::default(),
        view: GlasspaneView::new(false, true),
        servers: ServersPane::new(false),
        shows_servers: false,
        orders,
    };
    pane.update(FeedEvent::Seen(Box::new(seen(count, true))));
    (pane, ordered)
}

fn screen(pane: &mut GlasspaneScreen, width: u16, height: u16) -> String {
    let buffer = buffer_of(width, height, |area, buffer| pane.draw(area, buffer));
    let text = as_text(&buffer, buffer.area);
    assert!(
        !text
            .chars()
            .any(|c| c.is_control() && c != '\n' || c == '\u{202e}'),
        "{text}"
    );
    text
}

fn press(pane: &mut GlasspaneScreen, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '<' => KeyCode::BackTab,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        assert!(pane.press(code).is_continue(), "{key:?} ended it");
    }
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?}:\n{text}");
    }
}

#[test]
fn everything_has_its_place_at_80_by_24_and_at_120_by_40() {
    for (width, height) in [(80, 24), (120, 40)] {
        let (mut pane, _orders) = pane(5);
        press(&mut pane, "j");
        screen(&mut pane, width, height);
        press(&mut pane, "j");
        let text = screen(&mut pane, width, height);
        has(
            &text,
            &[
                "agents: 3 running, 2 ended; attention: 3",
                "APPROVALS WAITING: 1",
                "AGENT",
                "STATE",
                "TOKENS",
                "WHERE",
                ">  coder 00000000",
                "working",
                " ! coder 00000000",
                "blocked",
                "stalled",
                "120 k",
                "5 s",
                "own jail",
                "SERVERS BEHIND THEM",
                "git               ready        jail ephemeral, network none, unbounded mount",
                "CALLS OF coder 00000000 (UTC)",
                "01:02:03       1 enter  coder     codex   git log\\u{7}",
                "3 exit   coder     -       git log\\u{7} FAIL TOOL_ERROR  1.2 ms",
            ]
            .map(|part| {
                if width == 80 {
                    part.trim_end_matches(": colibri-00000000000000ff")
                } else {
                    part
                }
            }),
        );
        assert!(
            !text.contains("secret"),
            "a call of nobody's agent:\n{text}"
        );
        assert!(
            text.lines()
                .last()
                .unwrap()
                .starts_with("q quit  r refresh  s spawn  x stop"),
            "{text}"
        );
        // The columns of numbers end where their names do.
        let end = |row: &str, what: &str| {
            row.find(what)
                .map(|at| row[..at].chars().count() + what.len())
        };
        let row = |what: &str| {
            text.lines()
                .find(|row| row.contains(what))
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            end(&row("TOKENS"), "TOKENS"),
            end(&row(">  coder"), "120 k"),
            "{text}"
        );
    }
}

#[test]
fn nothing_and_a_great_many_and_no_room_are_no_trouble() {
    for (width, height) in [(80, 24), (120, 40), (40, 10), (20, 4), (1, 1), (300, 100)] {
        for count in [0, 100] {
            let (mut pane, _orders) = pane(count);
            for keys in ["", "kk", "\n?", "qs", "jj"] {
                press(&mut pane, keys);
                screen(&mut pane, width, height);
            }
        }
    }
    let (mut pane, _orders) = pane(100);
    screen(&mut pane, 80, 24);
    press(&mut pane, "k");
    let text = screen(&mut pane, 80, 24);
    has(
        &text,
        &[">! coder 00000000", "more lines: up/down; attention: coder"],
    );
    let (mut pane, _orders) = self::pane(0);
    has(
        &screen(&mut pane, 80, 24),
        &["none runs; 2 agents can be started: s"],
    );
    pane.model.now.agents.agents.clear();
    has(
        &screen(&mut pane, 80, 24),
        &["no agents: the registry has none"],
    );
}

#[test]
fn a_lost_connection_is_told_first_and_what_was_known_stays() {
    let (mut pane, _orders) = pane(1);
    pane.trouble(Some(format!(
        "the daemon closed the connection{EVIL}; trying again"
    )));
    has(
        &screen(&mut pane, 80, 24),
        &[
            "NO NEWS: the daemon closed the connection\\u{1b}",
            "coder 00000000",
        ],
    );
    pane.trouble(None);
    assert!(!screen(&mut pane, 80, 24).contains("NO NEWS"));
}

#[test]
fn who_is_no_operator_sees_agents_and_not_the_trail() {
    let (mut pane, _orders) = pane(0);
    pane.model = GlasspaneModel::default();
    pane.update(FeedEvent::Seen(Box::new(seen(2, false))));
    let text = screen(&mut pane, 80, 24);
    has(
        &text,
        &["these are yours; operators see all", "coder 00000000"],
    );
    assert!(!text.contains("CALLS OF"), "{text}");
}

#[test]
fn detail_has_everything_with_calls_and_events() {
    let (mut pane, orders) = pane(5);
    screen(&mut pane, 100, 40);
    press(&mut pane, "j\n");
    assert_eq!(
        orders.try_recv(),
        Ok(FeedOrder::Detail(Some(format!("{:016x}", 0))))
    );
    let text = screen(&mut pane, 100, 40);
    has(
        &text,
        &[
            "coder 0000000000000000 for",
            "task 10; started 5 min ago",
            "tokens 120000 in, 800 out;\n  34 calls, 12345 bytes",
            "2 lines that are none",
            "CALLS OF coder 00000000",
            "EVENTS: 7 (UTC)",
            &format!(
                r"7 working  00:00:00.001Z assistant  \u{{1b}}[2J\u{{202e}}evil\u{{9b}}31m\u{{7}} {} Bash",
                crate::terminal::arrow()
            ),
        ],
    );
    // The next ones, and back; what is chosen there is looked at closely, too.
    press(&mut pane, "\t");
    assert_eq!(
        orders.try_recv(),
        Ok(FeedOrder::Detail(Some(format!("{:016x}", 1))))
    );
    has(
        &screen(&mut pane, 100, 40),
        &["blocked; task 11", "1 call waiting for a person"],
    );
    press(&mut pane, "\u{1b}");
    assert_eq!(orders.try_recv(), Ok(FeedOrder::Detail(None)));
    has(&screen(&mut pane, 100, 40), &[">! coder"]);
}

#[test]
fn keys_choose_and_filter() {
    let (mut pane, orders) = pane(5);
    let mut chosen = |keys: &str| {
        press(&mut pane, keys);
        screen(&mut pane, 80, 24);
        pane.view
            .chosen
            .id()
            .and_then(|id| u64::from_str_radix(id, 16).ok())
    };
    chosen("");
    let went: Vec<_> = ["j", "k", "\t", "<", "<", "\t", "n", "n", "n", "N", "N"]
        .map(&mut chosen)
        .into();
    let wanted = [0, 0, 1, 0, 4, 0, 1, 2, 4, 2, 1].map(Some);
    assert_eq!(went, wanted);
    press(&mut pane, "a");
    let text = screen(&mut pane, 80, 24);
    assert_eq!(
        text.matches("coder 0000").count() - text.matches("OF coder").count(),
        4,
        "three and the facts:\n{text}"
    );
    press(&mut pane, "aar");
    assert_eq!(orders.try_iter().collect::<Vec<_>>(), [FeedOrder::Refresh]);
    press(&mut pane, "?");
    has(
        &screen(&mut pane, 80, 24),
        &["Shift-Tab", "only those that need attention"],
    );
    press(&mut pane, "q");
    assert!(pane.press(KeyCode::Char('q')).is_break());
    assert!(pane.press(KeyCode::Esc).is_break());
}

#[test]
fn nothing_is_stopped_without_a_yes() {
    let (mut pane, orders) = pane(5);
    screen(&mut pane, 80, 24);
    press(&mut pane, "x");
    has(&screen(&mut pane, 80, 24), &["choose an agent that runs"]);
    press(&mut pane, "jx");
    has(
        &screen(&mut pane, 80, 24),
        &["stop coder 00000000?  y stop it"],
    );
    press(&mut pane, "nx\nx\u{1b}xq");
    assert!(orders.try_recv().is_err());
    press(&mut pane, "xy");
    assert_eq!(
        orders.try_recv(),
        Ok(FeedOrder::Stop(format!("{:016x}", 0)))
    );
    pane.update(FeedEvent::Said(format!("stopped coder {EVIL}")));
    has(&screen(&mut pane, 80, 24), &["stopped coder \\u{1b}"]);
    // One that has ended cannot be.
    press(&mut pane, "<x");
    has(&screen(&mut pane, 80, 24), &["choose an agent that runs"]);
}

#[test]
fn an_agent_is_chosen_to_be_started() {
    let (mut pane, orders) = pane(1);
    press(&mut pane, "s");
    let text = screen(&mut pane, 100, 24);
    has(
        &text,
        &[
            "START WHICH AGENT?",
            "1 of 2",
            "in a jail, model behind the relay, starts by itself; rust,",
        ],
    );
    has(&text, &["refused: the write gate is closed \\u{1b}"]);
    press(&mut pane, "\n");
    assert!(orders.try_recv().is_err(), "none was chosen");
    press(&mut pane, "jjk\n");
    assert_eq!(orders.try_recv(), Ok(FeedOrder::Spawn("coder".to_owned())));
    has(&screen(&mut pane, 80, 24), &["q quit"]);
    press(&mut pane, "s\u{1b}");
    assert!(orders.try_recv().is_err());
}

#[test]
fn without_colour_states_are_words_and_cells_have_none() {
    for colour in [false, true] {
        let (mut pane, _orders) = pane(5);
        pane.view = GlasspaneView::new(colour, true);
        let buffer = buffer_of(80, 24, |area, buffer| pane.draw(area, buffer));
        assert_eq!(is_coloured(&buffer), colour);
    }
}

#[test]
fn plain_text_says_everything() {
    let (pane, _orders) = pane(100);
    let text = plain(&pane.model, 80);
    has(
        &text,
        &[
            "coder 00000000",
            "agents: 60 running, 40 ended",
            "SERVERS BEHIND THEM",
            "TOOL_ERROR",
        ],
    );
    assert_eq!(text.matches("coder 0000").count(), 100, "{text}");
    assert!(
        !text.contains("q quit") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}
