//! The webhook: each notice is posted to one URL, signed, and tried again three times.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::registry::secrets::SecretStore;
use colibri_api::Notice;
use colibri_http::{AllowedTarget, ConnectionRules, HttpClient, HttpError, HttpLimits};
use colibri_registry::EntryValue;
use colibri_text::hex;

/// The name of its key among the daemon's secrets.
const KEY: &str = "webhook";
/// The fewest bytes of a key.
const MIN_KEY: usize = 16;
/// The longest time for an answer once there is a connection, which has 15 s of its own.
const LIMIT: Duration = Duration::from_secs(10);
/// The waits before further attempts.
const WAITS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// The webhook to which notices are posted. Its URL may hold a token, so it is shown nowhere.
#[derive(Clone)]
pub struct WebhookSettings {
    /// The address.
    pub url: Uri,
    /// The addresses beyond public ones that it may lead to.
    pub allowed: Vec<AllowedTarget>,
}

impl std::fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("host", &self.url.host())
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

/// A webhook with its key.
pub struct Webhook {
    url: Uri,
    key: SecretString,
    client: HttpClient,
}

/// The reason for which an attempt failed.
struct WebhookError {
    why: String,
    /// Another one would fail as well.
    is_permanent: bool,
}

impl Webhook {
    /// Reads its key.
    ///
    /// # Errors
    /// There is none, or it is none: what to do.
    pub fn open(settings: &WebhookSettings, secrets: &SecretStore) -> anyhow::Result<Webhook> {
        let wanted = [(KEY.to_owned(), EntryValue::Secret(KEY.to_owned()))].into();
        let advice = format!(
            "write a key that the receiver knows, of at least {MIN_KEY} characters (openssl rand -hex 32), to \
             daemon-secrets/{KEY} beside the registry, root:colibri 0440, or leave --webhook out"
        );
        let read = secrets.resolve(&wanted);
        let key = read.map_err(|error| anyhow!("the webhook has no key: {error}; {advice}"))?;
        match key
            .into_values()
            .next()
            .filter(|key| key.expose_secret().len() >= MIN_KEY)
        {
            Some(key) => Ok(Webhook {
                url: settings.url.clone(),
                key,
                client: HttpClient::new(ConnectionRules {
                    allowed: settings.allowed.clone(),
                    ..ConnectionRules::default()
                }),
            }),
            None => Err(anyhow!("the webhook's key is too short: {advice}")),
        }
    }

    /// Posts what is told, one after the other, until nobody tells anything any more. What comes
    /// faster than that is left out.
    pub async fn work(self, mut notices: Receiver<Arc<Notice>>) {
        // Those that did not get there since the last one that did.
        let mut lost = 0;
        loop {
            let (more, why) = match notices.recv().await {
                Err(RecvError::Closed) => return,
                Err(RecvError::Lagged(more)) => {
                    (more, "notices come faster than it takes them".to_owned())
                }
                Ok(notice) => match self.deliver(&notice).await {
                    Err(why) => (1, format!("{why:#}")),
                    Ok(()) => {
                        if lost > 0 {
                            info!(lost, "the webhook takes notices again");
                        }
                        lost = 0;
                        continue;
                    }
                },
            };
            // Said once, and then how many there were.
            if lost == 0 {
                warn!("the webhook misses notices: {why}");
            }
            lost += more;
        }
    }

    async fn deliver(&self, notice: &Notice) -> anyhow::Result<()> {
        let body: Bytes = serde_json::json!(notice).to_string().into();
        let mut waits = WAITS.iter();
        loop {
            let Err(failed) = self.post(&body).await else {
                return Ok(());
            };
            match waits.next().filter(|_| !failed.is_permanent) {
                Some(wait) => sleep(*wait).await,
                None => bail!(failed.why),
            }
        }
    }

    async fn post(&self, body: &Bytes) -> Result<(), WebhookError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let time = now.as_secs();
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.expose_secret().as_bytes()).map_err(
            |error| WebhookError {
                why: error.to_string(),
                is_permanent: true,
            },
        )?;
        mac.update(format!("{time}.").as_bytes());
        mac.update(body);
        let signature = format!("sha256={}", hex(&mac.finalize().into_bytes()));
        let mut request = Request::new(body.clone());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("colibri-mcpd/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert("colibri-timestamp", HeaderValue::from(time));
        if let Ok(signature) = HeaderValue::from_str(&signature) {
            headers.insert("colibri-signature", signature);
        }
        // A redirect is not followed: what is signed for one address is not for another. Nor is a
        // body read.
        let answered = self.client.ask(request, HttpLimits::all(LIMIT)).await;
        let status = match answered {
            Ok(response) => response.status,
            Err(error) => {
                return Err(WebhookError {
                    is_permanent: error.is_permanent(),
                    why: told(&error),
                });
            }
        };
        if status.is_success() {
            return Ok(());
        }
        let may_pass = status.is_server_error()
            || matches!(
                status,
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
            );
        Err(WebhookError {
            why: format!("it answers {status}"),
            is_permanent: !may_pass,
        })
    }
}

