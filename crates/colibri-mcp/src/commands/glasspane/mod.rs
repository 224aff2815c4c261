//! `colibri-mcp glasspane`: agents, the calls they make, the servers and jails behind them; and all
//! servers.

mod feed;
mod html;
mod key_help;
mod live;
mod model;
mod servers;
mod snapshot;
mod view;

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use serde_json::value::to_raw_value;

use colibri_api::OverviewRequest;
use colibri_protocol::Code;

use super::context::CommandContext;
use super::screen::{self, Screen};
use crate::connection::RequestError;
use crate::failure::CommandError;
use feed::{FeedOrder, GlasspaneFeed, look};
use model::{FeedEvent, GlasspaneModel, GlasspaneState};
use servers::ServersPane;
use snapshot::GlasspaneSnapshot;
use view::{GlasspaneView, Looking, draw, plain};

/// Records of the trail in the servers' view as one plain text.
const TAIL_ONCE: u64 = 10;

/// The form and place of the display.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct GlasspaneArguments {
    /// Begins with the servers: calls, latencies, errors, approvals, the trail (operators); the key
    /// t does so, too
    #[arg(long, conflicts_with = "html")]
    servers: bool,
    #[command(flatten)]
    screen: screen::ScreenArguments,
    #[command(flatten)]
    html: html::HtmlArguments,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &GlasspaneArguments,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    if let Some(file) = &arguments.html.html {
        return html::run(&arguments.html, file, context);
    }
    if arguments.html.open {
        return live::run(&arguments.html, arguments.screen.every(), context);
    }
    let begins_with_servers = arguments.servers;
    let arguments = &arguments.screen;
    if context.json || arguments.prints_once() {
        return match begins_with_servers {
            true => servers_once(context),
            false => once(context),
        }
        .map(|()| ExitCode::SUCCESS);
    }
    let (orders, ordered) = channel();
    let mut feed = GlasspaneFeed {
        place: context.place.clone(),
        read_only: context.read_only,
        every: arguments.every(),
        orders: ordered,
        detail: None,
    };
    let pane = GlasspaneScreen {
        model: GlasspaneModel::default(),
        view: GlasspaneView::new(arguments.has_colour(), true),
        servers: ServersPane::new(arguments.has_colour()),
        shows_servers: begins_with_servers,
        orders,
    };
    screen::show(pane, move |news| feed.listen(news))
}

fn once(context: &CommandContext) -> Result<(), CommandError> {
    let seen = look(&mut context.connect()?, None)?;
    let snapshot = to_raw_value(&GlasspaneSnapshot::of(&seen.agents, seen.time));
    let snapshot = snapshot.map_err(|error| CommandError::Machine(error.to_string()))?;
    context.print(&snapshot, || drawn(seen))
}

fn servers_once(context: &CommandContext) -> Result<(), CommandError> {
    let asked = OverviewRequest { tail: TAIL_ONCE };
    let (overview, raw) = context.ask("colibri/overview", &asked).map_err(explained)?;
    context.print(&raw, || servers::once(overview, screen::width()))
}

/// The explanation for a user who is no operator.
fn explained(failure: CommandError) -> CommandError {
    match failure {
        CommandError::Request(RequestError::Refused { code, message })
            if code == Code::PolicyDenied.row().number =>
        {
            CommandError::Request(RequestError::Refused {
                code,
                message: format!("{message}; `colibri-mcp status` is for everybody"),
            })
        }
        other => other,
    }
}

/// Its present look, as plain text.
pub(crate) fn picture(context: &CommandContext) -> Result<String, CommandError> {
    Ok(drawn(look(&mut context.connect()?, None)?))
}

fn drawn(seen: GlasspaneState) -> String {
    let mut model = GlasspaneModel::default();
    model.update(FeedEvent::Seen(Box::new(seen)));
    plain(&model, screen::width())
}

/// The state, the views, and the channel for a person's orders.
struct GlasspaneScreen {
    model: GlasspaneModel,
    view: GlasspaneView,
    servers: ServersPane,
    shows_servers: bool,
    orders: Sender<FeedOrder>,
}

impl GlasspaneScreen {
    fn order(&self, order: FeedOrder) {
        // Without its thread there is no news any more, which the screen says.
        let _ = self.orders.send(order);
    }

