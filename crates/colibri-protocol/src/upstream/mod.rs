//! The daemon as the client of a server process: the messages that it sends, and the reading of the
//! answers.
//!
//! Messages are whole, without a line end. Ids are the daemon's own integers. A server's answers
//! are not trusted: wrong types, endless lists and repeated cursors are ordinary cases here.

mod says;
mod walk;

use super::answer::{META_SUBSCRIPTION_ID, NAME, TITLE, VERSION};
use super::elicitation_support::Askable;
use super::feature::Feature;
use super::logging::Level;
use super::method::Method;
use super::rpc_error::{METHOD_NOT_FOUND, RpcError};
use super::subscription::{SubscriptionFilter, read_acknowledged};
use super::towards::{meta_declaring, modern_meta};
use super::version::Version;
use super::{AnswerBody, prefix};
use colibri_wire::Json;
use colibri_wire::json::{JsonKind, string};

pub use says::{
    Capabilities, FeatureSupport, Probe, ServerSays, Unusable, read_initialize_result, read_probe,
};
pub use walk::{ListPage, ListWalk};

/// `initialize` in the newest legacy version. It declares the kinds of input that the server may
/// request.
pub fn initialize(id: u64, may_ask: Askable) -> Vec<u8> {
    let version = Version::LATEST_LEGACY;
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"initialize\",\"params\":{{\"protocolVersion\":{},\
         \"capabilities\":{},\"clientInfo\":{{\"name\":{},\"title\":{},\"version\":{}}}}}}}",
        string(version.as_str()),
        may_ask.declaration(version),
        string(NAME),
        string(TITLE),
        string(VERSION)
    )
    .into_bytes()
}

/// `notifications/initialized`, the last step of the handshake.
pub fn initialized() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec()
}

/// `server/discover`, which finds the era of a server ([`read_probe`]) and its capabilities.
pub fn discover(id: u64) -> Vec<u8> {
    request(id, "server/discover", Version::LATEST, "")
}

/// The request for a page of a list. `cursor` is `nextCursor` of the page before, as the server
/// wrote it.
pub fn list(id: u64, feature: Feature, server: Version, cursor: Option<&str>) -> Vec<u8> {
    let cursor = cursor
        .map(|cursor| format!("\"cursor\":{cursor}"))
        .unwrap_or_default();
    request(id, Method::list_of(feature).as_str(), server, &cursor)
}

/// `skills/get` for a skill, by the server's own URI of it.
pub fn skill(id: u64, uri: &str, server: Version) -> Vec<u8> {
    request(
        id,
        Method::SkillsGet.as_str(),
        server,
        &format!("\"uri\":{}", string(uri)),
    )
}

/// `subscriptions/listen` for the notifications that a modern server sends only to subscribers.
pub fn listen(id: u64, filter: &SubscriptionFilter) -> Vec<u8> {
    let filter = format!("\"notifications\":{}", filter.to_json());
    request(id, "subscriptions/listen", Version::LATEST, &filter)
}

/// `resources/subscribe` or `resources/unsubscribe`, for a legacy server.
pub fn subscribe(id: u64, method: Method, uri: &str) -> Vec<u8> {
    request(
        id,
        method.as_str(),
        Version::LATEST_LEGACY,
        &format!("\"uri\":{}", string(uri)),
    )
}

/// `logging/setLevel`, for a legacy server.
pub fn set_level(id: u64, level: Level) -> Vec<u8> {
    let level = format!("\"level\":\"{}\"", level.as_str());
    request(
        id,
        Method::LoggingSetLevel.as_str(),
        Version::LATEST_LEGACY,
        &level,
    )
}

/// `tasks/cancel` for a task of a modern server that no client can fetch.
pub fn cancel_task(id: u64, task: &str) -> Vec<u8> {
    about_tasks(id, "tasks/cancel", &format!("\"taskId\":{}", string(task)))
}

/// `subscriptions/listen` for the status of tasks, by the server's own ids.
pub fn listen_to_tasks(id: u64, tasks: Vec<String>) -> Vec<u8> {
    let filter = SubscriptionFilter {
        tasks_told: tasks,
        ..SubscriptionFilter::default()
    };
    about_tasks(
        id,
        "subscriptions/listen",
        &format!("\"notifications\":{}", filter.to_json()),
    )
}

/// A request of the tasks extension. Each such request has to declare the extension.
fn about_tasks(id: u64, method: &str, members: &str) -> Vec<u8> {
    let declared = format!(
        "{{\"extensions\":{{\"{}\":{{}}}}}}",
        super::tasks::EXTENSION
    );
    let meta = meta_declaring(Version::LATEST, &declared);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{members},\"_meta\":{{{meta}}}}}}}")
        .into_bytes()
}

/// `notifications/cancelled` for a request of the daemon. `initialize` must never be cancelled.
pub fn cancelled(id: u64, reason: &str) -> Vec<u8> {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":{}}}}}",
        string(reason)
    )
    .into_bytes()
}

