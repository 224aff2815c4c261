//! Another user who does their worst: the program `neighbour`, run as that user.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{copy_program, program};

/// The user who attacks: nobody else's uid, and no operator.
pub const NEIGHBOUR: u32 = 54_322;

/// The attack, for as long as this is there.
pub struct Neighbour {
    child: Child,
    /// The program ends with its input.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Neighbour {
    /// Attacks a socket in this way, with a copy of the program in `directory`, as [`NEIGHBOUR`] or
    /// as who runs the test; returns when every connection was used.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn attack(
        directory: &Path,
        socket: &Path,
        attack: &str,
        count: usize,
        as_another: bool,
    ) -> Neighbour {
        let copy = directory.join("neighbour");
        if !copy.exists() {
            copy_program(&program("neighbour"), &copy);
        }
        let mut command = Command::new(copy);
        command.arg(socket).arg(attack).arg(count.to_string());
        command.env_clear();
        if as_another {
            command.uid(NEIGHBOUR).gid(0);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting the neighbour");
        let mut said = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        output.read_line(&mut said).expect("what it says");
        assert_eq!(said, "ready\n", "the neighbour {attack}");
        let input = child.stdin.take();
        Neighbour {
            child,
            input,
            output,
        }
    }

    /// Ends it. What it says of what it did.
    pub fn end(mut self) -> String {
        drop(self.input.take());
        let mut said = String::new();
        // One that was ended says nothing.
        let _ = self.output.read_to_string(&mut said);
        said.trim().to_owned()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.input.take());
        // One that has ended already is no trouble.
        let _ = self.child.wait();
    }
}
