//! What servers and authorization servers say of logins, whatever it is: challenges, metadata,
//! registrations, tokens, errors, and the address that a person pastes. A login begins and ends
//! only as all of it together allows; nothing goes over a connection that others can read; no
//! secret is in what is told; of a login that is ended nothing is kept.
//!
//! Input: options (1 byte), then pieces between bytes that no text has, 0xFF: the challenge, the
//! metadata of the resource and of the authorization server, the answers to the registration and to
//! the first request for a token, the address, the answer to further requests for tokens. An answer
//! may begin with its status: `404 `.

use std::path::Path;
use std::sync::{Arc, Mutex};

use colibri_http::{BoxFuture, Dial, HttpClient, HttpError, Io, UrlOrigin};
use colibri_outbound::oauth::{
    Grant, IdentityProvider, Logins, OauthAccount, OauthServer, OauthSettings, REDIRECT_PORT,
    TokenStore, Vault,
};
use colibri_outbound::{Authorizer as _, Challenge};
use colibri_registry::EntryValue;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value as Document;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

const SERVER: &str = "https://server.example/mcp";
const ISSUER: &str = "https://issuer.example";
const REDIRECT: &str = "http://127.0.0.1:7374/callback";
/// What seeds have in their secrets.
const MARK: &str = "S3CRET";
const PERSON: u32 = 1001;

/// An answer with its status.
fn answer(piece: &[u8]) -> (u16, &[u8]) {
    let status = piece.split_at_checked(4).and_then(|(status, rest)| {
        let digits = std::str::from_utf8(status).ok()?.strip_suffix(' ')?;
        Some((
            digits
                .parse()
                .ok()
                .filter(|code| (200..600).contains(code))?,
            rest,
        ))
    });
    status.unwrap_or((200, piece))
}

/// A request as it came.
struct Asked {
    origin: UrlOrigin,
    method: String,
    form: String,
}

/// Everybody who can be asked.
struct World {
    pieces: Vec<Vec<u8>>,
    asked: Mutex<Vec<Asked>>,
    issued: Mutex<Vec<String>>,
}

impl World {
    fn piece(&self, at: usize) -> &[u8] {
        self.pieces.get(at).map_or(&[], Vec::as_slice)
    }

    /// A document that was answered whole.
    fn document(&self, at: usize) -> Document {
        let (status, body) = answer(self.piece(at));
        // What is not read of a document need not be text.
        let read = || serde_json::from_str(&String::from_utf8_lossy(body)).ok();
        (status == 200).then(read).flatten().unwrap_or_default()
    }

    /// The requests for tokens.
    fn forms(&self) -> Vec<Vec<(String, String)>> {
        let asked = self.asked.lock().expect("a lock");
        let forms = asked
            .iter()
            .filter(|asked| asked.method == "POST" && !asked.form.starts_with('{'));
        forms
            .map(|asked| {
                form_urlencoded::parse(asked.form.as_bytes())
                    .into_owned()
                    .collect()
            })
            .collect()
    }

    async fn serve(
        self: Arc<Self>,
        origin: UrlOrigin,
        mut io: DuplexStream,
    ) -> std::io::Result<()> {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(io.read_u8().await?);
            }
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
            io.read_exact(&mut body).await?;
            let (is_post, is_json) = (head.starts_with("post"), body.starts_with(b"{"));
            let which = if is_post && is_json {
                3
            } else if is_post {
                if self.forms().is_empty() { 4 } else { 6 }
            } else if head.contains("oauth-authorization-server")
                || head.contains("openid-configuration")
            {
                2
            } else {
                1
            };
            self.asked.lock().expect("a lock").push(Asked {
                origin: origin.clone(),
                method: if is_post { "POST" } else { "GET" }.to_owned(),
                form: String::from_utf8_lossy(&body).into_owned(),
            });
            let (status, body) = answer(self.piece(which));
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            io.write_all(&[head.as_bytes(), body].concat()).await?;
        }
    }
}

struct To(Arc<World>);

impl Dial for To {
    fn dial<'a>(&'a self, origin: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        let address: Option<std::net::IpAddr> = origin.host.parse().ok();
        let is_here =
            origin.host == "localhost" || address.is_some_and(|address| address.is_loopback());
        assert!(
            origin.is_secure || is_here,
            "{origin} is asked in clear text"
        );
        let (ours, theirs) = duplex(1 << 20);
        let world = self.0.clone();
        let origin = origin.clone();
        tokio::spawn(async move { world.serve(origin, theirs).await });
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

/// Remembers which tokens it was told of.
struct Told(Arc<World>);

impl Vault for Told {
    fn read(&self, _: &EntryValue) -> anyhow::Result<SecretString> {
        Ok(SecretString::from(format!("{MARK} of the entry")))
    }

