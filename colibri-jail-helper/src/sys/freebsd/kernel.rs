//! Facts from the kernel: sysctl(3), processes, and resource rules.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};

use colibri_jail_helper::names::SessionId;
use nix::errno::Errno;

unsafe extern "C" {
    fn rctl_add_rule(
        input: *const c_char,
        input_size: usize,
        output: *mut c_char,
        output_size: usize,
    ) -> c_int;
    fn rctl_remove_rule(
        input: *const c_char,
        input_size: usize,
        output: *mut c_char,
        output_size: usize,
    ) -> c_int;
    fn rctl_get_rules(
        input: *const c_char,
        input_size: usize,
        output: *mut c_char,
        output_size: usize,
    ) -> c_int;
    fn modfind(name: *const c_char) -> c_int;
}

/// Text as system calls take it.
pub(super) fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::EINVAL)
}

/// A number that sysctl(3) knows by name; `None` if it does not.
pub(crate) fn sysctl_number(name: &str) -> Option<c_int> {
    let name = c_string(name).ok()?;
    let mut value: c_int = 0;
    let mut size = std::mem::size_of::<c_int>();
    // SAFETY: pointer and size are of one c_int; nothing is set.
    let done = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            std::ptr::from_mut(&mut value).cast(),
            &mut size,
            std::ptr::null(),
            0,
        )
    };
    (done == 0).then_some(value)
}

/// True if sysctl(3) knows the name, whatever its value.
pub(crate) fn sysctl_exists(name: &str) -> bool {
    oid_of(name).is_ok()
}

/// modfind(2): true if the kernel has a module of this name, from a file or built in.
pub(crate) fn has_module(name: &str) -> bool {
    // SAFETY: a C string that lives through the call.
    c_string(name).is_ok_and(|name| unsafe { modfind(name.as_ptr()) } >= 0)
}

fn oid_of(name: &str) -> Result<Vec<c_int>, Errno> {
    let name = c_string(name)?;
    let mut oid = [0; 24];
    let mut size = oid.len();
    // SAFETY: `oid` has room for `size` numbers, the most that there are (CTL_MAXNAME).
    Errno::result(unsafe { libc::sysctlnametomib(name.as_ptr(), oid.as_mut_ptr(), &mut size) })?;
    Ok(oid[..size].to_vec())
}

pub(super) fn sysctl_read(oid: &[c_int], buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut size = buffer.len();
    // SAFETY: the pointers and sizes are of live slices; nothing is set.
    let done = unsafe {
        libc::sysctl(
            oid.as_ptr(),
            oid.len() as c_uint,
            buffer.as_mut_ptr().cast(),
            &mut size,
            std::ptr::null(),
            0,
        )
    };
    Errno::result(done)?;
    Ok(size)
}

/// The names below a node of sysctl(3), as the kernel has them, in its order. The first two numbers
/// of the object ids are those of sysctl(8): {0, 1} gives a name, {0, 2} what comes next.
pub(crate) fn sysctl_names_below(node: &str) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    let mut at = oid_of(node)?;
    let prefix = format!("{node}.");
    loop {
        let mut buffer = [0; 24 * 4];
        let next = match sysctl_read(&[&[0, 2], at.as_slice()].concat(), &mut buffer) {
            Ok(size) => &buffer[..size],
            Err(Errno::ENOENT) => return Ok(names),
            Err(error) => return Err(error),
        };
        at = next
            .chunks_exact(4)
            .map(|n| c_int::from_ne_bytes([n[0], n[1], n[2], n[3]]))
            .collect();
        let mut text = [0; 512];
        let size = sysctl_read(&[&[0, 1], at.as_slice()].concat(), &mut text)?;
        let name = CStr::from_bytes_until_nul(&text[..size])
            .map_err(|_| Errno::EINVAL)?
            .to_string_lossy()
            .into_owned();
        match name.strip_prefix(&prefix) {
            Some(rest) => names.push(rest.to_owned()),
            None => return Ok(names),
        }
    }
}

