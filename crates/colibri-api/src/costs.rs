//! The cost of calls, lists and agents' models: `colibri/costs`.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Span;
use jiff::civil::{Date, date};
use serde::{Deserialize, Serialize};

use crate::named::named;

/// Day 0.
const EPOCH: Date = date(1970, 1, 1);
/// Seconds of a day.
const SECONDS: u64 = 86_400;

/// A day in UTC, as days since 1970-01-01; written `2026-11-23`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct CostDay(pub u32);

impl CostDay {
    /// The day of a time; 1970-01-01 where the clock stands before it.
    #[must_use]
    pub fn of(time: SystemTime) -> CostDay {
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        CostDay(u32::try_from(seconds / SECONDS).unwrap_or(u32::MAX))
    }

    /// Its end: milliseconds since 1970.
    #[must_use]
    pub fn end_ms(self) -> u64 {
        (u64::from(self.0) + 1) * SECONDS * 1000
    }
}

impl fmt::Display for CostDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = EPOCH
            .checked_add(Span::new().days(self.0))
            .unwrap_or(Date::MAX);
        day.fmt(f)
    }
}

/// A text that is no day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a day is written YYYY-MM-DD, in UTC, from 1970-01-01 on, as 2026-11-23")]
pub struct NoDay;

impl FromStr for CostDay {
    type Err = NoDay;

    fn from_str(text: &str) -> Result<CostDay, NoDay> {
        let day: Date = text.parse().map_err(|_| NoDay)?;
        // A longer form, as `2026-11-23T00:00` or `20261123`, may be a slip.
        if day.to_string() != text {
            return Err(NoDay);
        }
        let days = (day - EPOCH).get_days();
        u32::try_from(days).map(CostDay).map_err(|_| NoDay)
    }
}

impl TryFrom<String> for CostDay {
    type Error = NoDay;

    fn try_from(text: String) -> Result<CostDay, NoDay> {
        text.parse()
    }
}

impl From<CostDay> for String {
    fn from(day: CostDay) -> String {
        day.to_string()
    }
}

named! {
    /// The keys by which costs are added up.
    pub enum CostsBy {
        /// By server, method and tool.
        Tool = "tool",
        /// By server.
        Server = "server",
        /// By agent; what people called themselves is one row without an agent.
        Agent = "agent",
        /// By the name that clients declare of themselves.
        Client = "client",
        /// By model; what asked none is one row without a model.
        Model = "model",
        /// By task; what was for none is one row without a task.
        Task = "task",
        /// By person; an agent's cost is that of the person for whom it runs.
        Person = "person",
        /// By day, in UTC.
        Day = "day",
    }
}

/// The parameters of `colibri/costs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostsRequest {
    /// The first day; none: all that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<CostDay>,
    /// The keys by which costs are added up, one or several; none: by tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<CostsBy>,
    /// Only what was listed and not called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unused: bool,
}

/// The answer of `colibri/costs`: an operator is told of everybody, anybody else of themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// True if it is about everybody, or only about who asked.
    pub everybody: bool,
    /// The first day of which anything is counted here; none: nothing is.
    pub since: Option<CostDay>,
    /// The keys by which costs are added up.
    pub by: Vec<CostsBy>,
    /// Days in order, else what cost most bytes first.
    pub rows: Vec<CostRow>,
    /// Further rows, those that cost least, that the answer has no room for. The sum has them too.
    #[serde(default)]
    pub left_out: u64,
    /// All of it together.
    pub sum: CostSum,
    /// The reason for which the newest counts cannot be written now and are not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<String>,
    /// The file beside the registry in which prices of models are looked for; the daemon does not
    /// read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
}

/// The cost of one thing; it has those of the names by which costs are added up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CostRow {
    /// The server; `colibri` for what the daemon answered itself; none: the model that an agent
    /// asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The method: `tools/call`, `resources/read`, and so on; `model` for the model that an agent
    /// asked; `other` for one that nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The server's own name of the tool that was called or listed; with `tools/call` none: tools
    /// that there are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The agent's id; none: people themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The name that the client declares of itself; none: it declares none, or it is one of too
    /// many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The model that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The task for which it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
    /// The person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<CostDay>,
    /// Its cost.
    #[serde(flatten)]
    pub cost: CostSum,
}

