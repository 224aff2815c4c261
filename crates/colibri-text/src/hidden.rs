//! The one table of hidden characters.

/// True if a character is invisible, acts on a terminal, or changes the display of others: controls
/// (line feed and tab too), format controls, bidirectional controls, zero-width and other
/// default-ignorable characters, tags, variation selectors, invisible blanks, line separators,
/// noncharacters and private use.
///
/// Sources: Unicode 16, General_Category (Cc, Cf, Co, Zl, Zp), Default_Ignorable_Code_Point,
/// Bidi_Control, and the fillers that UTS 39 lists as invisible. The signs of category Cf with a
/// shape of their own (Prepended_Concatenation_Mark: U+0600, U+06DD …) are not hidden.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{10ffff}')
        || u32::from(c) & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    /// Unicode's own data, as the regex crate carries it.
    #[test]
    fn the_table_holds_what_unicode_says_is_hidden() {
        let hidden = Regex::new(
            r"^[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\p{Bidi_Control}]$",
        )
        .unwrap();
        let has_a_shape = "\u{600}\u{601}\u{602}\u{603}\u{604}\u{605}\u{6dd}\u{70f}\u{890}\u{891}\u{8e2}\u{110bd}\u{110cd}";
        let shown = Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}]$").unwrap();
        let blank = "\u{34f}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}\u{180c}\u{180d}\u{180f}\u{2800}\u{3164}\u{ffa0}\u{1d159}";
        let mut text = String::new();
        for c in '\0'..=char::MAX {
            text.clear();
            text.push(c);
            if hidden.is_match(&text) && !has_a_shape.contains(c) {
                assert!(is_hidden(c), "U+{:04X} is not in the table", u32::from(c));
            }
            let selector = matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}');
            if shown.is_match(&text) && !blank.contains(c) && !selector {
                assert!(
                    !is_hidden(c),
                    "U+{:04X} is shown, and in the table",
                    u32::from(c)
                );
            }
        }
    }
}
