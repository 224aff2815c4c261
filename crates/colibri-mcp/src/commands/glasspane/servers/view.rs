//! Drawing: a function of what is known and the space there is. Nothing is told by colour alone.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::model::{Latency, ServerLine, ServersModel, Sort};
use crate::commands::screen::{
    BOLD, Palette, RowSelection, Rows, StyledLine, as_text, buffer_of, indented, said, text,
    to_the_right,
};
use crate::terminal::{bytes, duration};
use colibri_api::{ServerState, others};
use colibri_text::counted;

/// The most approvals that are drawn where there is little space.
const FEW_APPROVALS: usize = 4;
/// The most that are drawn of those who had answers, where there is little space.
const FEW_SPENDERS: usize = 3;
/// Lines of servers above which others may have room.
const ENOUGH: u16 = 10;
/// Lines of the trail that are drawn where there is little space.
const LITTLE: u16 = 4;
/// The most lines of one reason, where it is told in full.
const MAX_TOLD: usize = 4;

/// The state of the view, chosen by the person or by the terminal.
#[derive(Debug, Clone)]
pub(super) struct ServersView {
    /// The order of servers.
    pub sort: Sort,
    /// True if a person can press keys.
    pub keys: bool,
    /// The chosen server.
    pub chosen: RowSelection,
    palette: Palette,
}

impl ServersView {
    /// A view with nothing chosen.
    pub(super) fn new(colour: bool, keys: bool) -> ServersView {
        ServersView {
            sort: Sort::Name,
            keys,
            chosen: RowSelection::default(),
            palette: Palette::new(colour),
        }
    }

    fn of_state(&self, state: Option<ServerState>) -> Style {
        match state {
            Some(ServerState::Ready) => self.palette.good(),
            Some(ServerState::Starting | ServerState::BackingOff) => self.palette.odd(),
            Some(ServerState::Blocked | ServerState::Failed) => self.palette.bad(),
            Some(ServerState::Stopped) | None => Style::new(),
        }
    }
}

/// Draws everything into `area`.
pub(super) fn draw(model: &ServersModel, view: &mut ServersView, area: Rect, buffer: &mut Buffer) {
    let head = head(model, view, area.width);
    let servers = servers(model, view, area.width);
    let approvals = approvals(
        model,
        view,
        area.width,
        if view.keys { FEW_APPROVALS } else { usize::MAX },
    );
    let spenders = spenders(
        model,
        view,
        if view.keys { FEW_SPENDERS } else { usize::MAX },
    );
    let detail = detail(model, view, area.width);
    let footer = u16::from(view.keys);
    let height = area.height.saturating_sub(footer);

    let mut y = 0;
    for line in &head {
        line.draw(area, y, buffer);
        y += 1;
    }
    // Servers get what they need, as long as approvals and a little of the trail have room below;
    // who has spent what is left out where servers would have too little.
    let room_above = |below: usize| {
        let room = height.saturating_sub(y + below as u16 + 1 + LITTLE);
        room.max(3).min(servers.lines.len() as u16 + 1)
    };
    let below = approvals.len() + detail.len();
    let (without, with) = (room_above(below), room_above(below + spenders.len()));
    let spenders = if with == without || with >= ENOUGH {
        spenders
    } else {
        Vec::new()
    };
    let room = room_above(below + spenders.len());
    let above = Rect { height, ..area };
    y = servers.draw(above, y, room, view.palette, buffer);
    let rest = detail.len() + approvals.len() + spenders.len();
    let fitting = usize::from(height.saturating_sub(y));
    for (at, line) in detail.iter().chain(&approvals).chain(&spenders).enumerate() {
        if at + 1 == fitting && rest > fitting {
            let more = format!(
                "  {} {} more lines need a taller terminal",
                view.palette.mark,
                rest - at
            );
            StyledLine::new(more, view.palette.bad()).draw(area, y, buffer);
        } else if y < height {
            line.draw(area, y, buffer);
        }
        y += 1;
    }
    let left = usize::from(height.saturating_sub(y));
    for line in trail(model, view, left) {
        line.draw(area, y, buffer);
        y += 1;
    }
    if view.keys {
        keys(view).draw(area, area.height.saturating_sub(1), buffer);
    }
}

