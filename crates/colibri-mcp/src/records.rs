//! The output of `colibri-mcp trail …`. The commands' flags are parsed elsewhere; here they come as
//! values, and what is printed goes to a writer.
//!
//! These commands read the files of the trail themselves: whoever may read them needs no daemon to
//! verify it.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read as _, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use crate::failure::CommandError;
use crate::terminal;
use colibri_text::{brief, counted, visible};
use colibri_trail::{
    CosignedCheckpoint, Extent, NoteError, RecordFields, RecordFilter, RecordView, Report,
    SegmentName, Stats, TrailCosignature, TrailWitness, Verifier, Voucher, WitnessKey,
    WitnessedHeads, cosigned_by_hosts, directory, drop_segments, last_seal, note_path,
    open_regular, sealed_segments, show, stats, verifier_path, verify, witness_directory,
    witnessed_hosts,
};

/// Longest file of keys or of a checkpoint that is read, bytes.
const MAX_KEY: u64 = 1 << 16;

/// The most characters of a client's name and version.
const CLIENT: usize = 20;

/// The columns of user and client in the line of a record that belongs to no call.
const NOBODY: &str = "                               ";

/// The error of a file, with its path.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> CommandError {
    let path = path.to_owned();
    move |source| CommandError::File { path, source }
}

/// The key in the state directory that checks the checkpoints, if there is one.
///
/// # Errors
/// Where the file cannot be read, or holds no key.
pub(crate) fn verifier(state_dir: &Path) -> Result<Option<Verifier>, CommandError> {
    let path = verifier_path(state_dir);
    // A file in the daemon's directory must not hold who reads it.
    match open_regular(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => read_verifier(&path, opened).map(Some),
    }
}

/// The key in a file that somebody names, which may be a pipe.
///
/// # Errors
/// Where the file is not there, cannot be read, or holds no key.
pub(crate) fn named_verifier(file: &Path) -> Result<Verifier, CommandError> {
    read_verifier(file, File::open(file))
}

fn read_text(path: &Path, opened: io::Result<File>) -> Result<String, CommandError> {
    let mut text = String::new();
    let read = opened.and_then(|file| file.take(MAX_KEY).read_to_string(&mut text));
    read.map_err(at(path))?;
    Ok(text)
}

fn read_verifier(path: &Path, opened: io::Result<File>) -> Result<Verifier, CommandError> {
    let text = read_text(path, opened)?;
    let key = text.trim().parse();
    key.map_err(|source: NoteError| CommandError::Data(format!("{}: {source}", path.display())))
}

/// Exit status of `trail verify` where nothing is wrong, and nobody vouches for it.
const UNVOUCHED: u8 = 2;

/// The witnesses of a trail that somebody names.
#[derive(Debug, Default)]
pub(crate) struct NamedWitnesses<'a> {
    /// A syslog file with witnessed heads, `-` for standard input.
    pub(crate) log: Option<&'a Path>,
    /// Files with cosigned checkpoints, besides `trail.cosigned` in the state directory.
    pub(crate) cosigned: &'a [PathBuf],
    /// Files with the public keys of those who cosign, one a line.
    pub(crate) keys: &'a [PathBuf],
}

impl NamedWitnesses<'_> {
    /// The cosigned checkpoints.
    fn read_cosigned(
        &self,
        state_dir: &Path,
        log: Option<&Verifier>,
    ) -> Result<Vec<CosignedCheckpoint>, CommandError> {
        if self.keys.is_empty() {
            return match self.cosigned {
                [] => Ok(Vec::new()),
                _ => Err(CommandError::Usage(
                    "--cosigned needs the key of a witness: --witness FILE".into(),
                )),
            };
        }
        let Some(log) = log else {
            return Err(CommandError::Usage(
                "cosignatures cannot be checked without the key of the trail: --key FILE".into(),
            ));
        };
        let mut keys: Vec<WitnessKey> = Vec::new();
        for path in self.keys {
            let text = read_text(path, File::open(path))?;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                let key = line.parse();
                keys.push(key.map_err(|error: NoteError| {
                    CommandError::Data(format!("{}: {error}", path.display()))
                })?);
            }
        }
        let beside = state_dir.join("trail.cosigned");
        let own = match open_regular(&beside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some((&*beside, opened)),
        };
        // Those that other hosts of the board signed.
        let by_hosts = cosigned_by_hosts(state_dir).map_err(at(state_dir))?;
        let by_hosts = by_hosts.iter().map(|path| (&**path, open_regular(path)));
        let named = self.cosigned.iter().map(|path| (&**path, File::open(path)));
        let mut found = Vec::new();
        for (path, opened) in own.into_iter().chain(by_hosts).chain(named) {
            let opened = CosignedCheckpoint::open(&read_text(path, opened)?, log, &keys);
            found.push(
                opened
                    .map_err(|error| CommandError::Data(format!("{}: {error}", path.display())))?,
            );
        }
        found.sort_by_key(|checkpoint| checkpoint.records);
        Ok(found)
    }
}

