//! The output of strace(1), as `strace -f -y -xx` writes it. Every byte that the observed server
//! chooses stands there as `\xNN`, in quotes or angle brackets, so that no name can look like
//! another part of a line.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::access::{ObservedAccess, absolute};

/// The system calls that are observed. `?`: not each version of strace knows it.
pub(super) const CALLS: &str = "trace=?open,openat,?openat2,?creat,execve,execveat,?mkdir,mkdirat,?unlink,unlinkat,\
    ?rmdir,?rename,?renameat,renameat2,?link,linkat,?symlink,symlinkat,?chmod,fchmodat,?fchmodat2,?chown,?lchown,\
    fchownat,truncate,?mknod,mknodat,setxattr,lsetxattr,removexattr,lremovexattr,connect,bind,sendto,sendmsg,sendmmsg,\
    chdir,fchdir,clone,?clone3,?fork,?vfork,ptrace,process_vm_writev,?pidfd_getfd,?io_uring_setup,chroot,pivot_root,\
    mount,unshare,setns,open_by_handle_at";

/// The most calls that are begun and not ended, threads and sockets that are remembered: more than
/// any honest server has.
const MAX_REMEMBERED: usize = 65_536;
/// The longest name of a host.
const MAX_NAME: usize = 253;

/// A reader of one tracer's lines, one after the other.
#[derive(Debug)]
pub(super) struct StraceReader {
    /// The pipe that the lines come from, as the kernel names it: `pipe:[NUMBER]`.
    pipe: String,
    /// Threads, each with its process.
    threads: BTreeMap<i32, i32>,
    /// Processes, each with its working directory.
    directories: BTreeMap<i32, PathBuf>,
    start: PathBuf,
    /// Calls that are begun and not ended, by thread.
    begun: BTreeMap<i32, String>,
    /// Sockets that are connected to a name server.
    resolvers: BTreeSet<Vec<u8>>,
    peak: u64,
    /// The first process.
    first: Option<i32>,
    executions: u64,
    /// True once the first process has ended.
    pub has_ended: bool,
}

/// One call that has ended.
struct CallRecord<'l> {
    name: &'l str,
    arguments: Vec<&'l str>,
    result: &'l str,
}

impl StraceReader {
    /// A reader for a tracer that writes to this pipe, of a server that starts in this directory.
    pub(super) fn new(pipe: String, start: PathBuf) -> StraceReader {
        StraceReader {
            pipe,
            threads: BTreeMap::new(),
            directories: BTreeMap::new(),
            start,
            begun: BTreeMap::new(),
            resolvers: BTreeSet::new(),
            peak: 0,
            first: None,
            executions: 0,
            has_ended: false,
        }
    }

    /// Reads one line, without its newline, and gives what it reports to `note`.
    pub(super) fn read(&mut self, line: &str, note: &mut dyn FnMut(ObservedAccess)) {
        let line = line.trim_start();
        let Some((thread, text)) = line.split_once(' ') else {
            return;
        };
        let Ok(thread) = thread.parse::<i32>() else {
            return;
        };
        let text = text.trim_start();
        if self.threads.len() > MAX_REMEMBERED || self.begun.len() > MAX_REMEMBERED {
            note(ObservedAccess::Escape {
                why: "it has more threads than can be followed".to_owned(),
            });
            return;
        }
        self.meet(thread, note);
        if text.starts_with("+++") {
            self.end(thread);
        } else if text.starts_with("---") {
            // A signal.
        } else if let Some(begun) = text.strip_suffix("<unfinished ...>") {
            self.begun.insert(thread, begun.trim_end().to_owned());
        } else if let Some(rest) = text.strip_prefix("<... ") {
            let (Some(begun), Some((_, rest))) =
                (self.begun.remove(&thread), rest.split_once(" resumed>"))
            else {
                return;
            };
            self.call(thread, &format!("{begun}{rest}"), note);
        } else {
            self.call(thread, text, note);
        }
    }

    /// Takes a thread that was not seen before for one that a call of another, not ended yet,
    /// makes.
    fn meet(&mut self, thread: i32, note: &mut dyn FnMut(ObservedAccess)) {
        if self.threads.contains_key(&thread) {
            return;
        }
        if self.first.is_none() {
            self.first = Some(thread);
        }
        let maker = self.begun.iter().find(|(_, call)| is_making(call));
        let maker = maker.map(|(maker, call)| (*maker, call.contains("CLONE_THREAD")));
        self.make(thread, maker, note);
    }

