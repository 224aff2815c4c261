//! How many records a second the trail takes, and how long one append takes: `cargo bench -p colibri-trail`.
//!
//! A plain harness: what is wanted is a rate over a fixed amount of real work, with the syncing thread beside it, not a
//! statistic over closures. The directory is that of `TMPDIR`: point it at the disk that is to be measured.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use colibri_trail::{Attempt, Digest, Enter, Exit, Head, Limits, Options, Record, Trail, Witness};

struct Nobody;

impl Witness for Nobody {
    fn witness(&self, _: &Head) -> std::io::Result<()> {
        Ok(())
    }
}

fn enter(args: Digest) -> Record<'static> {
    Record::Enter(Enter {
        time: SystemTime::now(),
        uid: 1001,
        gid: 1001,
        pid: Some(4242),
        connection: 7,
        continues: None,
        method: "tools/call",
        server: Some("github"),
        tool: Some("create_issue"),
        name: Some("github__create_issue"),
        era: "legacy",
        version: "2025-11-25",
        args,
        args_full: None,
        traceparent: None,
        tracestate: None,
        validated: true,
    })
}

fn exit(enter: u64, output: Digest) -> Record<'static> {
    Record::Exit(Exit {
        attempt: Attempt {
            time: SystemTime::now(),
            enter,
            integration_id: "github",
            operation: "create_issue",
            attempt_number: 1,
            error_code: None,
            latency: Duration::from_micros(1234),
        },
        success: true,
        output: Some(output),
        output_full: None,
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for sync in [false, true] {
        for batch in [1, 2, 32, 256] {
            let dir = tempfile::tempdir()?;
            let trail = Trail::open(Options {
                state_dir: dir.path().into(),
                sync,
                witness: Arc::new(Nobody),
                limits: Limits::default(),
            })?;
            let digest = Digest::of(b"{\"a\":1}");
            let rounds: usize = if sync { 300 } else { 400_000 / batch };
            let mut records = Vec::with_capacity(batch);
            let mut times = Vec::with_capacity(rounds);
            let begin = Instant::now();
            for round in 0..rounds {
                records.clear();
                for i in 0..batch {
                    records.push(if i % 2 == 0 {
                        enter(digest)
                    } else {
                        exit((round * batch) as u64, digest)
                    });
                }
                let start = Instant::now();
                trail.append(&records)?;
                times.push(start.elapsed());
            }
            let rate = (rounds * batch) as f64 / begin.elapsed().as_secs_f64();
            times.sort_unstable();
            let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
            println!(
                "sync {sync:5}  batch {batch:3}  {rate:9.0} records/s  append p50 {:?}  p99 {:?}  max {:?}",
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
    }
    Ok(())
}
