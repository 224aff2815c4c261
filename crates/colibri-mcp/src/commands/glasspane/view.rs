//! Drawing: a function of what is known and the space there is. Nothing is told by colour alone.

use std::time::Duration;

use colibri_api::{
    AgentFacts, AgentInstance, AgentState, ServerFacts, ServerState, UNBOUNDED_MOUNT,
};
use colibri_text::counted;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::agent_event::describe_event;
use super::super::screen::{
    BOLD, Palette, RowSelection, Rows, StyledLine, as_text, buffer_of, indented, said, text,
    to_the_right,
};
use super::key_help::help;
use super::model::GlasspaneModel;
use crate::terminal::duration;

/// Lines of calls that are drawn where there is little space.
const LITTLE: u16 = 5;
/// The most servers that are named where there is little space.
const FEW_SERVERS: usize = 4;
/// The most lines of one text.
const MAX_TOLD: usize = 4;

/// The part that a person looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Looking {
    /// All of them.
    List,
    /// The chosen one.
    Detail,
    /// The help on keys.
    Help,
    /// The choice of the agent to start.
    Spawn,
    /// True if this instance is to be stopped.
    Stop(String),
}

/// The state of the view.
#[derive(Debug, Clone)]
pub(super) struct GlasspaneView {
    pub looking: Looking,
    /// Only instances that a person should look at.
    pub only_attention: bool,
    /// The chosen instance.
    pub chosen: RowSelection,
    /// The agent chosen to be started.
    pub spawn: RowSelection,
    /// True if a person can press keys.
    keys: bool,
    palette: Palette,
}

impl GlasspaneView {
    /// A view with nothing chosen.
    pub(super) fn new(colour: bool, keys: bool) -> GlasspaneView {
        GlasspaneView {
            looking: Looking::List,
            only_attention: false,
            chosen: RowSelection::default(),
            spawn: RowSelection::default(),
            keys,
            palette: Palette::new(colour),
        }
    }

    fn of_state(&self, instance: &AgentInstance) -> Style {
        match instance.state {
            AgentState::Error => self.palette.bad(),
            _ if instance.attention => self.palette.odd(),
            AgentState::Working => self.palette.good(),
            _ => Style::new(),
        }
    }
}

/// Draws everything into `area`.
pub(super) fn draw(
    model: &GlasspaneModel,
    view: &mut GlasspaneView,
    area: Rect,
    buffer: &mut Buffer,
) {
    let above = Rect {
        height: area.height.saturating_sub(u16::from(view.keys)),
        ..area
    };
    let mut y = 0;
    for line in head(model, view, area.width) {
        line.draw(above, y, buffer);
        y += 1;
    }
    match view.looking {
        Looking::List | Looking::Stop(_) => list(model, view, above, y, buffer),
        Looking::Detail => detail(model, view, above, y, buffer),
        Looking::Help => put(&help(), above, y, buffer),
        Looking::Spawn => {
            let agents = agents(model, view);
            agents.draw(
                above,
                y,
                above.height.saturating_sub(y),
                view.palette,
                buffer,
            );
        }
    }
    if view.keys {
        keys(model, view).draw(area, above.height, buffer);
    }
}

/// Everything as plain text: as many lines as there is to say, so wide.
pub(super) fn plain(model: &GlasspaneModel, width: u16) -> String {
    let mut view = GlasspaneView::new(false, false);
    let lines = head(model, &view, width).len()
        + instances(model, &mut view, width).lines.len()
        + model.now.servers.len()
        + model.records(None).count()
        + 8;
    let height = u16::try_from(lines).unwrap_or(u16::MAX);
    let buffer = buffer_of(width, height, |area, buffer| {
        draw(model, &mut view, area, buffer)
    });
    as_text(&buffer, buffer.area)
}

fn put(lines: &[StyledLine], area: Rect, y: u16, buffer: &mut Buffer) {
    for (line, y) in lines.iter().zip(y..area.height) {
        line.draw(area, y, buffer);
    }
}

