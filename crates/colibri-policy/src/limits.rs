//! `limits` of `clients.json`: how much of everything there may be. They hold from the daemon's
//! start to its end.

use colibri_api::CostMode;
use colibri_json::{DocumentError, Object, ValueCursor};
use colibri_registry::value::size;

use super::place::RulePlace;
use super::quota::UserQuota;

/// The most clients, and the most calls of one.
const MAX_CLIENTS: u64 = 65_536;
/// The bounds of the longest message, bytes.
const MESSAGE: std::ops::RangeInclusive<usize> = 4096..=1 << 30;

/// The keys of `limits`.
const KEYS: [&str; 10] = [
    "clients",
    "clients_for_operators",
    "clients_per_user",
    "calls_per_client",
    "message_bytes",
    "trail_bytes_per_user",
    "starts_per_user",
    "processes_per_user",
    "result_bytes_per_user",
    "result_bytes",
];

/// The places of the limits in a file.
#[derive(Debug)]
pub(super) struct LimitPlaces([RulePlace; KEYS.len()]);

impl LimitPlaces {
    /// The places in a file with `limits`.
    ///
    /// # Errors
    /// As [`DaemonLimits::read`].
    pub(super) fn read(value: &ValueCursor<'_>) -> Result<LimitPlaces, DocumentError> {
        let keys = value.object(&KEYS)?;
        Ok(LimitPlaces(KEYS.map(|key| RulePlace::of_key(&keys, key))))
    }

    /// Those in a file without `limits`, or where no file is: all have the value that they have
    /// without it.
    pub(super) fn in_file_without(file: &str) -> LimitPlaces {
        LimitPlaces(KEYS.map(|key| RulePlace::in_file(file, &format!("limits.{key}"))))
    }

    /// The place of a limit by its key.
    pub(super) fn of(&self, key: &str) -> &RulePlace {
        let index = KEYS.iter().position(|known| *known == key);
        &self.0[index.unwrap_or_default()]
    }
}

/// The limits of a daemon, as the file says them, or as they are without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaemonLimits {
    /// Clients at once.
    pub clients: u32,
    /// Of these, for operators alone.
    pub clients_for_operators: u32,
    /// Clients of one user who is no operator.
    pub clients_per_user: u32,
    /// Calls in flight of one client.
    pub calls_per_client: u32,
    /// The longest message, bytes.
    pub message_bytes: usize,
    /// Bytes of trail that the calls of one user may write in a second; 0: any number.
    pub trail_bytes_per_user: u64,
    /// Jailed servers that the calls of one user may start in a minute; 0: any number.
    pub starts_per_user: u32,
    /// Processes of one jailed server for one user.
    pub processes_per_user: u32,
    /// Bytes of one user's stored results; 0: none are stored.
    pub result_bytes_per_user: u64,
    /// Bytes of all stored results; 0: none are stored.
    pub result_bytes: u64,
}

impl Default for DaemonLimits {
    fn default() -> DaemonLimits {
        DaemonLimits {
            clients: 1024,
            clients_for_operators: 16,
            clients_per_user: 256,
            calls_per_client: 256,
            message_bytes: 16 << 20,
            trail_bytes_per_user: 4 << 20,
            starts_per_user: 60,
            processes_per_user: 4,
            result_bytes_per_user: 64 << 20,
            result_bytes: 512 << 20,
        }
    }
}