/// A process, as far as sweeping needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its id.
    pub pid: i32,
    /// The session whose mark it bears.
    pub session: Option<SessionId>,
}

/// The session of a process of this login class and login name, each as far as the kernel tells it
/// (LOGINCLASSLEN, LOGNAMELEN): all sixteen digits, and the same ones in both.
fn marked(class: &[c_char], name: &[c_char]) -> Option<SessionId> {
    let text = |chars: &[c_char]| -> Vec<u8> {
        chars
            .iter()
            .take_while(|c| **c != 0)
            .map(|c| *c as u8)
            .collect()
    };
    let session = SessionId::parse(&text(name))?;
    let told = text(class);
    (told.len() == class.len() - 1 && session.mark().as_bytes().starts_with(&told))
        .then_some(session)
}

/// Every process, zombies left out.
pub(crate) fn processes() -> Result<Vec<Process>, Errno> {
    const KERN_PROC_PROC: c_int = 8;
    const ZOMBIE: c_char = 5;
    let oid = [libc::CTL_KERN, libc::KERN_PROC, KERN_PROC_PROC, 0];
    let stride = std::mem::size_of::<libc::kinfo_proc>();
    // Room for more than there can be: what does not fit is an ENOMEM, and tried again with twice
    // the room.
    let mut room = 1 << 20;
    let (buffer, size) = loop {
        let mut buffer = vec![0; room];
        match sysctl_read(&oid[..3], &mut buffer) {
            Ok(size) => break (buffer, size),
            Err(Errno::ENOMEM) if room < 1 << 28 => room *= 2,
            Err(error) => return Err(error),
        }
    };
    let mut found = Vec::new();
    for bytes in buffer[..size].chunks_exact(stride) {
        // SAFETY: kinfo_proc is plain data, and the slice is as long as one; it may lie at any
        // address.
        let process: libc::kinfo_proc = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        if process.ki_structsize as usize != stride {
            return Err(Errno::ENOTSUP);
        }
        if process.ki_stat == ZOMBIE {
            continue;
        }
        found.push(Process {
            pid: process.ki_pid,
            session: marked(&process.ki_loginclass, &process.ki_login),
        });
    }
    Ok(found)
}

/// Adds a resource rule, rctl(8) grammar.
pub(crate) fn add_resource_rule(rule: &str) -> Result<(), Errno> {
    let rule = c_string(rule)?;
    let size = rule.as_bytes_with_nul().len();
    // SAFETY: pointer and size are of one C string; no output is asked for.
    Errno::result(unsafe { rctl_add_rule(rule.as_ptr(), size, std::ptr::null_mut(), 0) }).map(drop)
}

/// Removes all resource rules that match.
pub(crate) fn remove_resource_rules(filter: &str) -> Result<(), Errno> {
    let filter = c_string(filter)?;
    let size = filter.as_bytes_with_nul().len();
    // SAFETY: as for add_resource_rule.
    Errno::result(unsafe { rctl_remove_rule(filter.as_ptr(), size, std::ptr::null_mut(), 0) })
        .map(drop)
}

/// The resource rules that match.
pub(crate) fn resource_rules(filter: &str) -> Result<Vec<String>, Errno> {
    let filter = c_string(filter)?;
    let size = filter.as_bytes_with_nul().len();
    let mut output = vec![0u8; 1 << 20];
    // SAFETY: pointers and sizes are of one C string and one buffer.
    let done = unsafe {
        rctl_get_rules(
            filter.as_ptr(),
            size,
            output.as_mut_ptr().cast(),
            output.len(),
        )
    };
    Errno::result(done)?;
    let end = output.iter().position(|b| *b == 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&output[..end]).into_owned();
    Ok(text
        .split(',')
        .filter(|rule| !rule.is_empty())
        .map(str::to_owned)
        .collect())
}