/// Everything as plain text: as many lines as there is to say, so wide.
pub(super) fn plain(model: &ServersModel, width: u16) -> String {
    let mut view = ServersView::new(false, false);
    let records = model
        .now
        .as_ref()
        .and_then(|now| now.trail.as_ref())
        .map_or(0, |trail| trail.tail.len());
    let height = head(model, &view, width).len()
        + servers(model, &mut view, width).lines.len()
        + approvals(model, &view, width, usize::MAX).len()
        + spenders(model, &view, usize::MAX).len()
        + records
        + 8;
    let height = u16::try_from(height).unwrap_or(u16::MAX);
    let buffer = buffer_of(width, height, |area, buffer| {
        draw(model, &mut view, area, buffer)
    });
    as_text(&buffer, buffer.area)
}

fn head(model: &ServersModel, view: &ServersView, width: u16) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    let bad = |lines: &mut Vec<StyledLine>, what: String| {
        lines.extend(indented(&what, 0, view.palette.bad(), width, MAX_TOLD))
    };
    if let Some(now) = &model.now {
        let memory = now
            .resident
            .map_or(String::new(), |bytes| format!(", {} MiB", bytes >> 20));
        lines.push(StyledLine::new(
            format!(
                "colibri-mcpd {}, up {}: {}, {} in flight{memory}",
                text(&now.version),
                duration(now.uptime_s),
                counted(now.clients, "client"),
                counted(now.in_flight, "call")
            ),
            BOLD,
        ));
        let gate = |open| if open { "open" } else { "closed" };
        let mut second = format!(
            "gates: write {}, external-call {}",
            gate(now.write_gate),
            gate(now.external_gate)
        );
        if let Some(trail) = &now.trail {
            let behind = trail.records.saturating_sub(trail.witnessed);
            second.push_str(&format!(
                "; trail: {} records, {behind} not witnessed",
                trail.records
            ));
        }
        lines.push(StyledLine::new(second, Style::new()));
        if let Some(why) = now.trail.as_ref().and_then(|trail| trail.failing.as_ref()) {
            bad(
                &mut lines,
                format!("TRAIL FAILING, calls are refused: {}", text(why)),
            );
        }
        if let Some(why) = &now.registry_error {
            bad(&mut lines, format!("REGISTRY NOT RELOADED: {}", text(why)));
        }
    }
    if let Some(why) = &model.trouble {
        bad(&mut lines, format!("NO NEWS: {}", text(why)));
    }
    lines
}

/// The columns' names and widths; all but the first two are set to the right.
const COLUMNS: [(&str, usize); 7] = [
    ("CALLS/S", 8),
    ("P50", 8),
    ("P95", 8),
    ("CALLS", 9),
    ("ERRORS", 7),
    ("BUSY", 5),
    ("PROC", 5),
];
const STATE: usize = 12;

fn servers(model: &ServersModel, view: &mut ServersView, width: u16) -> Rows {
    let numbers: usize = COLUMNS.iter().map(|(_, width)| width).sum();
    let name = usize::from(width)
        .saturating_sub(numbers + STATE + 3)
        .clamp(8, 36);
    let state_at = name + 3;
    let columns = |texts: [String; 7], style: Style, line: StyledLine| {
        let widths = COLUMNS.map(|(_, width)| width);
        to_the_right(line, state_at + STATE, widths, texts, style)
    };
    let head = StyledLine::new("  SERVER", BOLD).and(state_at, "STATE", BOLD);
    let head = columns(COLUMNS.map(|(name, _)| name.to_owned()), BOLD, head);
    let mut servers = Rows::new(head, "not well");
    let Some(now) = &model.now else {
        return servers;
    };
    let lines = model.lines(now, view.sort);
    view.chosen
        .rows(lines.iter().map(|line| line.server.id.clone()));
    for line in &lines {
        let ServerLine { server, .. } = line;
        let selected = view.chosen.is(&server.id);
        let style = Style::new().add_modifier(if selected {
            Modifier::BOLD
        } else {
            Modifier::empty()
        });
        let mark = if selected { ">" } else { " " };
        let state = server.state.map_or("-", ServerState::name);
        let trouble = matches!(
            server.state,
            Some(ServerState::Blocked | ServerState::Failed)
        );
        if trouble || server.blocked > 0 || server.instructions_blocked {
            servers.unwell.push((servers.lines.len(), text(&server.id)));
        }
        let drawn = StyledLine::new(format!("{mark} {}", text(&server.id)), style);
        let drawn = drawn.and(state_at, state, view.of_state(server.state));
        servers.lines.push(columns(numbers_of(line), style, drawn));
        if server.blocked + server.others_blocked > 0 || server.instructions_blocked {
            let instructions = if server.instructions_blocked {
                " and its instructions"
            } else {
                ""
            };
            let (id, blocked) = (text(&server.id), server.blocked);
            let others = match server.others_blocked {
                0 => String::new(),
                count => format!(", prompts and resources {count}"),
            };
            let said = format!(
                "    not as approved: tools {blocked}{others}{instructions}; colibri-mcp pin diff {id}"
            );
            servers.lines.push(StyledLine::new(said, Style::new()));
        }
        if let Some(reason) = server.reason.as_deref().filter(|reason| !reason.is_empty()) {
            if view.keys {
                // All of it is shown for the chosen one.
                let line = format!("    {}", text(reason));
                servers.lines.push(StyledLine::new(line, Style::new()));
            } else {
                servers
                    .lines
                    .extend(indented(&text(reason), 4, Style::new(), width, usize::MAX));
            }
        }
        if selected {
            servers.selected = Some(servers.lines.len() - 1);
        }
    }
    if lines.len() <= 1 {
        servers.lines.push(StyledLine::new(
            "  no servers: the registry is empty",
            Style::new(),
        ));
    }
    servers
}

