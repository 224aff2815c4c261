use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use jsonc_parser::json;

use super::backup::stamp;
use super::{FileFormat, OwnedFile};
use colibri_mcp::edit::Value;

fn entry() -> Value {
    json!({ "command": "/bin/colibri-mcp", "args": ["--read-only"], "env": {} })
}

#[test]
fn taking_out_what_was_added_gives_back_what_was_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    let keys = ["mcpServers", "colibri"];
    for before in [
        "{\"a\":1}",
        "{ \"mcpServers\": {} }",
        "{}",
        "",
        "{ \"mcpServers\": {\"x\":{}} }",
    ] {
        std::fs::write(&path, before).unwrap();
        for _ in 0..2 {
            let file = OwnedFile::read(&path).unwrap();
            let set = FileFormat::Json.set(file.text(), &keys, &entry()).unwrap();
            file.changed_to(set).write().unwrap();
        }
        let removed = OwnedFile::read(&path)
            .unwrap()
            .without(FileFormat::Json, &keys)
            .unwrap();
        removed.write().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        for kept in backups(directory.path()) {
            std::fs::remove_file(kept).unwrap();
        }
    }
    // What changed since stays, and what was made for the entry alone goes.
    std::fs::write(&path, "{\"a\":1}").unwrap();
    let file = OwnedFile::read(&path).unwrap();
    let set = FileFormat::Json.set(file.text(), &keys, &entry()).unwrap();
    file.changed_to(set.replace("1", "2")).write().unwrap();
    let removed = OwnedFile::read(&path)
        .unwrap()
        .without(FileFormat::Json, &keys)
        .unwrap();
    removed.write().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\n  \"a\":2\n}");
    let made = directory.path().join("made.json");
    let set = FileFormat::Json.set("", &keys, &entry()).unwrap();
    OwnedFile::read(&made)
        .unwrap()
        .changed_to(set)
        .write()
        .unwrap();
    OwnedFile::read(&made)
        .unwrap()
        .without(FileFormat::Json, &keys)
        .unwrap()
        .write()
        .unwrap();
    assert!(!made.exists());
}

fn backups(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.to_string_lossy().contains(".colibri-backup-"))
        .collect()
}

#[test]
fn what_a_link_leads_to_is_not_what_was_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (project, outside) = (
        directory.path().join("p"),
        directory.path().join("outside.json"),
    );
    std::fs::create_dir(&project).unwrap();
    std::fs::write(&outside, "{\"a\":1}").unwrap();
    let (name, keys) = (Path::new("a.json"), ["mcpServers", "colibri"]);
    std::fs::write(
        project.join(name),
        FileFormat::Json.set("{\"a\":1}", &keys, &entry()).unwrap(),
    )
    .unwrap();
    symlink(
        &outside,
        project.join("a.json.colibri-backup-20260101000000"),
    )
    .unwrap();
    nix::unistd::mkfifo(
        &project.join("a.json.colibri-backup-20260102000000"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    let file = OwnedFile::read_in_project(&project, name).unwrap();
    let text = file.text_without(FileFormat::Json, &keys).unwrap();
    assert_eq!(text.unwrap(), "{\n  \"a\":1\n}");
}

#[test]
fn a_file_is_replaced_behind_its_link_with_its_mode_and_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let (dotfiles, link) = (
        directory.path().join("dotfiles"),
        directory.path().join("settings.json"),
    );
    std::fs::create_dir(&dotfiles).unwrap();
    let real = dotfiles.join("zed.json");
    std::fs::write(&real, "{}\n").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&real, &link).unwrap();

    let change = OwnedFile::read(&link)
        .unwrap()
        .changed_to("{\"a\": 1}\n".to_owned());
    assert!(
        change.diff().contains("\n-{}\n+{\"a\": 1}\n"),
        "{}",
        change.diff()
    );
    let kept = change.write().unwrap().unwrap();
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "{\"a\": 1}\n");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "{}\n");
    assert_eq!(
        kept.parent(),
        Some(dotfiles.canonicalize().unwrap().as_path())
    );
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode(&real), mode(&kept)), (0o640, 0o600));
    // A second one in the same second has a name of its own.
    let again = OwnedFile::read(&link).unwrap().changed_to("{}".to_owned());
    assert_ne!(again.write().unwrap().unwrap(), kept);
    assert_eq!(backups(&dotfiles).len(), 2);
    assert_eq!(std::fs::read_dir(&dotfiles).unwrap().count(), 3);
}