/// A cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CostSum {
    /// Requests.
    pub calls: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Bytes of the requests as clients sent them, without line ends.
    pub bytes_in: u64,
    /// Bytes of the answers as they were queued for clients, without line ends.
    pub bytes_out: u64,
    /// An estimate of the tokens that requests and answers are to a model.
    pub estimated_tokens: u64,
    /// Time that the requests took together, microseconds.
    pub microseconds: u64,
    /// The number of times that it was listed.
    #[serde(default)]
    pub lists: u64,
    /// Bytes of it in those lists: part of the answers to `tools/list`.
    #[serde(default)]
    pub listed_bytes: u64,
    /// An estimate of the tokens that those are to a model.
    #[serde(default)]
    pub estimated_listed_tokens: u64,
    /// Requests to a model whose tokens the model told.
    #[serde(default)]
    pub model_requests: u64,
    /// Tokens that the model read, as it told them.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens that the model wrote, as it told them.
    #[serde(default)]
    pub tokens_out: u64,
    /// Those of `tokens_in` that the provider read from its cache.
    #[serde(default)]
    pub tokens_cached: u64,
    /// Those of `tokens_in` that the provider wrote to its cache.
    #[serde(default)]
    pub tokens_cache_write: u64,
}

/// Bytes that a token stands for, as an estimate: tokenizers differ, and JSON and English text are
/// near this.
const BYTES_OF_TOKEN: u64 = 4;

impl CostSum {
    /// Adds another cost.
    pub fn add(&mut self, other: &CostSum) {
        for (sum, more) in [
            (&mut self.calls, other.calls),
            (&mut self.errors, other.errors),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.microseconds, other.microseconds),
            (&mut self.lists, other.lists),
            (&mut self.listed_bytes, other.listed_bytes),
            (&mut self.model_requests, other.model_requests),
            (&mut self.tokens_in, other.tokens_in),
            (&mut self.tokens_out, other.tokens_out),
            (&mut self.tokens_cached, other.tokens_cached),
            (&mut self.tokens_cache_write, other.tokens_cache_write),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.estimated_tokens = self.bytes() / BYTES_OF_TOKEN;
        self.estimated_listed_tokens = self.listed_bytes / BYTES_OF_TOKEN;
    }

    /// Tokens that the model read that were neither in the provider's cache nor written to it.
    #[must_use]
    pub fn tokens_fresh(&self) -> u64 {
        let cached = self.tokens_cached.saturating_add(self.tokens_cache_write);
        self.tokens_in.saturating_sub(cached)
    }

    /// Bytes of requests and answers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn days_are_utcs() {
        let at = |seconds| CostDay::of(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(
            [at(0), at(86_399), at(86_400)],
            [CostDay(0), CostDay(0), CostDay(1)]
        );
        assert_eq!(CostDay::of(UNIX_EPOCH - Duration::from_secs(1)), CostDay(0));
        assert_eq!(CostDay(0).end_ms(), 86_400_000);
    }

    #[test]
    fn days_are_read_as_they_are_written() {
        let mut last = String::new();
        for day in (0..60_000).chain([2_932_896]) {
            let text = CostDay(day).to_string();
            assert!(text > last, "{text}");
            assert_eq!(text.parse(), Ok(CostDay(day)));
            last = text;
        }
        assert_eq!(
            (CostDay(0).to_string(), CostDay(11_016).to_string()),
            ("1970-01-01".into(), "2000-02-29".into())
        );
        assert_eq!(last, "9999-12-31");
        for wrong in [
            "",
            "2026",
            "2026-02-30",
            "2026-1-02",
            "2026-01-02T",
            "1969-12-31",
            "+026-01-02",
            "2026-13-01",
            "10000-01-01",
        ] {
            assert_eq!(wrong.parse::<CostDay>(), Err(NoDay), "{wrong}");
        }
    }

    #[test]
    fn what_is_asked_is_read_strictly() {
        let read = |text: &str| serde_json::from_str::<CostsRequest>(text);
        let asked = read(r#"{"since":"2026-11-01","by":["day","person"]}"#).unwrap();
        assert_eq!(asked.by, [CostsBy::Day, CostsBy::Person]);
        for wrong in [
            r#"{"since":"yesterday"}"#,
            r#"{"by":["week"]}"#,
            r#"{"uid":0}"#,
            r#"{"by":"tool"}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sums_stop_at_the_largest_number() {
        let mut cost = CostSum {
            bytes_in: u64::MAX,
            bytes_out: 40,
            listed_bytes: 9,
            ..CostSum::default()
        };
        cost.add(&CostSum {
            bytes_in: 1,
            calls: 2,
            ..CostSum::default()
        });
        assert_eq!(
            (cost.bytes_in, cost.calls, cost.bytes()),
            (u64::MAX, 2, u64::MAX)
        );
        assert_eq!(
            (cost.estimated_tokens, cost.estimated_listed_tokens),
            (u64::MAX / 4, 2)
        );
    }
}