fn head(model: &GlasspaneModel, view: &GlasspaneView, width: u16) -> Vec<StyledLine> {
    let palette = view.palette;
    let instances = &model.now.agents.instances;
    let count = |holds: fn(&AgentInstance) -> bool| {
        instances.iter().filter(|one| holds(one)).count() as u64
    };
    let run = count(|one| one.ended_at.is_none());
    let attention = count(|one| one.attention);
    let mut first = format!(
        "agents: {run} running, {} ended",
        instances.len() as u64 - run
    );
    if attention > 0 {
        first.push_str(&format!("; attention: {attention}"));
    }
    let mut lines = vec![StyledLine::new(
        first,
        if attention > 0 {
            palette.odd().patch(BOLD)
        } else {
            BOLD
        },
    )];
    let mut bad = |what: String| lines.extend(indented(&what, 0, palette.bad(), width, MAX_TOLD));
    if let Some(why) = &model.trouble {
        bad(format!("NO NEWS: {}", text(why)));
    }
    match &model.now.overview {
        Some(overview) => {
            if let Some(why) = overview
                .trail
                .as_ref()
                .and_then(|trail| trail.failing.as_ref())
            {
                bad(format!("TRAIL FAILING, calls are refused: {}", text(why)));
            }
            if let Some(why) = &overview.registry_error {
                bad(format!("REGISTRY NOT RELOADED: {}", text(why)));
            }
            if !overview.approvals.is_empty() {
                let waiting = format!(
                    "APPROVALS WAITING: {} (colibri-mcp approvals)",
                    overview.approvals.len()
                );
                lines.push(StyledLine::new(waiting, palette.odd().patch(BOLD)));
            }
        }
        None => lines.push(StyledLine::new(
            "these are yours; operators see all, and the calls",
            Style::new(),
        )),
    }
    if let Some(said) = &model.said {
        lines.extend(indented(&text(said), 0, BOLD, width, MAX_TOLD));
    }
    lines
}

fn list(
    model: &GlasspaneModel,
    view: &mut GlasspaneView,
    area: Rect,
    mut y: u16,
    buffer: &mut Buffer,
) {
    let table = instances(model, view, area.width);
    let chosen = view.chosen.id().and_then(|id| model.instance(id));
    let mut below = Vec::new();
    if let Some(instance) = chosen {
        below.extend(facts(
            model,
            view,
            instance,
            area.width,
            if view.keys { 3 } else { usize::MAX },
        ));
    }
    let session = chosen.map(|instance| instance.id.as_str());
    below.extend(servers(
        model,
        view,
        session,
        if view.keys { FEW_SERVERS } else { usize::MAX },
    ));
    // Instances get what they need, as long as what is below and a few calls have room.
    let room = area.height.saturating_sub(y + below.len() as u16 + LITTLE);
    y = table.draw(
        area,
        y,
        room.max(4).min(table.lines.len() as u16 + 1),
        view.palette,
        buffer,
    );
    put(&below, area, y, buffer);
    y += below.len() as u16;
    put(
        &calls(model, view, session, area.height.saturating_sub(y)),
        area,
        y,
        buffer,
    );
}

fn detail(
    model: &GlasspaneModel,
    view: &mut GlasspaneView,
    area: Rect,
    mut y: u16,
    buffer: &mut Buffer,
) {
    // The order of the instances is what Tab goes through.
    instances(model, view, area.width);
    let Some(instance) = view.chosen.id().and_then(|id| model.instance(id)) else {
        return put(
            &[StyledLine::new("it is not there any more", Style::new())],
            area,
            y,
            buffer,
        );
    };
    let session = Some(instance.id.as_str());
    let mut lines = facts(model, view, instance, area.width, usize::MAX);
    lines.extend(servers(model, view, session, FEW_SERVERS));
    put(&lines, area, y, buffer);
    y += lines.len() as u16;
    // Calls and events share what is left.
    let left = area.height.saturating_sub(y);
    let calls = calls(model, view, session, left / 2);
    put(&calls, area, y, buffer);
    y += calls.len() as u16;
    let room = usize::from(area.height.saturating_sub(y));
    let events = model.events(&instance.id);
    let mut lines = vec![StyledLine::new(
        format!("EVENTS: {} (UTC)", instance.events),
        BOLD,
    )];
    let skip = events.len().saturating_sub(room.saturating_sub(1));
    lines.extend(events.iter().skip(skip).map(|event| {
        let said = format!(
            "  {:>6} {:<8} {}",
            event.n,
            event.state.name(),
            describe_event(event)
        );
        StyledLine::new(text(&said), Style::new())
    }));
    put(&lines, area, y, buffer);
}

