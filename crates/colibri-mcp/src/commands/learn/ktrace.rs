//! The trace file of ktrace(1), as the kernel writes it (sys/ktrace.h), on 64-bit machines. It is
//! read itself, and not as kdump(1) prints it: that prints names as they are, with newlines that
//! could pass for records.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::access::{ObservedAccess, absolute};

/// `ktr_type` without its flags, and the flags `KTR_DROP` and `KTR_VERSIONED`.
const SYSCALL: u16 = 1;
const SYSRET: u16 = 2;
const NAMEI: u16 = 3;
const STRUCT: u16 = 8;
const PROCCTOR: u16 = 10;
const PROCDTOR: u16 = 11;
const DROP: u16 = 0x8000;
const VERSIONED: u16 = 0x4000;
/// The bytes of `struct ktr_header`, version 1.
const HEADER: usize = 64;
/// Outcomes of calls that are no numbers of errors (sys/errno.h): a program that is executed, and a
/// call that begins anew.
const JUST_RETURNS: i32 = -2;
const RESTARTS: i32 = -1;
/// The longest record: a path and a name are far below.
const MAX_RECORD: usize = 1024 * 1024;
/// The most processes, threads and descriptors that are remembered: more than any honest server
/// has.
const MAX_REMEMBERED: usize = 65_536;

/// `sv_flags` of a native program of 64 bits: `SV_ABI_FREEBSD`, `SV_LP64` (sys/sysent.h).
const ABI_MASK: u32 = 0xff;
const ABI_FREEBSD: u32 = 9;
const LP64: u32 = 0x200;

/// `AT_FDCWD`, and flags of open(2).
const AT_FDCWD: i32 = -100;
const O_ACCMODE_WRITES: u64 = 0x3;
const O_CREAT: u64 = 0x200;
const O_TRUNC: u64 = 0x400;
const O_DIRECTORY: u64 = 0x2_0000;
const O_PATH: u64 = 0x40_0000;

