//! `colibri-mcp top`: the daemon at a glance, again and again.

mod drawn;
mod model;
mod view;

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;

use super::context::Context;
use super::signals::on_signals;
use crate::connection::{Connection, Place, RequestError, read};
use crate::failure::Failure;
use crate::terminal::columns;
use colibri_api::{Overview, OverviewAsked, StreamEnded};
use colibri_protocol::Code;
use model::Model;
use view::{View, draw, plain};

/// How long the screen stays as it is when no key is pressed.
const TICK: Duration = Duration::from_millis(200);
/// How long after the connection was lost another one is tried.
const AGAIN: Duration = Duration::from_secs(1);
/// How long what is being drawn may take once a signal came; the terminal may be gone.
const LAST_DRAW: Duration = Duration::from_secs(2);
/// Records of the trail that are asked for: more than a screen has lines.
const TAIL: u64 = 60;
/// The same for one plain text.
const TAIL_ONCE: u64 = 10;
/// Columns where nothing says how many there are.
const WIDTH: u16 = 80;

/// How it is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
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

/// What the thread that listens to the daemon tells.
enum News {
    Overview(Box<Overview>),
    /// There will be none for a while, or none at all.
    Trouble(Failure),
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Failure> {
    if arguments.once || context.json || !io::stdout().is_terminal() {
        return once(context).map(|()| ExitCode::SUCCESS);
    }
    let told = Arc::new(AtomicI32::new(0));
    let tell = told.clone();
    on_signals(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP], move |signal| {
        tell.store(signal as i32, Ordering::SeqCst);
        std::thread::sleep(LAST_DRAW);
        restore();
        std::process::exit(128 + signal as i32);
    })?;
    let (sender, news) = channel();
    let feed = Feed {
        place: context.place.clone(),
        read_only: context.read_only,
        every: Duration::from_secs(arguments.interval.into()),
    };
    std::thread::spawn(move || feed.run(&sender));
    // What is wrong from the start is said as every command says it.
    let mut model = Model::default();
    match news.recv() {
        Ok(News::Overview(overview)) => model.update(*overview),
        Ok(News::Trouble(failure)) => return Err(explained(failure)),
        Err(_) => return Err(Failure::Machine("the thread that listens has ended".to_owned())),
    }
    let plain_terminal = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let view = View::new(!arguments.no_color && !plain_terminal, true);
    let outcome = {
        let _restored = Restored::at_the_end();
        let terminal = ratatui::try_init()?;
        watch(terminal, model, view, &news, &told)
    };
    outcome.map_err(explained)?;
    match told.load(Ordering::SeqCst) {
        0 => Ok(ExitCode::SUCCESS),
        signal => Ok(ExitCode::from(128 + u8::try_from(signal).unwrap_or_default())),
    }
}

/// Leaves the terminal as it was found: no raw mode, the screen as before, a cursor.
fn restore() {
    ratatui::restore();
    // A terminal that is gone needs no cursor.
    let _ = execute!(io::stdout(), Show);
}

/// Restores the terminal when it is dropped; a panic, which drops nothing where it aborts, does so before it speaks.
struct Restored;

impl Restored {
    fn at_the_end() -> Restored {
        let speak = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            speak(panic);
        }));
        Restored
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        restore();
    }
}

/// Draws until a person, a signal or the daemon's refusal ends it.
fn watch(
    mut terminal: ratatui::DefaultTerminal,
    mut model: Model,
    mut view: View,
    news: &Receiver<News>,
    told: &AtomicI32,
) -> Result<(), Failure> {
    let mut lost: Option<(Instant, String)> = None;
    while told.load(Ordering::SeqCst) == 0 {
        for news in news.try_iter() {
            match news {
                News::Overview(overview) => {
                    lost = None;
                    model.update(*overview);
                }
                News::Trouble(failure @ Failure::Request(RequestError::Refused { .. })) => return Err(failure),
                News::Trouble(failure) => {
                    let since = lost.map_or_else(Instant::now, |(since, _)| since);
                    lost = Some((since, failure.to_string()));
                }
            }
        }
        if let Some((since, why)) = &lost {
            model.trouble(trouble(why, since.elapsed()));
        }
        terminal.draw(|frame| draw(&model, &mut view, frame.area(), frame.buffer_mut()))?;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
            && pressed(key, &mut view).is_break()
        {
            break;
        }
    }
    Ok(())
}

