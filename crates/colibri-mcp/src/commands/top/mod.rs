//! `colibri-mcp top`: the daemon at a glance, again and again.

mod model;
mod view;

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;

use super::context::CommandContext;
use super::screen::{self, News, Screen};
use crate::connection::{DaemonAddress, DaemonConnection, RequestError, read};
use crate::failure::CommandError;
use colibri_api::{Overview, OverviewRequest, StreamEnded};
use colibri_protocol::Code;
use model::TopModel;
use view::{TopView, draw, plain};

/// Records of the trail that are asked for: more than a screen has lines.
const TAIL: u64 = 60;
/// The same for one plain text.
const TAIL_ONCE: u64 = 10;

/// Runs the command.
pub(crate) fn run(arguments: &screen::ScreenArguments, context: &CommandContext) -> Result<ExitCode, CommandError> {
    if context.json || arguments.prints_once() {
        return once(context).map(|()| ExitCode::SUCCESS);
    }
    let feed = TopFeed {
        place: context.place.clone(),
        read_only: context.read_only,
        every: arguments.every(),
    };
    let top = TopScreen {
        model: TopModel::default(),
        view: TopView::new(arguments.has_colour(), true),
    };
    screen::show(top, move |news| feed.listen(news)).map_err(explained)
}

/// The state, and the view.
struct TopScreen {
    model: TopModel,
    view: TopView,
}

impl Screen for TopScreen {
    type Event = Box<Overview>;

    fn update(&mut self, overview: Box<Overview>) {
        self.model.update(*overview);
    }

    fn trouble(&mut self, why: Option<String>) {
        self.model.trouble = why;
    }

    fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        draw(&self.model, &mut self.view, area, buffer);
    }

    fn press(&mut self, key: KeyCode) -> ControlFlow<()> {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Down | KeyCode::Char('j') => self.view.chosen.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.view.chosen.step(-1),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Listens to the daemon.
struct TopFeed {
    place: DaemonAddress,
    read_only: bool,
    every: Duration,
}

impl TopFeed {
    /// Until the connection ends, which is a failure, or nobody wants news any more.
    fn listen(&self, news: &Sender<News<Box<Overview>>>) -> Result<(), CommandError> {
        let mut connection = DaemonConnection::open(&self.place, self.read_only)?;
        let every_ms = u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX);
        let params = OverviewRequest {
            every_ms: Some(every_ms),
            tail: TAIL,
        };
        let ended = connection.listen("colibri/overview", &params, |_, name, params| {
            if name != "colibri/overview" || news.send(News::Heard(read(name, params)?)).is_ok() {
                return Ok(ControlFlow::Continue(()));
            }
            Ok::<_, CommandError>(ControlFlow::Break(()))
        })?;
        let Some(why) = ended else { return Ok(()) };
        let StreamEnded { ended } = read("colibri/overview", &why)?;
        Err(CommandError::Machine(format!("the daemon ended the view: {ended}")))
    }
}

/// The explanation for a user who is no operator.
fn explained(failure: CommandError) -> CommandError {
    match failure {
        CommandError::Request(RequestError::Refused { code, message }) if code == Code::PolicyDenied.row().number => {
            CommandError::Request(RequestError::Refused {
                code,
                message: format!("{message}; `colibri-mcp servers` and `colibri-mcp status` are for everybody"),
            })
        }
        other => other,
    }
}

fn once(context: &CommandContext) -> Result<(), CommandError> {
    let asked = OverviewRequest {
        every_ms: None,
        tail: TAIL_ONCE,
    };
    let (overview, raw) = context.ask("colibri/overview", &asked).map_err(explained)?;
    context.print(&raw, || {
        let mut model = TopModel::default();
        model.update(overview);
        plain(&model, screen::width())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_the_last_line_says() {
        let mut top = TopScreen {
            model: TopModel::default(),
            view: TopView::new(false, true),
        };
        assert!(top.press(KeyCode::Char('q')).is_break() && top.press(KeyCode::Esc).is_break());
        for code in [
            KeyCode::Char('c'),
            KeyCode::Char('s'),
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Tab,
        ] {
            assert!(top.press(code).is_continue());
        }
        assert_eq!(top.view.sort.name(), "calls/s");
    }
}
