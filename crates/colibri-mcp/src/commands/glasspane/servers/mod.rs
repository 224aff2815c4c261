//! The servers: their calls, latencies and errors, waiting approvals, who has spent what, the end
//! of the trail.

mod model;
mod view;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;

use colibri_api::Overview;
use model::ServersModel;
use view::{ServersView, draw, plain};

/// What is known of the servers, and the look at it.
pub(super) struct ServersPane {
    model: ServersModel,
    view: ServersView,
}

impl ServersPane {
    /// Without news yet.
    pub(super) fn new(colour: bool) -> ServersPane {
        ServersPane {
            model: ServersModel::default(),
            view: ServersView::new(colour, true),
        }
    }

    pub(super) fn update(&mut self, overview: Overview) {
        self.model.update(overview);
    }

    /// There is no news, for this reason.
    pub(super) fn trouble(&mut self, why: Option<String>) {
        self.model.trouble = why;
    }

    pub(super) fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        draw(&self.model, &mut self.view, area, buffer);
    }

    pub(super) fn press(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Down | KeyCode::Char('j') => self.view.chosen.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.view.chosen.step(-1),
            _ => {}
        }
    }
}

/// Everything as plain text, so wide.
pub(super) fn once(overview: Overview, width: u16) -> String {
    let mut model = ServersModel::default();
    model.update(overview);
    plain(&model, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_the_last_line_says() {
        let mut pane = ServersPane::new(false);
        for code in [KeyCode::Char('s'), KeyCode::Up, KeyCode::Down, KeyCode::Tab] {
            pane.press(code);
        }
        assert_eq!(pane.view.sort.name(), "calls/s");
    }
}
