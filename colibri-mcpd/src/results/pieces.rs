//! Pieces of a result: bytes of its JSON, the value at a JSON pointer, lines of its text, the lines
//! that a pattern matches. Each piece ends at a character or a line, says where the next begins,
//! and is never empty while there is one.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use colibri_text::brief;
use colibri_wire::Json;
use regex_automata::Input;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use super::files::{OpenResult, damaged};
use super::stored_result::NotRead;
use super::text::{MAX_LINE, fitting, floor, lines, text_of, written};

/// The most bytes of a pattern.
const MAX_PATTERN: usize = 1000;
/// The most bytes of a compiled pattern, and of what is kept while it is matched.
const PATTERN_SIZE: usize = 256 << 10;
/// The most bytes of the values that a pointer leads through, all together: each is walked as far
/// as the next.
const MAX_WALKED: usize = 256 << 20;
/// The time for which a pattern is searched before the piece ends. It runs in linear time, but that
/// can be some seconds.
const PATIENCE: Duration = Duration::from_millis(500);

/// The requested scopes.
#[derive(Debug)]
pub struct PieceRequest {
    /// The offset at which it begins: a line of the text, or a byte of the JSON, from 0.
    pub offset: u64,
    /// The most bytes of the piece, if one character or line is no more.
    pub most: u64,
    /// The most bytes that the piece may cost in its answer, likewise.
    pub room: u64,
    /// The part of the result.
    pub what: PieceSelector,
}

/// The requested part of a result.
#[derive(Debug)]
pub enum PieceSelector {
    /// Its text, or its JSON where it has none.
    All,
    /// Its JSON.
    Json,
    /// So many lines of its text.
    Lines(u64),
    /// The value at a JSON pointer, by the pointer's unescaped parts.
    Value(Vec<String>),
    /// The lines of its text that this matches.
    Matching(Box<Regex>),
}

/// A piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultPiece {
    /// The text.
    pub text: String,
    /// The offset at which the next begins; `None`: there is none.
    pub next: Option<u64>,
}

impl PieceSelector {
    /// The value at a JSON pointer (RFC 6901).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn value(pointer: &str) -> anyhow::Result<PieceSelector> {
        let mut parts = pointer.split('/');
        if parts.next() != Some("") {
            bail!("must be empty or begin with / (RFC 6901)");
        }
        let part = |part: &str| {
            let is_escape = |after: &str| after.starts_with(['0', '1']);
            match part.split('~').skip(1).all(is_escape) {
                true => Ok(part.replace("~1", "/").replace("~0", "~")),
                false => Err(anyhow!("has a ~ that is neither ~0 nor ~1 (RFC 6901)")),
            }
        };
        Ok(PieceSelector::Value(
            parts.map(part).collect::<Result<_, _>>()?,
        ))
    }

    /// The lines that a regular expression matches.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn matching(pattern: &str) -> anyhow::Result<PieceSelector> {
        if pattern.len() > MAX_PATTERN {
            bail!(
                "has {} bytes, at most {MAX_PATTERN} are allowed",
                pattern.len()
            );
        }
        let limits = Regex::config()
            .nfa_size_limit(Some(PATTERN_SIZE))
            .onepass_size_limit(Some(PATTERN_SIZE))
            .hybrid_cache_capacity(PATTERN_SIZE);
        let mut builder = Regex::builder();
        let builder = builder
            .configure(limits)
            .syntax(syntax::Config::new().multi_line(true));
        let regex = builder
            .build(pattern)
            .map_err(|error| match error.syntax_error() {
                Some(error) => {
                    let told = error.to_string();
                    let last = told.lines().last().unwrap_or_default();
                    anyhow!(
                        "is no regular expression: {}",
                        brief(last.trim_start_matches("error: "), 200)
                    )
                }
                None => anyhow!("is too large once its repetitions are counted"),
            })?;
        Ok(PieceSelector::Matching(Box::new(regex)))
    }
}

/// The first lines of a result's text that cost no more than this in an answer; `next` counts
/// lines.
pub fn beginning(result: &str, room: u64) -> ResultPiece {
    let request = PieceRequest {
        offset: 0,
        most: room,
        room,
        what: PieceSelector::Json,
    };
    // From the first line on there is always a piece.
    request
        .lines(&text_of(result), u64::MAX)
        .unwrap_or(ResultPiece {
            text: String::new(),
            next: None,
        })
}