/// A system call with a name: how its paths are found among its arguments.
enum CallKind {
    /// `open`: flags at 1; `openat`: directory at 0, flags at 2.
    Open {
        directory: Option<usize>,
        flags: usize,
    },
    /// Changes each name; directories at these arguments.
    Change(&'static [Option<usize>]),
    /// Changes the last name alone.
    ChangeLast(Option<usize>),
    Execute,
    ChangeDirectory,
    ChangeDirectoryByDescriptor,
    Connect,
    Bind,
    Make,
    /// Escapes the tracer.
    Escape(&'static str),
}

/// The kind of a system call by its number (sys/syscall.h).
fn kind(code: i16) -> Option<CallKind> {
    const PLAIN: &[Option<usize>] = &[None];
    const AT: &[Option<usize>] = &[Some(0)];
    Some(match code {
        5 => CallKind::Open {
            directory: None,
            flags: 1,
        },
        499 => CallKind::Open {
            directory: Some(0),
            flags: 2,
        },
        // unlink, mknod, chmod, chown, mkfifo, mkdir, rmdir, lchown, truncate
        10 | 14 | 15 | 16 | 132 | 136 | 137 | 254 | 479 => CallKind::Change(PLAIN),
        // fchmodat, fchownat, mkdirat, mkfifoat, mknodat, unlinkat, chflagsat, mknodat, funlinkat
        490 | 491 | 496 | 497 | 498 | 503 | 540 | 559 | 568 => CallKind::Change(AT),
        // link, rename
        9 | 128 => CallKind::Change(&[None, None]),
        // linkat, renameat
        495 | 501 => CallKind::Change(&[Some(0), Some(2)]),
        // symlink, symlinkat: the target is no name that is looked up
        57 => CallKind::ChangeLast(None),
        502 => CallKind::ChangeLast(Some(1)),
        59 | 492 => CallKind::Execute,
        12 => CallKind::ChangeDirectory,
        13 => CallKind::ChangeDirectoryByDescriptor,
        // connect, sendmsg, sendto, connectat
        98 | 28 | 133 | 539 => CallKind::Connect,
        104 | 538 => CallKind::Bind,
        // fork, vfork, rfork, pdfork, pdrfork
        2 | 66 | 251 | 518 | 600 => CallKind::Make,
        26 => CallKind::Escape("it traces another process"),
        45 => CallKind::Escape("it has changed how it is traced"),
        61 | 338 | 436 | 507 => CallKind::Escape("it has changed its root"),
        298 => CallKind::Escape("it opens files without their names"),
        _ => return None,
    })
}

/// A process.
#[derive(Debug, Clone, Default)]
struct TracedProcess {
    directory: PathBuf,
    /// Paths of descriptors that it opened.
    descriptors: BTreeMap<i32, PathBuf>,
    is_native: bool,
}

/// A call that has begun.
#[derive(Debug, Default)]
struct PendingCall {
    code: i16,
    arguments: Vec<u64>,
    names: Vec<PathBuf>,
    address: Option<SocketAddr>,
    local: Option<PathBuf>,
}

/// A reader of one trace, piece by piece.
#[derive(Debug)]
pub(super) struct KtraceReader {
    start: PathBuf,
    bytes: Vec<u8>,
    processes: BTreeMap<i32, TracedProcess>,
    /// By thread, with its process.
    pending: BTreeMap<i64, (i32, PendingCall)>,
    first: Option<i32>,
    /// True once the first process executes the server, and no longer the tracer.
    has_begun: bool,
    peak: u64,
    /// True once the first process has ended.
    pub has_ended: bool,
}

impl KtraceReader {
    /// A reader for the trace of a server that starts in this directory.
    pub(super) fn new(start: PathBuf) -> KtraceReader {
        KtraceReader {
            start,
            bytes: Vec::new(),
            processes: BTreeMap::new(),
            pending: BTreeMap::new(),
            first: None,
            has_begun: false,
            peak: 0,
            has_ended: false,
        }
    }

    /// The processes that live, as far as they were reported.
    pub(super) fn living(&self) -> Vec<i32> {
        self.processes.keys().copied().collect()
    }

    /// Reads the next bytes, and gives what they report to `note`.
    pub(super) fn read(&mut self, piece: &[u8], note: &mut dyn FnMut(ObservedAccess)) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.extend_from_slice(piece);
        let mut rest = &bytes[..];
        while let Some(header) = rest.get(..HEADER) {
            let length = number(header, 0).map_or(-1, i32::from_ne_bytes);
            let Ok(length) = usize::try_from(length) else {
                return escape("its trace cannot be read", note);
            };
            let kind = number(header, 4).map_or(0, u16::from_ne_bytes);
            if length > MAX_RECORD || kind & VERSIONED == 0 {
                return escape("its trace cannot be read", note);
            }
            let Some(data) = rest.get(HEADER..HEADER + length) else {
                break;
            };
            if kind & DROP != 0 {
                escape("the kernel has left out a part of its trace", note);
            }
            let process = number(header, 8).map_or(0, i32::from_ne_bytes);
            let thread = number(header, 48).map_or(0, i64::from_ne_bytes);
            self.record(kind & !(DROP | VERSIONED), process, thread, data, note);
            rest = &rest[HEADER + length..];
        }
        self.bytes = rest.to_vec();
    }

    fn record(
        &mut self,
        kind: u16,
        process: i32,
        thread: i64,
        data: &[u8],
        note: &mut dyn FnMut(ObservedAccess),
    ) {
        if self.processes.len() > MAX_REMEMBERED || self.pending.len() > MAX_REMEMBERED {
            return escape("it has more threads than can be followed", note);
        }
        if kind == PROCDTOR {
            self.processes.remove(&process);
            self.pending.retain(|_, (of, _)| *of != process);
            self.has_ended |= self.first == Some(process);
            return;
        }
        self.meet(process, note);
        match kind {
            SYSCALL => {
                let arguments = data.get(8..).unwrap_or_default().chunks_exact(8);
                let call = PendingCall {
                    code: number(data, 0).map_or(0, i16::from_ne_bytes),
                    arguments: arguments
                        .filter_map(|word| Some(u64::from_ne_bytes(number(word, 0)?)))
                        .collect(),
                    ..PendingCall::default()
                };
                self.pending.insert(thread, (process, call));
            }
            NAMEI => {
                if let Some((_, call)) = self
                    .pending
                    .get_mut(&thread)
                    .filter(|(_, call)| call.names.len() < 8)
                {
                    call.names
                        .push(PathBuf::from(std::ffi::OsString::from_vec(data.to_vec())));
                }
            }
            STRUCT => {
                if let (Some((_, call)), Some(address)) = (
                    self.pending.get_mut(&thread),
                    data.strip_prefix(b"sockaddr\0"),
                ) {
                    match internet_address(address) {
                        Some(address) => call.address = Some(address),
                        None => call.local = local_address(address),
                    }
                }
            }
            SYSRET => {
                let error = number(data, 4).map_or(0, i32::from_ne_bytes);
                let result = number(data, 8).map_or(0, i64::from_ne_bytes);
                if let Some((_, call)) = self.pending.remove(&thread).filter(|_| error != RESTARTS)
                {
                    self.call(
                        process,
                        call,
                        error != 0 && error != JUST_RETURNS,
                        result,
                        note,
                    );
                }
            }
            PROCCTOR => {
                let flags = number(data, 0).map_or(0, u32::from_ne_bytes);
                let is_native = flags & ABI_MASK == ABI_FREEBSD && flags & LP64 != 0;
                if !is_native {
                    note(ObservedAccess::Unseen {
                        why: "it has run programs of Linux, or of 32 bits, whose accesses were not seen".to_owned(),
                    });
                }
                if let Some(process) = self.processes.get_mut(&process) {
                    process.is_native = is_native;
                }
            }
            _ => {}
        }
    }

    /// Takes a process that was not seen before for a copy of one that makes another just now.
    fn meet(&mut self, process: i32, note: &mut dyn FnMut(ObservedAccess)) {
        if self.processes.contains_key(&process) {
            return;
        }
        self.first.get_or_insert(process);
        let mut makers = self
            .pending
            .values()
            .filter(|(_, call)| matches!(kind(call.code), Some(CallKind::Make)));
        let parent = makers
            .next()
            .and_then(|(parent, _)| self.processes.get(parent).cloned());
        self.make(process, parent, note);
    }

    fn make(
        &mut self,
        process: i32,
        parent: Option<TracedProcess>,
        note: &mut dyn FnMut(ObservedAccess),
    ) {
        let new = parent.unwrap_or_else(|| TracedProcess {
            directory: self.start.clone(),
            is_native: true,
            ..TracedProcess::default()
        });
        self.processes.insert(process, new);
        let count = self.processes.len() as u64;
        if count > self.peak {
            self.peak = count;
            note(ObservedAccess::Processes { count });
        }
    }

    fn call(
        &mut self,
        number: i32,
        call: PendingCall,
        has_failed: bool,
        result: i64,
        note: &mut dyn FnMut(ObservedAccess),
    ) {
        let Some(process) = self
            .processes
            .get(&number)
            .filter(|process| process.is_native)
        else {
            return;
        };
        let Some(kind) = kind(call.code) else { return };
        if !self.has_begun {
            // Until then it is ktrace(1) itself.
            self.has_begun = matches!(kind, CallKind::Execute) && !has_failed;
            if !self.has_begun {
                return;
            }
        }
        let argument = |at: usize| call.arguments.get(at).copied().unwrap_or_default();
        // The name at `name`, relative to the directory of the descriptor at `directory`. Links are
        // followed as they are when the trace is read.
        let path = |name: usize, directory: Option<usize>| {
            let name = call.names.get(name)?;
            let base = match directory.map(|at| argument(at) as i32) {
                None | Some(AT_FDCWD) => Some(&process.directory),
                Some(_) if name.is_absolute() => Some(&process.directory),
                Some(descriptor) => process.descriptors.get(&descriptor),
            };
            Some(base.map(|base| absolute(base, name)))
        };
        let mut change = |path: Option<Option<PathBuf>>| match path {
            Some(Some(path)) if has_failed => note(ObservedAccess::Miss { path }),
            Some(Some(path)) => note(ObservedAccess::Write { path }),
            Some(None) => unknown_directory(note),
            None => {}
        };
        match kind {
            CallKind::Open { directory, flags } => {
                let flags = argument(flags);
                match path(0, directory) {
                    Some(Some(path)) if has_failed => note(ObservedAccess::Miss { path }),
                    Some(Some(path)) => {
                        let real = path.canonicalize().unwrap_or(path);
                        if flags & O_PATH != 0 {
                            // A name without access.
                        } else if flags & (O_ACCMODE_WRITES | O_CREAT | O_TRUNC) != 0 {
                            note(ObservedAccess::Write { path: real.clone() });
                        } else {
                            let is_directory = flags & O_DIRECTORY != 0;
                            let path = real.clone();
                            note(ObservedAccess::Read { path, is_directory });
                        }
                        self.remember(number, result as i32, real);
                    }
                    Some(None) => unknown_directory(note),
                    None => {}
                }
            }
            CallKind::Change(directories) => {
                for (name, directory) in directories.iter().enumerate() {
                    change(path(name, *directory));
                }
            }
            CallKind::ChangeLast(directory) => {
                change(path(call.names.len().saturating_sub(1), directory))
            }
            // Behind the program's name stand those of its interpreter and of its loader.
            CallKind::Execute if !has_failed => {
                for path in (0..call.names.len()).filter_map(|name| path(name, None)?) {
                    note(ObservedAccess::Execute { path });
                }
            }
            CallKind::ChangeDirectory if !has_failed => {
                let to = path(0, None).flatten();
                if let (Some(to), Some(process)) = (to, self.processes.get_mut(&number)) {
                    process.directory = to.canonicalize().unwrap_or(to);
                }
            }
            CallKind::ChangeDirectoryByDescriptor if !has_failed => {
                match process.descriptors.get(&(argument(0) as i32)).cloned() {
                    Some(to) => {
                        if let Some(process) = self.processes.get_mut(&number) {
                            process.directory = to;
                        }
                    }
                    None => unknown_directory(note),
                }
            }
            CallKind::Connect => match (call.address, call.local) {
                (Some(address), _) => note(ObservedAccess::Connect { address }),
                (None, Some(path)) if !has_failed => note(ObservedAccess::ConnectLocal {
                    path: absolute(&process.directory, &path),
                }),
                _ => {}
            },
            CallKind::Bind if !has_failed => match (call.address, call.local) {
                (Some(address), _) => note(ObservedAccess::Bind { address }),
                (None, Some(path)) => note(ObservedAccess::Write {
                    path: absolute(&process.directory, &path),
                }),
                _ => {}
            },
            CallKind::Make if !has_failed && result > 0 => {
                let (child, parent) = (result as i32, process.clone());
                if !self.processes.contains_key(&child) {
                    self.make(child, Some(parent), note);
                }
            }
            CallKind::Escape(why) if !has_failed => escape(why, note),
            _ => {}
        }
    }

    fn remember(&mut self, process: i32, descriptor: i32, path: PathBuf) {
        if let Some(process) = self.processes.get_mut(&process)
            && process.descriptors.len() < MAX_REMEMBERED
        {
            process.descriptors.insert(descriptor, path);
        }
    }
}

fn escape(why: &str, note: &mut dyn FnMut(ObservedAccess)) {
    note(ObservedAccess::Escape {
        why: why.to_owned(),
    });
}

fn unknown_directory(note: &mut dyn FnMut(ObservedAccess)) {
    note(ObservedAccess::Unseen {
        why: "it has used names relative to directories that were not seen opened".to_owned(),
    });
}

/// The bytes of a number.
fn number<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at + N)?.try_into().ok()
}