/// The columns' names and widths; all but the first two are set to the right.
const COLUMNS: [(&str, usize); 5] = [
    ("TASK", 6),
    ("CALLS", 7),
    ("TOKENS", 9),
    ("WAIT", 5),
    ("EVENT", 8),
];
const STATE: usize = 9;
const PLACE: usize = 12;
const HOST: usize = 13;

fn instances(model: &GlasspaneModel, view: &mut GlasspaneView, width: u16) -> Rows {
    let numbers: usize = COLUMNS.iter().map(|(_, width)| width).sum();
    // Where several hosts share the board.
    let has_hosts = model.now.agents.host.is_some();
    let host = if has_hosts { HOST } else { 0 };
    let name = usize::from(width)
        .saturating_sub(numbers + STATE + PLACE + 5 + host)
        .clamp(14, 44);
    let state_at = name + 4;
    let host_at = state_at + STATE + numbers + 1;
    let place_at = host_at + host;
    let columns = |texts: [String; 5], style: Style, line: StyledLine| {
        to_the_right(
            line,
            state_at + STATE,
            COLUMNS.map(|(_, width)| width),
            texts,
            style,
        )
    };
    let head = StyledLine::new("   AGENT", BOLD).and(state_at, "STATE", BOLD);
    let head = columns(COLUMNS.map(|(name, _)| name.to_owned()), BOLD, head);
    let head = head.and(host_at, if has_hosts { "HOST" } else { "" }, BOLD);
    let head = head.and(place_at, "WHERE", BOLD);
    let mut rows = Rows::new(head, "attention");
    let all = &model.now.agents.instances;
    let shown: Vec<_> = all
        .iter()
        .filter(|one| one.attention || !view.only_attention)
        .collect();
    view.chosen
        .rows(shown.iter().map(|instance| instance.id.clone()));
    for instance in &shown {
        let chosen = view.chosen.is(&instance.id);
        let style = Style::new().add_modifier(match (chosen, instance.ended_at) {
            (true, _) => Modifier::BOLD,
            (false, Some(_)) => Modifier::DIM,
            (false, None) => Modifier::empty(),
        });
        let of = name_of(instance);
        if instance.attention {
            rows.unwell.push((rows.lines.len(), of.clone()));
        }
        let marks = format!(
            "{}{}",
            if chosen { ">" } else { " " },
            if instance.attention { "!" } else { " " }
        );
        let state = if instance.stalled {
            "stalled"
        } else {
            instance.state.name()
        };
        let numbers = [
            instance
                .task
                .map_or("-".to_owned(), |task| task.to_string()),
            instance.calls.to_string(),
            short(instance.tokens_in.saturating_add(instance.tokens_out)),
            if instance.approvals == 0 {
                "-".to_owned()
            } else {
                instance.approvals.to_string()
            },
            instance
                .last_event_at
                .map_or("-".to_owned(), |at| ago(model, at)),
        ];
        let line = StyledLine::new(marks, style).and(3, of, style).and(
            state_at,
            state,
            view.of_state(instance),
        );
        let host = instance.host.as_deref().map(text).unwrap_or_default();
        let host: String = host.chars().take(HOST - 1).collect();
        let line = columns(numbers, style, line).and(host_at, host, style);
        rows.lines.push(line.and(place_at, place(instance), style));
        if chosen {
            rows.selected = Some(rows.lines.len() - 1);
        }
    }
    if shown.is_empty() {
        let agents = model.now.agents.agents.len() as u64;
        let why = match (all.is_empty(), agents) {
            (false, _) => "   none needs attention; a shows all".to_owned(),
            (true, 0) => {
                "   no agents: the registry has none that you may have run; docs/agents.md"
                    .to_owned()
            }
            (true, _) if view.keys => format!(
                "   none runs; {} can be started: s",
                counted(agents, "agent")
            ),
            (true, _) => format!(
                "   none runs; {} can be started: colibri-mcp agent run",
                counted(agents, "agent")
            ),
        };
        rows.lines.push(StyledLine::new(why, Style::new()));
    }
    rows
}

fn name_of(instance: &AgentInstance) -> String {
    let session: String = instance.id.chars().take(8).collect();
    format!("{} {}", text(&instance.agent), text(&session))
}

fn place(instance: &AgentInstance) -> String {
    match instance.jail.as_deref() {
        None => "host".to_owned(),
        Some(jail) if jail.strip_prefix("colibri-") == Some(&instance.id) => "own jail".to_owned(),
        Some(jail) => text(jail),
    }
}

