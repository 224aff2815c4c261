//! The client side against an issuer and a server in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hyper::StatusCode;
use hyper::header::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Document, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::Notify;

use super::*;
use crate::{Authorizer as _, Challenge};
use colibri_http::{BoxFuture, Dial, HttpClient, HttpError, Io, UrlOrigin};
use colibri_registry::EntryValue;

const ISSUER: &str = "https://issuer.example";
const SERVER: &str = "https://server.example/mcp";

/// A request: the URL without its query, the form or document, and `Authorization`.
#[derive(Debug, Clone)]
struct Asked {
    url: String,
    fields: BTreeMap<String, String>,
    authorization: String,
}

/// Answers by URL, in their order; the last one again and again.
#[derive(Default)]
struct World {
    answers: Mutex<BTreeMap<String, Vec<(u16, Document)>>>,
    asked: Mutex<Vec<Asked>>,
    /// The values that no text may show.
    hidden: Mutex<Vec<String>>,
    /// The next answer waits: it is told that somebody asked, and waits to be told to go on.
    held: Mutex<Option<(Arc<Notify>, Arc<Notify>)>>,
}

impl World {
    fn says(&self, url: &str, answer: Document) {
        self.answers
            .lock()
            .unwrap()
            .insert(url.to_owned(), vec![(200, answer)]);
    }

    fn then(&self, url: &str, status: u16, answer: Document) {
        let mut answers = self.answers.lock().unwrap();
        answers
            .entry(url.to_owned())
            .or_default()
            .push((status, answer));
    }

    fn asked(&self, url: &str) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|asked| asked.url == url)
            .cloned()
            .collect()
    }

    fn answer(&self, url: &str) -> (u16, Document) {
        let mut answers = self.answers.lock().unwrap();
        match answers.get_mut(url) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers[0].clone(),
            None => (404, Document::Null),
        }
    }

    async fn serve(self: Arc<Self>, origin: UrlOrigin, mut io: DuplexStream) {
        let mut head = Vec::new();
        loop {
            head.clear();
            while !head.ends_with(b"\r\n\r\n") {
                match io.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            let text = String::from_utf8(head.clone()).unwrap();
            let line = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap_or_default()
            };
            let mut body = vec![0; line("content-length: ").parse().unwrap_or(0)];
            io.read_exact(&mut body).await.unwrap();
            let target = text.split(' ').nth(1).unwrap();
            let url = format!("{origin}{}", target.split('?').next().unwrap());
            let fields = match serde_json::from_slice::<BTreeMap<String, Document>>(&body) {
                Ok(document) => document
                    .iter()
                    .map(|(name, value)| (name.clone(), value.to_string()))
                    .collect(),
                Err(_) => form_urlencoded::parse(&body).into_owned().collect(),
            };
            let authorization = line("authorization: ").to_owned();
            self.asked.lock().unwrap().push(Asked {
                url: url.clone(),
                fields,
                authorization,
            });
            let held = self.held.lock().unwrap().take();
            if let Some((asked, go_on)) = held {
                asked.notify_one();
                go_on.notified().await;
            }
            let (status, answer) = self.answer(&url);
            let answer = answer.to_string();
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            io.write_all((head + &answer).as_bytes()).await.unwrap();
        }
    }
}

struct To(Arc<World>);

impl Dial for To {
    fn dial<'a>(&'a self, origin: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
        let (ours, theirs) = duplex(1 << 20);
        tokio::spawn(self.0.clone().serve(origin.clone(), theirs));
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
    }
}

fn url(path: &str) -> String {
    format!("{ISSUER}{path}")
}

fn issuer() -> Document {
    json!({
        "issuer": ISSUER,
        "authorization_endpoint": url("/authorize"),
        "token_endpoint": url("/token"),
        "registration_endpoint": url("/register"),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
    })
}

