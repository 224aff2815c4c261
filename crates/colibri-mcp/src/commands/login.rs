//! `colibri-mcp login`: a person's login at a server behind a URL, and its end.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::terminal;
use colibri_api::{
    LoggedIn, LoggedOut, LoginFinishRequest, LoginStartRequest, LoginStep, LogoutRequest, authority,
};
use colibri_text::visible;

/// The most bytes of an address that is pasted, or that a browser brings.
const MAX_ADDRESS: u64 = 16 * 1024;
/// The most bytes of a browser's request: it brings the cookies of all that listened on this
/// machine before.
const MAX_HEAD: usize = 64 * 1024;
/// The longest time for a browser to send its request.
const BROWSER_TIME: Duration = Duration::from_secs(5);
/// The most browsers at once.
const MAX_BROWSERS: usize = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArguments {
    /// The server, as `colibri-mcp status` shows it
    server: String,
    /// A scope to request beside those that the server names
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Read an ID token of the entry's identity provider from standard input, in place of asking
    /// for consent
    #[arg(long)]
    id_token: bool,
    /// Forget the login instead, and have its issuer take its tokens back
    #[arg(long, conflicts_with_all = ["scopes", "id_token"])]
    forget: bool,
}

impl LoginArguments {
    pub(crate) fn run(&self, context: &CommandContext) -> Result<(), CommandError> {
        if self.forget {
            return self.log_out(context);
        }
        let id_token = self.id_token.then(line).transpose()?;
        let asked = LoginStartRequest {
            server: self.server.clone(),
            scopes: self.scopes.clone(),
            id_token,
        };
        let (step, raw) = context.ask::<LoginStep>("colibri/login", &asked)?;
        let (url, redirect, issuer, scopes) = match step {
            LoginStep::Done(done) => return context.print(&raw, || said(&done)),
            LoginStep::Consent {
                url,
                redirect,
                issuer,
                scopes,
            } => (url, redirect, issuer, scopes),
        };
        // Before anybody is sent there.
        let listener = listener(&redirect);
        let shown = invitation(
            &self.server,
            &url,
            &redirect,
            &issuer,
            &scopes,
            listener.is_some(),
        );
        // The answer alone goes to standard output of a program that wants JSON.
        match context.json {
            true => write!(std::io::stderr(), "{shown}")?,
            false => terminal::print(&shown)?,
        }
        let address = came_back(&url, redirect, listener)?;
        let (done, raw) =
            context.ask::<LoggedIn>("colibri/login-finish", &LoginFinishRequest { address })?;
        context.print(&raw, || said(&done))
    }

