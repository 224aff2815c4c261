//! Logins at servers behind a URL, by the built programs: a server that wants tokens, an issuer of
//! them, and `colibri-mcp login` with a browser that consents at once.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use colibri_registry::sha256_hex;
use colibri_tests::remote::{Port, Request, answer, json_answer};
use colibri_tests::{Client, Daemon, PATIENCE, Place, code_of, text_of};
use serde_json::{Value, json};

/// What an issuer did.
#[derive(Default)]
struct Issued {
    /// The forms with which tokens were asked for, by field.
    asked: Vec<Vec<(String, String)>>,
    /// How often it registered us, and how often before it forgot whom it knew.
    clients: usize,
    forgotten: usize,
    /// The challenges and codes that were given out.
    codes: Vec<(String, String)>,
    /// The access tokens that are good.
    good: Vec<String>,
    /// The tokens that were given back.
    revoked: Vec<String>,
    /// It renews nothing more.
    is_over: bool,
}

/// A modern server whose every request needs a token, and the issuer of these tokens beside it.
struct Guarded {
    place: Place,
    port: Port,
    issued: Arc<Mutex<Issued>>,
    /// To which port a browser is sent back.
    redirect: u16,
}

impl Guarded {
    fn new() -> Guarded {
        let issued: Arc<Mutex<Issued>> = Arc::default();
        let state = issued.clone();
        let port = Port::answering(move |request, stream| {
            let host = request.field("host").unwrap_or_default();
            let origin = format!("http://{host}");
            let (method, rest) = request.line.split_once(' ').unwrap();
            let (path, query) = rest
                .split(' ')
                .next()
                .unwrap()
                .split_once('?')
                .unwrap_or((rest, ""));
            let path = path.split(' ').next().unwrap();
            match (method, path) {
                (_, "/mcp") => served(&state, request, &origin, stream),
                ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                    let resource = json!({ "resource": format!("{origin}/mcp"), "authorization_servers": [origin] });
                    json_answer(stream, &resource)
                }
                ("GET", "/.well-known/oauth-authorization-server") => json_answer(
                    stream,
                    &json!({ "issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
                        "token_endpoint": format!("{origin}/token"), "registration_endpoint": format!("{origin}/register"),
                        "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                        "revocation_endpoint": format!("{origin}/revoke"), "grant_types_supported": ["authorization_code", "refresh_token"],
                        "token_endpoint_auth_methods_supported": ["none"],
                        "authorization_response_iss_parameter_supported": true }),
                ),
                ("POST", "/register") => {
                    let mut client = request.body.clone();
                    let mut issued = state.lock().unwrap();
                    issued.clients += 1;
                    client["client_id"] = json!(format!("us-{}", issued.clients));
                    let body = client.to_string();
                    answer(
                        stream,
                        "201 Created",
                        "Content-Type: application/json\r\n",
                        &body,
                    )
                }
                ("GET", "/authorize") => consented(&state, &form(query), &origin, stream),
                ("POST", "/revoke") => {
                    let form = form(&request.text);
                    let mut issued = state.lock().unwrap();
                    issued.good.retain(|good| good != field(&form, "token"));
                    issued.revoked.push(field(&form, "token").to_owned());
                    answer(stream, "200 OK", "", "")
                }
                ("POST", "/token") => token(&state, form(&request.text), stream),
                _ => answer(stream, "404 Not Found", "", ""),
            }
        });
        // One that was free just now.
        let redirect = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let place = Place::new();
        let entry = port.entry("/mcp", json!({ "oauth": { "redirect_port": redirect } }));
        place.registry(&json!({ "web": entry }));
        Guarded {
            place,
            port,
            issued,
            redirect,
        }
    }

    fn revoke(&self) {
        self.issued.lock().unwrap().good.clear();
    }

    fn asked(&self) -> usize {
        self.issued.lock().unwrap().asked.len()
    }

    fn tokens(&self) -> std::path::PathBuf {
        self.place.path("state/oauth")
    }

    /// `colibri-mcp login`, as far as it has said where the browser is to go.
    fn login(&self) -> Login {
        Login::begin(self.place.colibri_mcp(&["login", "web"]))
    }
}