/// A world in which everything is as it should be.
fn world() -> Arc<World> {
    let world = World::default();
    let resource = json!({ "resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["read"] });
    world.says(
        "https://server.example/.well-known/oauth-protected-resource/mcp",
        resource,
    );
    world.says(&url("/.well-known/oauth-authorization-server"), issuer());
    world.says(&url("/register"), json!({ "client_id": "registered" }));
    world.says(&url("/token"), token("first", 3600));
    Arc::new(world)
}

fn token(access: &str, lasts: u64) -> Document {
    json!({ "access_token": access, "token_type": "Bearer", "refresh_token": format!("{access}-next"), "expires_in": lasts })
}

/// Notes what may be shown nowhere.
struct Plain(Arc<World>);

impl Vault for Plain {
    fn read(&self, value: &EntryValue) -> anyhow::Result<SecretString> {
        match value {
            EntryValue::Plain(text) => Ok(SecretString::from(text.clone())),
            EntryValue::Secret(name) => Ok(SecretString::from(format!("the secret {name}"))),
        }
    }

    fn issued(&self, token: &SecretString) {
        self.0
            .hidden
            .lock()
            .unwrap()
            .push(token.expose_secret().to_owned());
    }
}

fn account(
    world: &Arc<World>,
    state: &Path,
    settings: OauthSettings,
    uid: u32,
) -> Arc<OauthAccount> {
    account_at(SERVER, world, state, settings, uid)
}

fn account_at(
    at: &str,
    world: &Arc<World>,
    state: &Path,
    settings: OauthSettings,
    uid: u32,
) -> Arc<OauthAccount> {
    let server = Arc::new(OauthServer {
        id: "docs".to_owned(),
        url: at.parse().unwrap(),
        settings,
        client: HttpClient::over(To(world.clone())),
        store: Arc::new(TokenStore::below(state)),
        vault: Arc::new(Plain(world.clone())),
    });
    let owner = server.owner(uid);
    Arc::new(OauthAccount::new(server, owner))
}

fn settings() -> OauthSettings {
    OauthSettings {
        redirect_port: REDIRECT_PORT,
        ..OauthSettings::default()
    }
}

/// The address that a browser would come back with.
fn back(started: &StartedLogin, more: &[(&str, &str)]) -> String {
    let state = field(&started.url, "state");
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("state", &state).extend_pairs(more);
    format!("{}?{}", started.redirect, query.finish())
}

fn field(url: &str, name: &str) -> String {
    let (_, query) = url.split_once('?').unwrap();
    let found = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
    found
        .map(|(_, value)| value.to_string())
        .unwrap_or_default()
}

async fn sent(account: &OauthAccount) -> String {
    let header = account.authorization().await.unwrap();
    header
        .map(|header| header.to_str().unwrap().to_owned())
        .unwrap_or_default()
}

fn challenge(status: StatusCode, says: &'static str, refused: Option<&'static str>) -> Challenge {
    Challenge {
        status,
        fields: vec![HeaderValue::from_static(says)],
        refused: refused.map(HeaderValue::from_static),
    }
}

#[tokio::test]
async fn a_person_logs_in_and_a_token_is_for_that_person_and_server_alone() {
    let state = tempfile::tempdir().unwrap();
    let world = world();
    let account = account(&world, state.path(), settings(), 1001);
    let asked = challenge(
        StatusCode::UNAUTHORIZED,
        "Bearer scope=\"read write\"",
        None,
    );
    let error = account.challenged(asked).await.unwrap_err().to_string();
    assert!(error.contains("colibri-mcp login docs"), "{error}");

    let logins = Logins::default();
    let started = logins
        .start(1001, &account, &["admin".to_owned()])
        .await
        .unwrap();
    assert_eq!(started.scopes, ["read", "write", "admin"]);
    assert_eq!(field(&started.url, "client_id"), "registered");
    assert_eq!(field(&started.url, "resource"), SERVER);
    assert_eq!(field(&started.url, "code_challenge_method"), "S256");
    let ended = logins
        .finish(1001, &back(&started, &[("code", "c0de")]))
        .await
        .unwrap();
    assert_eq!((ended.server.as_str(), ended.scopes.len()), ("docs", 3));
    let exchanged = &world.asked(&url("/token"))[0].fields;
    assert_eq!(exchanged["resource"], SERVER);
    assert_eq!(exchanged["code"], "c0de");
    let digest = <sha2::Sha256 as sha2::Digest>::digest(&exchanged["code_verifier"]);
    assert_eq!(
        URL_SAFE_NO_PAD.encode(digest),
        field(&started.url, "code_challenge")
    );
    assert_eq!(sent(&account).await, "Bearer first");

    // The same world for another user, and for an entry that leads elsewhere.
    let other = self::account(&world, state.path(), settings(), 1002);
    assert_eq!(sent(&other).await, "");
    let elsewhere = OauthSettings {
        issuer: Some("https://other.example".to_owned()),
        ..settings()
    };
    assert_eq!(
        sent(&self::account(&world, state.path(), elsewhere, 1001)).await,
        ""
    );
    // Another login is registered already.
    logins.start(1002, &other, &[]).await.unwrap();
    assert_eq!(world.asked(&url("/register")).len(), 1);

    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let directory = state.path().join("oauth");
    assert_eq!(mode(&directory), 0o700);
    for file in directory.read_dir().unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    assert!(!format!("{:?}", account.login()).contains("first"));
}

#[tokio::test]
async fn only_the_answer_of_the_issuer_that_was_asked_ends_a_login() {
    let world = world();
    let mut says = issuer();
    says["authorization_response_iss_parameter_supported"] = true.into();
    world.says(&url("/.well-known/oauth-authorization-server"), says);
    let state = tempfile::tempdir().unwrap();
    let account = account(&world, state.path(), settings(), 1001);
    let logins = Logins::default();
    let right = [("code", "c"), ("iss", ISSUER)];
    for (uid, more, why) in [
        (
            1001,
            &[("code", "c"), ("iss", "https://issuer.example/")][..],
            "another issuer",
        ),
        (
            1001,
            &[("error", "secret words"), ("iss", "https://evil.example")],
            "another issuer",
        ),
        (1001, &[("code", "c")], "does not name its issuer"),
        (
            1001,
            &[("error", "access_denied"), ("iss", ISSUER)],
            "access_denied",
        ),
        (1001, &[("iss", ISSUER)], "no code"),
        (
            1001,
            &[("code", "c"), ("code", "d"), ("iss", ISSUER)],
            "twice",
        ),
        (1002, &right, "not yours"),
    ] {
        let started = logins.start(1001, &account, &[]).await.unwrap();
        let error = logins
            .finish(uid, &back(&started, more))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(why) && !error.contains("secret words"),
            "{why}: {error}"
        );
        let elsewhere = back(&started, &right).replace("127.0.0.1", "evil.example");
        assert!(logins.finish(1001, &elsewhere).await.is_err());
    }
    assert!(
        logins
            .finish(1001, "http://127.0.0.1:7374/callback")
            .await
            .is_err()
    );
    assert_eq!(world.asked(&url("/token")).len(), 0);
    let started = logins.start(1001, &account, &[]).await.unwrap();
    logins.finish(1001, &back(&started, &right)).await.unwrap();
    let again = logins
        .finish(1001, &back(&started, &right))
        .await
        .unwrap_err()
        .to_string();
    assert!(again.contains("no login waits"), "{again}");
}

#[tokio::test]
async fn a_token_is_renewed_once_however_many_ask() {
    let world = world();
    let state = tempfile::tempdir().unwrap();
    let account = account(&world, state.path(), settings(), 1001);
    world.says(&url("/token"), token("old", 0));
    world.then(&url("/token"), 200, token("new", 3600));
    let logins = Logins::default();
    let started = logins.start(1001, &account, &[]).await.unwrap();
    logins
        .finish(1001, &back(&started, &[("code", "c")]))
        .await
        .unwrap();
    let many = (0..10).map(|_| {
        let account = account.clone();
        tokio::spawn(async move { sent(&account).await })
    });
    for one in many.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap(), "Bearer new");
    }
    let renewals = &world.asked(&url("/token"))[1..];
    assert_eq!(renewals.len(), 1);
    assert_eq!(renewals[0].fields["refresh_token"], "old-next");
    assert_eq!(renewals[0].fields["resource"], SERVER);

    // A server that no longer takes what it took: renewed, once; what somebody else renewed is
    // taken.
    world.says(&url("/token"), token("newer", 3600));
    let asked = || {
        challenge(
            StatusCode::UNAUTHORIZED,
            "Bearer error=\"invalid_token\"",
            Some("Bearer new"),
        )
    };
    account.challenged(asked()).await.unwrap();
    account.challenged(asked()).await.unwrap();
    assert_eq!(sent(&account).await, "Bearer newer");
    assert_eq!(world.asked(&url("/token")).len(), 3);

    world.answers.lock().unwrap().insert(
        url("/token"),
        vec![(400, json!({ "error": "invalid_grant" }))],
    );
    let asked = challenge(StatusCode::UNAUTHORIZED, "Bearer", Some("Bearer newer"));
    let error = account.challenged(asked).await.unwrap_err().to_string();
    assert!(error.contains("colibri-mcp login docs"), "{error}");
    assert_eq!(sent(&account).await, "");
}

