//! A full screen that is drawn again and again from what a thread hears of the daemon, and its
//! pieces: `top` and `glasspane` are such screens.

mod record;
mod rows;
mod styled_line;

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::layout::Rect;

use super::signals::on_signals;
use crate::connection::RequestError;
use crate::failure::CommandError;
use crate::terminal::columns;

pub(crate) use record::said;
pub(crate) use rows::{RowSelection, Rows, to_the_right};
pub(crate) use styled_line::{BOLD, Palette, StyledLine, as_text, indented, text};

/// The time for which the screen stays as it is when no key is pressed.
const TICK: Duration = Duration::from_millis(200);
/// The wait after a lost connection before another one is tried.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest time for the last drawing once a signal came; the terminal may be gone.
const LAST_DRAW: Duration = Duration::from_secs(2);
/// Columns where nothing says how many there are.
const WIDTH: u16 = 80;

/// A message of the thread that listens to the daemon.
pub(crate) enum News<T> {
    /// Its event.
    Heard(T),
    /// There will be nothing for a while, or nothing at all.
    Trouble(CommandError),
}

/// The values that are shown.
pub(crate) trait Screen {
    /// An event of the daemon's feed.
    type Event: Send + 'static;

    /// Takes it in.
    fn update(&mut self, heard: Self::Event);

    /// There is no news, for this reason.
    fn trouble(&mut self, why: Option<String>);

    /// Draws everything.
    fn draw(&mut self, area: Rect, buffer: &mut Buffer);

    /// A key was pressed. Breaks where it ends the screen.
    fn press(&mut self, key: KeyCode) -> ControlFlow<()>;
}

/// The form of a screen.
#[derive(Debug, clap::Args)]
pub(crate) struct ScreenArguments {
    /// Prints everything once, as plain text; so also where standard output is no terminal
    #[arg(long)]
    once: bool,
    /// No colours, as with NO_COLOR in the environment
    #[arg(long)]
    no_color: bool,
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=60))]
    interval: u16,
}

impl ScreenArguments {
    /// True if everything is printed once, as plain text.
    pub(crate) fn prints_once(&self) -> bool {
        self.once || !io::stdout().is_terminal()
    }

    /// From one look to the next.
    pub(crate) fn every(&self) -> Duration {
        Duration::from_secs(self.interval.into())
    }

    /// True if there is colour, as far as flag and environment say.
    pub(crate) fn has_colour(&self) -> bool {
        let plain_terminal = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        !self.no_color && !plain_terminal
    }
}

/// The width of text that is printed once.
pub(crate) fn width() -> u16 {
    columns().unwrap_or(WIDTH).clamp(40, 500)
}

/// Shows it until a person, a signal or the daemon's refusal ends it. `listen` hears the daemon:
/// until the connection ends, which is a failure and tried again, or until nobody wants news any
/// more.
pub(crate) fn show<S: Screen>(
    mut screen: S,
    mut listen: impl FnMut(&Sender<News<S::Event>>) -> Result<(), CommandError> + Send + 'static,
) -> Result<ExitCode, CommandError> {
    let told = Arc::new(AtomicI32::new(0));
    let tell = told.clone();
    on_signals(
        &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP],
        move |signal| {
            tell.store(signal as i32, Ordering::SeqCst);
            std::thread::sleep(LAST_DRAW);
            restore();
            std::process::exit(128 + signal as i32);
        },
    )?;
    let (sender, news) = channel();
    std::thread::spawn(move || {
        loop {
            let Err(trouble) = listen(&sender) else {
                return;
            };
            let refused = matches!(trouble, CommandError::Request(RequestError::Refused { .. }));
            if sender.send(News::Trouble(trouble)).is_err() || refused {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    });
    // What is wrong from the start is said as every command says it.
    match news.recv() {
        Ok(News::Heard(heard)) => screen.update(heard),
        Ok(News::Trouble(failure)) => return Err(failure),
        Err(_) => {
            return Err(CommandError::Machine(
                "the thread that listens has ended".to_owned(),
            ));
        }
    }
    {
        let _restored = TerminalGuard::at_the_end();
        let terminal = ratatui::try_init()?;
        watch(terminal, screen, &news, &told)?;
    }
    match told.load(Ordering::SeqCst) {
        0 => Ok(ExitCode::SUCCESS),
        signal => Ok(ExitCode::from(
            128 + u8::try_from(signal).unwrap_or_default(),
        )),
    }
}

/// Leaves the terminal as it was found: no raw mode, the screen as before, a cursor.
fn restore() {
    ratatui::restore();
    // A terminal that is gone needs no cursor.
    let _ = execute!(io::stdout(), Show);
}

/// Restores the terminal when it is dropped; a panic, which drops nothing where it aborts, does so
/// before it speaks.
struct TerminalGuard;

impl TerminalGuard {
    fn at_the_end() -> TerminalGuard {
        let speak = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            speak(panic);
        }));
        TerminalGuard
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