impl DaemonLimits {
    /// Reads the value of `limits`.
    ///
    /// # Errors
    /// An unknown key, or a value out of its bounds.
    pub(super) fn read(value: &ValueCursor<'_>) -> Result<DaemonLimits, DocumentError> {
        let keys = value.object(&KEYS)?;
        let default = DaemonLimits::default();
        Ok(DaemonLimits {
            clients: number(&keys, "clients", 1..=MAX_CLIENTS, default.clients)?,
            clients_for_operators: number(
                &keys,
                "clients_for_operators",
                0..=MAX_CLIENTS,
                default.clients_for_operators,
            )?,
            clients_per_user: number(
                &keys,
                "clients_per_user",
                1..=MAX_CLIENTS,
                default.clients_per_user,
            )?,
            calls_per_client: number(
                &keys,
                "calls_per_client",
                1..=MAX_CLIENTS,
                default.calls_per_client,
            )?,
            message_bytes: keys
                .read("message_bytes", message_bytes)?
                .unwrap_or(default.message_bytes),
            trail_bytes_per_user: bytes(
                &keys,
                "trail_bytes_per_user",
                default.trail_bytes_per_user,
            )?,
            starts_per_user: number(
                &keys,
                "starts_per_user",
                0..=u32::MAX.into(),
                default.starts_per_user,
            )?,
            processes_per_user: number(
                &keys,
                "processes_per_user",
                1..=MAX_CLIENTS,
                default.processes_per_user,
            )?,
            result_bytes_per_user: bytes(
                &keys,
                "result_bytes_per_user",
                default.result_bytes_per_user,
            )?,
            result_bytes: bytes(&keys, "result_bytes", default.result_bytes)?,
        })
    }

    /// The quota of each user, with the cost mode of those for whom nothing nearer says one.
    pub fn quota(&self, cost_mode: Option<CostMode>) -> UserQuota {
        UserQuota {
            clients: self.clients as usize,
            kept_back: self.clients_for_operators as usize,
            clients_per_user: self.clients_per_user as usize,
            trail_per_user: self.trail_bytes_per_user,
            starts_per_user: self.starts_per_user,
            processes_per_user: self.processes_per_user as usize,
            cost_mode,
        }
    }
}

fn number(
    keys: &Object<'_>,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
    default: u32,
) -> Result<u32, DocumentError> {
    let number = keys.read(key, |value| value.integer(range.clone()))?;
    Ok(number
        .and_then(|number| number.try_into().ok())
        .unwrap_or(default))
}

/// A size, or 0.
fn bytes(keys: &Object<'_>, key: &str, default: u64) -> Result<u64, DocumentError> {
    let read = |value: &ValueCursor<'_>| match value.raw() {
        b"0" => Ok(0),
        _ => size(value),
    };
    Ok(keys.read(key, read)?.unwrap_or(default))
}

fn message_bytes(value: &ValueCursor<'_>) -> Result<usize, DocumentError> {
    match usize::try_from(size(value)?) {
        Ok(bytes) if MESSAGE.contains(&bytes) => Ok(bytes),
        _ => Err(value.error(format!(
            "must be from {} to {} bytes",
            MESSAGE.start(),
            MESSAGE.end()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_json::Document;

    fn read(text: &str) -> Result<DaemonLimits, String> {
        let document = Document::parse(text.as_bytes(), "clients.json").unwrap();
        DaemonLimits::read(&document.root()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_file_does_not_say_is_as_without_it() {
        assert_eq!(read("{}").unwrap(), DaemonLimits::default());
        let said = read(
            r#"{"clients":2,"message_bytes":"64K","result_bytes":0,"trail_bytes_per_user":1000}"#,
        )
        .unwrap();
        let wanted = DaemonLimits {
            clients: 2,
            message_bytes: 65_536,
            result_bytes: 0,
            trail_bytes_per_user: 1000,
            ..DaemonLimits::default()
        };
        assert_eq!(said, wanted);
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        for (text, part) in [
            (r#"{"clients":0}"#, "clients: must be from 1 to 65536"),
            (r#"{"clients":65537}"#, "clients: must be"),
            (
                r#"{"message_bytes":4095}"#,
                "message_bytes: must be from 4096 to",
            ),
            (
                r#"{"message_bytes":"2G"}"#,
                "message_bytes: must be from 4096 to",
            ),
            (r#"{"result_bytes":"0"}"#, "result_bytes: must be a size"),
            (
                r#"{"starts_per_user":4294967296}"#,
                "starts_per_user: must be",
            ),
            (r#"{"client":1}"#, "client: unknown key; did you mean"),
            (r#"{"clients":null}"#, "clients: "),
            ("[]", "must be an object"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