#[tokio::test]
async fn more_rights_are_asked_for_beside_those_that_were_given() {
    let world = world();
    let state = tempfile::tempdir().unwrap();
    let account = account(&world, state.path(), settings(), 1001);
    let logins = Logins::default();
    let started = logins.start(1001, &account, &[]).await.unwrap();
    logins
        .finish(1001, &back(&started, &[("code", "c")]))
        .await
        .unwrap();
    let says = "Bearer error=\"insufficient_scope\", scope=\"write\"";
    let asked = challenge(StatusCode::FORBIDDEN, says, Some("Bearer first"));
    let error = account.challenged(asked).await.unwrap_err().to_string();
    assert!(
        error.contains("write") && error.contains("colibri-mcp login docs"),
        "{error}"
    );
    let started = logins.start(1001, &account, &[]).await.unwrap();
    assert_eq!(started.scopes, ["write", "read"]);
    let asked = challenge(StatusCode::FORBIDDEN, "Basic", Some("Bearer first"));
    assert!(
        account
            .challenged(asked)
            .await
            .unwrap_err()
            .to_string()
            .contains("does not allow")
    );
}

#[tokio::test]
async fn what_is_not_safe_is_not_begun() {
    let metadata = "https://server.example/.well-known/oauth-protected-resource/mcp";
    let at_issuer = url("/.well-known/oauth-authorization-server");
    let resource = |resource: &str, issuers: &[&str]| json!({ "resource": resource, "authorization_servers": issuers });
    let changed = |key: &str, value: Document| {
        let mut says = issuer();
        says[key] = value;
        says
    };
    let named = OauthSettings {
        issuer: Some("https://known.example".to_owned()),
        client_id: Some("known".to_owned()),
        ..settings()
    };
    for (location, says, settings, why) in [
        (
            metadata,
            resource("https://other.example/mcp", &[ISSUER]),
            settings(),
            "another resource",
        ),
        (
            metadata,
            resource(SERVER, &[]),
            settings(),
            "no authorization server",
        ),
        (
            metadata,
            resource(SERVER, &["http://issuer.example"]),
            settings(),
            "not https",
        ),
        (
            metadata,
            resource(SERVER, &[ISSUER]),
            named,
            "the entry names",
        ),
        (
            &at_issuer,
            changed("issuer", "https://evil.example".into()),
            settings(),
            "another issuer",
        ),
        (
            &at_issuer,
            changed("code_challenge_methods_supported", Document::Null),
            settings(),
            "",
        ),
        (
            &at_issuer,
            changed("code_challenge_methods_supported", json!(["plain"])),
            settings(),
            "PKCE",
        ),
        (
            &at_issuer,
            changed("token_endpoint", "http://issuer.example/t".into()),
            settings(),
            "not https",
        ),
        (
            &at_issuer,
            changed("registration_endpoint", Document::Null),
            settings(),
            "redirect address",
        ),
    ] {
        let world = world();
        world.says(location, says);
        let state = tempfile::tempdir().unwrap();
        let account = account(&world, state.path(), settings, 1001);
        let error = Logins::default()
            .start(1001, &account, &[])
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{why}: {error}");
        assert_eq!(world.asked(&url("/register")).len(), 0, "{why}");
    }
}

