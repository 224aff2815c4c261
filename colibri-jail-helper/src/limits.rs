//! The limits of an instance: for each resource the lesser of what entry and policy say, and a
//! default where the policy says nothing.

use std::collections::BTreeMap;

use colibri_json::JsonWriter;
use colibri_registry::{ProcessLimits, RctlResource};

/// The limits that are set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLimits {
    values: BTreeMap<RctlResource, u64>,
    /// True if the entry itself names a limit that only the kernel's resource accounting can keep
    /// for an instance as a whole: without it the start is refused.
    pub needs_racct: bool,
}

impl PlannedLimits {
    /// Takes the lesser of entry and policy. Where the policy says nothing, its default is the most
    /// that an entry gets.
    #[must_use]
    pub fn new(entry: &ProcessLimits, policy: &ProcessLimits) -> Self {
        let ceiling = |limit| policy.get(limit).or(default(limit));
        let mut values: BTreeMap<RctlResource, u64> = RctlResource::all()
            .filter_map(|limit| Some((limit, least(entry.get(limit), ceiling(limit))?)))
            .collect();
        // What swap backs is part of the address space that `memory` grants; shared memory need not
        // even be mapped.
        let swap = least(
            values.get(&RctlResource::Swap).copied(),
            values.get(&RctlResource::Memory).copied(),
        );
        values.extend(swap.map(|swap| (RctlResource::Swap, swap)));
        Self {
            values,
            needs_racct: entry.need_accounting(),
        }
    }

    /// The value of one limit; `None` only for processor time, which has no default.
    #[must_use]
    pub fn get(&self, limit: RctlResource) -> Option<u64> {
        self.values.get(&limit).copied()
    }

    /// Writes all of them, by their keys. `/tmp` stands with the mounts.
    pub fn write(&self, out: &mut JsonWriter) {
        for (limit, most) in self
            .values
            .iter()
            .filter(|(limit, _)| **limit != RctlResource::Tmp)
        {
            out.key(limit.key()).number(*most);
        }
        out.key("needs_racct").boolean(self.needs_racct);
    }
}

/// The most of a resource where the policy says nothing: an amount that ordinary servers and agents
/// do not reach. What the kernel has a pool of its own for (buffers, terminals, queues, locks,
/// processes, files) a host with 2 GiB of memory outlives. `memory` is address space, of which some
/// runtimes reserve hundreds of gigabytes and use little, and `swap` is what they may really use: a
/// host that has less memory and swap space than that sets its own in the policy. Processor time is
/// shared anew at each moment, so nobody loses it for good, and a bound would only kill a server
/// that has served for long.
fn default(limit: RctlResource) -> Option<u64> {
    Some(match limit {
        RctlResource::CpuSeconds => return None,
        RctlResource::Memory => 1 << 40,
        RctlResource::Swap => 16 << 30,
        RctlResource::Processes => 512,
        RctlResource::Threads => 4096,
        RctlResource::OpenFiles => 1024,
        RctlResource::FileSize => 16 << 30,
        RctlResource::Tmp | RctlResource::Stack => 64 << 20,
        RctlResource::LockedMemory => 64 << 10,
        RctlResource::SocketBuffers | RctlResource::PipeBuffers => 16 << 20,
        RctlResource::Terminals => 32,
        RctlResource::Kqueues | RctlResource::SharedLocks => 1024,
    })
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use colibri_json::Document;

    use super::*;

    fn limits(text: &str) -> ProcessLimits {
        let document = Document::parse(text.as_bytes(), "test").unwrap();
        colibri_registry::limits(&document.root()).unwrap()
    }

    #[test]
    fn every_limit_but_processor_time_has_a_default() {
        let planned = PlannedLimits::new(&ProcessLimits::default(), &ProcessLimits::default());
        let without: Vec<_> = RctlResource::all()
            .filter(|limit| planned.get(*limit).is_none())
            .collect();
        assert_eq!(without, [RctlResource::CpuSeconds]);
        assert!(!planned.needs_racct);
    }

    #[test]
    fn the_policy_raises_each_and_the_entry_only_lowers() {
        for limit in RctlResource::all() {
            let one = |most: u64| limits(&format!("{{\"{}\": {most}}}", limit.key()));
            let none = ProcessLimits::default();
            // Beneath all defaults but that of terminals, and over all of them. `swap` follows
            // `memory`.
            let (low, high) = (30, 900_000_000);
            let planned = |entry: &ProcessLimits, policy: &ProcessLimits| {
                PlannedLimits::new(entry, policy).get(limit)
            };
            assert_eq!(planned(&one(low), &none), Some(low), "{limit:?}");
            assert_eq!(planned(&none, &one(low)), Some(low), "{limit:?}");
            assert_eq!(planned(&none, &one(high)), Some(high), "{limit:?}");
            assert_eq!(planned(&one(high), &one(low)), Some(low), "{limit:?}");
            assert_eq!(planned(&one(low), &one(high)), Some(low), "{limit:?}");
            let unsaid = default(limit).map_or(high, |most| most.min(high));
            assert_eq!(planned(&one(high), &none), Some(unsaid), "{limit:?}");
        }
    }

    #[test]
    fn memory_bounds_what_swap_backs_too() {
        let swap = |entry, policy| {
            PlannedLimits::new(&limits(entry), &limits(policy)).get(RctlResource::Swap)
        };
        assert_eq!(swap("{}", r#"{"memory": "128M"}"#), Some(128 << 20));
        assert_eq!(
            swap(r#"{"memory": "64M"}"#, r#"{"swap": "128M"}"#),
            Some(64 << 20)
        );
        assert_eq!(
            swap(r#"{"memory": "64M"}"#, r#"{"swap": "32M"}"#),
            Some(32 << 20)
        );
    }
}