/// `AF_INET` is 2, `AF_INET6` 28; the length stands before it (sys/socket.h).
fn internet_address(data: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(number(data, 2)?);
    let host: IpAddr = match data.get(1)? {
        2 => Ipv4Addr::from(number::<4>(data, 4)?).into(),
        28 => Ipv6Addr::from(number::<16>(data, 8)?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(host.to_canonical(), port))
}

/// `AF_LOCAL` is 1.
fn local_address(data: &[u8]) -> Option<PathBuf> {
    if data.get(1) != Some(&1) {
        return None;
    }
    let name = data.get(2..)?.split(|byte| *byte == 0).next()?;
    (!name.is_empty()).then(|| {
        Path::new(std::ffi::OsStr::new("")).join(std::ffi::OsString::from_vec(name.to_vec()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as the kernel writes it.
    fn record(kind: u16, process: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (data.len() as i32).to_ne_bytes().to_vec();
        bytes.extend((kind | VERSIONED).to_ne_bytes());
        bytes.extend(1_u16.to_ne_bytes());
        bytes.extend(process.to_ne_bytes());
        bytes.resize(48, 0);
        bytes.extend(i64::from(process + 100_000).to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(data);
        bytes
    }

    fn begin(process: i32, code: i16, arguments: &[i64]) -> Vec<u8> {
        let mut data = code.to_ne_bytes().to_vec();
        data.extend((arguments.len() as i16).to_ne_bytes());
        data.resize(8, 0);
        arguments
            .iter()
            .for_each(|word| data.extend(word.to_ne_bytes()));
        record(SYSCALL, process, &data)
    }

    fn end(process: i32, code: i16, error: i32, result: i64) -> Vec<u8> {
        let mut data = code.to_ne_bytes().to_vec();
        data.resize(4, 0);
        data.extend(error.to_ne_bytes());
        data.extend(result.to_ne_bytes());
        record(SYSRET, process, &data)
    }

    fn call(
        process: i32,
        code: i16,
        arguments: &[i64],
        names: &[&[u8]],
        outcome: (i32, i64),
    ) -> Vec<u8> {
        let mut bytes = begin(process, code, arguments);
        names
            .iter()
            .for_each(|name| bytes.extend(record(NAMEI, process, name)));
        bytes.extend(end(process, code, outcome.0, outcome.1));
        bytes
    }

    fn read(trace: &[Vec<u8>]) -> Vec<ObservedAccess> {
        let started = call(
            7,
            59,
            &[0, 0, 0],
            &[b"server", b"/bin/sh", b"/libexec/ld-elf.so.1"],
            (JUST_RETURNS, 0),
        );
        let bytes = [started, trace.concat()].concat();
        let mut reader = KtraceReader::new("/nowhere".into());
        let mut found = Vec::new();
        for piece in bytes.chunks(13) {
            reader.read(piece, &mut |access| found.push(access));
        }
        found.retain(|access| !matches!(access, ObservedAccess::Processes { count: 1 }));
        let executed = ["/nowhere/server", "/bin/sh", "/libexec/ld-elf.so.1"];
        let executed = executed.map(|path| ObservedAccess::Execute { path: path.into() });
        assert_eq!(found.drain(..3).collect::<Vec<_>>(), executed);
        found
    }

    fn written(path: &str) -> ObservedAccess {
        ObservedAccess::Write { path: path.into() }
    }

    #[test]
    fn names_are_relative_to_the_directory_that_the_call_names() {
        let trace = [
            call(7, 499, &[-100, 0, 0x2_0000], &[b"d"], (0, 5)),
            call(7, 496, &[5, 0, 0o777], &[b"in"], (0, 0)),
            call(7, 501, &[5, 0, -100, 0], &[b"a", b"../b"], (0, 0)),
            call(7, 13, &[5], &[], (0, 0)),
            call(
                7,
                5,
                &[0, 0x601, 0o666],
                &[b"f\n  7 x NAMI \"/etc/master.passwd\"\xff"],
                (0, 6),
            ),
            call(7, 57, &[0, 0], &[b"link"], (0, 0)),
            call(7, 10, &[0], &[b"gone"], (2, -1)),
            call(7, 503, &[9, 0], &[b"x"], (0, 0)),
            call(7, 496, &[9, 0], &[b"/abs"], (0, 0)),
        ];
        let odd = std::ffi::OsString::from_vec(
            b"/nowhere/d/f\n  7 x NAMI \"/etc/master.passwd\"\xff".to_vec(),
        );
        let found = read(&trace);
        assert!(
            matches!(found[7], ObservedAccess::Unseen { .. }),
            "{found:?}"
        );
        let expected = [
            ObservedAccess::Read {
                path: "/nowhere/d".into(),
                is_directory: true,
            },
            written("/nowhere/d/in"),
            written("/nowhere/d/a"),
            written("/b"),
            ObservedAccess::Write { path: odd.into() },
            written("/nowhere/d/link"),
            ObservedAccess::Miss {
                path: "/nowhere/d/gone".into(),
            },
        ];
        assert_eq!(found[..7], expected);
        assert_eq!(found[8], written("/abs"));
    }

    #[test]
    fn children_addresses_and_escapes_are_read() {
        let address = [
            b"sockaddr\0",
            &[16, 2, 1, 187, 192, 0, 2, 9, 0, 0, 0, 0, 0, 0, 0, 0][..],
        ]
        .concat();
        let local = [b"sockaddr\0", &[10, 1][..], b"/s/sock\0"].concat();
        let connect = |data: &[u8], error| {
            [
                begin(7, 98, &[3, 0, 16]),
                record(STRUCT, 7, data),
                end(7, 98, error, 0),
            ]
            .concat()
        };
        let trace = [
            connect(&address, RESTARTS),
            connect(&address, 61),
            connect(&local, 0),
            begin(7, 2, &[]),
            call(8, 5, &[0, 0], &[b"child"], (0, 3)),
            end(7, 2, 0, 8),
            record(PROCCTOR, 8, &[3, 2, 0, 0]),
            call(8, 5, &[0, 0], &[b"/not/seen"], (0, 3)),
            record(PROCDTOR, 8, &[]),
            call(7, 45, &[0, 1, 0, 7], &[], (0, 0)),
            record(PROCDTOR, 7, &[]),
        ];
        let found = read(&trace);
        assert_eq!(
            found[..4],
            [
                ObservedAccess::Connect {
                    address: "192.0.2.9:443".parse().unwrap()
                },
                ObservedAccess::ConnectLocal {
                    path: "/s/sock".into()
                },
                ObservedAccess::Processes { count: 2 },
                ObservedAccess::Read {
                    path: "/nowhere/child".into(),
                    is_directory: false
                },
            ]
        );
        assert!(
            matches!(
                &found[4..],
                [ObservedAccess::Unseen { .. }, ObservedAccess::Escape { .. }]
            ),
            "{found:?}"
        );
    }

    #[test]
    fn processes_live_until_they_are_reported_to_have_ended() {
        let mut reader = KtraceReader::new("/".into());
        reader.read(&begin(7, 20, &[]), &mut |_| {});
        assert!(reader.living() == [7] && !reader.has_ended);
        reader.read(&record(PROCDTOR, 7, &[]), &mut |_| {});
        assert!(reader.living().is_empty() && reader.has_ended);
    }

    #[test]
    fn a_trace_that_is_none_is_not_believed() {
        for bytes in [vec![0xff; 100], vec![0; 64]] {
            let mut reader = KtraceReader::new("/".into());
            let mut found = Vec::new();
            reader.read(&bytes, &mut |access| found.push(access));
            assert!(
                matches!(found[..], [ObservedAccess::Escape { .. }]),
                "{found:?}"
            );
        }
    }
}
