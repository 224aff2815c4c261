//! The output of `colibri-mcp trail tiles`, `proof`, `check-proof` and `cosign`: what others check
//! the trail with.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;
use std::time::SystemTime;

use crate::failure::CommandError;
use crate::records::at;
use colibri_text::{counted, hex, json};
use colibri_trail::{
    TilesReport, Verifier, check_proof, cosign, directory, prove, prove_growth, write_tiles,
};

/// Longest proof that is read, bytes.
const MAX_PROOF: u64 = 256 << 20;

fn read(file: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let read = match file == Path::new("-") {
        true => io::stdin().lock().take(MAX_PROOF).read_to_string(&mut text),
        false => File::open(file).and_then(|file| file.take(MAX_PROOF).read_to_string(&mut text)),
    };
    read.map_err(at(file))?;
    Ok(text)
}

/// `trail tiles DIR`: writes the trail as tiles, and says how far they reach.
///
/// # Errors
/// As [`write_tiles`].
pub(crate) fn print_tiles(
    state_dir: &Path,
    dir: &Path,
    key: Option<&Verifier>,
    entries: bool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let Some(key) = key else {
        let what = format!(
            "{} has no trail.pub: name the trail's public key with --key",
            state_dir.display()
        );
        return Err(CommandError::Data(what));
    };
    let TilesReport { before, records } = write_tiles(&directory(state_dir), dir, key, entries)?;
    let new = counted(records - before, "new one");
    writeln!(
        out,
        "{}: {}, {new}",
        dir.display(),
        counted(records, "record")
    )?;
    Ok(())
}

/// `trail proof N`: prints the proof that record `n` is in the trail.
///
/// # Errors
/// Where there is no such record, no seal after it, or the checkpoint in a file is of none of its
/// seals.
pub(crate) fn print_proof(
    dir: &Path,
    n: u64,
    checkpoint: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let checkpoint = checkpoint.map(read).transpose()?;
    write!(out, "{}", prove(dir, n, checkpoint.as_deref())?)?;
    Ok(())
}

/// `trail proof --old N`: prints the proof that the last sealed tree continues that of `old`
/// records.
///
/// # Errors
/// Where fewer records are sealed, or those behind `old` were dropped.
pub(crate) fn print_growth(dir: &Path, old: u64, out: &mut dyn Write) -> Result<(), CommandError> {
    write!(out, "{}", prove_growth(dir, old)?)?;
    Ok(())
}

/// `trail check-proof FILE`: checks a proof against a published root (hex) or a key, on any
/// machine.
///
/// # Errors
/// Where the file cannot be read or the proof does not hold.
pub(crate) fn print_check_proof(
    file: &Path,
    root: Option<&str>,
    key: Option<&Verifier>,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let proof = check_proof(&read(file)?, root, key)?;
    let (size, root) = proof.tree()?;
    writeln!(
        out,
        "record {} is in the trail, among the {size} records under the root",
        proof.index
    )?;
    writeln!(out, "{}", hex(&root))?;
    writeln!(out, "{}", json(proof.record()))?;
    Ok(())
}

/// `trail cosign DIR`: prints the cosigned checkpoint of a request.
///
/// # Errors
/// As [`cosign`].
pub(crate) fn print_cosign(
    dir: &Path,
    log: &Verifier,
    request: &Path,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let cosigned = cosign(dir, log, &read(request)?, SystemTime::now())?;
    write!(out, "{cosigned}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_no_proof() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"\xff").unwrap();
        let proof =
            print_check_proof(&file, Some(&"0".repeat(64)), None, &mut Vec::new()).unwrap_err();
        assert_eq!(proof.exit_code(), 65);
    }
}