/// A number in at most six characters.
fn short(number: u64) -> String {
    match number {
        0..=99_999 => number.to_string(),
        100_000..=99_999_999 => format!("{} k", number / 1000),
        _ => format!("{} M", number / 1_000_000),
    }
}

fn ago(model: &GlasspaneModel, at: u64) -> String {
    duration(Duration::from_millis(model.now.time.saturating_sub(at)).as_secs())
}

/// Everything about an instance, in at most so many lines.
fn facts(
    model: &GlasspaneModel,
    view: &GlasspaneView,
    instance: &AgentInstance,
    width: u16,
    most: usize,
) -> Vec<StyledLine> {
    let mut said = format!(
        "{} {} for {}: {}{}",
        text(&instance.agent),
        text(&instance.id),
        text(
            instance
                .person
                .as_deref()
                .unwrap_or(model.user(Some(instance.uid)))
        ),
        instance.state,
        if instance.stalled { ", stalled" } else { "" }
    );
    if let Some(reason) = instance
        .reason
        .as_deref()
        .filter(|reason| !reason.is_empty())
    {
        said.push_str(&format!(" ({})", text(reason)));
    }
    let mut add = |what: String| {
        said.push_str("; ");
        said.push_str(&what);
    };
    if let Some(task) = instance.task {
        add(format!("task {task}"));
    }
    match instance.ended_at {
        None => add(format!("started {} ago", ago(model, instance.started_at))),
        Some(ended) => add(format!("ended {} ago", ago(model, ended))),
    }
    if let Some(exit) = &instance.exit {
        add(text(exit));
    }
    let jail = instance
        .jail
        .as_deref()
        .map_or("on the host".to_owned(), |jail| {
            format!("jail {}", text(jail))
        });
    if instance.unbounded {
        add(UNBOUNDED_MOUNT.to_owned());
    }
    add(format!("{jail}, in {}", text(&instance.cwd)));
    add(format!(
        "tokens {} in, {} out",
        instance.tokens_in, instance.tokens_out
    ));
    add(format!(
        "{}, {}",
        counted(instance.calls, "call"),
        counted(instance.bytes, "byte")
    ));
    if instance.approvals > 0 {
        add(format!(
            "{} waiting for a person",
            counted(instance.approvals, "call")
        ));
    }
    add(counted(instance.events, "event"));
    if instance.skipped_lines > 0 {
        add(format!(
            "{} that are none",
            counted(instance.skipped_lines, "line")
        ));
    }
    if let Some(session) = &instance.session_id {
        add(format!("calls itself {}", text(session)));
    }
    let style = if instance.attention {
        view.palette.odd()
    } else {
        Style::new()
    };
    indented(&said, 2, style, width, most).collect()
}

/// The servers that this instance called, or that any did, and the jails they run in.
fn servers(
    model: &GlasspaneModel,
    view: &GlasspaneView,
    session: Option<&str>,
    most: usize,
) -> Vec<StyledLine> {
    let called: Vec<_> = model.servers(session).collect();
    if called.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![StyledLine::new("SERVERS BEHIND THEM", BOLD)];
    lines.extend(
        called
            .iter()
            .take(most)
            .map(|server| server_line(view, server)),
    );
    if called.len() > most {
        lines.push(StyledLine::new(
            format!("  {} {} more", view.palette.mark, called.len() - most),
            Style::new(),
        ));
    }
    lines
}

fn server_line(view: &GlasspaneView, server: &ServerFacts) -> StyledLine {
    let style = match server.state {
        ServerState::Ready => view.palette.good(),
        ServerState::Starting | ServerState::BackingOff => view.palette.odd(),
        ServerState::Blocked | ServerState::Failed => view.palette.bad(),
        ServerState::Stopped => Style::new(),
    };
    let mut place = match &server.jail {
        Some(jail) if jail.network.is_empty() => format!("jail {}", text(&jail.name)),
        Some(jail) => format!("jail {}, network {}", text(&jail.name), text(&jail.network)),
        None => server.transport.name().to_owned(),
    };
    if server.is_unbounded() {
        place.push_str(&format!(", {UNBOUNDED_MOUNT}"));
    }
    let jails = server
        .processes
        .iter()
        .filter_map(|process| process.jail.as_deref());
    let jails: Vec<_> = jails.map(text).collect();
    if !jails.is_empty() {
        place.push_str(&format!(": {}", jails.join(", ")));
    }
    if let Some(reason) = &server.reason {
        place.push_str(&format!("; {}", text(reason)));
    }
    StyledLine::new(format!("  {}", text(&server.id)), Style::new())
        .and(20, server.state.name(), style)
        .and(33, place, Style::new())
}