/// The answer to a request of the *server*: success for a legacy server's `ping`, else -32601,
/// since the daemon declared no capability for it. `id` is as the server wrote it.
pub fn answer_server(id: &str, method: &str, server: Version) -> Vec<u8> {
    let answer = if method == "ping" && !server.is_modern() {
        AnswerBody::Result(b"{}".to_vec())
    } else {
        let method = prefix(method, 100);
        let message = format!(
            "{} was not declared by this client; it takes no such request",
            string(method)
        );
        AnswerBody::Error(RpcError::new(METHOD_NOT_FOUND, message))
    };
    answer.to_message(Some(id))
}

fn request(id: u64, method: &str, server: Version, members: &str) -> Vec<u8> {
    let meta = if server.is_modern() {
        format!("\"_meta\":{{{}}}", modern_meta(server, Askable::NOTHING))
    } else {
        String::new()
    };
    let comma = if meta.is_empty() || members.is_empty() {
        ""
    } else {
        ","
    };
    let params = if meta.is_empty() && members.is_empty() {
        String::new()
    } else {
        format!(",\"params\":{{{members}{comma}{meta}}}")
    };
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"{params}}}").into_bytes()
}

/// A notification that a server sends.
#[derive(Debug, Clone)]
pub enum ServerNotification<'a> {
    /// Progress of the daemon's request with this token.
    Progress {
        /// The daemon's own token.
        token: u64,
    },
    /// One of the server's lists has changed. A change of its resources stands for their templates
    /// too.
    ListChanged(Feature),
    /// A resource was updated: the value of `uri`.
    ResourceUpdated(Json<'a>),
    /// A status change of a task, for the daemon's `subscriptions/listen` with this number.
    Task(u64),
    /// The part of the daemon's `subscriptions/listen` with this number that the server honours.
    Acknowledged(u64, SubscriptionFilter),
    /// A log message of this severity.
    Message(Level),
}