/// The reason for which there is no answer. The client advises who writes an entry, which a webhook
/// has not.
fn told(error: &HttpError) -> String {
    match error {
        HttpError::Address {
            host,
            address,
            class,
        } => {
            format!("{host} is {address}, {class}: allow it with --webhook-allow if it is meant")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::notices::{Notices, name};
    use colibri_api::NoticeEvent;
    use parking_lot::Mutex;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    const SECRET: &str = "a key of the webhook, 0123456789";

    /// The requests that a receiver got: header fields and body.
    type Got = Arc<Mutex<Vec<(Vec<String>, Vec<u8>)>>>;

    /// The behaviour of a receiver.
    #[derive(Clone, Copy)]
    enum Does {
        Answers(&'static str),
        /// Takes this long.
        Waits(u64),
        NeverAnswers,
        Dies,
    }

    async fn receive(stream: TcpStream, does: Does, got: Got) {
        let mut stream = BufReader::new(stream);
        let (mut fields, mut length) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) <= 2 {
                break;
            }
            if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
            fields.push(line.trim_end().to_owned());
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        got.lock().push((fields, body));
        let answer = match does {
            Does::Answers(answer) => answer,
            Does::Waits(ms) => {
                sleep(Duration::from_millis(ms)).await;
                "204 No Content"
            }
            Does::NeverAnswers => return std::future::pending().await,
            Does::Dies => return,
        };
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    /// A receiver that behaves so at its first connections, and from then on as at the last.
    async fn receiver(does: &'static [Does]) -> (Uri, Got) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?token=t0ken", listener.local_addr().unwrap());
        let got = Got::default();
        let seen = got.clone();
        tokio::spawn(async move {
            let mut count = 0;
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(
                    stream,
                    does[count.min(does.len() - 1)],
                    seen.clone(),
                ));
                count += 1;
            }
        });
        (url.parse().unwrap(), got)
    }

    fn webhook(url: Uri) -> Webhook {
        Webhook {
            url,
            key: SecretString::from(SECRET),
            client: HttpClient::new(ConnectionRules {
                allowed: vec![AllowedTarget::parse("loopback").unwrap()],
                ..ConnectionRules::default()
            }),
        }
    }

    fn a_notice() -> Arc<Notice> {
        let notices = Notices::default();
        let mut heard = notices.watch();
        notices.tell(
            NoticeEvent::TaskCompleted,
            [("task", 7.into()), ("by", name("a\u{202e}b"))],
        );
        heard.try_recv().unwrap()
    }

    #[test]
    fn a_key_is_there_and_long_enough_or_what_to_do_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let secrets = SecretStore::beside(&directory.path().join("external-mcp.json"));
        let settings = WebhookSettings {
            url: "https://hooks.example.org/t0ken".parse().unwrap(),
            allowed: Vec::new(),
        };
        assert!(!format!("{settings:?}").contains("t0ken"));
        let refused = || format!("{:#}", Webhook::open(&settings, &secrets).err().unwrap());
        assert!(refused().contains("has no key") && refused().contains("daemon-secrets/webhook"));
        let of = directory.path().join("daemon-secrets");
        std::fs::create_dir(&of).unwrap();
        std::fs::set_permissions(&of, std::fs::Permissions::from_mode(0o700)).unwrap();
        let write = |text: &str, mode| {
            let file = of.join("webhook");
            let _ = std::fs::remove_file(&file);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write("short", 0o400);
        assert!(
            refused().contains("too short") && !refused().contains("short\""),
            "{}",
            refused()
        );
        write(SECRET, 0o444);
        assert!(
            refused().contains("has no key"),
            "others can read it: {}",
            refused()
        );
        write(SECRET, 0o400);
        assert!(Webhook::open(&settings, &secrets).is_ok());
        // And from now on it is in no text.
        assert!(!secrets.redactor().redact(SECRET).contains("a key"));
    }

    #[tokio::test]
    async fn what_is_posted_is_signed_with_its_time() {
        let (url, got) = receiver(&[Does::Answers("200 OK")]).await;
        let notice = a_notice();
        webhook(url).deliver(&notice).await.unwrap();
        let (fields, body) = got.lock().pop().unwrap();
        let field = |name: &str| {
            let found = fields
                .iter()
                .find_map(|field| field.strip_prefix(&format!("{name}: ")));
            found.unwrap_or_else(|| panic!("{fields:?}")).to_owned()
        };
        assert_eq!(fields[0], "POST /hook?token=t0ken HTTP/1.1");
        assert_eq!(field("content-type"), "application/json");
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(said, serde_json::json!(*notice));
        assert_eq!(
            said["facts"],
            serde_json::json!({ "task": 7, "by": "a\\u{202e}b" })
        );
        // HMAC (RFC 2104) by hand: SHA-256 over the key xor opad and the inner hash.
        let time = field("colibri-timestamp");
        let pad = |with: u8| -> Vec<u8> {
            let mut key = SECRET.as_bytes().to_vec();
            key.resize(64, 0);
            key.iter().map(|byte| byte ^ with).collect()
        };
        use sha2::Digest as _;
        let inner =
            Sha256::digest([pad(0x36), format!("{time}.").into_bytes(), body.clone()].concat());
        let outer = Sha256::digest([pad(0x5c), inner.to_vec()].concat());
        let digits: String = outer.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(field("colibri-signature"), format!("sha256={digits}"));
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        assert!(now - time.parse::<u64>().unwrap() < 600);
        assert!(!String::from_utf8(body).unwrap().contains(SECRET));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_tried_again_three_times_where_that_can_help() {
        use Does::{Answers, Dies, NeverAnswers};
        // What the receiver does; how many requests it gets; seconds at the least, and at the most;
        // whether it got there.
        type Case = (&'static [Does], usize, u64, u64, Option<&'static str>);
        let cases: [Case; 8] = [
            (&[Answers("503 No")], 4, 6, 7, Some("503")),
            (
                &[Answers("429 No"), Dies, Answers("202 Taken")],
                3,
                1,
                2,
                None,
            ),
            (&[Dies], 4, 6, 7, Some("127.0.0.1")),
            (&[NeverAnswers], 4, 46, 47, Some("10000 ms")),
            (&[Does::Waits(9000)], 1, 9, 10, None),
            // What is wrong stays wrong, and goes nowhere else.
            (
                &[Answers("302 Found\r\nLocation: http://127.0.0.1:1/")],
                1,
                0,
                1,
                Some("302"),
            ),
            (
                &[Answers("307 T\r\nLocation: /other")],
                1,
                0,
                1,
                Some("307"),
            ),
            (&[Answers("401 No")], 1, 0, 1, Some("401")),
        ];
        for (does, requests, least, most, failed) in cases {
            let (url, got) = receiver(does).await;
            let begun = Instant::now();
            let outcome = webhook(url).deliver(&a_notice()).await;
            let took = begun.elapsed();
            assert_eq!(got.lock().len(), requests, "{outcome:?}");
            assert!(
                took >= Duration::from_secs(least) && took < Duration::from_secs(most),
                "{outcome:?}: {took:?}"
            );
            match (failed, outcome) {
                (None, Ok(())) => {}
                (Some(part), Err(error)) => {
                    let why = format!("{error:#}");
                    assert!(why.contains(part) && !why.contains("t0ken"), "{why}");
                }
                (failed, outcome) => panic!("{failed:?}: {outcome:?}"),
            }
            let ids: std::collections::BTreeSet<String> = got
                .lock()
                .iter()
                .map(|(_, body)| serde_json::from_slice::<Notice>(body).unwrap().id)
                .collect();
            assert_eq!(ids.len(), 1, "who gets it twice can tell");
        }
    }

    #[tokio::test]
    async fn it_leads_to_no_address_that_is_not_allowed() {
        let (url, got) = receiver(&[Does::Answers("200 OK")]).await;
        let strict = Webhook {
            client: HttpClient::new(ConnectionRules::default()),
            ..webhook(url)
        };
        let why = strict.deliver(&a_notice()).await.unwrap_err().to_string();
        assert!(why.contains("loopback") && !why.contains("t0ken"), "{why}");
        assert!(
            why.contains("--webhook-allow") && !why.contains("entry"),
            "{why}"
        );
        assert!(got.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_slow_holds_up_nobody_and_misses_what_comes_too_fast() {
        let (url, got) = receiver(&[Does::Waits(1000)]).await;
        let notices = Notices::default();
        let working = tokio::spawn(webhook(url).work(notices.watch()));
        let begun = Instant::now();
        for task in 0..1000_u64 {
            notices.tell(NoticeEvent::TaskCompleted, [("task", task.into())]);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "telling does not wait");
        drop(notices);
        working.await.unwrap();
        let got = got.lock();
        let tasks: Vec<u64> = got
            .iter()
            .map(|(_, body)| {
                serde_json::from_slice::<Notice>(body).unwrap().facts["task"]
                    .as_u64()
                    .unwrap()
            })
            .collect();
        let expected: Vec<u64> = (1000 - 256..1000).collect();
        assert_eq!(tasks, expected, "the latest ones, in order");
    }
}
