//! The resources that an entry and the policy limit, by their keys.

use std::collections::BTreeMap;

use colibri_json::{DocumentError, ValueCursor};

use crate::value::size;

/// A resource that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RctlResource {
    /// Bytes of address space.
    Memory,
    /// Bytes of memory that swap backs: private and shared memory, written to or not.
    Swap,
    /// Processes.
    Processes,
    /// Threads.
    Threads,
    /// Open files of one process.
    OpenFiles,
    /// Bytes of one file.
    FileSize,
    /// Bytes of `/tmp`.
    Tmp,
    /// Seconds of processor time of one process.
    CpuSeconds,
    /// Bytes of one process's main stack.
    Stack,
    /// Bytes of memory that one process locks.
    LockedMemory,
    /// Bytes of all socket buffers.
    SocketBuffers,
    /// Bytes of all pipe buffers.
    PipeBuffers,
    /// Pseudo-terminals.
    Terminals,
    /// Kernel event queues (kqueue(2)).
    Kqueues,
    /// Locks and semaphores shared between processes (_umtx_op(2)).
    SharedLocks,
}

impl RctlResource {
    /// Every limit, with its key and its least value; `None`: a number of bytes.
    const KEYS: &[(Self, &str, Option<u64>)] = &[
        (Self::Memory, "memory", None),
        (Self::Swap, "swap", None),
        (Self::Processes, "processes", Some(1)),
        (Self::Threads, "threads", Some(1)),
        // Three are the pipes; with fewer than this no program even finds its libraries.
        (Self::OpenFiles, "open_files", Some(8)),
        (Self::FileSize, "file_size", None),
        (Self::Tmp, "tmp", None),
        (Self::CpuSeconds, "cpu_seconds", Some(1)),
        (Self::Stack, "stack", None),
        (Self::LockedMemory, "locked_memory", None),
        (Self::SocketBuffers, "socket_buffers", None),
        (Self::PipeBuffers, "pipe_buffers", None),
        (Self::Terminals, "terminals", Some(0)),
        (Self::Kqueues, "kqueues", Some(0)),
        (Self::SharedLocks, "shared_locks", Some(0)),
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::KEYS.iter().map(|(limit, ..)| *limit)
    }

    /// The key of registry and policy.
    #[must_use]
    pub fn key(self) -> &'static str {
        Self::KEYS
            .iter()
            .find(|(limit, ..)| *limit == self)
            .map_or("", |(_, key, _)| key)
    }
}

/// Resource limits; those without a value are not in the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessLimits(BTreeMap<RctlResource, u64>);

impl ProcessLimits {
    /// The value of one limit, if the file has it.
    #[must_use]
    pub fn get(&self, limit: RctlResource) -> Option<u64> {
        self.0.get(&limit).copied()
    }

    /// True if one of them is among those that only the kernel's resource accounting (rctl(8))
    /// keeps for an instance as a whole.
    #[must_use]
    pub fn need_accounting(&self) -> bool {
        [
            RctlResource::Memory,
            RctlResource::Swap,
            RctlResource::Processes,
            RctlResource::Threads,
        ]
        .iter()
        .any(|limit| self.0.contains_key(limit))
    }
}

/// Reads resource limits; the policy has the same keys.
///
/// # Errors
/// An unknown key, or a limit out of range.
pub fn limits(cursor: &ValueCursor<'_>) -> Result<ProcessLimits, DocumentError> {
    let names: Vec<&str> = RctlResource::KEYS.iter().map(|(_, key, _)| *key).collect();
    let keys = cursor.object(&names)?;
    let mut limits = BTreeMap::new();
    for (limit, key, least) in RctlResource::KEYS {
        let value = match *least {
            Some(least) => keys.read(key, |v| v.integer(least..=MAX_COUNT))?,
            None => keys.read(key, size)?,
        };
        limits.extend(value.map(|value| (*limit, value)));
    }
    Ok(ProcessLimits(limits))
}

/// The most of anything that is counted; as seconds, 31 years.
const MAX_COUNT: u64 = 1_000_000_000;