/// The last calls of an instance, or of all, the newest last, in so many lines.
fn calls(
    model: &GlasspaneModel,
    view: &GlasspaneView,
    session: Option<&str>,
    room: u16,
) -> Vec<StyledLine> {
    if model.now.overview.is_none() || room == 0 {
        return Vec::new();
    }
    let head = match session.and_then(|id| model.instance(id)) {
        Some(instance) => format!("CALLS OF {} (UTC)", name_of(instance)),
        None => "CALLS OF AGENTS (UTC)".to_owned(),
    };
    let mut lines = vec![StyledLine::new(head, BOLD)];
    let mut rows: Vec<_> = model
        .records(session)
        .rev()
        .take(usize::from(room - 1))
        .collect();
    rows.reverse();
    lines.extend(rows.into_iter().map(|(session, row)| {
        let style = match row.result.as_deref() {
            Some("FAIL") => view.palette.bad(),
            _ => Style::new(),
        };
        let agent = model
            .instance(session)
            .map(|instance| instance.agent.as_str());
        let whose = agent.or(row.agent.as_deref()).unwrap_or("-");
        StyledLine::new(said(row, whose), style)
    }));
    lines
}

/// The agents that can be started.
fn agents(model: &GlasspaneModel, view: &mut GlasspaneView) -> Rows {
    let head = StyledLine::new("   START WHICH AGENT?", BOLD)
        .and(24, "RUNNING", BOLD)
        .and(34, "WHAT IT IS", BOLD);
    let mut rows = Rows::new(head, "refused");
    let all = &model.now.agents.agents;
    view.spawn.rows(all.iter().map(|agent| agent.agent.clone()));
    for agent in all {
        let chosen = view.spawn.is(&agent.agent);
        let style = if chosen { BOLD } else { Style::new() };
        let line = StyledLine::new(
            format!("{}  {}", if chosen { ">" } else { " " }, text(&agent.agent)),
            style,
        )
        .and(24, format!("{} of {}", agent.running, agent.max), style);
        rows.lines.push(match &agent.refusal {
            Some(why) => line.and(34, format!("refused: {}", text(why)), view.palette.bad()),
            None => line.and(34, kind(agent), style),
        });
        if chosen {
            rows.selected = Some(rows.lines.len() - 1);
        }
    }
    if all.is_empty() {
        rows.lines.push(StyledLine::new(
            "   the registry has none that you may have run",
            Style::new(),
        ));
    }
    rows
}

fn kind(agent: &AgentFacts) -> String {
    let mut said = String::from(if agent.jailed {
        "in a jail"
    } else {
        "on the host"
    });
    if agent.model {
        said.push_str(", model behind the relay");
    }
    if agent.autospawn {
        said.push_str(", starts by itself");
    }
    if !agent.capabilities.is_empty() {
        said.push_str(&format!("; {}", text(&agent.capabilities.join(", "))));
    }
    said
}

fn keys(model: &GlasspaneModel, view: &GlasspaneView) -> StyledLine {
    let style = Style::new().add_modifier(Modifier::REVERSED);
    StyledLine::new(
        match &view.looking {
            Looking::List if view.only_attention => {
                "q quit  r refresh  s spawn  x stop  Enter detail  Tab next  a all  ? help"
                    .to_owned()
            }
            Looking::List => {
                "q quit  r refresh  s spawn  x stop  Enter detail  Tab next  a attention  ? help"
                    .to_owned()
            }
            Looking::Detail => {
                "q back  r refresh  x stop  Tab next agent  n next attention  ? help".to_owned()
            }
            Looking::Help => "q back".to_owned(),
            Looking::Spawn => "Enter start  j/k choose  q back".to_owned(),
            Looking::Stop(id) => {
                let who = model.instance(id).map_or_else(|| text(id), name_of);
                format!("stop {who}?  y stop it  any other key: no")
            }
        },
        style,
    )
}