fn numbers_of(line: &ServerLine) -> [String; 7] {
    let hosted = |number: u64| {
        line.server
            .state
            .as_ref()
            .map_or("-".to_owned(), |_| number.to_string())
    };
    [
        rate(line.rate),
        latency(line.p50),
        latency(line.p95),
        line.server.calls.finished.to_string(),
        line.errors.to_string(),
        hosted(line.server.in_flight),
        hosted(line.server.processes),
    ]
}

fn rate(rate: f64) -> String {
    if rate == 0.0 || rate >= 100.0 {
        format!("{rate:.0}")
    } else if rate >= 0.1 {
        format!("{rate:.1}")
    } else {
        "<0.1".to_owned()
    }
}

fn latency(latency: Option<Latency>) -> String {
    let said = |seconds: f64| {
        if seconds >= 1.0 {
            format!("{seconds} s")
        } else if seconds >= 0.001 {
            format!("{} ms", (seconds * 1e4).round() / 10.0)
        } else {
            format!("{} us", (seconds * 1e6).round())
        }
    };
    match latency {
        None => "-".to_owned(),
        Some(Latency::Within(seconds)) => said(seconds),
        Some(Latency::Beyond(seconds)) => format!(">{}", said(seconds)),
    }
}

/// More about the chosen server; without a choice, what the numbers mean.
fn detail(model: &ServersModel, view: &ServersView, width: u16) -> Vec<StyledLine> {
    let Some(now) = &model.now else {
        return Vec::new();
    };
    let server = now.servers.iter().find(|server| view.chosen.is(&server.id));
    let said = match server {
        None if model.before.is_empty() => {
            "  calls/s and latency since the start of the daemon, or of the entry".to_owned()
        }
        None => "  calls/s of the last 10 s, latency of the last minute".to_owned(),
        Some(server) => {
            let mut said = format!("  {}: ", text(&server.id));
            if let Some(state) = server.state {
                let since = now.time.saturating_sub(server.since) / 1000;
                said.push_str(&format!(
                    "{} for {}, {}{}; ",
                    state.name(),
                    duration(since),
                    counted(server.tools, "tool"),
                    others(server.prompts, server.resources, server.templates)
                ));
            }
            if server.calls.asked > 0 {
                said.push_str(&format!("asked {}; ", counted(server.calls.asked, "time")));
            }
            let errors: Vec<_> = server
                .calls
                .errors
                .iter()
                .map(|(code, count)| format!("{} {count}", text(code)))
                .collect();
            let errors = if errors.is_empty() {
                "no errors".to_owned()
            } else {
                errors.join(", ")
            };
            said + &errors
        }
    };
    let style = Style::new().add_modifier(Modifier::DIM);
    let mut lines = vec![StyledLine::new(said, style)];
    if let Some(reason) = server.and_then(|server| server.reason.as_deref()) {
        lines.extend(indented(&text(reason), 4, style, width, MAX_TOLD));
    }
    lines
}