/// The faults of a trail, the extent of the promise, and the witnesses. The trail is the one in
/// `state_dir`, or an archive of its segments.
///
/// # Errors
/// Where trail, log, note or key cannot be read.
pub(crate) fn report(
    state_dir: &Path,
    archive: Option<&Path>,
    witnesses: &NamedWitnesses<'_>,
    key: Option<&Verifier>,
) -> Result<Report, CommandError> {
    // Log and note before the trail: what a running daemon adds between the two is in the trail
    // already.
    let mut heads = match witnesses.log {
        Some(path) if path == Path::new("-") => {
            WitnessedHeads::read(io::stdin().lock(), key).map_err(at(path))?
        }
        Some(path) => {
            let log = BufReader::new(File::open(path).map_err(at(path))?);
            WitnessedHeads::read(log, key).map_err(at(path))?
        }
        None => WitnessedHeads::default(),
    };
    let note = note_path(state_dir);
    heads.read_note(&note, key).map_err(at(&note))?;
    heads.cosigned = witnesses.read_cosigned(state_dir, key)?;
    let own = directory(state_dir);
    let (dir, extent) = match archive {
        Some(archive) => (archive, Extent::Archive),
        None => (&*own, Extent::Whole),
    };
    let mut report = verify(dir, extent, key, &heads).map_err(at(dir))?;
    if extent == Extent::Whole {
        let hosts = witnessed_hosts(&witness_directory(state_dir));
        report.hosts = hosts.map_err(|error| CommandError::Data(error.to_string()))?;
    }
    Ok(report)
}

/// `trail verify`: prints the [`report`]. Returns the exit status: 0 where nothing is wrong and
/// somebody vouches for it, 1 where something is wrong, 2 where nobody vouches. An archive needs no
/// other witness than being where the daemon cannot write.
///
/// # Errors
/// Where trail, log, note or key cannot be read.
pub(crate) fn print_verify(
    state_dir: &Path,
    archive: Option<&Path>,
    witnesses: &NamedWitnesses<'_>,
    key: Option<&Verifier>,
    json: bool,
    out: &mut dyn Write,
) -> Result<u8, CommandError> {
    let report = report(state_dir, archive, witnesses, key)?;
    let own = directory(state_dir);
    let (dir, extent) = match archive {
        Some(archive) => (archive, Extent::Archive),
        None => (&*own, Extent::Whole),
    };
    if json {
        let text = serde_json::to_string(&report).map_err(io::Error::from)?;
        writeln!(out, "{}", colibri_text::json(&text))?;
    } else {
        print_report(dir, &report, key, witnesses.log.is_some(), out)?;
        if extent == Extent::Whole {
            print_vouchers(&report, out)?;
            print_hosts(&report, out)?;
        }
    }
    Ok(match extent {
        _ if !report.is_sound() || report.hosts.iter().any(|host| host.rewritten.is_some()) => 1,
        Extent::Whole if report.vouched_by.is_empty() => UNVOUCHED,
        _ => 0,
    })
}

/// The other hosts of the board, of whose trails this one signed heads.
fn print_hosts(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for witnessed in &report.hosts {
        writeln!(out, "witness of   {}", visible(&witnessed.to_string()))?;
        if let Some(evidence) = &witnessed.rewritten {
            writeln!(
                out,
                "  REWRITTEN: the trail of {} was cut off or rewritten below what this host signed; the evidence is {}",
                visible(&witnessed.host),
                visible(&evidence.display().to_string())
            )?;
        }
    }
    Ok(())
}