fn watch<S: Screen>(
    mut terminal: ratatui::DefaultTerminal,
    mut screen: S,
    news: &Receiver<News<S::Event>>,
    told: &AtomicI32,
) -> Result<(), CommandError> {
    let mut lost: Option<(Instant, String)> = None;
    while told.load(Ordering::SeqCst) == 0 {
        for news in news.try_iter() {
            match news {
                News::Heard(heard) => {
                    lost = None;
                    screen.update(heard);
                }
                News::Trouble(failure @ CommandError::Request(RequestError::Refused { .. })) => {
                    return Err(failure);
                }
                News::Trouble(failure) => {
                    let since = lost.map_or_else(Instant::now, |(since, _)| since);
                    lost = Some((since, failure.to_string()));
                }
            }
        }
        screen.trouble(
            lost.as_ref()
                .map(|(since, why)| trouble(why, since.elapsed())),
        );
        terminal.draw(|frame| screen.draw(frame.area(), frame.buffer_mut()))?;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
            && pressed(key, &mut screen).is_break()
        {
            break;
        }
    }
    Ok(())
}

/// The text while there is no news.
fn trouble(why: &str, since: Duration) -> String {
    match since.as_secs() {
        0 => format!("{why}; trying again"),
        seconds => format!("{why}; trying again for {seconds} s"),
    }
}

fn pressed(key: KeyEvent, screen: &mut impl Screen) -> ControlFlow<()> {
    match key.code {
        _ if key.kind == KeyEventKind::Release => ControlFlow::Continue(()),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            ControlFlow::Break(())
        }
        code => screen.press(code),
    }
}

/// The content of a screen of this size on which this is drawn.
pub(crate) fn buffer_of(width: u16, height: u16, draw: impl FnOnce(Rect, &mut Buffer)) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(area, &mut buffer);
    buffer
}

/// True if a cell has a colour.
#[cfg(test)]
pub(crate) fn is_coloured(buffer: &Buffer) -> bool {
    use ratatui::style::Color;
    let cells = buffer.content.iter();
    cells
        .map(|cell| (cell.fg, cell.bg))
        .any(|colours| colours != (Color::Reset, Color::Reset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_said_before_how_long_it_is_lost() {
        assert_eq!(
            trouble("it is gone", Duration::ZERO),
            "it is gone; trying again"
        );
        assert_eq!(
            trouble("it is gone", Duration::from_secs(12)),
            "it is gone; trying again for 12 s"
        );
    }

    #[test]
    fn control_c_ends_every_screen() {
        struct Deaf;
        impl Screen for Deaf {
            type Event = ();
            fn update(&mut self, (): ()) {}
            fn trouble(&mut self, _: Option<String>) {}
            fn draw(&mut self, _: Rect, _: &mut Buffer) {}
            fn press(&mut self, _: KeyCode) -> ControlFlow<()> {
                ControlFlow::Continue(())
            }
        }
        let press = |code, modifiers| pressed(KeyEvent::new(code, modifiers), &mut Deaf).is_break();
        assert!(press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::NONE));
    }
}
