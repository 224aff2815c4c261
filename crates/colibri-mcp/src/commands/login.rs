//! `colibri-mcp login` and `logout`: a person's login at a server behind a URL.

use std::io::{BufRead as _, BufReader, IsTerminal as _, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use super::context::Context;
use crate::failure::Failure;
use crate::terminal;
use colibri_api::{LoggedIn, LoggedOut, LoginAsked, LoginFinishAsked, LoginStep, LogoutAsked};
use colibri_text::visible;

/// The most bytes of an address that is pasted, or that a browser brings.
const MAX_ADDRESS: u64 = 16 * 1024;
/// How long a browser may take to say what it wants.
const BROWSER_TIME: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Login {
    /// The server, as `colibri-mcp servers` shows it
    server: String,
    /// Ask for this beside what the server names
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Read an ID token of the entry's identity provider from standard input, in place of asking for consent
    #[arg(long)]
    id_token: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Logout {
    /// The server, as `colibri-mcp servers` shows it
    server: String,
}

impl Login {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let id_token = self.id_token.then(line).transpose()?;
        let asked = LoginAsked {
            server: self.server.clone(),
            scopes: self.scopes.clone(),
            id_token,
        };
        let (step, raw) = context.ask::<LoginStep>("colibri/login", &asked)?;
        let (url, redirect) = match step {
            LoginStep::Done(done) => return context.print(&raw, || said(&done)),
            LoginStep::Consent { url, redirect, .. } => (url, redirect),
        };
        // The answer alone goes to standard output of a program that wants JSON.
        let shown = format!(
            "To log in to {}, open this address in a browser:\n\n  {}\n\nAfterwards the browser is sent to {}. If it runs on \
             this machine, that is all. Else it finds nothing there: paste the whole address that it shows then.\n",
            visible(&self.server),
            visible(&url),
            visible(&redirect),
        );
        match context.json {
            true => write!(std::io::stderr(), "{shown}")?,
            false => terminal::print(&shown)?,
        }
        let address = came_back(&url, &redirect)?;
        let (done, raw) = context.ask::<LoggedIn>("colibri/login-finish", &LoginFinishAsked { address })?;
        context.print(&raw, || said(&done))
    }
}

impl Logout {
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        let asked = LogoutAsked {
            server: self.server.clone(),
        };
        let (done, raw) = context.ask::<LoggedOut>("colibri/logout", &asked)?;
        context.print(&raw, || match done.was_logged_in {
            true => format!("Logged out of {}: its tokens are removed here.", visible(&done.server)),
            false => format!("There was no login to {}.", visible(&done.server)),
        })
    }
}

fn said(done: &LoggedIn) -> String {
    let scopes = match done.scopes.is_empty() {
        true => String::new(),
        false => format!(", for {}", visible(&done.scopes.join(" "))),
    };
    format!(
        "Logged in to {} by {}{scopes}.",
        visible(&done.server),
        visible(&done.issuer)
    )
}

/// The address to which the browser was sent: from the browser, if it runs here, or as it is pasted; whichever is first.
fn came_back(url: &str, redirect: &str) -> Result<String, Failure> {
    let (tell, told) = channel();
    let state = url.split(['?', '&']).find(|field| field.starts_with("state="));
    let port = redirect
        .strip_prefix("http://127.0.0.1:")
        .and_then(|rest| rest.split('/').next()?.parse().ok());
    // Where another program has the port, pasting is left.
    let listener = port.and_then(|port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    if let (Some(listener), Some(state)) = (listener, state) {
        let (tell, state, redirect) = (tell.clone(), state.to_owned(), redirect.to_owned());
        thread::spawn(move || serve(&listener, &state, &redirect, &tell));
    }
    thread::spawn(move || tell.send(line()));
    match told.recv() {
        Ok(address) => address,
        Err(_) => Err(Failure::Data(
            "nobody said to which address the browser was sent".to_owned(),
        )),
    }
}

/// A line of standard input.
fn line() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        write!(std::io::stderr(), "> ")?;
    }
    let mut line = String::new();
    let read = stdin.lock().take(MAX_ADDRESS).read_line(&mut line)?;
    match read {
        0 => Err(Failure::Data(
            "standard input ended before anything was read from it".to_owned(),
        )),
        _ => Ok(line.trim().to_owned()),
    }
}

/// Waits for the browser that was sent here, and for no other: it brings the `state` of this login.
fn serve(listener: &TcpListener, state: &str, redirect: &str, tell: &Sender<Result<String, Failure>>) {
    for stream in listener.incoming().flatten() {
        let Some(query) = asked(&stream, redirect) else {
            continue;
        };
        if query.split('&').any(|field| field == state) {
            answer(
                &stream,
                "200 OK",
                "Thank you. colibri-mcp says how it ended; this page can be closed.",
            );
            let _ = tell.send(Ok(format!("{redirect}?{query}")));
            return;
        }
        answer(&stream, "400 Bad Request", "This is not the login that waits here.");
    }
}

/// The query with which a browser asks for the redirect address.
fn asked(stream: &TcpStream, redirect: &str) -> Option<String> {
    stream.set_read_timeout(Some(BROWSER_TIME)).ok()?;
    stream.set_write_timeout(Some(BROWSER_TIME)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_ADDRESS)).read_line(&mut line).ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let path = redirect.splitn(4, '/').nth(3)?;
    let query = target.strip_prefix('/')?.strip_prefix(path)?.strip_prefix('?')?;
    Some(query.to_owned())
}

fn answer(mut stream: &TcpStream, status: &str, text: &str) {
    // The browser may be gone; what it brought counts.
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_browser_of_this_login_ends_the_wait() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let redirect = format!("http://{address}/callback");
        let (tell, told) = channel();
        let serving = {
            let redirect = redirect.clone();
            thread::spawn(move || serve(&listener, "state=right", &redirect, &tell))
        };
        let ask = |line: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            let mut answer = String::new();
            // A refused request may end in a reset: more was sent than was read.
            let _ = stream.read_to_string(&mut answer);
            answer
        };
        assert_eq!(ask("GET /favicon.ico HTTP/1.1\r\n\r\n"), "");
        assert_eq!(ask("\u{0}\r\n"), "");
        assert!(ask("GET /callback?code=c&state=wrong HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
        assert!(told.try_recv().is_err());
        assert!(ask("GET /callback?code=c&state=right HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert_eq!(told.recv().unwrap().unwrap(), format!("{redirect}?code=c&state=right"));
        serving.join().unwrap();
    }
}
