//! Numbers for Prometheus, as text in the OpenMetrics format, on a Unix socket of their own.
//!
//! No label names a user, a tool or an argument: labels are server ids of the registry, states and codes of ours.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::sys;
use crate::chain::Recorder;
use crate::chain::dispatch::COLIBRI;
use crate::chain::metrics::Counted;
use crate::daemon::Daemon;
use crate::daemon::connections::Load;
use crate::servers::{State, Viewer};
use colibri_trail as trail;

/// Readers that are served at one time; further ones are only closed.
const MOST_READERS: usize = 16;
/// How long a reader may take altogether.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a reader may keep silent before it gets plain text.
const SILENCE: Duration = Duration::from_millis(500);
/// Longest HTTP request that is read, bytes.
const MAX_REQUEST: usize = 8192;

const STATES: [(State, &str); 6] = [
    (State::Stopped, "stopped"),
    (State::Starting, "starting"),
    (State::Ready, "ready"),
    (State::BackingOff, "backing_off"),
    (State::Blocked, "blocked"),
    (State::Failed, "failed"),
];

/// Serves metrics, to the `next` who connects, for as long as this is polled; never ends where nobody can.
pub async fn serve(next: Option<impl AsyncFn() -> UnixStream>, daemon: &Arc<Daemon>) {
    let Some(next) = next else {
        return std::future::pending().await;
    };
    let places = Arc::new(Semaphore::new(MOST_READERS));
    loop {
        let stream = next().await;
        let Ok(place) = places.clone().try_acquire_owned() else {
            warn!(limit = MOST_READERS, "too many readers of metrics: one is turned away");
            continue;
        };
        let daemon = daemon.clone();
        tokio::spawn(async move {
            match timeout(LIMIT, answer(daemon, stream)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!("metrics were not read: {error}"),
                Err(_) => debug!("metrics were not read in time"),
            }
            drop(place);
        });
    }
}

/// Answers a reader: in HTTP/1.0 (RFC 1945) where it asks so, else with the text alone.
async fn answer(daemon: Arc<Daemon>, mut stream: UnixStream) -> io::Result<()> {
    const GET: &[u8] = b"GET ";
    let mut request = Vec::with_capacity(1024);
    let mut ended = false;
    let begin = async {
        while request.len() < GET.len() && GET.starts_with(&request) && !ended {
            ended = stream.read_buf(&mut request).await? == 0;
        }
        io::Result::Ok(())
    };
    // Silence is no error: who just connects gets the text.
    timeout(SILENCE, begin).await.unwrap_or(Ok(()))?;
    let http = request.starts_with(GET);
    while http && !ended && request.len() <= MAX_REQUEST && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        ended = stream.read_buf(&mut request).await? == 0;
    }
    // The trail's state is behind a lock that a slow disk may hold: not on a thread that serves clients.
    let text = tokio::task::spawn_blocking(move || render(&daemon))
        .await
        .map_err(io::Error::other)?
        .map_err(io::Error::other)?;
    if http {
        let head = format!(
            "HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
             Content-Length: {}\r\n\r\n",
            text.len()
        );
        stream.write_all(head.as_bytes()).await?;
    }
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    // What was sent and not read would turn the end of the text into an error at the other side.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

fn render(daemon: &Daemon) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot::of(daemon)));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// One server's numbers.
#[derive(Debug)]
struct OfServer {
    id: String,
    counted: Counted,
    /// Not for the daemon itself.
    state: Option<State>,
    processes: usize,
    in_flight: usize,
    queued: usize,
}

/// The name of a gauge, its help, and how it is read.
type Gauge = (&'static str, &'static str, fn(&OfServer) -> usize);

/// All numbers at one time.
#[derive(Debug)]
struct Snapshot {
    uptime: Duration,
    servers: Vec<OfServer>,
    load: Load,
    trail: Option<trail::Status>,
    resident: Option<u64>,
}