    /// Notes a new thread, or process, with the thread that made it.
    fn make(
        &mut self,
        thread: i32,
        maker: Option<(i32, bool)>,
        note: &mut dyn FnMut(ObservedAccess),
    ) {
        let parent =
            maker.and_then(|(maker, is_thread)| Some((*self.threads.get(&maker)?, is_thread)));
        match parent {
            Some((process, true)) => drop(self.threads.insert(thread, process)),
            other => {
                let directory =
                    other.and_then(|(parent, _)| self.directories.get(&parent).cloned());
                self.threads.insert(thread, thread);
                self.directories
                    .insert(thread, directory.unwrap_or_else(|| self.start.clone()));
            }
        }
        let count = self
            .threads
            .iter()
            .filter(|(thread, process)| thread == process)
            .count() as u64;
        if count > self.peak {
            self.peak = count;
            note(ObservedAccess::Processes { count });
        }
    }

    fn end(&mut self, thread: i32) {
        self.threads.remove(&thread);
        self.begun.remove(&thread);
        if !self.threads.values().any(|process| *process == thread) {
            self.directories.remove(&thread);
        }
        self.has_ended |= self.first == Some(thread);
    }

    fn call(&mut self, thread: i32, text: &str, note: &mut dyn FnMut(ObservedAccess)) {
        let Some(call) = split(text) else { return };
        let process = self.threads.get(&thread).copied().unwrap_or(thread);
        let directory = self.directories.get(&process).cloned().unwrap_or_default();
        let has_failed = !call.result.starts_with(|c: char| c.is_ascii_digit());
        let argument = |at: usize| call.arguments.get(at).copied().unwrap_or_default();
        // The path at `at`, relative to the directory that stands before it, or to the working
        // directory.
        let at_directory = |at: usize| {
            let base = descriptor(argument(at)).map_or_else(|| directory.clone(), path_of);
            Some(absolute(&base, &path_of(quoted(argument(at + 1))?)))
        };
        let plain = |at: usize| Some(absolute(&directory, &path_of(quoted(argument(at))?)));
        match call.name {
            "open" | "openat" | "openat2" | "creat" => {
                let path = match call.name {
                    "open" | "creat" => plain(0),
                    _ => at_directory(0),
                };
                let flags = match call.name {
                    "creat" => "O_CREAT",
                    "open" => argument(1),
                    _ => argument(2),
                };
                self.open(path, flags, has_failed, call.result, note);
            }
            "execve" | "execveat" if !has_failed => {
                let path = if call.name == "execve" {
                    plain(0)
                } else {
                    at_directory(0)
                };
                self.executions += 1;
                // The first is the shell that closes the tracer's descriptor before the server is
                // there.
                if let Some(path) = path.filter(|_| self.executions > 1) {
                    note(ObservedAccess::Execute { path });
                }
            }
            "mkdir" | "unlink" | "rmdir" | "chmod" | "chown" | "lchown" | "truncate" | "mknod"
            | "setxattr" | "lsetxattr" | "removexattr" | "lremovexattr" => {
                write(plain(0), has_failed, note)
            }
            "mkdirat" | "unlinkat" | "fchmodat" | "fchmodat2" | "fchownat" | "mknodat" => {
                write(at_directory(0), has_failed, note);
            }
            "rename" | "link" => {
                write(plain(0), has_failed, note);
                write(plain(1), has_failed, note);
            }
            "renameat" | "renameat2" | "linkat" => {
                write(at_directory(0), has_failed, note);
                write(at_directory(2), has_failed, note);
            }
            "symlink" => write(plain(1), has_failed, note),
            "symlinkat" => write(at_directory(1), has_failed, note),
            "chdir" if !has_failed => {
                if let Some(path) = plain(0) {
                    self.directories.insert(process, path);
                }
            }
            "fchdir" if !has_failed => {
                if let Some(path) = descriptor(argument(0)) {
                    self.directories.insert(process, path_of(path));
                }
            }
            "connect" => {
                if let Some(address) = internet_address(argument(1)) {
                    if address.port() == 53 {
                        self.resolvers.extend(descriptor(argument(0)));
                    }
                    note(ObservedAccess::Connect { address });
                } else if let Some(path) = local_address(argument(1), &directory)
                    && !call.result.contains("ENOENT")
                {
                    note(ObservedAccess::ConnectLocal { path });
                }
            }
            "bind" if !has_failed => match internet_address(argument(1)) {
                Some(address) => note(ObservedAccess::Bind { address }),
                None => write(local_address(argument(1), &directory), false, note),
            },
            "sendto" | "sendmsg" | "sendmmsg" => self.send(&call, note),
            "clone" | "clone3" | "fork" | "vfork" => self.made(thread, &call, note),
            "ptrace" if argument(0) != "PTRACE_TRACEME" && !has_failed => {
                escape("it traces another process", note)
            }
            "process_vm_writev" | "pidfd_getfd" if !has_failed => {
                escape("it reaches into another process", note)
            }
            "io_uring_setup" if !has_failed => note(ObservedAccess::Unseen {
                why: "it has an io_uring, whose operations no tracer sees".to_owned(),
            }),
            "chroot" | "pivot_root" | "mount" | "setns" if !has_failed => {
                escape("it has changed its root", note)
            }
            "unshare" if !has_failed && argument(0).contains("CLONE_NEWNS") => {
                escape("it has a view of the files of its own", note);
            }
            "open_by_handle_at" if !has_failed => {
                escape("it opens files without their names", note)
            }
            _ => {}
        }
    }