    fn log_out(&self, context: &CommandContext) -> Result<(), CommandError> {
        let asked = LogoutRequest {
            server: self.server.clone(),
        };
        let (done, raw) = context.ask::<LoggedOut>("colibri/logout", &asked)?;
        context.print(&raw, || match done.was_logged_in {
            true if done.is_revoked => {
                let server = visible(&done.server);
                format!("Logged out of {server}: its tokens are removed here, and their issuer takes them no more.")
            }
            true => {
                let server = visible(&done.server);
                format!("Logged out of {server}: its tokens are removed here, but their issuer did not revoke them.")
            }
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

/// The invitation of a person: the action, its purpose, the issuer of tokens, and the authorization
/// server, if that is another one.
fn invitation(
    server: &str,
    url: &str,
    redirect: &str,
    issuer: &str,
    scopes: &[String],
    listens: bool,
) -> String {
    let mut shown = format!(
        "{} gets tokens of {}, for {}.\n",
        visible(server),
        visible(issuer),
        match scopes.is_empty() {
            true => "what that grants by itself".to_owned(),
            false => visible(&scopes.join(" ")).into_owned(),
        }
    );
    if authority(url) != authority(issuer) {
        shown.push_str(&format!(
            "The page is at {}, which is another host: go on only if they belong together.\n",
            visible(authority(url))
        ));
    }
    let redirect = visible(redirect);
    let after = match listens {
        true => format!(
            "Afterwards the browser is sent to {redirect}. If it runs on this machine, that is all. Else it finds nothing \
             there: paste the whole address that it shows then."
        ),
        false => format!(
            "Afterwards the browser is sent to {redirect}, where another program of this machine listens: believe nothing \
             that it shows there, and paste the whole address."
        ),
    };
    format!(
        "{shown}To log in, open this address in a browser:\n\n  {}\n\n{after}\n",
        visible(url)
    )
}

/// The listener for a browser on this machine; `None`: another program has the port.
fn listener(redirect: &str) -> Option<TcpListener> {
    let rest = redirect.strip_prefix("http://127.0.0.1:")?;
    let port: u16 = rest.split('/').next()?.parse().ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

/// The address to which the browser was sent: from the browser, if it runs here, or as it is
/// pasted; whichever is first.
fn came_back(
    url: &str,
    redirect: String,
    listener: Option<TcpListener>,
) -> Result<String, CommandError> {
    let (tell, told) = channel();
    // Ours is the last: the page may have one of its own.
    let state = url
        .split(['?', '&'])
        .rfind(|field| field.starts_with("state="));
    if let (Some(listener), Some(state)) = (listener, state) {
        let (tell, state) = (tell.clone(), state.to_owned());
        thread::spawn(move || serve(&listener, &state, &redirect, &tell));
    }
    thread::spawn(move || tell.send(line()));
    match told.recv() {
        Ok(address) => address,
        Err(_) => Err(CommandError::Data(
            "nobody said to which address the browser was sent".to_owned(),
        )),
    }
}

/// A line of standard input.
fn line() -> Result<String, CommandError> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        write!(std::io::stderr(), "> ")?;
    }
    let mut line = String::new();
    let read = stdin.lock().take(MAX_ADDRESS).read_line(&mut line)?;
    match read {
        0 => Err(CommandError::Data(
            "standard input ended before anything was read from it".to_owned(),
        )),
        _ => Ok(line.trim().to_owned()),
    }
}

/// Waits for the browser that was sent here, and for no other: it brings the `state` of this login.
/// Everybody on this machine can connect, so nobody is waited for before the next is heard.
fn serve(
    listener: &TcpListener,
    state: &str,
    redirect: &str,
    tell: &Sender<Result<String, CommandError>>,
) {
    let at_it = Arc::new(());
    for stream in listener.incoming().flatten() {
        if Arc::strong_count(&at_it) > MAX_BROWSERS {
            continue;
        }
        let (at_it, state, redirect, tell) = (
            at_it.clone(),
            state.to_owned(),
            redirect.to_owned(),
            tell.clone(),
        );
        thread::spawn(move || {
            let query = asked(&stream, &redirect);
            if let Some(address) =
                query.and_then(|query| received(&stream, &query, &state, &redirect))
            {
                let _ = tell.send(Ok(address));
            }
            drop(at_it);
        });
    }
}

/// The address that a browser was sent to, if it is the one of this login.
fn received(stream: &TcpStream, query: &str, state: &str, redirect: &str) -> Option<String> {
    if query.split('&').any(|field| field == state) {
        answer(
            stream,
            "200 OK",
            "Thank you. colibri-mcp says how it ended; this page can be closed.",
        );
        return Some(format!("{redirect}?{query}"));
    }
    answer(
        stream,
        "400 Bad Request",
        "This is not the login that waits here.",
    );
    None
}

/// The query with which a browser asks for the redirect address. The request is read to its end:
/// who closes a connection with bytes unread resets it, and the browser may lose the answer.
fn asked(mut stream: &TcpStream, redirect: &str) -> Option<String> {
    stream.set_write_timeout(Some(BROWSER_TIME)).ok()?;
    let until = Instant::now() + BROWSER_TIME;
    let (mut head, mut part) = (Vec::new(), [0; 4096]);
    while !head.ends_with(b"\r\n\r\n") {
        let left = until
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut part).ok()? {
            0 => return None,
            read => head.extend_from_slice(&part[..read]),
        }
        if head.len() > MAX_HEAD {
            return None;
        }
    }
    let line = head.split(|&byte| byte == b'\n').next()?;
    let line = str::from_utf8(line)
        .ok()
        .filter(|line| line.len() as u64 <= MAX_ADDRESS)?;
    let target = line.strip_prefix("GET ")?.split([' ', '\r']).next()?;
    let path = redirect.splitn(4, '/').nth(3)?;
    let query = target
        .strip_prefix('/')?
        .strip_prefix(path)?
        .strip_prefix('?')?;
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
        {
            let redirect = redirect.clone();
            thread::spawn(move || serve(&listener, "state=right", &redirect, &tell));
        }
        // Another user of this machine, who is first and says nothing.
        let silent = TcpStream::connect(address).unwrap();
        let ask = |line: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            let mut answer = String::new();
            // A refused request may end in a reset: more was sent than was read.
            let _ = stream.read_to_string(&mut answer);
            answer
        };
        assert_eq!(ask("GET /favicon.ico HTTP/1.1\r\n\r\n"), "");
        assert_eq!(ask("\u{0}\r\n\r\n"), "");
        assert!(
            ask("GET /callback?code=c&state=wrong HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400")
        );
        assert!(told.try_recv().is_err());
        assert!(
            ask("GET /callback?code=c&state=right HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200")
        );
        assert_eq!(
            told.recv().unwrap().unwrap(),
            format!("{redirect}?code=c&state=right")
        );
        drop(silent);
    }