fn served(state: &Mutex<Issued>, request: &Request, origin: &str, stream: &mut TcpStream) -> bool {
    let token = request
        .field("authorization")
        .and_then(|value| value.strip_prefix("Bearer "));
    let is_good =
        token.is_some_and(|token| state.lock().unwrap().good.iter().any(|good| good == token));
    if !is_good {
        let metadata = format!("{origin}/.well-known/oauth-protected-resource/mcp");
        let head = format!(
            "WWW-Authenticate: Bearer resource_metadata=\"{metadata}\", scope=\"tools\"\r\n"
        );
        return answer(stream, "401 Unauthorized", &head, "");
    }
    match request.usual() {
        Some(usual) => json_answer(stream, &usual),
        None => json_answer(stream, &request.text(&format!("for {}", token.unwrap()))),
    }
}

fn consented(
    state: &Mutex<Issued>,
    asked: &[(String, String)],
    origin: &str,
    stream: &mut TcpStream,
) -> bool {
    assert_eq!(field(asked, "response_type"), "code");
    assert_eq!(field(asked, "code_challenge_method"), "S256");
    assert_eq!(field(asked, "resource"), format!("{origin}/mcp"));
    let mut issued = state.lock().unwrap();
    let client = field(asked, "client_id").strip_prefix("us-").unwrap();
    if client.parse::<usize>().unwrap() <= issued.forgotten {
        return answer(stream, "400 Bad Request", "", "invalid_client");
    }
    let code = format!("code-{}", issued.codes.len());
    issued
        .codes
        .push((field(asked, "code_challenge").to_owned(), code.clone()));
    let (redirect, state) = (field(asked, "redirect_uri"), field(asked, "state"));
    let back = format!(
        "{redirect}?code={code}&state={state}&iss={}",
        origin.replace(':', "%3A").replace('/', "%2F")
    );
    answer(stream, "302 Found", &format!("Location: {back}\r\n"), "")
}

fn token(state: &Mutex<Issued>, asked: Vec<(String, String)>, stream: &mut TcpStream) -> bool {
    let mut issued = state.lock().unwrap();
    let is_right = match field(&asked, "grant_type") {
        "authorization_code" => {
            // RFC 7636 §4.6.
            let challenge = base64url(&sha256_hex(field(&asked, "code_verifier").as_bytes()));
            let code = field(&asked, "code").to_owned();
            let before = issued.codes.len();
            issued
                .codes
                .retain(|given| *given != (challenge.clone(), code.clone()));
            issued.codes.len() < before
        }
        "refresh_token" => {
            !issued.is_over && field(&asked, "refresh_token").starts_with("refresh-")
        }
        other => panic!("{other}"),
    };
    issued.asked.push(asked);
    if !is_right {
        let kind = "Content-Type: application/json\r\n";
        return answer(
            stream,
            "400 Bad Request",
            kind,
            r#"{"error":"invalid_grant"}"#,
        );
    }
    let number = issued.asked.len();
    issued.good.push(format!("access-{number}"));
    let tokens = json!({ "access_token": format!("access-{number}"), "token_type": "Bearer", "expires_in": 3600,
        "refresh_token": format!("refresh-{number}"), "scope": "tools" });
    json_answer(stream, &tokens)
}

/// The fields of a form or query.
fn form(text: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let (mut bytes, mut rest) = (Vec::new(), text.bytes());
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                byte => byte,
            });
        }
        String::from_utf8(bytes).unwrap()
    };
    let fields = text.split('&').filter_map(|field| field.split_once('='));
    fields
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn field<'a>(fields: &'a [(String, String)], name: &str) -> &'a str {
    let found = fields.iter().find(|(field, _)| field == name);
    found.map(|(_, value)| value.as_str()).unwrap_or_default()
}

/// What these hexadecimal digits say, as base64url without padding.
fn base64url(hex: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bits = String::new();
    for digit in hex.chars() {
        bits += &format!("{:04b}", digit.to_digit(16).unwrap());
    }
    while !bits.len().is_multiple_of(6) {
        bits.push('0');
    }
    let six = bits.as_bytes().chunks(6);
    let digit = |six: &[u8]| usize::from_str_radix(std::str::from_utf8(six).unwrap(), 2).unwrap();
    six.map(|six| DIGITS[digit(six)] as char).collect()
}

/// What a browser is answered that asks for this address: the head.
fn browse(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let head: Vec<String> = lines
        .by_ref()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    head.join("\n")
}

/// A login that waits for the browser.
struct Login {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Where the browser is sent.
    url: String,
    said: String,
}

impl Login {
    fn begin(mut command: Command) -> Login {
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        let url = loop {
            let begun = said.len();
            assert_ne!(output.read_line(&mut said).unwrap(), 0, "{said}");
            if let Some(url) = said[begun..].strip_prefix("  http") {
                break format!("http{}", url.trim());
            }
        };
        Login {
            child,
            output,
            url,
            said,
        }
    }