    /// Chooses something else. A closer look goes with it.
    fn choose(&mut self, choose: impl FnOnce(&mut GlasspaneView, &GlasspaneModel)) {
        choose(&mut self.view, &self.model);
        if self.view.looking == Looking::Detail {
            self.order(FeedOrder::Detail(self.view.chosen.id().map(str::to_owned)));
        }
    }

    /// Goes back to where all are seen.
    fn back(&mut self) {
        if self.view.looking == Looking::Detail {
            self.order(FeedOrder::Detail(None));
        }
        self.view.looking = Looking::List;
    }
}

impl Screen for GlasspaneScreen {
    type Event = FeedEvent;

    fn update(&mut self, heard: FeedEvent) {
        if let FeedEvent::Seen(seen) = &heard {
            match &seen.overview {
                Some(overview) => self.servers.update(overview.clone()),
                None if self.shows_servers => {
                    self.model.said = Some("servers are shown to operators".to_owned());
                    self.shows_servers = false;
                }
                None => {}
            }
        }
        self.model.update(heard);
    }

    fn trouble(&mut self, why: Option<String>) {
        self.servers.trouble(why.clone());
        self.model.trouble = why;
    }

    fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        match self.shows_servers {
            true => self.servers.draw(area, buffer),
            false => draw(&self.model, &mut self.view, area, buffer),
        }
    }

    fn press(&mut self, key: KeyCode) -> ControlFlow<()> {
        self.model.said = None;
        if self.shows_servers {
            match key {
                KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
                KeyCode::Char('t') => self.shows_servers = false,
                other => self.servers.press(other),
            }
            return ControlFlow::Continue(());
        }
        match (&self.view.looking, key) {
            (Looking::Stop(id), KeyCode::Char('y')) => {
                self.order(FeedOrder::Stop(id.clone()));
                self.back();
            }
            (Looking::Stop(_), _) => self.back(),
            (Looking::List, KeyCode::Char('q') | KeyCode::Esc) => return ControlFlow::Break(()),
            (_, KeyCode::Char('q') | KeyCode::Esc) => self.back(),
            (Looking::Help, _) => {}
            (Looking::Spawn, KeyCode::Enter) => {
                if let Some(agent) = self.view.spawn.id().map(str::to_owned) {
                    self.order(FeedOrder::Spawn(agent));
                    self.back();
                }
            }
            (Looking::Spawn, KeyCode::Down | KeyCode::Char('j') | KeyCode::Tab) => {
                self.view.spawn.step(1)
            }
            (Looking::Spawn, KeyCode::Up | KeyCode::Char('k') | KeyCode::BackTab) => {
                self.view.spawn.step(-1)
            }
            (Looking::Spawn, _) => {}
            (Looking::List, KeyCode::Char('t')) => {
                self.shows_servers = true;
                self.order(FeedOrder::Refresh);
            }
            (_, KeyCode::Char('r')) => self.order(FeedOrder::Refresh),
            (Looking::List, KeyCode::Char('s')) => self.view.looking = Looking::Spawn,
            (_, KeyCode::Char('x')) => {
                let runs = |id: &&str| {
                    self.model
                        .instance(id)
                        .is_some_and(|one| one.ended_at.is_none())
                };
                match self.view.chosen.id().filter(runs).map(str::to_owned) {
                    Some(id) => self.view.looking = Looking::Stop(id),
                    None => self.model.said = Some("choose an agent that runs: j, k".to_owned()),
                }
            }
            (Looking::List, KeyCode::Enter) if self.view.chosen.id().is_some() => {
                self.view.looking = Looking::Detail;
                self.choose(|_, _| ());
            }
            (_, KeyCode::Tab) => self.choose(|view, _| view.chosen.next(true, |_| true)),
            (_, KeyCode::BackTab) => self.choose(|view, _| view.chosen.next(false, |_| true)),
            (_, KeyCode::Down | KeyCode::Char('j')) => self.choose(|view, _| view.chosen.step(1)),
            (_, KeyCode::Up | KeyCode::Char('k')) => self.choose(|view, _| view.chosen.step(-1)),
            (_, KeyCode::Char(key @ ('n' | 'N'))) => self.choose(|view, model| {
                let attention = |id: &str| model.instance(id).is_some_and(|one| one.attention);
                view.chosen.next(key == 'n', attention);
            }),
            (_, KeyCode::Char('a')) => self.view.only_attention = !self.view.only_attention,
            (_, KeyCode::Char('?')) => {
                self.back();
                self.view.looking = Looking::Help;
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests;
