//! Looking for processes that a test left behind.

use std::process::Command;

/// The processes whose command line contains `mark`, as process id and command line. A process that
/// has forked without executing another program keeps the line of its parent, so the mark finds it
/// too. Zombies have none.
///
/// # Panics
/// If the system's list of processes cannot be read.
pub fn processes_with(mark: &str) -> Vec<(i32, String)> {
    let own = std::process::id() as i32;
    let mut found = if cfg!(target_os = "linux") {
        in_proc()
    } else {
        in_ps()
    };
    found.retain(|(pid, line)| *pid != own && line.contains(mark));
    found
}

/// Whether a process exists that is no zombie.
pub fn is_alive(pid: i32) -> bool {
    processes_with("")
        .iter()
        .any(|(other, line)| *other == pid && !line.is_empty())
}

fn in_proc() -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc").expect("/proc can be read");
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        })
        .collect()
}

fn in_ps() -> Vec<(i32, String)> {
    let output = Command::new("ps")
        .args(["-axww", "-o", "pid=,command="])
        .output();
    let output = output.expect("ps can be started");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let (pid, command) = line.trim_start().split_once(' ')?;
            Some((pid.parse().ok()?, command.to_owned()))
        })
        .collect()
}