    /// Where the browser is sent that was there and consented.
    fn back(&self) -> String {
        let head = browse(&self.url);
        let location = head
            .lines()
            .find_map(|line| line.strip_prefix("Location: "));
        location.unwrap_or_else(|| panic!("{head}")).to_owned()
    }

    /// Pastes an address.
    fn paste(mut self, address: &str) -> (bool, String) {
        let mut input = self.child.stdin.take().unwrap();
        input.write_all(format!("{address}\n").as_bytes()).unwrap();
        self.ends()
    }

    /// Whether it ended well, and all that it said.
    fn ends(mut self) -> (bool, String) {
        self.output.read_to_string(&mut self.said).unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut self.said)
            .unwrap();
        (self.child.wait().unwrap().success(), self.said)
    }
}

/// A call of the server's tool, which need not be known.
fn call(client: &mut Client) -> Value {
    client.call(
        "colibri_external_mcp_call_tool",
        json!({ "server": "web", "tool": "echo", "arguments": {} }),
    )
}

fn wants_login(client: &mut Client) {
    let denied = call(client);
    assert_eq!(code_of(&denied), Some("SERVER_DENIED"), "{denied}");
    assert!(
        text_of(&denied).contains("colibri-mcp login web"),
        "{denied}"
    );
}

/// No token is anywhere but in its file.
fn shows_no_token(guarded: &Guarded, daemon: &Daemon<'_>, said: &[&str]) {
    let trail: String = guarded
        .place
        .records()
        .iter()
        .map(|record| record.rec.to_string())
        .collect();
    for text in said.iter().copied().chain([daemon.log().as_str(), &trail]) {
        assert!(
            !text.contains("refresh-") && !text.contains("code-"),
            "{text}"
        );
        assert!(!text.contains("access-"), "{text}");
    }
}

#[test]
fn a_person_logs_in_by_pasting_where_the_browser_was_sent_and_out_again() {
    let guarded = Guarded::new();
    let daemon = guarded.place.start(&[]);
    let mut client = daemon.modern();
    wants_login(&mut client);
    let login = guarded.login();
    let back = login.back();
    assert!(
        back.starts_with(&format!("http://127.0.0.1:{}/", guarded.redirect)),
        "{back}"
    );
    let (ended_well, said) = login.paste(&back);
    assert!(ended_well && said.contains("Logged in to web"), "{said}");
    assert_eq!(text_of(&call(&mut client)), "for access-1");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&guarded.tokens()), 0o700);
    let files: Vec<_> = fs::read_dir(guarded.tokens())
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    let has_token =
        |file: &&std::path::PathBuf| fs::read_to_string(file).unwrap().contains("access-1");
    assert_eq!(files.iter().filter(has_token).count(), 1, "{files:?}");
    shows_no_token(&guarded, &daemon, &[&said]);
    // It outlasts the daemon.
    daemon.stop();
    let daemon = guarded.place.start(&[]);
    let mut client = daemon.modern();
    assert_eq!(text_of(&call(&mut client)), "for access-1");
    let out = guarded
        .place
        .colibri_mcp(&["login", "--forget", "web"])
        .output()
        .unwrap();
    assert!(
        out.status.success() && String::from_utf8_lossy(&out.stdout).contains("takes them no more"),
        "{out:?}"
    );
    wants_login(&mut client);
    assert_eq!(
        guarded.issued.lock().unwrap().revoked,
        ["refresh-1", "access-1"]
    );
    let left = fs::read_dir(guarded.tokens()).unwrap();
    assert!(
        left.map(|file| file.unwrap().path())
            .all(|file| !has_token(&&file))
    );
}

#[test]
fn a_browser_on_this_machine_ends_the_login_by_itself() {
    let guarded = Guarded::new();
    let daemon = guarded.place.start(&[]);
    let login = guarded.login();
    // Who does not know the login's state does not end it.
    let strange = browse(&format!(
        "http://127.0.0.1:{}/callback?code=x&state=y",
        guarded.redirect
    ));
    assert!(!strange.contains(" 200 "), "{strange}");
    let thanks = browse(&login.back());
    assert!(thanks.starts_with("HTTP/1.1 200 "), "{thanks}");
    let (ended_well, said) = login.ends();
    assert!(ended_well, "{said}");
    assert_eq!(text_of(&call(&mut daemon.modern())), "for access-1");
}