#[tokio::test]
async fn machines_prove_themselves_in_the_way_that_the_issuer_takes() {
    let key = rcgen::KeyPair::generate().unwrap();
    for (methods, settings) in [
        (
            "client_secret_basic",
            OauthSettings {
                client_secret: Some(EntryValue::Secret("pass".to_owned())),
                ..settings()
            },
        ),
        (
            "client_secret_post",
            OauthSettings {
                client_secret: Some(EntryValue::Secret("pass".to_owned())),
                ..settings()
            },
        ),
        (
            "private_key_jwt",
            OauthSettings {
                private_key: Some(EntryValue::Plain(key.serialize_pem())),
                ..settings()
            },
        ),
    ] {
        let world = world();
        let mut says = issuer();
        says["token_endpoint_auth_methods_supported"] = json!([methods]);
        world.says(&url("/.well-known/oauth-authorization-server"), says);
        let settings = OauthSettings {
            grant: Grant::Machine,
            issuer: Some(ISSUER.to_owned()),
            client_id: Some("a:b".to_owned()),
            ..settings
        };
        let state = tempfile::tempdir().unwrap();
        let account = account(&world, state.path(), settings, 1001);
        account
            .challenged(challenge(StatusCode::UNAUTHORIZED, "Bearer", None))
            .await
            .unwrap();
        assert_eq!(sent(&account).await, "Bearer first");
        let asked = &world.asked(&url("/token"))[0];
        assert_eq!(asked.fields["grant_type"], "client_credentials");
        match methods {
            "client_secret_basic" => {
                // a%3Ab:the+secret+pass
                assert_eq!(asked.authorization, "Basic YSUzQWI6dGhlK3NlY3JldCtwYXNz");
                assert!(!asked.fields.contains_key("client_secret"));
            }
            "client_secret_post" => assert_eq!(asked.fields["client_secret"], "the secret pass"),
            _ => {
                let parts: Vec<_> = asked.fields["client_assertion"].split('.').collect();
                let read = |part: &str| -> Document {
                    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
                };
                assert_eq!(read(parts[0])["alg"], "ES256");
                assert_eq!(
                    (&read(parts[1])["aud"], &read(parts[1])["sub"]),
                    (&json!(ISSUER), &json!("a:b"))
                );
                let signed = format!("{}.{}", parts[0], parts[1]);
                let verify = ring::signature::UnparsedPublicKey::new(
                    &ring::signature::ECDSA_P256_SHA256_FIXED,
                    key.public_key_raw(),
                );
                verify
                    .verify(
                        signed.as_bytes(),
                        &URL_SAFE_NO_PAD.decode(parts[2]).unwrap(),
                    )
                    .unwrap();
            }
        }
        // What a machine lacks is asked for once; what it has been given does not help twice.
        let says = "Bearer error=\"insufficient_scope\", scope=\"read more\"";
        let lacks = || challenge(StatusCode::FORBIDDEN, says, Some("Bearer first"));
        account.challenged(lacks()).await.unwrap();
        assert_eq!(world.asked(&url("/token"))[1].fields["scope"], "read more");
        assert!(account.challenged(lacks()).await.is_err());
    }
}