impl Snapshot {
    fn of(daemon: &Daemon) -> Snapshot {
        let own = OfServer {
            id: COLIBRI.to_owned(),
            counted: daemon.chain().metrics.counted(),
            state: None,
            processes: 0,
            in_flight: 0,
            queued: 0,
        };
        let mut servers = vec![own];
        for server in daemon.host().servers().values() {
            let sessions = server.sessions();
            servers.push(OfServer {
                id: server.id.to_string(),
                counted: server.metrics.counted(),
                state: Some(server.state(Viewer::Operator(None)).0),
                processes: sessions.len(),
                in_flight: sessions.iter().map(|(_, session)| session.in_flight()).sum(),
                queued: sessions.iter().map(|(_, session)| session.queued()).sum(),
            });
        }
        Snapshot {
            uptime: daemon.started.elapsed(),
            servers,
            load: daemon.connections().load(),
            trail: match &daemon.chain().recorder {
                Recorder::Trail(trail) => Some(trail.status()),
                Recorder::Off => None,
            },
            resident: sys::resident_bytes().ok(),
        }
    }

    fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Finished calls.";
        let mut family = encoder.encode_descriptor("colibri_calls", help, None, MetricType::Counter)?;
        for server in &self.servers {
            family
                .encode_family(&[("server", &*server.id)])?
                .encode_counter::<NoLabelSet, _, u64>(&server.counted.calls(), None)?;
        }
        let help = "Failed calls, by code.";
        let mut family = encoder.encode_descriptor("colibri_call_errors", help, None, MetricType::Counter)?;
        for server in &self.servers {
            for (code, count) in &server.counted.errors {
                family
                    .encode_family(&[("server", &*server.id), ("code", code)])?
                    .encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let help = "Time from a call's arrival to its answer.";
        let mut family =
            encoder.encode_descriptor("colibri_call_duration_seconds", help, None, MetricType::Histogram)?;
        for OfServer { id, counted, .. } in &self.servers {
            family
                .encode_family(&[("server", &**id)])?
                .encode_histogram::<NoLabelSet>(counted.seconds, counted.calls(), &counted.buckets, None)?;
        }
        Ok(())
    }

    fn states(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1 for the state that a server is in.";
        let mut family = encoder.encode_descriptor("colibri_server_state", help, None, MetricType::Gauge)?;
        for OfServer { id, state, .. } in &self.servers {
            let Some(state) = state else { continue };
            for (other, name) in STATES {
                family
                    .encode_family(&[("server", &**id), ("state", name)])?
                    .encode_gauge(&u64::from(other == *state))?;
            }
        }
        let gauges: [Gauge; 3] = [
            ("colibri_server_processes", "Processes that take calls.", |server| {
                server.processes
            }),
            (
                "colibri_server_calls_in_flight",
                "Calls sent and not answered.",
                |server| server.in_flight,
            ),
            (
                "colibri_server_queued_bytes",
                "Bytes that wait for a server to read them.",
                |server| server.queued,
            ),
        ];
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for server in self.servers.iter().filter(|server| server.state.is_some()) {
                family
                    .encode_family(&[("server", &*server.id)])?
                    .encode_gauge(&(value(server) as u64))?;
            }
        }
        Ok(())
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.calls(&mut encoder)?;
        self.states(&mut encoder)?;
        let Load {
            clients,
            in_flight,
            queued,
            most_queued,
        } = self.load;
        let mut gauges = vec![
            (
                "colibri_uptime_seconds",
                "Time since the daemon started.",
                self.uptime.as_secs(),
            ),
            ("colibri_clients", "Connected clients.", clients as u64),
            (
                "colibri_calls_in_flight",
                "Calls of all clients without an answer.",
                in_flight as u64,
            ),
            (
                "colibri_queued_bytes",
                "Bytes queued for all clients and servers.",
                queued as u64,
            ),
            (
                "colibri_client_queued_bytes_max",
                "Bytes queued for the client that is furthest behind.",
                most_queued as u64,
            ),
        ];
        if let Some(bytes) = self.resident {
            gauges.push(("process_resident_memory_bytes", "Resident memory of the daemon.", bytes));
        }
        if let Some(trail) = &self.trail {
            gauges.extend([
                ("colibri_trail_records", "Records of the trail.", trail.records),
                (
                    "colibri_trail_synced_records",
                    "Records that are on the disk.",
                    trail.synced,
                ),
                (
                    "colibri_trail_witnessed_records",
                    "Records that a witness vouches for.",
                    trail.witnessed,
                ),
                (
                    "colibri_trail_failing",
                    "1 while records cannot be written and calls are refused.",
                    u64::from(trail.failing.is_some()),
                ),
            ]);
        }
        for (name, help, value) in gauges {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        Ok(())
    }
}