#[test]
fn a_login_is_renewed_until_its_issuer_ends_it() {
    let guarded = Guarded::new();
    let daemon = guarded.place.start(&[]);
    let mut client = daemon.modern();
    let login = guarded.login();
    let back = login.back();
    assert!(login.paste(&back).0);
    assert_eq!(text_of(&call(&mut client)), "for access-1");
    guarded.revoke();
    assert_eq!(text_of(&call(&mut client)), "for access-2");
    {
        let issued = guarded.issued.lock().unwrap();
        let asked = issued.asked.last().unwrap();
        assert_eq!(field(asked, "refresh_token"), "refresh-1");
        assert_eq!(field(asked, "resource"), guarded.port.url("/mcp"));
    }
    guarded.issued.lock().unwrap().is_over = true;
    guarded.revoke();
    wants_login(&mut client);
    shows_no_token(&guarded, &daemon, &[]);
    // And begun anew.
    let login = guarded.login();
    let back = login.back();
    assert!(login.paste(&back).0);
    assert_eq!(text_of(&call(&mut client)), "for access-4");
}

#[test]
fn an_issuer_that_forgot_us_is_registered_with_anew_when_a_login_is_begun_again() {
    let guarded = Guarded::new();
    let daemon = guarded.place.start(&[]);
    let login = guarded.login();
    let back = login.back();
    assert!(login.paste(&back).0);
    {
        let mut issued = guarded.issued.lock().unwrap();
        assert_eq!(issued.clients, 1);
        issued.forgotten = 1;
        issued.good.clear();
        issued.is_over = true;
    }
    wants_login(&mut daemon.modern());
    // It is the browser that is told, and nobody comes back.
    let login = guarded.login();
    assert!(browse(&login.url).starts_with("HTTP/1.1 400 "));
    assert!(!login.paste("").0);
    let login = guarded.login();
    let back = login.back();
    assert!(login.paste(&back).0);
    assert_eq!(guarded.issued.lock().unwrap().clients, 2);
    assert!(text_of(&call(&mut daemon.modern())).starts_with("for access-"));
}

#[test]
fn an_address_of_another_login_or_issuer_is_sent_nowhere() {
    let guarded = Guarded::new();
    let _daemon = guarded.place.start(&[]);
    for (part, other, why) in [
        ("state=", "state=x", "no login waits for this address"),
        ("iss=http", "iss=https", "another issuer"),
        ("&iss=", "&of=", "does not name its issuer"),
        ("/callback?", "/elsewhere?", "must begin with"),
        ("code=", "error=access_denied&not=", "access_denied"),
    ] {
        let login = guarded.login();
        let back = login.back();
        let wrong = back.replacen(part, other, 1);
        assert_ne!(wrong, back, "{part}");
        let (ended_well, said) = login.paste(&wrong);
        assert!(!ended_well && said.contains(why), "{part}: {said}");
        assert_eq!(guarded.asked(), 0, "{part}");
    }
    // What was used is not used again.
    let login = guarded.login();
    let back = login.back();
    assert!(login.paste(&back).0);
    let (ended_well, said) = guarded.login().paste(&back);
    assert!(!ended_well && said.contains("no login waits"), "{said}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_login_of_one_person_serves_nobody_else() {
    let guarded = Guarded::new();
    guarded.place.open_to_group();
    let daemon = guarded.place.start(&[]);
    let login = guarded.login();
    let back = login.back();
    assert!(login.paste(&back).0);
    assert_eq!(text_of(&call(&mut daemon.modern())), "for access-1");
    let other = |args: &[&str]| {
        let output = guarded.place.stranger(args).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let denied = other(&["call", "web", "echo"]);
    assert!(
        denied.contains("colibri-mcp login web") && !denied.contains("access-"),
        "{denied}"
    );
    assert!(other(&["login", "--forget", "web"]).contains("There was no login"));
    // Nor does one person's browser end another's login.
    let login = guarded.login();
    let back = login.back();
    let (ended_well, said) = Login::begin(guarded.place.stranger(&["login", "web"])).paste(&back);
    assert!(!ended_well && said.contains("is not yours"), "{said}");
    assert!(login.paste(&back).0);
    // Each has a login of their own.
    let theirs = Login::begin(guarded.place.stranger(&["login", "web"]));
    let back = theirs.back();
    assert!(theirs.paste(&back).0);
    assert!(other(&["call", "web", "echo"]).contains("for access-3"));
    assert_eq!(text_of(&call(&mut daemon.modern())), "for access-2");
}
