//! As much of ELF as tells what a program needs to start: its interpreter, its libraries, where it looks for them.
//! Files are third-party: every number is checked before it is used.

/// The libraries that a dynamically linked program needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DynamicNeeds {
    /// The dynamic linker.
    pub interpreter: Option<String>,
    /// Names of libraries.
    pub libraries: Vec<String>,
    /// Directories that the program itself names (`DT_RUNPATH`, `DT_RPATH`), `$ORIGIN` not replaced.
    pub search: Vec<String>,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Reads a 64-bit little-endian ELF file; `None` for anything else.
pub(super) fn needs(file: &[u8]) -> Option<DynamicNeeds> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = number(file, 32, 8)?;
    let (size, count) = (number(file, 54, 2)?, number(file, 56, 2)?);
    let mut segments = Vec::new();
    for index in 0..count {
        let at = table.checked_add(index.checked_mul(size)?)?;
        segments.push(ElfSegment {
            kind: u32::try_from(number(file, at, 4)?).ok()?,
            offset: number(file, at.checked_add(8)?, 8)?,
            address: number(file, at.checked_add(16)?, 8)?,
            length: number(file, at.checked_add(32)?, 8)?,
        });
    }
    let mut needs = DynamicNeeds::default();
    if let Some(segment) = segments.iter().find(|segment| segment.kind == PT_INTERP) {
        needs.interpreter = text(file, segment.offset);
    }
    let Some(dynamic) = segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
        return Some(needs);
    };
    let mut entries = Vec::new();
    for index in 0..dynamic.length / 16 {
        let at = dynamic.offset.checked_add(index * 16)?;
        let (tag, value) = (number(file, at, 8)?, number(file, at.checked_add(8)?, 8)?);
        if tag == 0 {
            break;
        }
        entries.push((tag, value));
    }
    let strings = entries
        .iter()
        .find(|(tag, _)| *tag == DT_STRTAB)
        .map(|(_, value)| *value)?;
    let strings = segments
        .iter()
        .filter(|segment| segment.kind == PT_LOAD)
        .find(|segment| {
            strings
                .checked_sub(segment.address)
                .is_some_and(|inside| inside < segment.length)
        })
        .and_then(|segment| segment.offset.checked_add(strings - segment.address))?;
    for (tag, value) in entries {
        let named = || text(file, strings.checked_add(value)?);
        match tag {
            DT_NEEDED => needs.libraries.push(named()?),
            DT_RPATH | DT_RUNPATH => needs.search.extend(named()?.split(':').map(str::to_owned)),
            _ => {}
        }
    }
    Some(needs)
}

struct ElfSegment {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

fn number(file: &[u8], at: u64, bytes: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let slice = file.get(at..at.checked_add(bytes)?)?;
    Some(slice.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn text(file: &[u8], at: u64) -> Option<String> {
    let rest = file.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().take(4096).position(|byte| *byte == 0)?;
    String::from_utf8(rest[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_very_program_is_read() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = needs(&file).unwrap();
        assert!(needs.interpreter.unwrap().starts_with('/'));
        assert!(
            needs.libraries.iter().any(|name| name.starts_with("libc.so")),
            "{:?}",
            needs.libraries
        );
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 64..512), count in 0u8..8, table in 0u8..128,
        ) {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[32..40].copy_from_slice(&u64::from(table).to_le_bytes());
            bytes[54..58].copy_from_slice(&[56, 0, count, 0]);
            let _ = needs(&bytes);
        }
    }
}