#[test]
fn nothing_is_written_when_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    std::fs::write(&path, "{}").unwrap();
    let before = path.metadata().unwrap().ino();
    let change = OwnedFile::read(&path).unwrap().changed_to("{}".to_owned());
    assert_eq!(change.write().unwrap(), None);
    assert_eq!(path.metadata().unwrap().ino(), before);
    assert_eq!(backups(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_new_file_is_the_persons_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("editor/deep/a.json");
    let file = OwnedFile::read(&path).unwrap();
    assert!(!file.exists());
    assert_eq!(file.changed_to("{}".to_owned()).write().unwrap(), None);
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    assert_eq!(
        path.parent().unwrap().metadata().unwrap().mode() & 0o7777,
        0o700
    );
}

#[test]
fn what_is_not_the_persons_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let said = |path: &Path| OwnedFile::read(path).unwrap_err().to_string();
    assert!(said(directory.path()).contains("is not a regular file"));
    let dangling = directory.path().join("dangling");
    symlink("nowhere", &dangling).unwrap();
    assert!(said(&dangling).contains("a symbolic link to nothing"));
    let bytes = directory.path().join("bytes");
    std::fs::write(&bytes, [0xff]).unwrap();
    assert!(said(&bytes).contains("is not UTF-8"));
    let other = if nix::unistd::Uid::effective().is_root() {
        std::fs::write(&bytes, "{}").unwrap();
        std::os::unix::fs::chown(&bytes, Some(12_345), None).unwrap();
        bytes
    } else {
        PathBuf::from("/etc/passwd")
    };
    assert!(said(&other).contains("belongs to another user"));
}

#[test]
fn a_file_that_another_program_changed_meanwhile_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    std::fs::write(&path, "{}").unwrap();
    let change = OwnedFile::read(&path)
        .unwrap()
        .changed_to("{\"a\": 1}".to_owned());
    std::fs::write(&path, "{\"theirs\": 1}").unwrap();
    let said = change.write().unwrap_err().to_string();
    assert!(said.contains("changed meanwhile"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"theirs\": 1}");
    assert_eq!(backups(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn the_last_five_backups_stay_whatever_the_clock_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    std::fs::write(&path, "0").unwrap();
    // Of the future, as after the clock was set back; of others, and open to them; and what
    // somebody else named alike.
    let beside = |end: &str| {
        directory
            .path()
            .join(format!("a.json.colibri-backup-{end}"))
    };
    for (end, text) in [
        ("29990101000000-9", "old"),
        ("20200101000000", "older"),
        ("mine", "keep"),
    ] {
        std::fs::write(beside(end), text).unwrap();
        std::fs::set_permissions(beside(end), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    for number in 1..=12 {
        let change = OwnedFile::read(&path)
            .unwrap()
            .changed_to(number.to_string());
        change.write().unwrap();
        let mode = beside("29990101000000-9")
            .metadata()
            .map(|about| about.mode() & 0o777);
        assert!(mode.is_err() || mode.unwrap() == 0o600);
    }
    let mut kept: Vec<String> = backups(directory.path())
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    kept.sort();
    assert_eq!(kept, ["10", "11", "7", "8", "9", "keep"]);
}

#[test]
fn the_unfinished_file_of_a_killed_process_gives_way() {
    let directory = tempfile::tempdir().unwrap();
    let (path, unfinished) = (
        directory.path().join("a.json"),
        directory.path().join(".a.json.new"),
    );
    std::fs::write(&path, "{}").unwrap();
    std::fs::write(&unfinished, "half").unwrap();
    OwnedFile::read(&path)
        .unwrap()
        .changed_to("[]".to_owned())
        .write()
        .unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "[]");
    assert!(!unfinished.exists());
}

#[test]
fn an_original_in_a_project_is_nobodys() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.json"), "{}").unwrap();
    std::fs::write(directory.path().join("a.json.colibri-original"), "theirs").unwrap();
    let in_project = OwnedFile::read_in_project(directory.path(), Path::new("a.json")).unwrap();
    assert_eq!(in_project.original(), None);
    let own = OwnedFile::read(&directory.path().join("a.json")).unwrap();
    assert_eq!(own.original().as_deref(), Some("theirs"));
}

#[test]
fn the_time_in_a_backups_name_is_that_of_the_calendar() {
    for (seconds, text) in [
        (0, "19700101000000"),
        (951_827_696, "20000229123456"),
        (1_798_761_599, "20261231235959"),
        (4_107_542_400, "21000301000000"),
    ] {
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
    }
}
