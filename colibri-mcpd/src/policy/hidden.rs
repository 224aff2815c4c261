//! Characters that a person does not see and a model reads: the means of tool poisoning.

/// Whether a character is shown by nothing, or changes how others are shown: controls, bidirectional controls,
/// zero-width and other default-ignorable characters, tags, variation selectors, blanks that look like nothing,
/// noncharacters and private use.
///
/// Sources: Unicode 16, DerivedCoreProperties (Default_Ignorable_Code_Point), PropList (Bidi_Control), UTR 36.
pub fn is_hidden(c: char) -> bool {
    if matches!(c, '\n' | '\t' | '\r') {
        return false;
    }
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{10ffff}')
        || (c as u32) & 0xfffe == 0xfffe
}

/// The first hidden character of a text.
///
/// One variation selector directly behind an emoji or symbol is how such a character is usually written ("⚠️") and says
/// nothing else; it is passed over. Two in a row, or one behind a letter, is how text is smuggled.
pub fn first_hidden(text: &str) -> Option<char> {
    let mut before = '\0';
    for c in text.chars() {
        let presentation = matches!(c, '\u{fe0e}' | '\u{fe0f}') && is_symbol(before);
        if is_hidden(c) && !presentation {
            return Some(c);
        }
        before = c;
    }
    None
}

fn is_symbol(c: char) -> bool {
    matches!(c, '©' | '®' | '\u{203c}'..='\u{3299}' | '\u{1f000}'..='\u{1faff}') && !is_hidden(c)
}

/// A text on one line, with its hidden characters written as `\u{…}`.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => shown.extend(c.escape_default()),
            c if is_hidden(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn smuggled_characters_are_found_and_shown() {
        for c in [
            '\u{1b}',
            '\u{0}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{200b}',
            '\u{200d}',
            '\u{202e}',
            '\u{2066}',
            '\u{2028}',
            '\u{2064}',
            '\u{feff}',
            '\u{fe0f}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e007f}',
            '\u{e0100}',
            '\u{3164}',
            '\u{180e}',
            '\u{ffff}',
            '\u{f0000}',
        ] {
            let text = format!("read{c}file");
            assert_eq!(first_hidden(&text), Some(c), "{:x}", c as u32);
            assert_eq!(visible(&text), format!("read\\u{{{:x}}}file", c as u32));
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
            "a\nb\tc",
            "😀 → x",
            "שלום",
        ] {
            assert_eq!(first_hidden(text), None, "{text}");
        }
        assert_eq!(first_hidden("⚠\u{fe0f}\u{fe0f}"), Some('\u{fe0f}'));
        assert_eq!(visible("a\nb"), "a\\nb");
    }

    proptest! {
        #[test]
        fn what_is_shown_hides_nothing(text in any::<String>()) {
            prop_assert!(!visible(&text).chars().any(is_hidden));
        }
    }
}
