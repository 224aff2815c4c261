//! Numbers with nouns.

/// `1 server`, `2 servers`, `3 processes`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    let ending = match (number, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(counted(1, "server"), "1 server");
        assert_eq!(
            (counted(0, "call"), counted(2, "process")),
            ("0 calls".to_owned(), "2 processes".to_owned())
        );
    }
}