    fn open(
        &self,
        path: Option<PathBuf>,
        flags: &str,
        has_failed: bool,
        result: &str,
        note: &mut dyn FnMut(ObservedAccess),
    ) {
        if has_failed {
            if let Some(path) = path {
                note(ObservedAccess::Miss { path });
            }
            return;
        }
        let has = |flag: &str| flags.contains(flag);
        let Some(opened) = descriptor(result) else {
            return;
        };
        if opened == self.pipe.as_bytes() {
            return escape("it has opened what the tracer writes to", note);
        }
        // A pipe, a socket or a deleted file of its own, or a name without access.
        if !opened.starts_with(b"/") || result.ends_with("(deleted)") || has("O_PATH") {
            return;
        }
        let path = self.own_facts(path_of(opened));
        if ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_TMPFILE"]
            .iter()
            .any(|flag| has(flag))
        {
            note(ObservedAccess::Write { path });
        } else {
            let is_directory = has("O_DIRECTORY");
            note(ObservedAccess::Read { path, is_directory });
        }
    }

    /// The path with `self` for the number of a process that is traced here.
    fn own_facts(&self, path: PathBuf) -> PathBuf {
        let number = path
            .strip_prefix("/proc")
            .ok()
            .and_then(|inner| inner.components().next());
        let number = number.and_then(|number| number.as_os_str().to_str()?.parse::<i32>().ok());
        match number.filter(|number| self.threads.contains_key(number)) {
            Some(_) => Path::new("/proc/self").join(path.components().skip(3).collect::<PathBuf>()),
            None => path,
        }
    }

    /// Notes the addresses that messages are sent to, and the names that they ask a name server
    /// for.
    fn send(&self, call: &CallRecord<'_>, note: &mut dyn FnMut(ObservedAccess)) {
        let socket = call.arguments.first().and_then(|socket| descriptor(socket));
        let mut is_to_resolver = socket.is_some_and(|socket| self.resolvers.contains(&socket));
        let text = call.arguments.get(1..).unwrap_or_default().join(", ");
        for part in text.split("{sa_family=").skip(1) {
            if let Some(address) = internet_address(&format!("{{sa_family={part}")) {
                is_to_resolver |= address.port() == 53;
                note(ObservedAccess::Connect { address });
            }
        }
        if !is_to_resolver {
            return;
        }
        let pieces: Vec<&str> = match call.name {
            "sendto" => call.arguments.get(1).copied().into_iter().collect(),
            _ => text.split("iov_base=").skip(1).collect(),
        };
        for name in pieces
            .into_iter()
            .filter_map(quoted)
            .filter_map(|bytes| question(&bytes))
        {
            note(ObservedAccess::Lookup { name });
        }
    }

    fn made(&mut self, thread: i32, call: &CallRecord<'_>, note: &mut dyn FnMut(ObservedAccess)) {
        let text = call.arguments.join(",");
        if text.contains("CLONE_UNTRACED") {
            return escape("it has made a process that cannot be traced", note);
        }
        if text.contains("CLONE_NEWNS") {
            return escape(
                "it has made a process with a view of the files of its own",
                note,
            );
        }
        let digits = call.result.split(|c: char| !c.is_ascii_digit()).next();
        if let Some(child) = digits.and_then(|digits| digits.parse::<i32>().ok())
            && !self.threads.contains_key(&child)
        {
            self.make(child, Some((thread, text.contains("CLONE_THREAD"))), note);
        }
    }
}

