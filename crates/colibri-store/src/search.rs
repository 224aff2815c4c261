//! The full-text index of tools: SQLite's FTS5, in memory. All that is in it can be had from the
//! servers' definitions again, so that nothing of it is on the disk, and no search waits for one.

use rusqlite::{Connection, params};

use super::error::StoreError;

/// The fields of a tool, in the order of `WEIGHTS`.
pub const FIELDS: usize = 6;

/// The weights of a word by field: server, name, title, description, names of parameters, summary.
const WEIGHTS: &str = "8.0, 20.0, 8.0, 1.0, 0.5, 5.0";

/// The index. Only its owner speaks to it.
#[derive(Debug)]
pub struct ToolIndex {
    connection: Connection,
}

impl ToolIndex {
    /// An empty one.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn new() -> Result<ToolIndex, StoreError> {
        let connection = Connection::open_in_memory().map_err(failed)?;
        let make = "CREATE VIRTUAL TABLE tools USING fts5(server, name, title, description, parameters, summary,
            content='', contentless_delete=1, detail=full, tokenize='porter unicode61 remove_diacritics 2');";
        connection.execute_batch(make).map_err(failed)?;
        Ok(ToolIndex { connection })
    }

    /// Takes tools out, and others in under numbers that were never used: all of it, or nothing.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn change(
        &mut self,
        gone: &[i64],
        come: &[(i64, [String; FIELDS])],
    ) -> Result<(), StoreError> {
        let changed = (|| {
            let transaction = self.connection.transaction()?;
            {
                let mut delete =
                    transaction.prepare_cached("DELETE FROM tools WHERE rowid = ?1")?;
                for number in gone {
                    delete.execute([number])?;
                }
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO tools (server, name, title, description, parameters, summary, rowid)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?;
                for (number, [server, name, title, description, parameters, summary]) in come {
                    insert.execute(params![
                        server,
                        name,
                        title,
                        description,
                        parameters,
                        summary,
                        number
                    ])?;
                }
            }
            transaction.commit()
        })();
        changed.map_err(failed)
    }

    /// The tools that have a word, and what each is worth by BM25: the more the better. A word that
    /// ends with `*` stands for all that begin so. It is quoted: no word means anything to the
    /// query language.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn matching(&self, word: &str) -> Result<Vec<(i64, f64)>, StoreError> {
        let (word, star) = word
            .strip_suffix('*')
            .map_or((word, ""), |stem| (stem, "*"));
        let query = format!("\"{}\"{star}", word.replace(['"', '\0'], " "));
        let sql = format!("SELECT rowid, -bm25(tools, {WEIGHTS}) FROM tools WHERE tools MATCH ?1");
        let found: rusqlite::Result<Vec<(i64, f64)>> = (|| {
            let mut select = self.connection.prepare_cached(&sql)?;
            let rows = select.query_map([query], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })();
        found.map_err(failed)
    }
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Sqlite {
        path: "the index of tools".into(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: &str, description: &str) -> [String; FIELDS] {
        ["git", name, "", description, "", ""].map(str::to_owned)
    }

    fn found(index: &ToolIndex, word: &str) -> Vec<i64> {
        let mut found = index.matching(word).unwrap();
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn words_are_found_by_their_stems_and_a_name_is_worth_more_than_a_description() {
        let mut index = ToolIndex::new().unwrap();
        let tools = [
            (1, fields("read file", "Reads the files of a repository")),
            (
                2,
                fields(
                    "list branches",
                    "Lists every branch, with the last file that changed",
                ),
            ),
            (3, fields("push", "Pushes")),
        ];
        index.change(&[], &tools).unwrap();
        assert_eq!(found(&index, "reading"), [1]);
        assert_eq!(found(&index, "file"), [1, 2]);
        assert_eq!(found(&index, "repo*"), [1]);
        assert_eq!(found(&index, "nothing"), [0; 0]);
        assert_eq!(found(&index, ""), [0; 0]);
        index.change(&[1], &[(4, fields("file", ""))]).unwrap();
        assert_eq!(found(&index, "file"), [4, 2]);
        assert_eq!(found(&index, "read"), [0; 0]);
    }

    #[test]
    fn no_word_is_an_operator() {
        let mut index = ToolIndex::new().unwrap();
        index
            .change(&[], &[(1, fields("near", "and or not near"))])
            .unwrap();
        for word in [
            "\"",
            "\"\"",
            "*",
            "**",
            "(",
            ")",
            "^near",
            "name:near",
            "{name}:near",
            "-near",
            "+",
            "NEAR(a b)",
            "a AND b",
            "\0",
            "near\0",
            "'; DROP TABLE tools; --",
            "\" OR \"",
            "\u{24b6}",
            "é\u{301}",
            "日本",
            "\u{10ffff}",
        ] {
            let _ = found(&index, word);
        }
        for word in ["AND", "OR", "NOT", "NEAR"] {
            assert_eq!(found(&index, word), [1], "{word}");
        }
        assert_eq!(found(&index, "near"), [1], "the table is still there");
    }
}