    #[test]
    fn a_request_that_arrives_in_parts_is_read_to_its_end_and_answered() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut browser = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let reader = thread::spawn(move || asked(&stream, "http://127.0.0.1:1/callback"));
        browser
            .write_all(b"GET /callback?code=c HTTP/1.1\r\n")
            .unwrap();
        browser.write_all(b"Cookie: \xff=").unwrap();
        browser.write_all(&[b'x'; 32 * 1024]).unwrap();
        browser.write_all(b"\r\n\r\n").unwrap();
        assert_eq!(reader.join().unwrap().as_deref(), Some("code=c"));
    }

    #[test]
    fn who_says_what_it_wants_byte_by_byte_is_not_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let writer = thread::spawn(move || {
            while slow.write_all(b"x").is_ok() {
                thread::sleep(BROWSER_TIME / 10);
            }
        });
        assert_eq!(asked(&stream, "http://127.0.0.1:1/callback"), None);
        drop(stream);
        writer.join().unwrap();
    }

    #[test]
    fn a_person_sees_who_gets_what_before_the_page_is_opened() {
        let redirect = "http://127.0.0.1:7374/callback";
        let scopes = ["mail:read".to_owned(), "\u{202e}admin".to_owned()];
        let shown = |url, listens| {
            invitation(
                "mail",
                url,
                redirect,
                "https://as.example/t",
                &scopes,
                listens,
            )
        };
        let own = shown("https://as.example/authorize?state=x", true);
        assert!(
            own.contains("mail gets tokens of https://as.example/t, for mail:read \\u{202e}admin."),
            "{own}"
        );
        assert!(
            !own.contains("another host") && own.contains("that is all"),
            "{own}"
        );
        let mixed = shown("https://honest.example/authorize?state=x", false);
        assert!(
            mixed.contains("at honest.example, which is another host"),
            "{mixed}"
        );
        assert!(
            mixed.contains("another program of this machine listens"),
            "{mixed}"
        );
    }

    #[test]
    fn the_port_is_ours_or_nobody_is_waited_for_there() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        assert!(listener(&format!("http://127.0.0.1:{port}/callback")).is_none());
        assert!(listener("http://evil.example:80/callback").is_none());
    }
}
