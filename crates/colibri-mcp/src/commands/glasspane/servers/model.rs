//! The state of the daemon, and its history.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::terminal;
use colibri_api::{CallCounts, Overview, OverviewServer};

/// The period over which calls per second are counted, milliseconds.
const RATE_WINDOW: u64 = 10_000;
/// The period over which latencies are counted, milliseconds.
const LATENCY_WINDOW: u64 = 60_000;

/// By what servers are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// By their ids.
    Name,
    /// The busiest first.
    Calls,
    /// The slowest first.
    Latency,
    /// Those with most errors first.
    Errors,
}

impl Sort {
    /// The next one.
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Name => Sort::Calls,
            Sort::Calls => Sort::Latency,
            Sort::Latency => Sort::Errors,
            Sort::Errors => Sort::Name,
        }
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Calls => "calls/s",
            Sort::Latency => "latency",
            Sort::Errors => "errors",
        }
    }
}

/// One server's line.
#[derive(Debug, Clone)]
pub(super) struct ServerLine {
    pub(super) server: OverviewServer,
    pub(super) rate: f64,
    pub(super) p50: Option<Latency>,
    pub(super) p95: Option<Latency>,
    pub(super) errors: u64,
}

/// A latency as far as buckets tell it.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum Latency {
    /// At most so many seconds.
    Within(f64),
    /// More than so many.
    Beyond(f64),
}

/// All that is known, and what happened before.
#[derive(Debug, Default)]
pub(super) struct ServersModel {
    pub(super) now: Option<Overview>,
    /// Earlier counters: the time, and what was counted by server.
    pub(super) before: VecDeque<(u64, BTreeMap<String, CallCounts>)>,
    /// The reason for which there is no news.
    pub(super) trouble: Option<String>,
    users: HashMap<u32, String>,
}

impl ServersModel {
    /// Takes a new overview in.
    pub(super) fn update(&mut self, overview: Overview) {
        if let Some(old) = self.now.take() {
            // After a restart of the daemon all counters begin anew.
            if old.uptime_s > overview.uptime_s || old.time > overview.time {
                self.before.clear();
            } else {
                let counted = old
                    .servers
                    .into_iter()
                    .map(|server| (server.id, server.calls));
                self.before.push_back((old.time, counted.collect()));
            }
        }
        while self
            .before
            .front()
            .is_some_and(|(time, _)| time + LATENCY_WINDOW < overview.time)
        {
            self.before.pop_front();
        }
        let known: Vec<u32> = overview
            .approvals
            .iter()
            .map(|approval| approval.uid)
            .collect();
        let tail = overview.trail.iter().flat_map(|trail| &trail.tail);
        let spenders = overview.spenders.iter().map(|spender| spender.uid);
        for uid in known
            .into_iter()
            .chain(spenders)
            .chain(tail.filter_map(|record| record.uid))
        {
            self.users.entry(uid).or_insert_with(|| terminal::user(uid));
        }
        self.now = Some(overview);
    }

    pub(super) fn user(&self, uid: Option<u32>) -> &str {
        uid.and_then(|uid| self.users.get(&uid))
            .map_or("-", String::as_str)
    }

    /// The counts of the last period: since its beginning, and its length in seconds. Since the
    /// counters began, if nothing earlier is known.
    fn counted_in(
        &self,
        now: &Overview,
        server: &OverviewServer,
        window: u64,
    ) -> (CallCounts, f64) {
        let from = self
            .before
            .iter()
            .find(|(time, _)| time + window >= now.time);
        let Some((time, before)) = from else {
            return (server.calls.clone(), now.uptime_s.max(1) as f64);
        };
        let seconds = (now.time.saturating_sub(*time)).max(1) as f64 / 1000.0;
        match before.get(&server.id) {
            // A server whose entry was changed counts anew.
            Some(before) if before.finished <= server.calls.finished => {
                (since(&server.calls, before), seconds)
            }
            _ => (server.calls.clone(), seconds),
        }
    }

    pub(super) fn lines(&self, now: &Overview, sort: Sort) -> Vec<ServerLine> {
        let mut lines: Vec<ServerLine> = now
            .servers
            .iter()
            .map(|server| {
                let (recent, seconds) = self.counted_in(now, server, RATE_WINDOW);
                let (latencies, _) = self.counted_in(now, server, LATENCY_WINDOW);
                ServerLine {
                    server: server.clone(),
                    rate: recent.finished as f64 / seconds,
                    p50: quantile(&latencies, 0.5),
                    p95: quantile(&latencies, 0.95),
                    errors: server.calls.errors.iter().map(|(_, count)| count).sum(),
                }
            })
            .collect();
        // What is compared is sorted in descending order; equals stay in the order of their names.
        match sort {
            Sort::Name => {}
            Sort::Calls => lines.sort_by(|a, b| b.rate.total_cmp(&a.rate)),
            Sort::Latency => {
                let key = |line: &ServerLine| match line.p95 {
                    None => -1.0,
                    Some(Latency::Within(seconds)) => seconds,
                    Some(Latency::Beyond(_)) => f64::INFINITY,
                };
                lines.sort_by(|a, b| key(b).total_cmp(&key(a)));
            }
            Sort::Errors => lines.sort_by_key(|line| std::cmp::Reverse(line.errors)),
        }
        lines
    }
}