impl PieceRequest {
    pub(super) fn answer(&self, opened: &OpenResult) -> Result<ResultPiece, NotRead> {
        match &self.what {
            PieceSelector::All => match text_of(&opened.whole()?) {
                Cow::Borrowed(_) => self.json(opened),
                Cow::Owned(text) if text.is_empty() => {
                    let why =
                        "it has no text: read an image, sound or file of it with block, from 0 on";
                    Err(NotRead::Missing(why.to_owned()))
                }
                Cow::Owned(text) => self.lines(&text, u64::MAX),
            },
            PieceSelector::Json => self.json(opened),
            PieceSelector::Value(pointer) => self.value(&opened.whole()?, pointer, MAX_WALKED),
            PieceSelector::Lines(count) => self.lines(&text_of(&opened.whole()?), *count),
            PieceSelector::Matching(regex) => {
                let until = Instant::now() + PATIENCE;
                self.matching(&text_of(&opened.whole()?), regex, || {
                    Instant::now() >= until
                })
            }
        }
    }

    fn beyond(&self, length: u64, of: &str) -> NotRead {
        NotRead::Missing(format!(
            "offset {} is beyond the end: there are {length} {of}",
            self.offset
        ))
    }

    /// Only what is asked for is read of the file.
    fn json(&self, opened: &OpenResult) -> Result<ResultPiece, NotRead> {
        if self.offset > opened.length {
            return Err(self.beyond(opened.length, "bytes"));
        }
        // The character at either end may stand across it.
        let from = self.offset.saturating_sub(3);
        let bytes = opened.bytes(
            from,
            self.most
                .saturating_add(self.offset - from)
                .saturating_add(4),
        )?;
        let at = |offset: u64| usize::try_from(offset - from).map_err(io::Error::other);
        let begins = |at: &usize| bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
        let asked = at(self.offset)?;
        let start = (0..=asked).rev().find(begins).unwrap_or_default();
        let wanted = asked.saturating_add(at(from + self.most)?).min(bytes.len());
        let end = (start + 1..=wanted).rev().find(begins);
        let end = end
            .or_else(|| (start + 1..=bytes.len()).find(begins))
            .unwrap_or(start);
        let mut text = String::from_utf8(bytes[start..end].to_vec()).map_err(|_| damaged())?;
        text.truncate(fitting(&text, self.room));
        let next = from + (start + text.len()) as u64;
        Ok(ResultPiece {
            text,
            next: (next < opened.length).then_some(next),
        })
    }