fn approvals(model: &ServersModel, view: &ServersView, width: u16, most: usize) -> Vec<StyledLine> {
    let Some(now) = &model.now else {
        return Vec::new();
    };
    if now.approvals.is_empty() {
        return vec![StyledLine::new("APPROVALS WAITING: none", BOLD)];
    }
    let style = view.palette.style(Color::Yellow, Modifier::BOLD);
    let mut lines = vec![StyledLine::new(
        format!(
            "APPROVALS WAITING: {} (colibri-mcp approvals)",
            now.approvals.len()
        ),
        style,
    )];
    for approval in now.approvals.iter().take(most) {
        let said = format!(
            "{}  {} {} by {}, {} s left: {}",
            text(&approval.id),
            text(&approval.server),
            text(&approval.tool),
            text(model.user(Some(approval.uid))),
            approval.expires.saturating_sub(now.time / 1000),
            text(&approval.rule)
        );
        if view.keys {
            lines.push(StyledLine::new(format!("  {said}"), Style::new()));
        } else {
            lines.extend(indented(&said, 2, Style::new(), width, usize::MAX));
        }
    }
    if now.approvals.len() > most {
        lines.push(StyledLine::new(
            format!(
                "  {} {} more",
                view.palette.mark,
                now.approvals.len() - most
            ),
            Style::new(),
        ));
    }
    lines
}

/// The users by usage of their budgets, most first.
fn spenders(model: &ServersModel, view: &ServersView, most: usize) -> Vec<StyledLine> {
    let spenders = model.now.as_ref().map_or(&[][..], |now| &now.spenders);
    if spenders.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![StyledLine::new(
        "SPENT (people today, UTC; agents since their start)",
        BOLD,
    )];
    for spender in spenders.iter().take(most) {
        let person = text(model.user(Some(spender.uid)));
        let who = match (&spender.agent, &spender.session) {
            (Some(agent), Some(session)) => {
                format!("{} {} for {person}", text(agent), text(session))
            }
            _ => person,
        };
        let left = match (spender.mode, spender.left_bytes) {
            (Some(mode), Some(0)) => format!("NOTHING left of cost mode {mode}"),
            (Some(mode), Some(left)) => format!("{} left of cost mode {mode}", bytes(left)),
            _ => "no limit".to_owned(),
        };
        let style = match spender.left_bytes {
            Some(0) => view.palette.bad(),
            _ => Style::new(),
        };
        lines.push(StyledLine::new(
            format!("  {who}: {}, {left}", bytes(spender.spent_bytes)),
            style,
        ));
    }
    if spenders.len() > most {
        let more = format!("  {} {} more", view.palette.mark, spenders.len() - most);
        lines.push(StyledLine::new(more, Style::new()));
    }
    lines
}

/// The end of the trail, the newest last, in so many lines.
fn trail(model: &ServersModel, view: &ServersView, room: usize) -> Vec<StyledLine> {
    let Some(trail) = model.now.as_ref().and_then(|now| now.trail.as_ref()) else {
        return Vec::new();
    };
    if room == 0 {
        return Vec::new();
    }
    let mut lines = vec![StyledLine::new("TRAIL (UTC)", BOLD)];
    let skip = trail.tail.len().saturating_sub(room - 1);
    lines.extend(trail.tail.iter().skip(skip).map(|record| {
        let style = match record.result.as_deref() {
            Some("FAIL") => view.palette.style(Color::Red, Modifier::empty()),
            _ => Style::new(),
        };
        StyledLine::new(said(record, model.user(record.uid)), style)
    }));
    lines
}