/// The counts since an earlier time.
fn since(now: &CallCounts, before: &CallCounts) -> CallCounts {
    let earlier = before
        .buckets
        .iter()
        .map(|(_, count)| *count)
        .chain(std::iter::repeat(0));
    let buckets = now.buckets.iter().zip(earlier);
    CallCounts {
        finished: now.finished - before.finished,
        seconds: now.seconds - before.seconds,
        buckets: buckets
            .map(|((bound, count), earlier)| (*bound, count.saturating_sub(earlier)))
            .collect(),
        errors: Vec::new(),
        strays: now.strays.saturating_sub(before.strays),
        asked: now.asked.saturating_sub(before.asked),
    }
}

/// The latency that the share `q` of the calls did not exceed.
fn quantile(counts: &CallCounts, q: f64) -> Option<Latency> {
    let all: u64 = counts.buckets.iter().map(|(_, count)| count).sum();
    let rank = (q * all as f64).ceil().max(1.0) as u64;
    let (mut seen, mut last) = (0, 0.0);
    for (bound, count) in &counts.buckets {
        seen += count;
        if seen >= rank {
            return Some(bound.map_or(Latency::Beyond(last), Latency::Within));
        }
        last = bound.unwrap_or(last);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn overview(time: u64, uptime_s: u64, buckets: Value) -> Overview {
        let finished: u64 = buckets
            .as_array()
            .unwrap()
            .iter()
            .map(|bucket| bucket[1].as_u64().unwrap())
            .sum();
        serde_json::from_value(json!({
            "version": "1", "time": time, "uptime_s": uptime_s, "write_gate": false, "external_gate": true,
            "clients": 1, "in_flight": 0, "resident": null, "registry_error": null, "approvals": [], "trail": null,
            "servers": [{ "id": "fix", "state": "ready", "reason": null,
                "calls": { "finished": finished, "buckets": buckets, "errors": [["TOOL_ERROR", 2]] } }],
        }))
        .unwrap()
    }

    fn line(model: &ServersModel) -> ServerLine {
        model
            .lines(model.now.as_ref().unwrap(), Sort::Name)
            .remove(0)
    }

    #[test]
    fn rates_and_latencies_are_of_the_last_while() {
        let mut model = ServersModel::default();
        model.update(overview(
            100_000,
            100,
            json!([[0.001, 50], [1.0, 0], [null, 0]]),
        ));
        let first = line(&model);
        assert_eq!((first.rate, first.p95), (0.5, Some(Latency::Within(0.001))));
        model.update(overview(
            102_000,
            102,
            json!([[0.001, 50], [1.0, 9], [null, 1]]),
        ));
        let second = line(&model);
        assert_eq!((second.rate, second.p50), (5.0, Some(Latency::Within(1.0))));
        assert_eq!((second.p95, second.errors), (Some(Latency::Beyond(1.0)), 2));
        // Nothing since: no latency is known, and after the window the rate is none.
        for second in 0..40 {
            let time = 104 + 2 * second;
            model.update(overview(
                time * 1000,
                time,
                json!([[0.001, 50], [1.0, 9], [null, 1]]),
            ));
        }
        let idle = line(&model);
        assert_eq!((idle.rate, idle.p50), (0.0, None));
        assert!(model.before.len() <= 31);
    }

    #[test]
    fn counters_that_begin_anew_are_no_trouble() {
        let mut model = ServersModel::default();
        model.update(overview(100_000, 100, json!([[0.001, 50], [null, 0]])));
        model.update(overview(101_000, 101, json!([[0.001, 3], [null, 0]])));
        assert_eq!(line(&model).rate, 3.0);
        model.update(overview(103_000, 1, json!([[0.001, 4], [null, 0]])));
        assert_eq!(line(&model).rate, 4.0);
        assert!(model.before.is_empty());
    }

    #[test]
    fn each_order_leads_to_the_next_and_back() {
        let mut sort = Sort::Name;
        for _ in 0..4 {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Name);
    }
}
