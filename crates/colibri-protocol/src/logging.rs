//! Log messages: their levels, the level that a client selects, and messages of the daemon's own.

use super::answer::META_SUBSCRIPTION_ID;
use super::rpc_error::RpcError;
use colibri_wire::Json;

/// The severity of a log message (`LoggingLevel` of every version; RFC 5424, section 6.2.1), the
/// lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

/// The names of the levels, the lowest first.
const NAMES: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

impl Level {
    /// `notice`.
    pub const NOTICE: Level = Level(2);

    /// The level that a value names.
    pub fn read(value: Json<'_>) -> Option<Level> {
        let index = NAMES.iter().position(|name| value.is_string(name))?;
        u8::try_from(index).ok().map(Level)
    }

    /// The level's name.
    pub fn as_str(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// The names of all levels, as a list for a message.
    pub(crate) fn names() -> String {
        NAMES.join(", ")
    }
}

/// A log message of the daemon's own, whose data is JSON. `subscription` is the id of the
/// `subscriptions/listen` on whose stream a modern client gets it, as written; `None` in a legacy
/// session.
pub fn message(level: Level, data: &str, subscription: Option<&str>) -> Vec<u8> {
    let meta = subscription
        .map(|id| format!(",\"_meta\":{{\"{META_SUBSCRIPTION_ID}\":{id}}}"))
        .unwrap_or_default();
    let level = level.as_str();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\
         \"params\":{{\"level\":\"{level}\",\"logger\":\"colibri\",\"data\":{data}{meta}}}}}"
    )
    .into_bytes()
}

/// Reads the params of `logging/setLevel`.
///
/// # Errors
/// -32602 if the level is missing or unknown.
pub fn read_set_level(params: Option<Json<'_>>) -> Result<Level, RpcError> {
    let level = params.filter(|params| params.ambiguous(&["level"]).is_none());
    let level = level.and_then(|params| Level::read(params.get("level")?));
    level.ok_or_else(|| {
        let names = Level::names();
        RpcError::invalid_params(format!("invalid params: \"level\" must be one of {names}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_compared() {
        let read =
            |text: &'static str| read_set_level(Some(Json::parse(text.as_bytes()).unwrap())).ok();
        let level = |name: &str| {
            Level::read(Json::parse(format!("\"{name}\"").as_bytes()).unwrap()).unwrap()
        };
        assert!(level("debug") < level("info") && level("warning") < level("emergency"));
        assert_eq!(read(r#"{"level":"w\u0061rning"}"#), Some(level("warning")));
        assert_eq!(
            (level("notice"), Level::NOTICE.as_str()),
            (Level::NOTICE, "notice")
        );
        assert_eq!(
            message(Level::NOTICE, "{\"a\":1}", Some("\"s\"")),
            br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"notice","logger":"colibri","data":{"a":1},"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#
        );
        for other in [
            "{}",
            "[]",
            r#"{"level":"Debug"}"#,
            r#"{"level":7}"#,
            r#"{"level":"debug","LEVEL":"info"}"#,
        ] {
            assert_eq!(read(other), None, "{other}");
        }
        assert!(read_set_level(None).is_err());
    }
}