#[tokio::test]
async fn an_identity_provider_vouches_for_a_person() {
    let world = world();
    let provider = "https://login.example";
    world.says(
        "https://login.example/.well-known/openid-configuration",
        json!({ "issuer": provider, "token_endpoint": "https://login.example/token" }),
    );
    world.says(
        "https://login.example/token",
        json!({ "access_token": "the grant", "token_type": "N_A", "issued_token_type": "id-jag" }),
    );
    let settings = OauthSettings {
        issuer: Some(ISSUER.to_owned()),
        client_id: Some("known".to_owned()),
        identity_provider: Some(IdentityProvider {
            issuer: provider.to_owned(),
            client_id: "colibri".to_owned(),
            client_secret: None,
        }),
        ..settings()
    };
    let state = tempfile::tempdir().unwrap();
    let account = account(&world, state.path(), settings, 1001);
    account
        .vouch(SecretString::from("who I am".to_owned()))
        .await
        .unwrap();
    let exchanged = &world.asked("https://login.example/token")[0].fields;
    assert_eq!(exchanged["subject_token"], "who I am");
    assert_eq!(
        (
            exchanged["audience"].as_str(),
            exchanged["resource"].as_str()
        ),
        (ISSUER, SERVER)
    );
    let granted = &world.asked(&url("/token"))[0].fields;
    assert_eq!(granted["assertion"], "the grant");
    assert_eq!(sent(&account).await, "Bearer first");
    let hidden = world.hidden.lock().unwrap();
    for secret in ["who I am", "the grant", "first"] {
        assert!(hidden.iter().any(|hidden| hidden == secret), "{secret}");
    }
}