fn keys(view: &ServersView) -> StyledLine {
    StyledLine::new(
        format!(
            "t agents   s sort (by {})   up/down choose a server   q quit",
            view.sort.name()
        ),
        Style::new().add_modifier(Modifier::REVERSED),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::screen::is_coloured;
    use colibri_api::Overview;
    use ratatui::text::Span;
    use serde_json::{Value, json};

    fn overview(servers: usize, approvals: usize) -> Overview {
        let counted = json!({ "finished": 12, "buckets": [[0.001, 10], [0.25, 2], [null, 0]],
            "errors": [["TOOL_ERROR", 2], ["CANCELLED", 1]], "asked": 4 });
        let mut list = vec![json!({ "id": "colibri", "calls": counted })];
        for number in 0..servers {
            let (state, reason) = match number % 3 {
                0 => ("ready", Value::Null),
                1 => (
                    "backing off",
                    json!("it failed: exit status 7; it wrote: \u{1b}[2J\u{202e}evil"),
                ),
                _ => (
                    "blocked",
                    json!("its contract cannot be used: ".to_owned() + &"long ".repeat(60)),
                ),
            };
            list.push(
                json!({ "id": format!("server-{number}"), "state": state, "reason": reason, "since": 0,
                "tools": 20, "processes": 1, "in_flight": 3, "calls": counted }),
            );
        }
        let approvals: Vec<Value> = (0..approvals)
            .map(|number| {
                json!({ "id": format!("{number:08x}"), "uid": 0, "server": "git", "tool": "push\u{9b}31m",
                    "rule": "external-mcp.json:9: servers.git.tools.confirm \"push\"", "expires": 1600 })
            })
            .collect();
        let tail: Vec<Value> = (0..30)
            .map(|n| {
                json!({ "n": n, "kind": "exit", "timestamp": "2026-11-22T01:02:03.000004Z", "uid": 0, "server": "git",
                    "tool": "log\u{7}", "method": null, "result": "FAIL", "error_code": "TOOL_ERROR",
                    "latency_ms": 1.25, "event": null })
            })
            .collect();
        serde_json::from_value(json!({
            "version": "0.1.0", "time": 1_000_000, "uptime_s": 7300, "write_gate": false, "external_gate": true,
            "clients": 3, "in_flight": 2, "resident": 15_000_000, "registry_error": null, "servers": list,
            "approvals": approvals,
            "spenders": [
                { "uid": 0, "mode": "fast", "spent_bytes": 500_001, "left_bytes": 0 },
                { "uid": 0, "agent": "cod\u{1b}[2Jer", "session": "0123456789abcdef", "mode": "smart",
                  "spent_bytes": 12_345, "left_bytes": 1_987_655 },
                { "uid": 0, "mode": null, "spent_bytes": 7, "left_bytes": null },
                { "uid": 0, "mode": null, "spent_bytes": 6, "left_bytes": null },
            ],
            "trail": { "records": 1234, "witnessed": 1230, "failing": null, "tail": tail },
        }))
        .unwrap()
    }

    fn model(servers: usize, approvals: usize) -> ServersModel {
        let mut model = ServersModel::default();
        model.update(overview(servers, approvals));
        model
    }

    fn screen(
        model: &ServersModel,
        view: &mut ServersView,
        width: u16,
        height: u16,
    ) -> Vec<String> {
        let buffer = buffer_of(width, height, |area, buffer| {
            draw(model, view, area, buffer)
        });
        as_text(&buffer, buffer.area)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn everything_has_its_place_at_80_by_24_and_at_120_by_40() {
        for (width, height) in [(80, 24), (120, 40)] {
            let mut view = ServersView::new(true, true);
            let rows = screen(&model(3, 1), &mut view, width, height);
            let all = rows.join("\n");
            for part in [
                "colibri-mcpd 0.1.0, up 2 h: 3 clients, 2 calls in flight, 14 MiB",
                "gates: write closed, external-call open; trail: 1234 records, 4 not witnessed",
                "SERVER",
                "STATE",
                "CALLS/S",
                "P50",
                "P95",
                "ERRORS",
                "server-0",
                "ready",
                "backing off",
                "blocked",
                "1 ms",
                "250 ms",
                "APPROVALS WAITING: 1",
                "00000000  git push\\u{9b}31m by",
                "TRAIL (UTC)",
                "01:02:03",
                "git log\\u{7} FAIL TOOL_ERROR  1.2 ms",
            ] {
                assert!(all.contains(part), "{part:?} at {width}x{height}:\n{all}");
            }
            assert!(
                rows.last()
                    .unwrap()
                    .starts_with("t agents   s sort (by name)   up/down"),
                "{all}"
            );
            assert!(
                !all.chars()
                    .any(|c| c.is_control() && c != '\n' || c == '\u{202e}'),
                "{all}"
            );
            // The columns of numbers end where their names do.
            let place = |row: &str, what: &str| {
                row.find(what)
                    .map(|at| row[..at].chars().count() + what.len())
            };
            let head = rows.iter().find(|row| row.contains("CALLS/S")).unwrap();
            let line = rows.iter().find(|row| row.contains("server-0")).unwrap();
            assert_eq!(place(head, "P95"), place(line, "250 ms"), "{all}");
            assert!(head.chars().count() <= usize::from(width));
        }
    }

    #[test]
    fn a_great_many_of_everything_and_no_room_is_no_trouble() {
        for (width, height) in [(80, 24), (120, 40), (40, 10), (20, 4), (1, 1), (300, 100)] {
            for (servers, approvals) in [(0, 0), (200, 100)] {
                let mut view = ServersView::new(false, true);
                let model = model(servers, approvals);
                screen(&model, &mut view, width, height);
                view.chosen.step(-1);
                let rows = screen(&model, &mut view, width, height);
                if servers > 0 && width >= 80 {
                    let all = rows.join("\n");
                    assert!(
                        all.contains("> server-199"),
                        "the chosen one is seen:\n{all}"
                    );
                    assert!(all.contains("more"), "{all}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_marked_and_what_is_not_well_is_named() {
        let mut all = overview(20, 0);
        all.servers[19].blocked = 2;
        for server in &mut all.servers {
            server.reason = None;
            if server.state == Some(ServerState::Blocked) {
                server.state = Some(ServerState::Ready);
            }
        }
        let mut model = ServersModel::default();
        model.update(all);
        let rows = screen(&model, &mut ServersView::new(false, true), 80, 24);
        let said = rows.join("\n");
        assert!(
            said.contains("more lines: up/down; not well: server-18"),
            "{said}"
        );
        // A terminal too low for what stands below the servers says so as well.
        let said = screen(
            &super::tests::model(3, 9),
            &mut ServersView::new(false, true),
            80,
            9,
        )
        .join("\n");
        assert!(said.contains("more lines need a taller terminal"), "{said}");
    }

    #[test]
    fn keys_choose_and_sort() {
        let model = model(3, 0);
        let mut view = ServersView::new(false, true);
        screen(&model, &mut view, 80, 24);
        view.chosen.step(1);
        view.chosen.step(1);
        let all = screen(&model, &mut view, 80, 24).join("\n");
        assert!(
            all.contains("> server-0") && all.contains("server-0: ready for"),
            "{all}"
        );
        assert!(
            all.contains("; asked 4 times; TOOL_ERROR 2, CANCELLED 1"),
            "{all}"
        );
        view.chosen.step(isize::MAX);
        view.sort = view.sort.next();
        let all = screen(&model, &mut view, 80, 24).join("\n");
        assert!(
            all.contains("long long\n    long"),
            "the chosen one's reason in full: {all}"
        );
        assert!(
            all.contains("> server-2") && all.contains("sort (by calls/s)"),
            "{all}"
        );
    }

    #[test]
    fn without_colour_states_are_words_and_cells_have_none() {
        for colour in [false, true] {
            let mut view = ServersView::new(colour, true);
            let buffer = buffer_of(80, 24, |area, buffer| {
                draw(&model(3, 1), &mut view, area, buffer)
            });
            assert_eq!(is_coloured(&buffer), colour);
        }
    }

    #[test]
    fn trouble_is_told_first() {
        let mut model = model(1, 0);
        model.trouble = Some("the daemon closed the connection\u{1b}".to_owned());
        let mut bad = overview(1, 0);
        bad.registry_error = Some("line 3".to_owned());
        let all = screen(&model, &mut ServersView::new(false, true), 80, 24).join("\n");
        assert!(
            all.contains("NO NEWS: the daemon closed the connection\\u{1b}"),
            "{all}"
        );
        model.update(bad);
        model.trouble = None;
        let all = screen(&model, &mut ServersView::new(false, true), 80, 24).join("\n");
        assert!(
            !all.contains("NO NEWS") && all.contains("REGISTRY NOT RELOADED: line 3"),
            "{all}"
        );
    }

    #[test]
    fn plain_text_says_everything() {
        let text = plain(&model(40, 20), 80);
        for part in [
            "server-39",
            "00000013  git",
            "since the start of the daemon",
            "01:02:03      29 exit",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("q quit"));
        assert_eq!(
            text.matches(" long").count() % 60,
            0,
            "reasons are whole: {text}"
        );
        assert!(
            text.lines().all(|line| Span::raw(line).width() <= 80),
            "{text}"
        );
        assert!(plain(&ServersModel::default(), 80).contains("SERVER"));
    }

    #[test]
    fn numbers_are_short() {
        let rates = [0.0, 0.01, 0.25, 99.9, 1234.5].map(rate);
        assert_eq!(rates, ["0", "<0.1", "0.2", "99.9", "1234"]);
        let latencies = [0.0001, 0.0025, 0.25, 2.5, 60.0]
            .map(|seconds| latency(Some(Latency::Within(seconds))));
        assert_eq!(latencies, ["100 us", "2.5 ms", "250 ms", "2.5 s", "60 s"]);
        assert_eq!(latency(Some(Latency::Beyond(60.0))), ">60 s");
    }
}