fn print_report(
    dir: &Path,
    report: &Report,
    key: Option<&Verifier>,
    witnessed: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let verdict = if report.is_sound() {
        "sound".to_owned()
    } else {
        counted(report.fault_count, "fault")
    };
    writeln!(out, "trail {}: {verdict}", dir.display())?;
    for fault in &report.faults {
        let segment = fault.segment.as_deref().unwrap_or("the whole trail");
        let line = fault
            .line
            .map_or_else(String::new, |line| format!(" line {line}"));
        writeln!(
            out,
            "  {segment}{line}: {}: {}",
            fault.kind,
            visible(&fault.what)
        )?;
    }
    if report.fault_count > report.faults.len() as u64 {
        writeln!(
            out,
            "  and {} more",
            report.fault_count - report.faults.len() as u64
        )?;
    }
    for note in &report.notes {
        writeln!(out, "  note: {}", visible(note))?;
    }
    let Report {
        records,
        segments,
        first_record,
        ..
    } = report;
    writeln!(
        out,
        "records      {records} in all, {} in {} here",
        records - first_record,
        counted(*segments, "segment")
    )?;
    writeln!(out, "head         {}", report.head)?;
    if let Some(root) = &report.root {
        writeln!(out, "root         {root}")?;
    }
    match key {
        Some(key) => writeln!(
            out,
            "checkpoints  {} signed by\n             {key}",
            report.checkpoints
        )?,
        None => writeln!(out, "checkpoints  signatures not checked: no key given")?,
    }
    for TrailCosignature {
        witness,
        records,
        time,
    } in &report.cosigned_by
    {
        let time = colibri_trail::utc(SystemTime::UNIX_EPOCH + Duration::from_secs(*time));
        writeln!(
            out,
            "cosigned     {records} records by {} at {time}",
            visible(witness)
        )?;
    }
    if report.promised_records > 0 {
        let agreeing = match (report.witnessed_heads, report.cosigned_by.len() as u64) {
            (heads, 0) => format!("{heads} witnessed heads agree"),
            (0, cosigned) => counted(cosigned, "cosignature"),
            (heads, cosigned) => format!(
                "{heads} witnessed heads and {} agree",
                counted(cosigned, "cosignature")
            ),
        };
        writeln!(
            out,
            "promise      reaches to record {}: {agreeing}; what follows could have been written anew",
            report.promised_records - 1,
        )
    } else if witnessed {
        writeln!(
            out,
            "promise      none: no head in that log agrees with this trail"
        )
    } else {
        writeln!(
            out,
            "promise      none without a witness: give the log that has the heads (--syslog FILE)"
        )
    }
}

fn print_vouchers(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for TrailWitness { by, records } in &report.vouched_by {
        let by = match by {
            Voucher::Witness if report.witnessed_heads == 0 => "cosignatures",
            Voucher::Witness => "the log",
            Voucher::Note => "the daemon's own note (trail.head), which its user can change",
        };
        writeln!(out, "vouched by   {by}: {records} records")?;
    }
    if report.vouched_by.is_empty() {
        let why = "the daemon's note (trail.head) is not there, and no head in a log agrees";
        writeln!(
            out,
            "vouched by   nobody: {why}; records may have been removed from its end"
        )?;
    }
    Ok(())
}

/// `trail show`: prints the records that pass, one a line; with `json` as written; with `last` only
/// so many of them, the newest. With `follow`, all, and goes on until the flag is set. Returns how
/// many earlier ones were left out.
///
/// # Errors
/// Where the trail cannot be read, a time is none, or it knows nothing of the server that is asked
/// for.
pub(crate) fn print_show(
    dir: &Path,
    filter: &RecordFilter,
    last: Option<usize>,
    follow: Option<&AtomicBool>,
    json: bool,
    out: &mut dyn Write,
) -> Result<u64, CommandError> {
    check_times(filter)?;
    let mut failed = None;
    let mut users = HashMap::new();
    let mut kept = VecDeque::new();
    let (mut found, mut left_out) = (false, 0);
    show(dir, filter, follow, &mut |record| {
        found = true;
        let line = if json {
            colibri_text::json(record.rec).into_owned()
        } else {
            one_line(&record, &mut users)
        };
        if let Some(last) = last {
            kept.push_back(line);
            if kept.len() > last {
                kept.pop_front();
                left_out += 1;
            }
            return ControlFlow::Continue(());
        }
        match writeln!(out, "{line}").and_then(|()| {
            if follow.is_some() {
                out.flush()
            } else {
                Ok(())
            }
        }) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })
    .map_err(at(dir))?;
    if !found {
        check_server(dir, filter)?;
    }
    let written = match failed {
        Some(error) => Err(error),
        None => kept.iter().try_for_each(|line| writeln!(out, "{line}")),
    };
    // Who reads no more, `head` for example, has had enough: that is no failure.
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(left_out),
    }
}