    fn value(&self, json: &str, pointer: &[String], most: usize) -> Result<ResultPiece, NotRead> {
        let mut walked = 0;
        let mut value = Json::parse(json.as_bytes()).map_err(|_| damaged())?;
        for (depth, part) in pointer.iter().enumerate() {
            walked += value.span().len();
            if walked > most {
                let why =
                    "the value is too deep in what is so large: read it by lines or by pattern";
                return Err(NotRead::Missing(why.to_owned()));
            }
            let index = || {
                let is_index = part == "0"
                    || !part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit());
                part.parse().ok().filter(|_| is_index)
            };
            let inner = match value.is_object() {
                true => value.get(part),
                false => index().and_then(|index| value.elements().nth(index)),
            };
            value = inner.ok_or_else(|| {
                let place = pointer[..depth]
                    .iter()
                    .map(|part| format!("/{part}"))
                    .collect::<String>();
                NotRead::Missing(format!(
                    "there is no {:?} in the value at {:?}",
                    brief(part, 100),
                    brief(&place, 200)
                ))
            })?;
        }
        let (span, offset) = (
            value.span(),
            usize::try_from(self.offset).unwrap_or(usize::MAX),
        );
        if offset > span.end {
            return Err(NotRead::Missing(format!(
                "offset {offset} is beyond the value, which stands at bytes {} to {}",
                span.start, span.end
            )));
        }
        let start = floor(json, offset.max(span.start));
        let end = start
            .saturating_add(usize::try_from(self.most).unwrap_or(usize::MAX))
            .min(span.end);
        let first = json[start..span.end]
            .chars()
            .next()
            .map_or(0, char::len_utf8);
        let end = floor(json, end).max(start + first);
        let end = start + fitting(&json[start..end], self.room);
        Ok(ResultPiece {
            text: json[start..end].to_owned(),
            next: (end < span.end).then_some(end as u64),
        })
    }

    fn lines(&self, text: &str, count: u64) -> Result<ResultPiece, NotRead> {
        let (mut number, mut cost) = (0, 0);
        let mut piece = None::<Range<usize>>;
        for line in lines(text) {
            if number >= self.offset {
                // Parts of a long line follow each other without a line end.
                let Range { start, end } =
                    piece.clone().unwrap_or(line.span.start..line.span.start);
                cost += written(&text[end..line.span.end]);
                let room = cost <= self.room && (line.span.end - start) as u64 <= self.most;
                if number > self.offset && !room || number - self.offset >= count {
                    return Ok(ResultPiece {
                        text: text[start..end].to_owned(),
                        next: Some(number),
                    });
                }
                piece = Some(start..line.span.end);
            }
            number += 1;
        }
        self.ended(
            piece
                .map(|piece| text[piece].to_owned())
                .unwrap_or_default(),
            number,
        )
    }

    /// Nothing comes after these lines, of which there are so many.
    fn ended(&self, text: String, count: u64) -> Result<ResultPiece, NotRead> {
        match self.offset > count {
            true => Err(self.beyond(count, "lines")),
            false => Ok(ResultPiece { text, next: None }),
        }
    }

    fn matching(
        &self,
        text: &str,
        regex: &Regex,
        is_over: impl Fn() -> bool,
    ) -> Result<ResultPiece, NotRead> {
        let mut piece = String::new();
        let (mut number, mut cost) = (0, 0);
        for line in lines(text) {
            if number >= self.offset {
                if number > self.offset && is_over() {
                    return Ok(ResultPiece {
                        text: piece,
                        next: Some(number),
                    });
                }
                // A match may go on in the next part of a long line. Where one part is searched
                // after the other, all of them cost no more than twice the text.
                let end = floor(text, line.whole_ends.min(line.span.end + MAX_LINE));
                let found = regex.find(Input::new(text).range(line.span.start..end));
                let is_last = line.span.end == line.whole_ends;
                let is_here = |start| start < line.span.end || start == line.span.end && is_last;
                if found.is_some_and(|found| is_here(found.start())) {
                    let told = format!("{number}: {}\n", &text[line.span]);
                    cost += written(&told);
                    let room = cost <= self.room && (piece.len() + told.len()) as u64 <= self.most;
                    if !piece.is_empty() && !room {
                        return Ok(ResultPiece {
                            text: piece,
                            next: Some(number),
                        });
                    }
                    piece.push_str(&told);
                }
            }
            number += 1;
        }
        self.ended(piece, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn request(offset: u64, most: u64, what: PieceSelector) -> PieceRequest {
        PieceRequest {
            offset,
            most,
            room: u64::MAX,
            what,
        }
    }

    fn piece(text: &str, next: Option<u64>) -> ResultPiece {
        ResultPiece {
            text: text.to_owned(),
            next,
        }
    }

    #[test]
    fn a_value_is_found_by_its_pointer_wherever_it_stands() {
        let json = r#"{"a":{"b~/c":[10,{"é":"ü\n"}],"":1},"a":2}"#;
        let read = |pointer: &str, offset, most| {
            let PieceSelector::Value(parts) = PieceSelector::value(pointer).unwrap() else {
                panic!("it is a pointer");
            };
            let request = request(offset, most, PieceSelector::Json);
            request
                .value(json, &parts, 1000)
                .map_err(|error| error.to_string())
        };
        let is = |pointer: &str, text: &str| {
            assert_eq!(
                read(pointer, 0, 100).unwrap(),
                piece(text, None),
                "{pointer}"
            )
        };
        is("", json);
        is("/a/", "1");
        is("/a/b~0~1c/0", "10");
        is("/a/b~0~1c/1/é", r#""ü\n""#);
        let begins = json.find('[').unwrap() as u64;
        assert_eq!(
            read("/a/b~0~1c", 0, 4).unwrap(),
            piece("[10,", Some(begins + 4))
        );
        assert_eq!(
            read("/a/b~0~1c", begins + 4, 4).unwrap(),
            piece("{\"é", Some(begins + 8))
        );
        assert_eq!(
            read("/a/b~0~1c", begins + 7, 1).unwrap().text,
            "é",
            "from within a character"
        );
        for (pointer, why) in [
            ("/b", r#"there is no "b" in the value at """#),
            ("/a/b~0~1c/01", "there is no \"01\""),
            ("/a/b~0~1c/+1", "there is no"),
            ("/a/b~0~1c/2", "there is no"),
            ("/a/b~0~1c/-", "there is no"),
            ("/a//x", "there is no"),
        ] {
            let error = read(pointer, 0, 10).unwrap_err().to_string();
            assert!(error.contains(why), "{pointer}: {error}");
        }
        assert!(
            read("/a/", 40, 10)
                .unwrap_err()
                .to_string()
                .contains("beyond the value")
        );
        for wrong in ["a", "~", "/~", "/~2", "/a~"] {
            assert!(PieceSelector::value(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pointer_leads_through_so_many_bytes_and_no_more() {
        let json = format!("{}7{}", "[".repeat(100), "]".repeat(100));
        let PieceSelector::Value(parts) = PieceSelector::value(&"/0".repeat(100)).unwrap() else {
            panic!("it is a pointer");
        };
        let read = |most| request(0, 10, PieceSelector::Json).value(&json, &parts, most);
        // 201 + 199 + … + 3
        assert_eq!(read(100 * 102).unwrap(), piece("7", None));
        assert!(
            read(100 * 102 - 1)
                .unwrap_err()
                .to_string()
                .contains("too deep")
        );
    }

    #[test]
    fn lines_are_counted_from_the_offset_and_one_is_always_given() {
        let text = "zero\none\n\nthree\n";
        let read =
            |offset, most, count| request(offset, most, PieceSelector::Json).lines(text, count);
        assert_eq!(read(0, 100, 2).unwrap(), piece("zero\none", Some(2)));
        assert_eq!(read(2, 100, 9).unwrap(), piece("\nthree", None));
        assert_eq!(read(0, 1, 9).unwrap(), piece("zero", Some(1)));
        assert_eq!(read(0, 8, 9).unwrap(), piece("zero\none", Some(2)));
        assert_eq!(read(4, 8, 9).unwrap(), piece("", None));
        assert!(
            read(5, 8, 9)
                .unwrap_err()
                .to_string()
                .contains("there are 4 lines")
        );
    }

    fn grep(text: &str, pattern: &str, offset: u64, most: u64) -> ResultPiece {
        let PieceSelector::Matching(regex) = PieceSelector::matching(pattern).unwrap() else {
            panic!("it is a pattern");
        };
        request(offset, most, PieceSelector::Json)
            .matching(text, &regex, || false)
            .unwrap()
    }

    #[test]
    fn a_pattern_finds_lines_under_the_numbers_by_which_they_are_read() {
        let text = "alpha\nbeta\n\ngamma\nbeta max";
        assert_eq!(grep(text, "^beta$", 0, 100), piece("1: beta\n", None));
        assert_eq!(grep(text, "BETA|^$", 0, 100), piece("2: \n", None));
        assert_eq!(grep(text, "(?i)BETA", 0, 5), piece("1: beta\n", Some(4)));
        assert_eq!(grep(text, "(?i)BETA", 4, 5), piece("4: beta max\n", None));
        assert_eq!(grep(text, "nowhere", 0, 5), piece("", None));
        assert_eq!(
            grep(text, "x*", 0, 100).text.lines().count(),
            5,
            "an empty match is one"
        );
        assert_eq!(
            grep(text, r"a\nb", 0, 100),
            piece("", None),
            "a match does not go beyond its line"
        );
    }

    #[test]
    fn a_match_is_found_across_the_parts_of_a_long_line() {
        let long = format!("{}needle{}", "-".repeat(MAX_LINE - 3), "-".repeat(3000));
        let found = grep(&long, "needle", 0, 10_000);
        assert!(
            found.text.starts_with("0: ---") && found.text.lines().count() == 1,
            "{}",
            found.text
        );
        assert_eq!(
            grep(&long, "^-", 0, 10_000).text.lines().count(),
            1,
            "the line begins once"
        );
        assert_eq!(
            grep(&long, "-$", 0, 10_000).text.lines().count(),
            1,
            "and ends once"
        );
    }

    #[test]
    fn a_pattern_that_is_exponential_elsewhere_costs_what_the_text_costs() {
        let text = "a".repeat(200_000) + "!";
        for pattern in [
            "^(a+)+$",
            "(a|aa)+$",
            "(a*)*b",
            "^(([a-z])+.)+[A-Z]([a-z])+$",
            "(?:a?){60}a{60}b",
        ] {
            assert_eq!(grep(&text, pattern, 0, 1000), piece("", None), "{pattern}");
        }
        for too_large in [
            "((a{100}){100}){100}",
            r"\w{2000}",
            &"(".repeat(1001),
            "(",
            r"(a)\1",
            "(?=a)",
        ] {
            let error = PieceSelector::matching(too_large).unwrap_err().to_string();
            assert!(!error.contains('\n') && error.len() < 300, "{error}");
        }
    }

    #[test]
    fn a_search_that_takes_too_long_goes_on_where_it_ended() {
        let PieceSelector::Matching(regex) = PieceSelector::matching("x").unwrap() else {
            panic!("it is a pattern");
        };
        let text = "x\n".repeat(10);
        let (mut found, mut offset, mut pieces) = (String::new(), Some(0), 0);
        while let Some(at) = offset {
            let steps = Cell::new(0);
            let is_over = || steps.replace(steps.get() + 1) >= 2;
            let piece = request(at, 1000, PieceSelector::Json)
                .matching(&text, &regex, is_over)
                .unwrap();
            found.push_str(&piece.text);
            (offset, pieces) = (piece.next, pieces + 1);
        }
        assert_eq!((found.lines().count(), pieces), (10, 4));
    }
}
