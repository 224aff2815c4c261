//! The process of one script.

use std::path::PathBuf;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use colibri_api::script::ScriptLimits;
use colibri_confine::{LaunchSpec, ServerExit, ServerProcess, SpawnedServer, Spawner};
use colibri_peer::FrameReader;
use colibri_protocol::{Code, Failure};

/// The longest time until the end of a process is known whose output has ended.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// The most bytes of a message beside the value in it.
const AROUND_VALUE: usize = 64 << 10;

/// A process that runs a script. It ends when this is dropped.
pub(super) struct ScriptProcess {
    /// Its messages.
    pub(super) messages: FrameReader<Box<dyn AsyncRead + Send + Unpin>>,
    input: Box<dyn AsyncWrite + Send + Unpin>,
    outgoing: BytesMut,
    process: Box<dyn ServerProcess>,
    stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
}

impl ScriptProcess {
    /// Starts a process that has read nothing yet.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) async fn start(
        spawner: &dyn Spawner,
        program: PathBuf,
        limits: &ScriptLimits,
    ) -> Result<ScriptProcess, Failure> {
        let spawned = spawner.spawn(LaunchSpec::Script { program }).await;
        let SpawnedServer {
            stdin,
            stdout,
            stderr,
            process,
        } = spawned.map_err(|error| {
            let failure = Failure::new(
                Code::Internal,
                format!("no process for the script: {error}"),
            );
            failure.advising("install colibri-script beside colibri-mcpd")
        })?;
        let most = usize::try_from(limits.output).unwrap_or(usize::MAX);
        Ok(ScriptProcess {
            messages: FrameReader::new(stdout, most.saturating_add(AROUND_VALUE)),
            input: stdin,
            outgoing: BytesMut::new(),
            process,
            stderr: Some(stderr),
        })
    }

    /// Queues a message for it.
    pub(super) fn push(&mut self, message: &[u8]) {
        self.outgoing.extend_from_slice(message);
        self.outgoing.extend_from_slice(b"\n");
    }

    /// Reads what it writes and writes what is queued, whichever is possible. `false`: its output
    /// has ended. Nothing is lost if the future is dropped.
    pub(super) async fn exchange(&mut self) -> bool {
        tokio::select! {
            more = self.messages.fill() => more.unwrap_or(false),
            // An end of its input that it closed shows at its output too.
            written = self.input.write(&self.outgoing), if !self.outgoing.is_empty() => {
                match written {
                    Ok(written) => self.outgoing.advance(written),
                    Err(_) => self.outgoing.clear(),
                }
                true
            }
        }
    }

    /// The way in which it ended, after its output has.
    pub(super) async fn exit(&mut self) -> ServerExit {
        timeout(LAST_WORDS, self.process.wait())
            .await
            .unwrap_or(ServerExit::Unknown)
    }

    /// Has it end. `guard` is dropped when it has.
    pub(super) fn end(self, guard: impl Send + 'static) {
        let ScriptProcess {
            mut process,
            stderr,
            input,
            messages,
            ..
        } = self;
        drop((input, messages));
        tokio::spawn(async move {
            let _guard = guard;
            let mut said = Vec::new();
            if let Some(stderr) = stderr {
                let _ = stderr.take(4096).read_to_end(&mut said).await;
            }
            let exit = process.wait().await;
            if !said.is_empty() {
                tracing::warn!(%exit, "a script's process wrote: {}", colibri_text::brief(&String::from_utf8_lossy(&said), 400));
            }
        });
    }
}