fn check_times(filter: &RecordFilter) -> Result<(), CommandError> {
    let mut times = [&filter.since, &filter.until].into_iter().flatten();
    match times.find(|time| !RecordFilter::is_time(time)) {
        Some(time) => Err(CommandError::Usage(format!(
            "{time:?} is not a time: write 2026-11-21 or 2026-11-21T22:30:00Z (UTC)"
        ))),
        None => Ok(()),
    }
}

/// Nothing passed the filter: a server that was never called is a mistake worth telling.
fn check_server(dir: &Path, filter: &RecordFilter) -> Result<(), CommandError> {
    let Some(server) = &filter.server else {
        return Ok(());
    };
    let all = stats(dir, &RecordFilter::default()).map_err(at(dir))?;
    let mut known: Vec<String> = all
        .rows
        .keys()
        .map(|(server, _)| server.to_string())
        .collect();
    known.dedup();
    if known.contains(server) {
        return Ok(());
    }
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    Err(CommandError::Data(format!(
        "the trail has no call of a server {server:?}; it has calls of: {known}"
    )))
}

fn one_line(record: &RecordView<'_>, users: &mut HashMap<u32, String>) -> String {
    let RecordFields {
        timestamp,
        method,
        server,
        tool,
        integration_id,
        operation,
        result,
        latency_ms,
        ..
    } = &record.fields;
    let user = record.uid.map_or("-", |uid| {
        users.entry(uid).or_insert_with(|| terminal::user(uid))
    });
    let client = record.client.as_ref().map_or("-".to_owned(), |client| {
        brief(
            format!("{} {}", client.name, client.version).trim_end(),
            CLIENT - 1,
        )
    });
    let who = format!("{user:>8}  {client:<CLIENT$} ");
    let what = match record.kind.as_str() {
        "enter" => {
            let through = record.through.as_ref().map_or(String::new(), |agent| {
                let whose = agent
                    .for_uid
                    .map(|uid| format!(" for {}", terminal::user(uid)));
                format!(
                    "  by agent {} {}{}",
                    agent.agent,
                    agent.session,
                    whose.unwrap_or_default()
                )
            });
            let task = record
                .task
                .map_or(String::new(), |task| format!("  for task {task}"));
            let within = record
                .fields
                .within
                .map_or(String::new(), |outer| format!("  within {outer}"));
            format!(
                "{who}{}{through}{task}{within}",
                [server, tool, method].map(String::as_str).join(" ")
            )
        }
        "exit" | "retry" => {
            let code = record.fields.error_code.as_deref().unwrap_or_default();
            let class = record.fields.error_class.as_deref();
            let error = class.map_or_else(|| code.to_owned(), |class| format!("{code} ({class})"));
            let attempt = record.fields.attempt_number;
            format!(
                "{who}{integration_id} {operation}  {result} {latency_ms:.1} ms, attempt {attempt} {error}"
            )
        }
        "event" => {
            let more = terminal::details(&record.fields.details);
            format!("{NOBODY}{}{more}", record.fields.event)
        }
        _ => format!(
            "{NOBODY}{} records, root {}",
            record.fields.tree_size, record.fields.root
        ),
    };
    let line = format!("{timestamp}  {:>8}  {:<9} {}", record.n, record.kind, what);
    visible(line.trim_end()).into_owned()
}

/// `trail stats`: prints calls, errors and latency by server and tool as a table with a bar for
/// each tool's calls, or as JSON.
///
/// # Errors
/// Where the trail cannot be read or a time is none.
pub(crate) fn print_stats(
    dir: &Path,
    filter: &RecordFilter,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    check_times(filter)?;
    let stats = stats(dir, filter).map_err(at(dir))?;
    if stats.rows.is_empty() {
        check_server(dir, filter)?;
    }
    if json {
        stats_json(&stats, out)
    } else {
        stats_table(&stats, out)
    }
    .map_err(Into::into)
}

