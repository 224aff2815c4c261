//! Contexts in which a hidden character is ordinary writing: joiners that join, emoji sequences,
//! direction marks beside right-to-left text. Anywhere else the same characters hide something.

use crate::is_hidden;

/// The first character of a text that hides something: a character of [`is_hidden`] that is not
/// ordinary writing at its place.
///
/// Ordinary are line feed, tab and carriage return; joiners between letters that join (RFC 5892,
/// appendix A.1 and A.2; the Bengali and Kannada joiner behind RA, Unicode 12.2 and 12.8); an
/// emoji's presentation, keycap and joined sequences and the three flags of RGI tag sequences (UTS
/// 51); left-to-right and right-to-left marks (UAX 9) at an end of a word of right-to-left text,
/// where alone they have an effect; the grapheme joiner between Hebrew points (Unicode 9.1). Two
/// such characters in a row are ordinary only if an emoji's presentation selector is followed by
/// its joiner.
#[must_use]
pub fn first_hidden(text: &str) -> Option<char> {
    hidden_in(text).next().map(|(_, c)| c)
}

/// The characters of a text that hide something, with their byte positions.
pub(crate) fn hidden_in(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut tags_end = 0;
    text.char_indices().filter(move |&(at, c)| {
        if !is_hidden(c) || matches!(c, '\n' | '\t' | '\r') || at < tags_end {
            return false;
        }
        let (before, after) = (&text[..at], &text[at + c.len_utf8()..]);
        if before.ends_with(BLACK_FLAG)
            && let Some(tags) = FLAGS.iter().find(|tags| text[at..].starts_with(**tags))
        {
            tags_end = at + tags.len();
            return false;
        }
        !is_ordinary(before, c, after)
    })
}

/// The greatest distance between a direction mark and right-to-left text, in characters.
const REACH: usize = 64;

const BLACK_FLAG: char = '\u{1f3f4}';

/// The tags after the black flag in the flags of England, Scotland and Wales.
const FLAGS: [&str; 3] = [
    "\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
    "\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
    "\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}",
];

fn is_ordinary(before: &str, c: char, after: &str) -> bool {
    let last = before.chars().next_back().unwrap_or('\0');
    let next = after.chars().next();
    match c {
        '\u{fe0e}' => is_symbol(last),
        '\u{fe0f}' => is_symbol(last) || is_keycap(last) && next == Some('\u{20e3}'),
        '\u{200c}' => is_virama(last) || joins_forward(before) && joins_backward(after),
        '\u{200d}' => {
            is_virama(last)
                || joins_emoji(before, next)
                || matches!(
                    (last, next),
                    ('\u{9b0}', Some('\u{9cd}')) | ('\u{cb0}', Some('\u{ccd}'))
                )
        }
        '\u{34f}' => is_hebrew_mark(last) && next.is_some_and(is_hebrew_mark),
        '\u{61c}' | '\u{200e}' | '\u{200f}' => acts_on_direction(before, after),
        _ => false,
    }
}

fn is_keycap(c: char) -> bool {
    matches!(c, '0'..='9' | '#' | '*')
}

/// True for characters that are shown as text or as emoji: pictographs, arrows, technical and
/// geometric signs.
fn is_symbol(c: char) -> bool {
    is_pictograph(c) || matches!(c, '\u{2190}'..='\u{27ff}' | '\u{2900}'..='\u{2bff}')
}

