//! A trail whose process is killed, again and again, at random moments of the writer. Without a
//! harness, since it starts itself as the process that is killed: `COLIBRI_LONG=1` does ten times
//! as much, `COLIBRI_SHORT=1` a twentieth.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use colibri_trail::{
    Detail, EventRecord, Extent, SegmentLimits, Trail, TrailHead, TrailOptions, TrailRecord,
    Witness, WitnessedHeads, directory, note_path, verify,
};

/// The path of the child's trail.
const CHILD: &str = "COLIBRI_TRAIL_CHILD";

struct Stdout;

impl Witness for Stdout {
    fn witness(&self, head: &TrailHead) -> std::io::Result<()> {
        writeln!(std::io::stdout(), "{head}")
    }
}

/// Writes a trail until it is killed, and says which heads a witness saw.
fn write(state_dir: &Path) -> Result<(), Box<dyn Error>> {
    let trail = Trail::open(TrailOptions {
        state_dir: state_dir.into(),
        sync: true,
        witness: Arc::new(Stdout),
        notify: |_, _| (),
        limits: SegmentLimits {
            segment_bytes: 6000,
            seal_records: 8,
            witness_records: 50,
            ..SegmentLimits::default()
        },
    })?;
    println!("open");
    for number in 0.. {
        let details = [
            ("number", Detail::Number(number)),
            ("text", Detail::Text("to be killed")),
        ];
        trail.append([TrailRecord::Event(EventRecord {
            time: SystemTime::now(),
            event: "tick",
            details: &details,
        })])?;
    }
    Ok(())
}

/// Starts a writer, kills it after so many heads, and checks what it left.
fn kill(state_dir: &Path, heads: &mut WitnessedHeads, until: u64) -> Result<(), Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(CHILD, state_dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut seen = 0;
    while let Some(Ok(line)) = output.next() {
        seen += u64::from(TrailHead::find(&line).map(|head| heads.add(head)).is_some());
        if seen >= until && line.contains(if until == 0 { "open" } else { "trail-head" }) {
            break;
        }
    }
    child.kill()?;
    output
        .map_while(Result::ok)
        .filter_map(|line| TrailHead::find(&line))
        .for_each(|head| heads.add(head));
    child.wait()?;
    heads.read_note(&note_path(state_dir), None)?;
    let report = verify(&directory(state_dir), Extent::Whole, None, heads)?;
    let witnessed = heads.heads.keys().next_back().copied().unwrap_or(0);
    if report.is_sound() && report.promised_records == witnessed && !report.vouched_by.is_empty() {
        return Ok(());
    }
    Err(format!("{report:#?}").into())
}

fn rounds() -> Result<(), Box<dyn Error>> {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let rounds = match () {
        () if is_set("COLIBRI_LONG") => 4000,
        () if is_set("COLIBRI_SHORT") => 20,
        () => 400,
    };
    let dir = tempfile::tempdir()?;
    let mut heads = WitnessedHeads::default();
    // SplitMix64 (Steele, Lea, Flood 2014): looks random, and is the same every time.
    let mut random = 9_u64;
    for round in 0..rounds {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        // Several kills in a row on one trail, then a new one.
        let state_dir = dir.path().join(format!("{}", round / 4));
        if round % 4 == 0 {
            std::fs::create_dir(&state_dir)?;
            heads = WitnessedHeads::default();
        }
        kill(&state_dir, &mut heads, (mixed >> 33) % 6)
            .map_err(|error| format!("round {round}: {error}"))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let has_flag = |flag: &str| std::env::args().any(|argument| argument == flag);
    // As cargo-nextest asks for the names of tests: there is one, and none is ignored.
    if has_flag("--list") {
        if !has_flag("--ignored") {
            println!("a_killed_writer_leaves_a_sound_trail: test");
        }
        return ExitCode::SUCCESS;
    }
    let result = match std::env::var_os(CHILD) {
        Some(state_dir) => write(Path::new(&state_dir)),
        None => rounds(),
    };
    match result {
        Ok(()) => {
            println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!(
                "{error}\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"
            );
            ExitCode::FAILURE
        }
    }
}