fn stats_json(stats: &Stats, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<_> = stats
        .rows
        .iter()
        .map(|((server, tool), row)| {
            let q = |q| row.quantile_ms(q);
            serde_json::json!({ "server": server, "tool": tool, "calls": row.calls, "errors": row.errors,
                "retries": row.retries, "p50_ms": q(0.5), "p90_ms": q(0.9), "p99_ms": q(0.99), "max_ms": row.max_ms })
        })
        .collect();
    writeln!(
        out,
        "{}",
        colibri_text::json(&serde_json::Value::Array(rows).to_string())
    )
}

fn stats_table(stats: &Stats, out: &mut dyn Write) -> io::Result<()> {
    const NAME: usize = 24;
    const BAR: u64 = 10;
    let most = stats
        .rows
        .values()
        .map(|row| row.calls)
        .max()
        .unwrap_or(0)
        .max(1);
    let mut rows: Vec<_> = stats.rows.iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.calls));
    // Together 79 columns: a terminal of 80 does not wrap.
    let (server_tool, calls, errors) = ("server tool", "calls", "errors");
    writeln!(
        out,
        "{server_tool:<NAME$} {calls:>8} {errors:>6}     p50     p99     max ms"
    )?;
    for ((server, tool), row) in rows {
        let mut name = visible(&format!("{server} {tool}")).into_owned();
        // Cut, two names could look like one: a long one has a line of its own.
        if name.chars().count() > NAME {
            writeln!(out, "{name}")?;
            name.clear();
        }
        let bar = "#".repeat((row.calls * BAR).div_ceil(most) as usize);
        let ms = |ms: f64| {
            if ms < 100.0 {
                format!("{ms:.2}")
            } else {
                format!("{ms:.0}")
            }
        };
        let quantile = |q| row.quantile_ms(q).map_or_else(|| "-".to_owned(), ms);
        let (p50, p99, max) = (quantile(0.5), quantile(0.99), ms(row.max_ms));
        let (calls, errors) = (row.calls, row.errors);
        let line =
            format!("{name:<NAME$} {calls:>8} {errors:>6} {p50:>7} {p99:>7} {max:>7}  {bar}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// `trail segments`: prints the names of the complete segments, oldest first; the periodic script
/// reads them.
///
/// # Errors
/// Where the directory cannot be read.
pub(crate) fn print_segments(dir: &Path, out: &mut dyn Write) -> Result<(), CommandError> {
    for name in sealed_segments(dir).map_err(at(dir))? {
        writeln!(out, "{name}")?;
    }
    Ok(())
}

/// `trail export [--seal] NAME`: writes the bytes of a complete segment, or what is kept of it when
/// it is dropped, for the periodic script's archive.
///
/// # Errors
/// Where there is no such segment or it cannot be read.
pub(crate) fn export(
    dir: &Path,
    name: &str,
    seal: bool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let unknown = || {
        CommandError::Data(format!(
            "{name:?} is not the name of a complete segment; `colibri-mcp trail segments` lists them"
        ))
    };
    let segment = SegmentName::parse(&format!("{name}.jsonl"), "jsonl").ok_or_else(unknown)?;
    if !sealed_segments(dir).map_err(at(dir))?.contains(&segment) {
        return Err(unknown());
    }
    let path = segment.path(dir);
    if seal {
        out.write_all(
            &last_seal(dir, segment)
                .map_err(at(&path))?
                .ok_or_else(unknown)?,
        )?;
    } else {
        io::copy(&mut open_regular(&path).map_err(at(&path))?, out)?;
    }
    out.flush()?;
    Ok(())
}

/// `trail drop --keep-days N`: drops the segments that are older, leaves their seals, and says what
/// went. Runs as the daemon's user.
///
/// # Errors
/// Where a segment cannot be read or removed.
pub(crate) fn print_drop(
    state_dir: &Path,
    keep_days: u32,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let dir = directory(state_dir);
    let keep = Duration::from_secs(u64::from(keep_days) * 86_400);
    let dropped = drop_segments(&dir, keep, SystemTime::now()).map_err(at(&dir))?;
    for name in &dropped.segments {
        writeln!(out, "dropped {name}, kept its seal")?;
    }
    if !dropped.segments.is_empty() {
        writeln!(
            out,
            "{} segments, {} KiB",
            dropped.segments.len(),
            dropped.bytes / 1024
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use colibri_trail::{
        Attempt, ContentDigest, Detail, Enter, EventRecord, ExitRecord, SegmentLimits, Trail,
        TrailHead, TrailOptions, TrailRecord, Witness,
    };

    struct Log(PathBuf);

    impl Witness for Log {
        fn witness(&self, head: &TrailHead) -> io::Result<()> {
            let mut log = File::options().append(true).create(true).open(&self.0)?;
            writeln!(log, "Nov 21 22:30:00 host colibri-mcpd[9]: {head}")
        }
    }

    const EVIL: &str = "x\u{1b}[2J\u{202e}";

    fn trail() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let trail = Trail::open(TrailOptions {
            state_dir: dir.path().into(),
            sync: false,
            witness: Arc::new(Log(dir.path().join("log"))),
            notify: |_, _| (),
            limits: SegmentLimits {
                segment_bytes: 4000,
                ..SegmentLimits::default()
            },
        })
        .unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_300_200);
        let details = [("file", Detail::Text(EVIL)), ("count", Detail::Number(2))];
        trail
            .append([TrailRecord::Event(EventRecord {
                time,
                event: "start",
                details: &details,
            })])
            .unwrap();
        for i in 0..9 {
            let tool = if i == 4 { EVIL } else { "create_issue" };
            let enter = Enter {
                time,
                uid: 1001,
                gid: 1001,
                pid: None,
                connection: 1,
                continues: None,
                client: None,
                method: "tools/call",
                server: Some("github"),
                tool: Some(tool),
                name: None,
                era: "modern",
                version: "2026-07-28",
                args: ContentDigest::of(b""),
                args_full: None,
                traceparent: None,
                tracestate: None,
                validated: Default::default(),
                through: None,
                task: None,
                within: None,
                caller: None,
            };
            let enter = trail.append([TrailRecord::Enter(enter)]).unwrap().first;
            let attempt = Attempt {
                time,
                enter,
                integration_id: "github",
                operation: tool,
                attempt_number: 1,
                error_code: (i == 4).then_some("TIMEOUT"),
                error_class: (i == 4).then_some("transient"),
                latency: Duration::from_millis(i),
            };
            trail
                .append([TrailRecord::Exit(ExitRecord {
                    attempt,
                    success: i != 4,
                    output: None,
                    output_full: None,
                    remote: None,
                })])
                .unwrap();
        }
        trail.close().unwrap();
        dir
    }

    fn text(print: impl FnOnce(&mut dyn Write)) -> String {
        let mut out = Vec::new();
        print(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(
            !text
                .chars()
                .any(|c| c != '\n' && colibri_text::is_hidden(c)),
            "{text:?}"
        );
        text
    }

    fn of(log: Option<&Path>) -> NamedWitnesses<'_> {
        NamedWitnesses {
            log,
            ..Default::default()
        }
    }

    #[test]
    fn verify_says_what_is_promised_and_what_is_wrong() {
        let dir = trail();
        let (state, log) = (dir.path(), dir.path().join("log"));
        let segments = directory(state);
        let key = verifier(state).unwrap();
        let run = |log: Option<&Path>, extent, json, status| {
            let archive = (extent == Extent::Archive).then_some(&*segments);
            text(|out| {
                assert_eq!(
                    print_verify(state, archive, &of(log), key.as_ref(), json, out).unwrap(),
                    status
                );
            })
        };
        let good = run(Some(&log), Extent::Whole, false, 0);
        assert!(
            good.contains(": sound\n") && good.contains("promise      reaches to record"),
            "{good}"
        );
        assert!(good.contains(&key.as_ref().unwrap().to_string()), "{good}");
        assert!(run(None, Extent::Whole, false, 0).contains("none without a witness"));
        assert!(
            run(None, Extent::Whole, false, 0)
                .contains("vouched by   the daemon's own note (trail.head)")
        );
        assert!(good.contains("vouched by   the log: "), "{good}");
        let (note, kept) = (note_path(state), state.join("kept"));
        std::fs::rename(&note, &kept).unwrap();
        assert!(run(Some(&log), Extent::Whole, false, 0).contains("sound"));
        let unvouched = run(None, Extent::Whole, false, 2);
        assert!(
            unvouched.contains("sound") && unvouched.contains("vouched by   nobody"),
            "{unvouched}"
        );
        std::fs::rename(&kept, &note).unwrap();
        let last = sealed_segments(&segments).unwrap().pop().unwrap();
        let newest = std::fs::read_dir(&segments)
            .unwrap()
            .map(|e| e.unwrap().path())
            .max()
            .unwrap();
        assert_ne!(last.path(&segments), newest);
        std::fs::remove_file(newest).unwrap();
        let without = run(None, Extent::Whole, false, 1);
        assert!(
            without.contains("1 fault") && without.contains("truncated"),
            "{without}"
        );
        let bad = run(Some(&log), Extent::Whole, false, 1);
        assert!(
            bad.contains("1 fault")
                && bad.contains(&format!("{last} line"))
                && bad.contains("truncated"),
            "{bad}"
        );
        assert!(run(Some(&log), Extent::Archive, false, 0).contains("not archived yet"));
        let json: serde_json::Value =
            serde_json::from_str(&run(Some(&log), Extent::Whole, true, 1)).unwrap();
        assert_eq!(json["faults"][0]["kind"], "truncated");
    }

    #[test]
    fn show_prints_nothing_that_moves_the_cursor() {
        let dir = trail();
        let segments = directory(dir.path());
        let lines = text(|out| {
            print_show(&segments, &RecordFilter::default(), None, None, false, out).unwrap();
        });
        assert!(
            lines.contains("start count=2 file=x\\u{1b}[2J\\u{202e}"),
            "{lines}"
        );
        assert!(lines.contains("FAIL 4.0 ms, attempt 1 TIMEOUT"), "{lines}");
        let json = text(|out| {
            print_show(&segments, &RecordFilter::default(), None, None, true, out).unwrap();
        });
        assert!(
            json.lines()
                .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
        );
        let filter = RecordFilter {
            since: Some("yesterday".into()),
            ..RecordFilter::default()
        };
        assert!(matches!(
            print_show(&segments, &filter, None, None, true, &mut Vec::new()),
            Err(CommandError::Usage(_))
        ));
    }

    #[test]
    fn a_call_of_an_agent_says_whose() {
        let dir = tempfile::tempdir().unwrap();
        let rec = r#"{"n":0,"kind":"enter","timestamp":"t","uid":4000000001,"method":"tools/call","server":"git","tool":"push","agent":"co\u001bder","session":"0123456789abcdef","for":4000000002,"client":{"name":"co\u001bdex  2","version":"9.9.9.9.9.9.9"}}"#;
        let segments = directory(dir.path());
        std::fs::create_dir_all(&segments).unwrap();
        let segment = segments.join("0000000000-20261121.jsonl");
        let zeros = "0".repeat(64);
        std::fs::write(
            segment,
            format!("{{\"hash\":\"{zeros}\",\"prev\":\"{zeros}\",\"rec\":{rec}}}\n"),
        )
        .unwrap();
        let lines = text(|out| {
            print_show(&segments, &RecordFilter::default(), None, None, false, out).unwrap();
        });
        assert!(
            lines.contains(
                "git push tools/call  by agent co\\u{1b}der 0123456789abcdef for 4000000002"
            ),
            "{lines}"
        );
        assert!(
            lines.contains("  co\\u{1b}dex  2 9.9.9.9.9… git push"),
            "{lines}"
        );
    }

    #[test]
    fn show_follows_until_it_is_told_to_stop() {
        let dir = trail();
        let stop = AtomicBool::new(true);
        let lines = text(|out| {
            print_show(
                &directory(dir.path()),
                &RecordFilter::default(),
                None,
                Some(&stop),
                false,
                out,
            )
            .unwrap();
        });
        assert!(lines.contains("start"));
    }

    #[test]
    fn stats_fit_a_terminal() {
        let dir = trail();
        let segments = directory(dir.path());
        let table =
            text(|out| print_stats(&segments, &RecordFilter::default(), false, out).unwrap());
        assert!(
            table.lines().all(|line| line.chars().count() < 80),
            "{table}"
        );
        let row = table.lines().nth(1).unwrap();
        assert!(
            row.starts_with("github create_issue") && row.ends_with("##########"),
            "{table}"
        );
        let json = text(|out| print_stats(&segments, &RecordFilter::default(), true, out).unwrap());
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json[0]["calls"], &json[1]["errors"]),
            (&8.into(), &1.into())
        );
    }

    #[test]
    fn long_names_are_told_apart_in_a_table() {
        let row = colibri_trail::StatsRow::default;
        let name = |end: &str| {
            (
                "github".into(),
                format!("{}{end}", "a_very_long_name_of_a_tool_".repeat(2)),
            )
        };
        let rows = [(name("one"), row()), (name("two"), row())]
            .into_iter()
            .collect();
        let mut table = Vec::new();
        stats_table(&Stats { rows }, &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        assert!(
            table.contains("tool_one\n") && table.contains("tool_two\n"),
            "{table}"
        );
    }

    #[test]
    fn only_the_last_records_are_shown_and_the_others_counted() {
        let dir = trail();
        let segments = directory(dir.path());
        let all = text(|out| {
            print_show(&segments, &RecordFilter::default(), None, None, false, out).unwrap();
        });
        let mut out = Vec::new();
        let left_out = print_show(
            &segments,
            &RecordFilter::default(),
            Some(3),
            None,
            false,
            &mut out,
        )
        .unwrap();
        let last = String::from_utf8(out).unwrap();
        assert_eq!(
            (last.lines().count(), left_out),
            (3, all.lines().count() as u64 - 3)
        );
        assert!(all.ends_with(&last), "{all}{last}");
    }

    #[test]
    fn what_is_no_text_is_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"\xff").unwrap();
        assert_eq!(named_verifier(&file).unwrap_err().exit_code(), 65);
    }

    #[test]
    fn a_server_that_was_never_called_is_said_to_be_so() {
        let dir = trail();
        let segments = directory(dir.path());
        let filter = |server: &str| RecordFilter {
            server: Some(server.to_owned()),
            until: Some("2001-01-01".to_owned()),
            ..RecordFilter::default()
        };
        for said in [
            print_show(
                &segments,
                &filter("nothere"),
                None,
                None,
                false,
                &mut Vec::new(),
            )
            .map(|_| ()),
            print_stats(&segments, &filter("nothere"), false, &mut Vec::new()),
        ] {
            let said = said.unwrap_err();
            assert!(
                said.to_string()
                    .contains("\"nothere\"; it has calls of: github"),
                "{said}"
            );
            assert_eq!(said.exit_code(), 65);
        }
        assert_eq!(
            print_show(
                &segments,
                &filter("github"),
                None,
                None,
                false,
                &mut Vec::new()
            )
            .unwrap(),
            0
        );
    }

    #[test]
    fn an_archive_made_by_export_verifies() {
        let dir = trail();
        let segments = directory(dir.path());
        let archive = dir.path().join("archive");
        std::fs::create_dir(&archive).unwrap();
        let names = text(|out| print_segments(&segments, out).unwrap());
        for (i, name) in names.lines().enumerate() {
            export(
                &segments,
                name,
                true,
                &mut File::create(archive.join(format!("{name}.seal"))).unwrap(),
            )
            .unwrap();
            // The first was removed from the archive later, its seal stayed.
            if i > 0 {
                export(
                    &segments,
                    name,
                    false,
                    &mut File::create(archive.join(format!("{name}.jsonl"))).unwrap(),
                )
                .unwrap();
            }
        }
        let key = verifier(dir.path()).unwrap();
        let log = dir.path().join("log");
        let said = text(|out| {
            assert_eq!(
                print_verify(
                    dir.path(),
                    Some(&archive),
                    &of(Some(&log)),
                    key.as_ref(),
                    false,
                    out
                )
                .unwrap(),
                0
            );
        });
        assert!(said.contains("1 segments were dropped"), "{said}");
        for bad in ["../../etc/passwd", "x", "0000000099-20261121", ""] {
            assert!(matches!(
                export(&segments, bad, false, &mut Vec::new()),
                Err(CommandError::Data(_))
            ));
        }
    }

    #[test]
    fn dropping_says_what_went() {
        let dir = trail();
        let said = text(|out| print_drop(dir.path(), 1_000_000, out).unwrap());
        assert_eq!(said, "");
    }
}