/// Extended_Pictographic of Unicode 16.
fn is_pictograph(c: char) -> bool {
    matches!(c,
        '©' | '®' | '‼' | '⁉' | '™' | 'ℹ' | '↔'..='↙' | '↩'..='↪' | '⌚'..='⌛' | '⌨' | '⎈' | '⏏' | '⏩'..='⏳'
        | '⏸'..='⏺' | 'Ⓜ' | '▪'..='▫' | '▶' | '◀' | '◻'..='◾' | '\u{2600}'..='\u{2605}' | '\u{2607}'..='\u{2612}'
        | '\u{2614}'..='\u{2685}' | '\u{2690}'..='\u{2705}' | '\u{2708}'..='\u{2712}' | '✔' | '✖' | '✝' | '✡' | '✨'
        | '✳'..='✴' | '❄' | '❇' | '❌' | '❎' | '❓'..='❕' | '❗' | '\u{2763}'..='\u{2767}' | '➕'..='➗' | '➡' | '➰'
        | '➿' | '⤴'..='⤵' | '⬅'..='⬇' | '⬛'..='⬜' | '⭐' | '⭕' | '〰' | '〽' | '㊗' | '㊙'
        | '\u{1f000}'..='\u{1f0ff}' | '\u{1f10d}'..='\u{1f10f}' | '\u{1f12f}' | '\u{1f16c}'..='\u{1f171}'
        | '\u{1f17e}'..='\u{1f17f}' | '\u{1f18e}' | '\u{1f191}'..='\u{1f19a}' | '\u{1f1ad}'..='\u{1f1e5}'
        | '\u{1f201}'..='\u{1f20f}' | '\u{1f21a}' | '\u{1f22f}' | '\u{1f232}'..='\u{1f23a}' | '\u{1f23c}'..='\u{1f23f}'
        | '\u{1f249}'..='\u{1f3fa}' | '\u{1f400}'..='\u{1f53d}' | '\u{1f546}'..='\u{1f64f}' | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f774}'..='\u{1f77f}' | '\u{1f7d5}'..='\u{1f7ff}' | '\u{1f80c}'..='\u{1f80f}' | '\u{1f848}'..='\u{1f84f}'
        | '\u{1f85a}'..='\u{1f85f}' | '\u{1f888}'..='\u{1f88f}' | '\u{1f8ae}'..='\u{1f8ff}' | '\u{1f90c}'..='\u{1f93a}'
        | '\u{1f93c}'..='\u{1f945}' | '\u{1f947}'..='\u{1faff}' | '\u{1fc00}'..='\u{1fffd}')
}

/// True between two pictographs, the first with its presentation selector or skin tone (UAX 29,
/// GB11).
fn joins_emoji(before: &str, next: Option<char>) -> bool {
    let mut back = before.chars().rev();
    let mut last = back.next();
    if matches!(last, Some('\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}')) {
        last = back.next();
    }
    last.is_some_and(is_pictograph) && next.is_some_and(is_pictograph)
}

/// True if the last letter, ignoring its marks, joins to the next one (Joining_Type D or L).
fn joins_forward(before: &str) -> bool {
    let last = before.chars().rev().find(|c| !is_joining_mark(*c));
    last.is_some_and(is_dual_joining)
}

/// True if the first letter, ignoring marks, joins to the one before it (Joining_Type D or R).
fn joins_backward(after: &str) -> bool {
    let next = after.chars().find(|c| !is_joining_mark(*c));
    next.is_some_and(|c| is_dual_joining(c) || is_right_joining(c))
}

/// True if a direction mark can have an effect: at an end of a word, alone, and with right-to-left
/// text near it on its line.
fn acts_on_direction(before: &str, after: &str) -> bool {
    let back = || before.chars().rev();
    let neighbours = [back().next(), after.chars().next()];
    let is_letter = |c: char| c.is_alphabetic() || is_right_to_left(c);
    let is_alone = !neighbours.into_iter().flatten().any(is_mark);
    let is_inside_a_word = neighbours.into_iter().all(|c| c.is_some_and(is_letter));
    is_alone
        && !is_inside_a_word
        && (finds_right_to_left(back()) || finds_right_to_left(after.chars()))
}

fn finds_right_to_left(chars: impl Iterator<Item = char>) -> bool {
    let is_direction_mark = |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}');
    chars
        .take(REACH)
        .find(|c| is_right_to_left(*c) || is_hidden(*c) && !is_direction_mark(*c))
        .is_some_and(is_right_to_left)
}

/// True for a hidden character, except line feed and tab.
fn is_mark(c: char) -> bool {
    is_hidden(c) && !matches!(c, '\n' | '\t' | '\r')
}