    fn issued(&self, token: &SecretString) {
        let token = token.expose_secret().to_owned();
        self.0.issued.lock().expect("a lock").push(token);
    }
}

fn settings(options: u8) -> OauthSettings {
    let secret = || Some(EntryValue::Secret("x".to_owned()));
    let has = |bit: u8| options & bit != 0;
    OauthSettings {
        grant: if has(1) {
            Grant::Machine
        } else {
            Grant::Person
        },
        issuer: has(2).then(|| ISSUER.to_owned()),
        client_id: has(4).then(|| "known".to_owned()),
        client_secret: has(8).then(secret).flatten(),
        client_metadata_url: has(16).then(|| "https://we.example/client.json".to_owned()),
        redirect_port: REDIRECT_PORT,
        identity_provider: has(32).then(|| IdentityProvider {
            issuer: ISSUER.to_owned(),
            client_id: "us".to_owned(),
            client_secret: secret(),
        }),
        ..OauthSettings::default()
    }
}

/// What an address says, if it can be the end of the login that began with this URL.
fn code(address: &str, started: &str, metadata: &Document) -> Option<String> {
    let (place, query) = address.trim().split_once('?')?;
    let pairs = |query: &str| -> Vec<(String, String)> {
        form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect()
    };
    let pairs = pairs(query.split('#').next()?);
    let one = |name: &str| {
        let mut found = pairs.iter().filter(|(key, _)| key == name);
        Some(&found.next()?.1).filter(|_| found.next().is_none())
    };
    let names_issuer = metadata["authorization_response_iss_parameter_supported"] == true;
    let is_issuer = match one("iss") {
        Some(issuer) => metadata["issuer"] == **issuer,
        None => !names_issuer && pairs.iter().all(|(key, _)| key != "iss"),
    };
    let is_state =
        one("state").is_some_and(|state| !state.is_empty() && started.contains(&**state));
    let is_ours =
        place == REDIRECT && is_state && is_issuer && pairs.iter().all(|(key, _)| key != "error");
    one("code").filter(|_| is_ours).cloned()
}

/// Begins a login, and ends it with the address. What was told on the way.
async fn log_in(world: &World, account: &Arc<OauthAccount>, logins: &Logins) -> Vec<String> {
    let before = world.forms().len();
    let started = match logins.start(PERSON, account, &[]).await {
        Ok(started) => started,
        Err(error) => return vec![format!("{error:#}")],
    };
    let (resource, metadata) = (world.document(1), world.document(2));
    assert_eq!(metadata["issuer"], *started.issuer);
    let ways = metadata["code_challenge_methods_supported"].as_array();
    assert!(
        ways.is_some_and(|ways| ways.iter().any(|way| way == "S256")),
        "no PKCE"
    );
    let settings = &account.server().settings;
    assert!(
        settings
            .issuer
            .as_ref()
            .is_none_or(|issuer| *issuer == started.issuer)
    );
    let wanted = if answer(world.piece(1)).0 == 200 {
        let issuers = resource["authorization_servers"].as_array();
        assert!(
            issuers.is_some_and(|issuers| issuers.iter().any(|issuer| *issuer == *started.issuer))
        );
        resource["resource"].as_str().unwrap_or_default()
    } else {
        assert_eq!(
            started.issuer.trim_end_matches('/'),
            "https://server.example"
        );
        SERVER
    };
    assert!(!started.url.contains(|c: char| c.is_control() || c == ' '));
    let endpoint = metadata["authorization_endpoint"]
        .as_str()
        .unwrap_or_default();
    let query = started.url.strip_prefix(endpoint).unwrap_or_default();
    let asked: Vec<_> =
        form_urlencoded::parse(query.trim_start_matches(['?', '&']).as_bytes()).collect();
    let field = |name: &str| {
        asked
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    };
    assert_eq!(
        (field("response_type"), field("code_challenge_method")),
        ("code", "S256")
    );
    assert_eq!(
        (field("redirect_uri"), field("resource")),
        (REDIRECT, wanted)
    );
    assert_eq!(
        (field("state").len(), field("code_challenge").len()),
        (43, 43)
    );
    // The same again is the same.
    let again = logins
        .start(PERSON, account, &[])
        .await
        .expect("what began once");
    assert_eq!(
        (&again.issuer, &again.scopes),
        (&started.issuer, &started.scopes)
    );

    let pasted = String::from_utf8_lossy(world.piece(5));
    let address = pasted
        .replace("{state}", field("state"))
        .replace("{redirect}", REDIRECT);
    let code = code(&address, field("state"), &metadata);
    assert!(logins.finish(PERSON + 1, &address).await.is_err());
    assert_eq!(
        world.forms().len(),
        before,
        "another user's address was taken"
    );
    let ended = logins.finish(PERSON, &address).await;
    let forms = world.forms();
    match code {
        None => assert!(
            ended.is_err() && forms.len() == before,
            "{address:?} ends a login"
        ),
        Some(code) => {
            let has = |name: &str, value: &str| {
                forms[before]
                    .iter()
                    .any(|(key, said)| key == name && said == value)
            };
            assert_eq!(forms.len(), before + 1);
            assert!(
                has("grant_type", "authorization_code")
                    && has("code", &code)
                    && has("resource", wanted)
            );
            let token = metadata["token_endpoint"]
                .as_str()
                .unwrap_or_default()
                .parse();
            let token = token.ok().and_then(|url| UrlOrigin::of(&url).ok());
            let asked = world.asked.lock().expect("a lock");
            assert_eq!(asked.last().map(|asked| &asked.origin), token.as_ref());
        }
    }
    assert!(
        logins.finish(PERSON, &address).await.is_err(),
        "a login ended twice"
    );
    let told = match ended {
        Ok(ended) => format!("{ended:?}"),
        Err(error) => format!("{error:#}"),
    };
    vec![format!("{started:?}"), told]
}

/// Ends a login: nothing of it is kept, and its tokens go to nobody but whom its issuer named for
/// that.
async fn log_out(world: &World, account: &OauthAccount, state: &Path) {
    let before = world.asked.lock().expect("a lock").len();
    let is_over = account.log_out().await.expect("a directory of its own");
    let kept = std::fs::read_dir(state.join("oauth"))
        .into_iter()
        .flatten()
        .flatten();
    let logins = kept.filter(|file| file.file_name().to_string_lossy().starts_with("login."));
    assert_eq!(logins.count(), 0, "a login is kept");
    assert!(
        matches!(account.authorization().await, Ok(None)),
        "a token is kept"
    );
    assert!(matches!(account.log_out().await, Ok(None)));
    let named = world.document(2)["revocation_endpoint"]
        .as_str()
        .and_then(|url| url.parse().ok());
    let named = named.and_then(|url| UrlOrigin::of(&url).ok());
    let asked = world.asked.lock().expect("a lock");
    assert!(is_over.is_some() || asked.len() == before);
    for asked in &asked[before..] {
        assert_eq!(
            Some(&asked.origin),
            named.as_ref(),
            "a token went elsewhere"
        );
    }
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((options, rest)) = data.split_first() else {
        return;
    };
    let pieces: Vec<Vec<u8>> = rest
        .split(|byte| *byte == 0xff)
        .map(<[u8]>::to_vec)
        .collect();
    let world = Arc::new(World {
        pieces,
        asked: Mutex::default(),
        issued: Mutex::default(),
    });
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    let state = tempfile::tempdir_in(base).expect("a directory");
    super::to_its_end(async {
        let server = Arc::new(OauthServer {
            id: "docs".to_owned(),
            url: SERVER.parse().expect("a URL"),
            settings: settings(*options),
            client: HttpClient::over(To(world.clone())),
            store: Arc::new(TokenStore::below(state.path())),
            vault: Arc::new(Told(world.clone())),
        });
        let owner = server.owner(PERSON);
        let account = Arc::new(OauthAccount::new(server, owner));
        let challenge = |refused| Challenge {
            status: (if options & 64 == 0 { 401_u16 } else { 403 })
                .try_into()
                .expect("a status"),
            fields: world.piece(0).to_vec().try_into().into_iter().collect(),
            refused,
        };
        let shown = |error: anyhow::Error| format!("{error:#}");
        let mut told = Vec::new();
        told.extend(account.challenged(challenge(None)).await.err().map(shown));
        let logins = Logins::default();
        told.extend(log_in(&world, &account, &logins).await);
        if options & 32 != 0 {
            let identity = SecretString::from(format!("{MARK} of the person"));
            told.extend(account.vouch(identity).await.err().map(shown));
        }
        let sent = match account.authorization().await {
            Ok(sent) => sent,
            Err(error) => {
                told.push(shown(error));
                None
            }
        };
        if let Some(sent) = &sent {
            assert!(sent.is_sensitive(), "a token can be shown");
            let token = sent.as_bytes().strip_prefix(b"Bearer ").expect("a token");
            let issued = world.issued.lock().expect("a lock");
            assert!(
                issued.iter().any(|one| one.as_bytes() == token),
                "a token that nobody was told of"
            );
            let from = [4, 6].map(|at| world.document(at)["access_token"].clone());
            assert!(
                from.iter()
                    .any(|one| one.as_str().is_some_and(|one| one.as_bytes() == token))
            );
        }
        told.extend(account.challenged(challenge(sent)).await.err().map(shown));
        log_out(&world, &account, state.path()).await;

        let in_secrets: usize = [3, 4, 6]
            .iter()
            .flat_map(|at| {
                let document = world.document(*at);
                ["client_secret", "access_token", "refresh_token", "id_token"]
                    .map(|key| document[key].clone())
            })
            .filter_map(|secret| Some(secret.as_str()?.matches(MARK).count()))
            .sum();
        let everywhere = rest
            .windows(MARK.len())
            .filter(|window| *window == MARK.as_bytes())
            .count();
        for text in &told {
            assert!(
                text.len() < 16_384 && !text.contains(|c: char| c.is_control()),
                "{text:?}"
            );
            assert!(
                everywhere != in_secrets || !text.contains(MARK),
                "a secret is told: {text}"
            );
        }
    });
}
