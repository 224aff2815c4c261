//! The place of an error in a script, and the words for what people and models get wrong most.

/// The name of the script in the interpreter's stacks.
pub(crate) const SCRIPT: &str = "script";

/// The line and the column of the first place in the script that a stack names.
pub(crate) fn first_place(stack: &str) -> Option<(u32, u32)> {
    stack
        .match_indices(&format!("{SCRIPT}:"))
        .find_map(|(at, found)| {
            // Not the end of another name.
            let before = stack[..at].chars().next_back();
            if before.is_some_and(|c| !matches!(c, '(' | ' ')) {
                return None;
            }
            let rest = &stack[at + found.len()..];
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && c != ':')
                .unwrap_or(rest.len());
            let (line, column) = rest[..end].split_once(':')?;
            Some((line.parse().ok()?, column.parse().ok()?))
        })
}

/// The first words of a script that only TypeScript has, with their line.
pub(crate) fn typescript(script: &str) -> Option<(usize, &str)> {
    const BEGINNINGS: [&str; 6] = [
        "interface ",
        "enum ",
        "declare ",
        "namespace ",
        "import type ",
        "export type ",
    ];
    const TYPES: [&str; 9] = [
        "string", "number", "boolean", "any", "unknown", "void", "object", "Promise<", "Record<",
    ];
    script.lines().enumerate().find_map(|(at, line)| {
        let start = line.trim_start();
        if let Some(word) = BEGINNINGS.iter().find(|word| start.starts_with(**word)) {
            return Some((at + 1, word.trim_end()));
        }
        if start.starts_with("type ") && start.contains('=') {
            return Some((at + 1, "type"));
        }
        [": ", " as "]
            .iter()
            .find_map(|before| {
                line.match_indices(before).find_map(|(place, _)| {
                    let rest = &line[place + before.len()..];
                    let named = TYPES.iter().find(|name| rest.starts_with(**name))?;
                    let after = rest[named.len()..].chars().next();
                    let ends = named.ends_with('<')
                        || !after.is_some_and(|c| c.is_alphanumeric() || "_.(\"'".contains(c));
                    // In an object a name follows a key as a type follows a parameter: a type is
                    // not the value of a key there.
                    let end = (place + before.len() + named.len()).min(line.len());
                    ends.then(|| line[place..end].trim())
                })
            })
            .map(|words| (at + 1, words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_in_the_script_is_found() {
        assert_eq!(
            first_place("    at f (native)\n    at g (script:3:14)\n    at script:9:1"),
            Some((3, 14))
        );
        assert_eq!(first_place("    at script:2:7\n"), Some((2, 7)));
        for none in [
            "",
            "    at myscript:2:7",
            "    at script:x:7",
            "script:99999999999:1",
        ] {
            assert_eq!(first_place(none), None, "{none}");
        }
    }

    #[test]
    fn types_are_recognised() {
        for (script, words) in [
            ("let a = 1;\nlet b: number = 2", (2, ": number")),
            ("interface A {}", (1, "interface")),
            ("type A = { b: string }", (1, "type")),
            ("const a = b as any;", (1, "as any")),
            ("async function f(x): Promise<void> {}", (1, ": Promise<")),
        ] {
            assert_eq!(typescript(script), Some(words), "{script}");
        }
        for script in [
            "const a = {b: numbers, c: anything()};",
            "// as it was",
            "a ? b : string(c)",
        ] {
            assert_eq!(typescript(script), None, "{script}");
        }
    }
}
