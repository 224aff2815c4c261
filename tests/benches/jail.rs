//! What confinement costs: how long a server takes to its first answer in the development sandbox
//! of Linux, through the installed set-user-ID helper, against the same program started plainly;
//! and whether a warm call notices where its server runs. Ratios in one run: both sides take turns,
//! so that what else the machine does meets both.
//!
//! `cargo bench -p colibri-tests --bench jail`, as root: the helper, its policy and the registry
//! are installed at their real paths for the time of the run, and what was there comes back. The
//! sandbox is no jail: on FreeBSD, making mounts and jails takes what it takes there.
// A measurement: what fails ends it.
#![allow(clippy::unwrap_used)]

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the comparison of jails runs on Linux alone, in the helper's development sandbox");
}

#[cfg(target_os = "linux")]
fn main() {
    linux::compare();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use colibri_tests::installed::{CONFIG, Installed, MODEL, ROOTS};

    /// How often each way to start is measured.
    const STARTS: usize = 40;
    /// Rounds of warm calls, and calls in each.
    const ROUNDS: usize = 20;
    const CALLS: usize = 1000;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}"#;

    pub(crate) fn compare() {
        if !nix::unistd::geteuid().is_root() {
            println!(
                "the comparison with jailed servers needs root: it installs the set-user-ID helper for a while"
            );
            return;
        }
        let system = Installed::set_up();
        let program = format!("{ROOTS}/one/bin/inmate");
        let entry = |command: &str, more: &str| {
            format!(r#"{{"command":"{command}","args":["mcp"]{more}}}"#)
        };
        let jail = |name: &str| format!(r#","jail":{{"path":"{ROOTS}/{name}"}}"#);
        let per_call = r#","isolation":"call""#;
        system.write_policy(
            &system
                .policy()
                .replace(r#""servers":["one","two"]"#, r#""servers":["*"]"#)
                .replace(
                    r#""users":{"#,
                    r#""users":{"agent":{"uid":7873,"gid":7873},"#,
                ),
        );
        system.write_open_clients();
        system.write_registry(&format!(
            r#"{{"agents":{{"three":{}}},"servers":{{"one":{},"two":{},"host":{},"fresh":{}}}}}"#,
            entry(
                "/bin/inmate",
                &format!(
                    r#","stdin":"pipe","jail":{{"path":"{ROOTS}/one","user":"agent"}}{MODEL}"#
                )
            ),
            entry("/bin/inmate", &jail("one")),
            entry("/bin/inmate", &(jail("two") + per_call)),
            entry(&program, ""),
            entry(&program, per_call),
        ));

        let (mut plain, mut confined, mut agents) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..STARTS {
            plain.push(first_answer(Command::new(&program).arg("mcp")));
            confined.push(first_answer(&mut system.run("one").0.command));
            let (mut agent, _, _door) = system.run_agent("three");
            agents.push(first_answer(&mut agent.command));
        }
        println!();
        ratio(
            "first answer through the helper: an agent with door and loopback, a server",
            median(agents),
            median(confined.clone()),
            Some(2.0),
        );
        ratio(
            "first answer: helper, plain spawn",
            median(confined),
            median(plain),
            None,
        );

        let daemon = Daemon::start();
        let mut client = daemon.client();
        let (mut plain, mut confined) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            plain.push(client.timed("fresh__echo"));
            confined.push(client.timed("two__echo"));
        }
        ratio(
            "a process per call, through the daemon: jailed, host",
            median(confined),
            median(plain),
            None,
        );
        let (mut plain, mut confined) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            for (times, tool) in [(&mut plain, "host__echo"), (&mut confined, "one__echo")] {
                times.extend((0..CALLS).map(|_| client.timed(tool)));
            }
        }
        ratio(
            "warm call: jailed, host",
            median(confined),
            median(plain),
            Some(1.1),
        );
    }

    /// From starting a program to its answer to the first message.
    fn first_answer(command: &mut Command) -> Duration {
        let begun = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{INITIALIZE}").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let took = begun.elapsed();
        assert!(line.contains("protocolVersion"), "{line}{}", {
            let mut said = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            said
        });
        drop(stdin);
        child.wait().unwrap();
        took
    }

    struct Daemon {
        child: Child,
        directory: tempfile::TempDir,
    }

    impl Daemon {
        fn start() -> Daemon {
            let directory = tempfile::tempdir().unwrap();
            let child = Command::new(colibri_tests::program("colibri-mcpd"))
                .args(["--external-config", &format!("{CONFIG}/external-mcp.json")])
                .arg("--socket")
                .arg(directory.path().join("sock"))
                .arg("--state-dir")
                .arg(directory.path().join("state"))
                .args([
                    "--external-call",
                    "--allow-root",
                    "--log-level",
                    "error",
                    "--clients",
                    &format!("{CONFIG}/clients.json"),
                ])
                .spawn()
                .unwrap();
            let daemon = Daemon { child, directory };
            // Every server is looked at once, so that calls find them in the catalogue.
            let mut client = daemon.client();
            while ["one", "two", "host", "fresh"].iter().any(|server| {
                let listed = client.ask(r#""method":"tools/list""#);
                !listed.contains(&format!("{server}__echo"))
            }) {}
            daemon
        }

        fn client(&self) -> Client {
            let socket = self.directory.path().join("sock");
            let mut stream = connect(&socket);
            writeln!(stream, "{INITIALIZE}").unwrap();
            let mut client = Client {
                lines: BufReader::new(stream.try_clone().unwrap()),
                stream,
                next: 1,
            };
            client.answer(0);
            client
        }
    }

    impl Drop for Daemon {
        fn drop(&mut self) {
            let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }

    fn connect(socket: &Path) -> UnixStream {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return stream,
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{}: {error}", socket.display()),
            }
        }
    }

    struct Client {
        stream: UnixStream,
        lines: BufReader<UnixStream>,
        next: u64,
    }

    impl Client {
        /// Sends a request and returns the line with its answer.
        fn ask(&mut self, request: &str) -> String {
            let id = self.next;
            self.next += 1;
            self.stream
                .write_all(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{request}}}\n").as_bytes())
                .unwrap();
            self.answer(id)
        }

        fn answer(&mut self, id: u64) -> String {
            let wanted = format!("\"id\":{id}");
            loop {
                let mut line = String::new();
                assert!(
                    self.lines.read_line(&mut line).unwrap() > 0,
                    "the daemon ended"
                );
                let rest = line.split_once(&wanted).map(|(_, rest)| rest);
                if rest.is_some_and(|rest| rest.starts_with([',', '}'])) {
                    return line;
                }
            }
        }

        fn timed(&mut self, tool: &str) -> Duration {
            let text = "x".repeat(64);
            let request = format!(
                "\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{{\"text\":\"{text}\"}}}}"
            );
            let begun = Instant::now();
            let answer = self.ask(&request);
            let took = begun.elapsed();
            assert!(
                answer.contains(&text) && !answer.contains("isError\":true"),
                "{answer}"
            );
            took
        }
    }

    fn median(mut times: Vec<Duration>) -> Duration {
        times.sort();
        times[times.len() / 2]
    }

    fn ratio(what: &str, confined: Duration, plain: Duration, most: Option<f64>) {
        let ratio = confined.as_secs_f64() / plain.as_secs_f64();
        let verdict = match most {
            Some(most) if ratio <= most => format!("ok (at most {most})"),
            Some(most) => format!("MISSED (at most {most})"),
            None => String::new(),
        };
        println!("{what}: {confined:.1?}, {plain:.1?}, ratio {ratio:.2} {verdict}");
    }
}