fn is_making(call: &str) -> bool {
    ["clone", "fork", "vfork"]
        .iter()
        .any(|name| call.starts_with(name))
}

fn escape(why: &str, note: &mut dyn FnMut(ObservedAccess)) {
    note(ObservedAccess::Escape {
        why: why.to_owned(),
    });
}

fn write(path: Option<PathBuf>, has_failed: bool, note: &mut dyn FnMut(ObservedAccess)) {
    if let Some(path) = path {
        note(match has_failed {
            true => ObservedAccess::Miss { path },
            false => ObservedAccess::Write { path },
        });
    }
}

/// Splits `NAME(ARGUMENTS) = RESULT`. What a server chooses is in hex, and so are brackets and
/// commas of its.
fn split(text: &str) -> Option<CallRecord<'_>> {
    let (name, rest) = text.split_once('(')?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let (mut depth, mut start, mut arguments) = (0_u32, 0, Vec::new());
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                arguments.push(rest[start..at].trim());
                let result = rest[at + 1..].trim_start().strip_prefix('=')?.trim();
                return Some(CallRecord {
                    name,
                    arguments,
                    result,
                });
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                arguments.push(rest[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// The bytes of `\xNN\xNN…`, up to the first that are not written so.
fn hex_escapes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((byte, after)) = rest
        .strip_prefix("\\x")
        .and_then(|digits| Some((u8::from_str_radix(digits.get(..2)?, 16).ok()?, &digits[2..])))
    {
        bytes.push(byte);
        rest = after;
    }
    bytes
}

/// The bytes of a string in quotes, if there is one at the start.
fn quoted(text: &str) -> Option<Vec<u8>> {
    text.strip_prefix('"').map(hex_escapes)
}

/// The name of a descriptor in angle brackets, as of `3<…>` and `AT_FDCWD<…>`.
fn descriptor(text: &str) -> Option<Vec<u8>> {
    let (number, name) = text.split_once('<')?;
    let is_number =
        number == "AT_FDCWD" || number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty();
    is_number.then(|| hex_escapes(name))
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn internet_address(text: &str) -> Option<SocketAddr> {
    let fields = text.strip_prefix("{sa_family=AF_INET")?;
    let number = fields.split_once("port=htons(")?.1.split_once(')')?.0;
    let host = match fields.split_once("inet_addr(") {
        Some((_, host)) => host,
        None => fields.split_once("inet_pton(AF_INET6, ")?.1,
    };
    let host: IpAddr = String::from_utf8(quoted(host)?).ok()?.parse().ok()?;
    Some(SocketAddr::new(host.to_canonical(), number.parse().ok()?))
}

/// The path of a Unix socket; one without a file has `@` before its name.
fn local_address(text: &str, directory: &Path) -> Option<PathBuf> {
    let path = text.strip_prefix("{sa_family=AF_UNIX, sun_path=")?;
    match path.strip_prefix('@') {
        Some(name) => Some(path_of([b"@".to_vec(), quoted(name)?].concat())),
        None => Some(absolute(directory, &path_of(quoted(path)?))),
    }
}

/// The name that a DNS message asks for (RFC 1035, section 4.1).
pub(super) fn question(message: &[u8]) -> Option<String> {
    let mut rest = message.get(12..)?;
    let mut name = String::new();
    loop {
        let (&length, after) = rest.split_first()?;
        if length == 0 {
            return Some(name).filter(|name| !name.is_empty());
        }
        let label = after.get(..usize::from(length))?;
        let is_plain = label
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b));
        if length > 63 || !is_plain || name.len() + label.len() > MAX_NAME {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&String::from_utf8_lossy(label).to_ascii_lowercase());
        rest = &after[usize::from(length)..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: &str = "pipe:[77]";

    fn hex(text: &[u8]) -> String {
        text.iter().map(|byte| format!("\\x{byte:02x}")).collect()
    }

    /// The accesses that these lines report.
    fn read(lines: &[String]) -> Vec<ObservedAccess> {
        let mut reader = StraceReader::new(PIPE.to_owned(), "/start".into());
        let mut found = Vec::new();
        for line in lines {
            reader.read(line, &mut |access| found.push(access));
        }
        found.retain(|access| !matches!(access, ObservedAccess::Processes { count: 1 }));
        found
    }

    fn opened(name: &[u8], flags: &str, result: &[u8]) -> String {
        let (name, result, start) = (hex(name), hex(result), hex(b"/start"));
        format!("41  openat(AT_FDCWD<{start}>, \"{name}\", {flags}) = 3<{result}>")
    }

    #[test]
    fn lines_of_a_real_tracer_are_read() {
        // strace 6.1, of a Python program; the paths are shortened.
        let lines = [
            r#"4091  mkdir("\x64\x3c\x3e\x0a\x27\x1b", 0777) = 0"#,
            r#"4091  openat(AT_FDCWD<\x2f\x77>, "\x64\x2f\x66", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3<\x2f\x77\x2f\x64\x2f\x66>"#,
            r#"4091  mkdirat(3<\x2f\x77\x2f\x64>, "\x7a\x7a", 0777) = 0"#,
            r#"4091  openat(AT_FDCWD<\x2f\x77>, "\x72\x65", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY) = 3<\x2f\x77\x2f\x72\x65>"#,
            r#"4091  fchdir(3<\x2f\x77\x2f\x64>) = 0"#,
            r#"4091  rename("\x66", "\x67")            = 0"#,
            r#"4091  connect(9<\x73\x6f\x63\x6b\x65\x74\x3a\x5b\x31\x5d>, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("\x31\x32\x37\x2e\x30\x2e\x30\x2e\x31")}, 16) = -1 ECONNREFUSED (Connection refused)"#,
            r#"4091  connect(9<\x73\x6f\x63\x6b\x65\x74\x3a\x5b\x32\x5d>, {sa_family=AF_INET6, sin6_port=htons(9), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "\x3a\x3a\x31", &sin6_addr), sin6_scope_id=0}, 28) = -1 ECONNREFUSED (Connection refused)"#,
            r#"4091  connect(9<\x73\x6f\x63\x6b\x65\x74\x3a\x5b\x33\x5d>, {sa_family=AF_UNIX, sun_path=@"\x61\x62\x73"}, 6) = -1 ECONNREFUSED (Connection refused)"#,
            r#"4091  connect(11<\x73\x6f\x63\x6b\x65\x74\x3a\x5b\x34\x5d>, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("\x31\x30\x2e\x30\x2e\x30\x2e\x31")}, 16) = 0"#,
            r#"4091  sendmmsg(11<\x73\x6f\x63\x6b\x65\x74\x3a\x5b\x34\x5d>, [{msg_hdr={msg_name=NULL, msg_namelen=0, msg_iov=[{iov_base="\xe4\x49\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07\x65\x78\x61\x6d\x70\x6c\x65\x03\x6f\x72\x67\x00\x00\x01\x00\x01", iov_len=29}], msg_iovlen=1, msg_controllen=0, msg_flags=0}, msg_len=29}], 1, MSG_NOSIGNAL) = 1"#,
            r#"4091  vfork( <unfinished ...>"#,
            r#"4140  execve("\x2f\x62\x69\x6e\x2f\x74\x72\x75\x65", ["\x2f\x62\x69\x6e\x2f\x74\x72\x75\x65"], 0x7ffc821151d8 /* 38 vars */ <unfinished ...>"#,
            r#"4091  <... vfork resumed>)              = 4140"#,
            r#"4140  <... execve resumed>)             = 0"#,
            r#"4140  execve("\x2f\x62\x69\x6e\x2f\x73\x68", [], 0x7ffc /* 38 vars */) = 0"#,
            r#"4091  --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=4140, si_uid=0, si_status=0, si_utime=0, si_stime=0} ---"#,
            r#"4140  +++ exited with 0 +++"#,
            r#"4091  clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f8307fc2e50) = 4141"#,
            r#"4091  +++ killed by SIGKILL +++"#,
        ];
        let found = read(&lines.map(str::to_owned));
        let address = |text: &str| ObservedAccess::Connect {
            address: text.parse().unwrap(),
        };
        let written = |path: &str| ObservedAccess::Write { path: path.into() };
        let expected = [
            written("/start/d<>\n'\u{1b}"),
            written("/w/d/f"),
            written("/w/d/zz"),
            ObservedAccess::Read {
                path: "/w/re".into(),
                is_directory: true,
            },
            written("/w/d/f"),
            written("/w/d/g"),
            address("127.0.0.1:9"),
            address("[::1]:9"),
            ObservedAccess::ConnectLocal {
                path: "@abs".into(),
            },
            address("10.0.0.1:53"),
            ObservedAccess::Lookup {
                name: "example.org".to_owned(),
            },
            ObservedAccess::Processes { count: 2 },
            ObservedAccess::Execute {
                path: "/bin/sh".into(),
            },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn no_name_of_a_file_is_taken_for_another_part_of_a_line() {
        let forged = b"x\", O_RDONLY) = 3</etc/shadow>\n41  openat(AT_FDCWD</>, \"/root/.ssh\xff";
        let found = read(&[opened(
            forged,
            "O_RDONLY|O_CLOEXEC",
            &[b"/w/", &forged[..]].concat(),
        )]);
        let path = path_of([b"/w/", &forged[..]].concat());
        assert_eq!(
            found,
            [ObservedAccess::Read {
                path,
                is_directory: false
            }]
        );
        for line in [
            "",
            "41",
            "x y",
            "41  <... openat resumed>) = 3",
            "41  openat(",
            "41  +++",
            "41  = 3",
            "41 (()",
            "41  a(b) = ",
        ] {
            assert_eq!(read(&[line.to_owned()]), [], "{line}");
        }
    }

    #[test]
    fn what_escapes_the_tracer_is_reported() {
        let is_escape =
            |line: String| matches!(&read(&[line])[..], [ObservedAccess::Escape { .. }]);
        assert!(is_escape(opened(b"link/9", "O_WRONLY", PIPE.as_bytes())));
        for line in [
            "41  clone(child_stack=NULL, flags=CLONE_UNTRACED|SIGCHLD) = 42",
            "41  ptrace(PTRACE_ATTACH, 40) = 0",
            "41  process_vm_writev(40, [], 1, [], 1, 0) = 8",
            "41  pidfd_getfd(3, 1, 0) = 4",
            "41  unshare(CLONE_NEWUSER|CLONE_NEWNS) = 0",
            "41  chroot(\"\\x2f\\x77\") = 0",
        ] {
            assert!(is_escape(line.to_owned()), "{line}");
        }
        for line in [
            "41  ptrace(PTRACE_TRACEME) = 0",
            "41  chroot(\"\\x2f\") = -1 EPERM (Operation not permitted)",
        ] {
            assert_eq!(read(&[line.to_owned()]), [], "{line}");
        }
        // A pipe of its own, a socket, a deleted file, and a name alone.
        let none = [
            opened(b"/proc/self/fd/6", "O_WRONLY", b"pipe:[78]"),
            opened(b"/proc/self/fd/6", "O_RDONLY", b"socket:[78]"),
            format!(
                "{}(deleted)",
                opened(b"/proc/self/fd/6", "O_RDONLY", b"/tmp/x")
            ),
            opened(b"/x", "O_RDONLY|O_PATH", b"/x"),
        ];
        assert_eq!(read(&none), []);
    }

    #[test]
    fn a_threads_directory_is_that_of_its_process() {
        let lines = [
            "41  clone3({flags=CLONE_VM|CLONE_FS|CLONE_THREAD, stack=0x7f}, 88 <unfinished ...>",
            "42  chdir(\"\\x2f\\x61\") = 0",
            "41  <... clone3 resumed> => {parent_tid=[42]}, 88) = 42",
            "41  unlink(\"\\x66\") = 0",
            "41  fork() = 43",
            "43  unlink(\"\\x67\") = -1 ENOENT (No such file or directory)",
            "43  openat(AT_FDCWD<\\x2f>, \"\\x78\", O_RDONLY) = 3<\\x2f\\x70\\x72\\x6f\\x63\\x2f\\x34\\x33\\x2f\\x61>",
            "43  openat(AT_FDCWD<\\x2f>, \"\\x78\", O_RDONLY) = 3<\\x2f\\x70\\x72\\x6f\\x63\\x2f\\x39\\x2f\\x61>",
        ];
        let read_only = |path: &str| ObservedAccess::Read {
            path: path.into(),
            is_directory: false,
        };
        let expected = [
            ObservedAccess::Write {
                path: "/a/f".into(),
            },
            ObservedAccess::Processes { count: 2 },
            ObservedAccess::Miss {
                path: "/a/g".into(),
            },
            read_only("/proc/self/a"),
            read_only("/proc/9/a"),
        ];
        assert_eq!(read(&lines.map(str::to_owned)), expected);
    }

    #[test]
    fn names_are_read_out_of_questions_alone() {
        let head = [0_u8; 12];
        let of = |rest: &[u8]| question(&[&head[..], rest].concat());
        assert_eq!(of(b"\x03WWW\x02at\x00\x00\x01"), Some("www.at".to_owned()));
        for bad in [
            &b""[..],
            b"\x00",
            b"\x05ab",
            b"\x03a\nb\x00",
            b"\x40",
            b"\x03abc",
        ] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert_eq!(question(b"short"), None);
    }
}