#[tokio::test]
async fn a_password_that_was_issued_to_us_is_shown_nowhere() {
    let world = world();
    world.says(
        &url("/register"),
        json!({ "client_id": "registered", "client_secret": "the password" }),
    );
    let state = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        // Registered, then found where it is kept.
        let account = account(&world, state.path(), settings(), 1001);
        Logins::default().start(1001, &account, &[]).await.unwrap();
        assert_eq!(
            std::mem::take(&mut *world.hidden.lock().unwrap()),
            ["the password"]
        );
    }
    assert_eq!(world.asked(&url("/register")).len(), 1);
}

#[tokio::test]
async fn a_server_that_others_can_listen_to_gets_no_token() {
    let world = world();
    let resource =
        json!({ "resource": "http://server.example/mcp", "authorization_servers": [ISSUER] });
    world.says(
        "http://server.example/.well-known/oauth-protected-resource/mcp",
        resource,
    );
    let state = tempfile::tempdir().unwrap();
    let account = account_at(
        "http://server.example/mcp",
        &world,
        state.path(),
        settings(),
        7,
    );
    let said = Logins::default()
        .start(7, &account, &[])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("http://server.example/mcp is not https"),
        "{said}"
    );
    assert!(world.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn who_logs_out_while_a_login_is_renewed_stays_logged_out() {
    let world = world();
    world.says(&url("/token"), token("first", 1));
    let state = tempfile::tempdir().unwrap();
    let account = account(&world, state.path(), settings(), 7);
    let logins = Logins::default();
    let started = logins.start(7, &account, &[]).await.unwrap();
    logins
        .finish(7, &back(&started, &[("code", "c")]))
        .await
        .unwrap();
    let (asked, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    *world.held.lock().unwrap() = Some((asked.clone(), answer.clone()));
    let renewing = {
        let account = account.clone();
        tokio::spawn(async move { account.authorization().await })
    };
    asked.notified().await;
    assert!(account.forget().unwrap());
    answer.notify_one();
    let said = renewing.await.unwrap().unwrap_err().to_string();
    assert!(said.contains("logged out meanwhile"), "{said}");
    assert_eq!(account.authorization().await.unwrap(), None);
    assert!(!account.forget().unwrap(), "it was written again");
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_sends_a_byte_now_and_then_is_not_waited_for() {
    struct Slow;
    impl Dial for Slow {
        fn dial<'a>(&'a self, _: &'a UrlOrigin) -> BoxFuture<'a, Result<Box<dyn Io>, HttpError>> {
            let (ours, mut theirs) = duplex(1 << 10);
            tokio::spawn(async move {
                let mut head = [0; 4];
                while head != *b"\r\n\r\n" {
                    head.rotate_left(1);
                    head[3] = theirs.read_u8().await.unwrap();
                }
                let _ = theirs
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n")
                    .await;
                while theirs.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(TIME_LIMIT / 3).await;
                }
            });
            Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Io>)))
        }
    }
    let begun = tokio::time::Instant::now();
    let said = discovery::authorization_server(&HttpClient::over(Slow), ISSUER)
        .await
        .unwrap_err()
        .to_string();
    assert!(said.contains("no whole answer within 15 s"), "{said}");
    assert!(begun.elapsed() < 3 * TIME_LIMIT);
}