/// The blocks of right-to-left letters and their marks, without digits.
fn is_right_to_left(c: char) -> bool {
    matches!(c,
        '\u{590}'..='\u{65f}' | '\u{66d}'..='\u{6ef}' | '\u{6fa}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdcf}'
        | '\u{fdf0}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
        && !is_hidden(c)
}

fn is_hebrew_mark(c: char) -> bool {
    matches!(c, '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}'..='\u{5c2}' | '\u{5c4}'..='\u{5c5}' | '\u{5c7}')
}

/// True for Canonical_Combining_Class 9: a sign that removes the vowel of the letter before it.
fn is_virama(c: char) -> bool {
    matches!(c, '\u{94d}' | '\u{9cd}' | '\u{a4d}' | '\u{acd}' | '\u{b4d}' | '\u{bcd}' | '\u{c4d}' | '\u{ccd}' | '\u{d3b}'..='\u{d3c}' | '\u{d4d}' | '\u{dca}' | '\u{e3a}' | '\u{eba}' | '\u{f84}' | '\u{1039}'..='\u{103a}' | '\u{1714}'..='\u{1715}' | '\u{1734}' | '\u{17d2}' | '\u{1a60}' | '\u{1b44}' | '\u{1baa}'..='\u{1bab}' | '\u{1bf2}'..='\u{1bf3}' | '\u{2d7f}' | '\u{a806}' | '\u{a82c}' | '\u{a8c4}' | '\u{a953}' | '\u{a9c0}' | '\u{aaf6}' | '\u{abed}' | '\u{10a3f}' | '\u{11046}' | '\u{11070}' | '\u{1107f}' | '\u{110b9}' | '\u{11133}'..='\u{11134}' | '\u{111c0}' | '\u{11235}' | '\u{112ea}' | '\u{1134d}' | '\u{11442}' | '\u{114c2}' | '\u{115bf}' | '\u{1163f}' | '\u{116b6}' | '\u{1172b}' | '\u{11839}' | '\u{1193d}'..='\u{1193e}' | '\u{119e0}' | '\u{11a34}' | '\u{11a47}' | '\u{11a99}' | '\u{11c3f}' | '\u{11d44}'..='\u{11d45}' | '\u{11d97}')
}

/// Joining_Type D of Arabic, Syriac, N'Ko, Mandaic, Rohingya and Adlam.
fn is_dual_joining(c: char) -> bool {
    matches!(c, '\u{620}' | '\u{626}' | '\u{628}' | '\u{62a}'..='\u{62e}' | '\u{633}'..='\u{63f}' | '\u{641}'..='\u{647}' | '\u{649}'..='\u{64a}' | '\u{66e}'..='\u{66f}' | '\u{678}'..='\u{687}' | '\u{69a}'..='\u{6bf}' | '\u{6c1}'..='\u{6c2}' | '\u{6cc}' | '\u{6ce}' | '\u{6d0}'..='\u{6d1}' | '\u{6fa}'..='\u{6fc}' | '\u{6ff}' | '\u{712}'..='\u{714}' | '\u{71a}'..='\u{71d}' | '\u{71f}'..='\u{727}' | '\u{729}' | '\u{72b}' | '\u{72d}'..='\u{72e}' | '\u{74e}'..='\u{758}' | '\u{75c}'..='\u{76a}' | '\u{76d}'..='\u{770}' | '\u{772}' | '\u{775}'..='\u{777}' | '\u{77a}'..='\u{77f}' | '\u{7ca}'..='\u{7ea}' | '\u{841}'..='\u{845}' | '\u{848}' | '\u{84a}'..='\u{853}' | '\u{855}' | '\u{860}' | '\u{862}'..='\u{865}' | '\u{868}' | '\u{886}' | '\u{889}'..='\u{88d}' | '\u{8a0}'..='\u{8a9}' | '\u{8af}'..='\u{8b0}' | '\u{8b3}'..='\u{8b8}' | '\u{8ba}'..='\u{8c8}' | '\u{10d01}'..='\u{10d21}' | '\u{10d23}' | '\u{1e900}'..='\u{1e943}')
}

/// Joining_Type R of the same scripts.
fn is_right_joining(c: char) -> bool {
    matches!(c, '\u{622}'..='\u{625}' | '\u{627}' | '\u{629}' | '\u{62f}'..='\u{632}' | '\u{648}' | '\u{671}'..='\u{673}' | '\u{675}'..='\u{677}' | '\u{688}'..='\u{699}' | '\u{6c0}' | '\u{6c3}'..='\u{6cb}' | '\u{6cd}' | '\u{6cf}' | '\u{6d2}'..='\u{6d3}' | '\u{6d5}' | '\u{6ee}'..='\u{6ef}' | '\u{710}' | '\u{715}'..='\u{719}' | '\u{71e}' | '\u{728}' | '\u{72a}' | '\u{72c}' | '\u{72f}' | '\u{74d}' | '\u{759}'..='\u{75b}' | '\u{76b}'..='\u{76c}' | '\u{771}' | '\u{773}'..='\u{774}' | '\u{778}'..='\u{779}' | '\u{840}' | '\u{846}'..='\u{847}' | '\u{849}' | '\u{854}' | '\u{856}'..='\u{858}' | '\u{867}' | '\u{869}'..='\u{86a}' | '\u{870}'..='\u{882}' | '\u{88e}' | '\u{8aa}'..='\u{8ac}' | '\u{8ae}' | '\u{8b1}'..='\u{8b2}' | '\u{8b9}' | '\u{10d22}')
}

/// Joining_Type T of the same scripts, if visible: vowels and other marks.
fn is_joining_mark(c: char) -> bool {
    matches!(c, '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6dc}' | '\u{6df}'..='\u{6e4}' | '\u{6e7}'..='\u{6e8}' | '\u{6ea}'..='\u{6ed}' | '\u{711}' | '\u{730}'..='\u{74a}' | '\u{7a6}'..='\u{7b0}' | '\u{7eb}'..='\u{7f3}' | '\u{7fd}' | '\u{816}'..='\u{819}' | '\u{81b}'..='\u{823}' | '\u{825}'..='\u{827}' | '\u{829}'..='\u{82d}' | '\u{859}'..='\u{85b}' | '\u{898}'..='\u{89f}' | '\u{8ca}'..='\u{8e1}' | '\u{8e3}'..='\u{8ff}' | '\u{1e944}'..='\u{1e94b}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

    #[test]
    fn smuggled_characters_are_found() {
        for c in "\u{1b}\u{0}\u{7f}\u{9b}\u{ad}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{202e}\u{2066}\u{2028}\u{2064}\u{feff}\u{fe0f}\u{e0001}\u{e0041}\u{e007f}\u{e0100}\u{3164}\u{180e}\u{ffff}\u{f0000}\u{34f}\u{61c}"
            .chars()
        {
            for text in [format!("read{c}file"), format!("{c}"), format!("{c}x"), format!("read. {c} file")] {
                assert_eq!(first_hidden(&text), Some(c), "{text:?}");
            }
        }
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in [
            "plain",
            "über straße",
            "日本語 の 説明",
            "⚠️ careful",
            "©️ x",
            "a\nb\r\tc",
            "😀 → x",
            "☀︎ x",
            // Keycaps, joined emoji with skin tone and presentation, flags.
            "step 1️⃣, #️⃣ and *️⃣",
            "👩‍🚀 👩🏽‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 👩‍❤️‍👨 🏴󠁧󠁢󠁳󠁣󠁴󠁿 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
            // Persian, Urdu and Sorani with non-joiners.
            "فایل‌ها را می‌خواند",
            "کتابِ‌های خانه‌ای",
            // Hindi, Marathi, Bengali, Sinhala, Kannada, Malayalam.
            "क्‍ष और क्‌ष",
            "র‍্যাম",
            "ශ්‍රී ලංකා",
            "ರ‍್ಕ",
            "അവന്‍",
            // Hebrew with points, and direction marks where they act.
            "שלום",
            "קוֹרֵא קֹבֶץ",
            "ירושל\u{5b7}\u{34f}\u{5b4}ם",
            "קורא קבצים!\u{200f}",
            "‏שלום, C++\u{200e} ו-C#\u{200e}",
            "מספר \u{200e}-5",
            "قيمة (C++\u{200e}) هنا",
            "المجموع\u{61c} 5%",
        ] {
            assert_eq!(first_hidden(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_same_characters_elsewhere_are_found() {
        for (text, c) in [
            ("⚠\u{fe0f}\u{fe0f}", '\u{fe0f}'),
            ("1\u{fe0f}", '\u{fe0f}'),
            ("1\u{fe0f}2", '\u{fe0f}'),
            ("あ\u{fe0f}", '\u{fe0f}'),
            ("👩\u{200d}\u{200d}🚀", '\u{200d}'),
            ("👩\u{200d} 🚀", '\u{200d}'),
            ("👩\u{200d}", '\u{200d}'),
            ("a\u{200d}🚀", '\u{200d}'),
            ("🇩\u{200d}🇪", '\u{200d}'),
            ("🏴\u{e0067}\u{e0062}\u{e007f}", '\u{e0067}'),
            (
                "👩\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
                '\u{e0067}',
            ),
            ("葛\u{e0100}", '\u{e0100}'),
            // After a letter that does not join forward, before no letter, twice.
            ("کار\u{200c}ها", '\u{200c}'),
            ("می\u{200c} خواند", '\u{200c}'),
            ("می\u{200c}\u{200c}خواند", '\u{200c}'),
            ("می\u{200d}خواند", '\u{200d}'),
            ("क\u{200d}ष", '\u{200d}'),
            ("क्\u{200d}\u{200d}ष", '\u{200d}'),
            ("क्\u{200c}\u{200d}ष", '\u{200d}'),
            // Inside a word, twice, beside no right-to-left text, on another line.
            ("של\u{200f}ום", '\u{200f}'),
            ("שלום!\u{200f}\u{200f}", '\u{200f}'),
            ("hello!\u{200f}", '\u{200f}'),
            ("שלום\n!\u{200f}", '\u{200f}'),
            ("שלום \u{2060}abc\u{200f}.", '\u{2060}'),
            (
                "hello \u{200f}world, and more and more and more of it and more than that, far beyond the reach. שלום",
                '\u{200f}',
            ),
            ("של\u{34f}ום", '\u{34f}'),
            // Controls that turn the direction of whole runs are never ordinary.
            ("שלום \u{202e}abc\u{202c}", '\u{202e}'),
            ("שלום \u{2067}abc\u{2069}", '\u{2067}'),
        ] {
            assert_eq!(first_hidden(text), Some(c), "{text:?}");
        }
    }

    #[test]
    fn pictographs_are_those_of_unicode() {
        let emoji =
            Regex::new(r"^[\p{Emoji}--[\p{ASCII}\p{Emoji_Modifier}\p{Regional_Indicator}]]$")
                .unwrap();
        let letter = Regex::new(r"^[\p{L}\p{M}\p{Nd}\p{Default_Ignorable_Code_Point}]$").unwrap();
        let mut text = String::new();
        for c in '\0'..=char::MAX {
            text.clear();
            text.push(c);
            if emoji.is_match(&text) {
                assert!(is_pictograph(c), "U+{:04X}", u32::from(c));
            }
            if is_pictograph(c) && c != 'ℹ' {
                assert!(!letter.is_match(&text), "U+{:04X}", u32::from(c));
            }
        }
    }

    proptest! {
        #[test]
        fn letters_of_one_alphabet_hide_nothing_and_show_what_is_smuggled(
            words in "[a-z ]{1,20}", at in 0_usize..20, c in any::<char>().prop_filter("hidden", |c| is_hidden(*c)),
        ) {
            let at = at.min(words.len());
            let text = format!("{}{c}{}", &words[..at], &words[at..]);
            let wanted = (!matches!(c, '\n' | '\t' | '\r')).then_some(c);
            prop_assert_eq!(first_hidden(&words), None);
            prop_assert_eq!(first_hidden(&text), wanted);
        }

        #[test]
        fn two_of_them_in_a_row_never_pass(
            before in "[अ-ह्शא-ת؀-ۿ🚀❤1 ]{0,3}", after in "[अ-ह्א-ת؀-ۿ🚀❤ ]{0,3}",
            pair in "[\u{200c}-\u{200f}\u{61c}\u{34f}]{2}",
        ) {
            let text = format!("{before}{pair}{after}");
            prop_assert!(first_hidden(&text).is_some());
        }
    }
}