/// What is said while there is no news.
fn trouble(why: &str, since: Duration) -> String {
    match since.as_secs() {
        0 => format!("{why}; trying again"),
        seconds => format!("{why}; trying again for {seconds} s"),
    }
}

fn pressed(key: KeyEvent, view: &mut View) -> ControlFlow<()> {
    if key.kind == KeyEventKind::Release {
        return ControlFlow::Continue(());
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return ControlFlow::Break(()),
        KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
        KeyCode::Char('s') => view.sort = view.sort.next(),
        KeyCode::Down | KeyCode::Char('j') => view.choose(1),
        KeyCode::Up | KeyCode::Char('k') => view.choose(-1),
        _ => {}
    }
    ControlFlow::Continue(())
}

/// Listens to the daemon, and connects again when it is gone.
struct Feed {
    place: Place,
    read_only: bool,
    every: Duration,
}

impl Feed {
    fn run(&self, news: &Sender<News>) {
        loop {
            let trouble = match self.listen(news) {
                Ok(()) => return,
                Err(failure) => failure,
            };
            let refused = matches!(trouble, Failure::Request(RequestError::Refused { .. }));
            if news.send(News::Trouble(trouble)).is_err() || refused {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Until the connection ends, which is a failure, or nobody wants news any more.
    fn listen(&self, news: &Sender<News>) -> Result<(), Failure> {
        let mut connection = Connection::open(&self.place, self.read_only)?;
        let every_ms = u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX);
        let params = OverviewAsked {
            every_ms: Some(every_ms),
            tail: TAIL,
        };
        let ended = connection.listen("colibri/overview", &params, |_, name, params| {
            if name != "colibri/overview" || news.send(News::Overview(read(name, params)?)).is_ok() {
                return Ok(ControlFlow::Continue(()));
            }
            Ok::<_, Failure>(ControlFlow::Break(()))
        })?;
        let Some(why) = ended else { return Ok(()) };
        let StreamEnded { ended } = read("colibri/overview", &why)?;
        Err(Failure::Machine(format!("the daemon ended the view: {ended}")))
    }
}

/// Who is no operator is told what there is for everybody.
fn explained(failure: Failure) -> Failure {
    match failure {
        Failure::Request(RequestError::Refused { code, message }) if code == Code::PolicyDenied.row().number => {
            Failure::Request(RequestError::Refused {
                code,
                message: format!("{message}; `colibri-mcp servers` and `colibri-mcp status` are for everybody"),
            })
        }
        other => other,
    }
}

fn once(context: &Context) -> Result<(), Failure> {
    let asked = OverviewAsked {
        every_ms: None,
        tail: TAIL_ONCE,
    };
    let (overview, raw) = context.ask("colibri/overview", &asked).map_err(explained)?;
    context.print(&raw, || {
        let mut model = Model::default();
        model.update(overview);
        plain(&model, columns().unwrap_or(WIDTH).clamp(40, 500))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_said_before_how_long_it_is_lost() {
        assert_eq!(trouble("it is gone", Duration::ZERO), "it is gone; trying again");
        assert_eq!(
            trouble("it is gone", Duration::from_secs(12)),
            "it is gone; trying again for 12 s"
        );
    }

    #[test]
    fn keys_are_as_the_last_line_says() {
        let mut view = View::new(false, true);
        let mut press = |code, modifiers| pressed(KeyEvent::new(code, modifiers), &mut view).is_break();
        assert!(press(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        for code in [
            KeyCode::Char('c'),
            KeyCode::Char('s'),
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Tab,
        ] {
            assert!(!press(code, KeyModifiers::NONE));
        }
        assert_eq!(view.sort.name(), "calls/s");
    }
}