/// Reads a server's notification. `None` for one that is unknown, malformed, or about a token that
/// no daemon issued.
pub fn read_notification<'a>(
    method: &str,
    params: Option<Json<'a>>,
) -> Option<ServerNotification<'a>> {
    match method {
        "notifications/progress" => {
            let params = params.filter(|params| params.ambiguous(&["progressToken"]).is_none())?;
            Some(ServerNotification::Progress {
                token: params.get("progressToken")?.as_u64()?,
            })
        }
        "notifications/tools/list_changed" => Some(ServerNotification::ListChanged(Feature::Tool)),
        "notifications/prompts/list_changed" => {
            Some(ServerNotification::ListChanged(Feature::Prompt))
        }
        "notifications/resources/list_changed" => {
            Some(ServerNotification::ListChanged(Feature::Resource))
        }
        "notifications/tasks" => {
            let params = params.filter(|params| params.ambiguous(&["_meta"]).is_none())?;
            let number = params.get("_meta")?.get(META_SUBSCRIPTION_ID)?.as_u64()?;
            Some(ServerNotification::Task(number))
        }
        "notifications/resources/updated" => {
            let params = params.filter(|params| params.ambiguous(&["uri", "_meta"]).is_none())?;
            Some(ServerNotification::ResourceUpdated(
                params
                    .get("uri")
                    .filter(|uri| uri.kind() == JsonKind::String)?,
            ))
        }
        "notifications/subscriptions/acknowledged" => {
            let (number, filter) = read_acknowledged(params)?;
            Some(ServerNotification::Acknowledged(number, filter))
        }
        "notifications/message" => {
            let params = params.filter(|params| params.ambiguous(&["level"]).is_none())?;
            Some(ServerNotification::Message(Level::read(
                params.get("level")?,
            )?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::{self, SessionPhase};
    use super::Version::*;
    use super::*;
    use crate::read_in_tests::json;
    use colibri_wire::{Envelope, envelope};
    use serde_json::{Value, json};

    fn value(bytes: &[u8]) -> Value {
        assert!(Envelope::parse(bytes).is_ok());
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn what_is_sent_is_what_the_daemon_itself_would_take() {
        let classified = |message: &[u8], session| {
            let envelope::EnvelopeKind::Request { method, params, .. } =
                Envelope::parse(message).unwrap().kind
            else {
                panic!()
            };
            request::classify(
                session,
                &[super::super::Capability::Tools],
                &method.as_str().unwrap(),
                params,
            )
            .unwrap()
            .version
        };
        assert_eq!(
            classified(&initialize(1, Askable::NOTHING), SessionPhase::Fresh),
            V2025_11_25
        );
        assert_eq!(classified(&discover(1), SessionPhase::Fresh), V2026_07_28);
        assert_eq!(
            classified(
                &list(1, Feature::Tool, V2026_07_28, Some("\"c\"")),
                SessionPhase::Fresh
            ),
            V2026_07_28
        );
        for version in &Version::ALL[..4] {
            assert_eq!(
                classified(
                    &list(1, Feature::Tool, *version, None),
                    SessionPhase::Legacy(*version)
                ),
                *version
            );
        }
        let filter = SubscriptionFilter {
            tools: true,
            uris: vec!["file:///a".to_owned()],
            ..SubscriptionFilter::default()
        };
        let message = listen(1, &filter);
        assert_eq!(classified(&message, SessionPhase::Fresh), V2026_07_28);
        let envelope::EnvelopeKind::Request { params, .. } =
            Envelope::parse(&message).unwrap().kind
        else {
            panic!()
        };
        assert_eq!(SubscriptionFilter::read(params).unwrap(), filter);
        let message = initialize(1, Askable::NOTHING);
        let envelope::EnvelopeKind::Request { params, .. } =
            Envelope::parse(&message).unwrap().kind
        else {
            panic!()
        };
        assert_eq!(
            request::read_initialize(params).unwrap().version,
            V2025_11_25
        );
        let message = cancelled(7, "timed \"out\"");
        let envelope::EnvelopeKind::Notification { method, params } =
            Envelope::parse(&message).unwrap().kind
        else {
            panic!()
        };
        let read = request::read_notification(&method.as_str().unwrap(), params);
        assert!(
            matches!(read, Some(request::ClientNotification::Cancelled { request }) if request.text() == "7")
        );
    }

    #[test]
    fn messages_to_servers() {
        assert_eq!(
            list(3, Feature::Tool, V2025_06_18, None),
            br#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#
        );
        assert_eq!(
            list(3, Feature::Tool, V2025_06_18, Some(r#""\u0061""#)),
            br#"{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"\u0061"}}"#
        );
        assert_eq!(
            value(&list(3, Feature::Tool, V2026_07_28, Some("\"a\"")))["params"]["cursor"],
            "a"
        );
        let declared = |may_ask| value(&initialize(0, may_ask))["params"]["capabilities"].take();
        assert_eq!(declared(Askable::NOTHING), json!({}));
        assert_eq!(
            declared(Askable::named(["elicitation"])),
            json!({ "elicitation": { "form": {}, "url": {} } })
        );
        assert_eq!(value(&initialized())["method"], "notifications/initialized");
        assert_eq!(
            subscribe(4, Method::ResourcesUnsubscribe, "a\"b"),
            br#"{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"a\"b"}}"#
        );
        let level = Level::read(json("\"alert\"")).unwrap();
        assert_eq!(
            set_level(5, level),
            br#"{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"alert"}}"#
        );
    }

    #[test]
    fn requests_of_a_server_are_answered() {
        assert_eq!(
            answer_server("\"p\"", "ping", V2025_11_25),
            br#"{"jsonrpc":"2.0","id":"p","result":{}}"#
        );
        for (method, version) in [
            ("ping", V2026_07_28),
            ("sampling/createMessage", V2025_11_25),
            ("x\"\n", V2024_11_05),
        ] {
            assert_eq!(
                value(&answer_server("1", method, version))["error"]["code"],
                -32601
            );
        }
        assert!(answer_server("1", &"m".repeat(1 << 20), V2025_11_25).len() < 400);
    }

    #[test]
    fn reads_notifications_of_a_server() {
        let read = |method, params: &'static str| read_notification(method, Some(json(params)));
        let progress = "notifications/progress";
        assert!(matches!(
            read(progress, r#"{"progressToken":7,"progress":1}"#),
            Some(ServerNotification::Progress { token: 7 })
        ));
        for params in [
            "{}",
            r#"{"progressToken":"7"}"#,
            r#"{"progressToken":7.0}"#,
            r#"{"progressToken":-7}"#,
            r#"{"progressToken":18446744073709551616}"#,
            r#"{"progressToken":7,"progressTOKEN":8}"#,
            "[]",
        ] {
            assert!(read(progress, params).is_none(), "{params}");
        }
        assert!(read_notification(progress, None).is_none());
        for (method, feature) in [
            ("notifications/tools/list_changed", Feature::Tool),
            ("notifications/prompts/list_changed", Feature::Prompt),
            ("notifications/resources/list_changed", Feature::Resource),
        ] {
            let changed = read_notification(method, None);
            assert!(
                matches!(changed, Some(ServerNotification::ListChanged(found)) if found == feature)
            );
        }
        let updated = read("notifications/resources/updated", r#"{"uri":"a\u0062"}"#);
        assert!(
            matches!(updated, Some(ServerNotification::ResourceUpdated(uri)) if uri.is_string("ab"))
        );
        let message = read("notifications/message", r#"{"level":"error","data":1e400}"#);
        assert!(
            matches!(message, Some(ServerNotification::Message(level)) if level.as_str() == "error")
        );
        for (method, params) in [
            ("notifications/resources/updated", r#"{"uri":7}"#),
            (
                "notifications/resources/updated",
                r#"{"uri":"a","URI":"b"}"#,
            ),
            ("notifications/message", "{}"),
            ("notifications/message", r#"{"level":"loud"}"#),
            (
                "notifications/message",
                r#"{"level":"info","Level":"debug"}"#,
            ),
            ("notifications/nonsense", "{}"),
        ] {
            assert!(read(method, params).is_none(), "{method} {params}");
        }
    }
}
