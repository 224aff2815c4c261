//! TOML.

use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::{TextError, Value};

fn parse(text: &str) -> Result<DocumentMut, TextError> {
    text.parse::<DocumentMut>().map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        TextError {
            line: before.matches('\n').count() + 1,
            column: before
                .rsplit('\n')
                .next()
                .unwrap_or_default()
                .chars()
                .count()
                + 1,
            why: error.message().lines().collect::<Vec<_>>().join(", "),
        }
    })
}

/// The document, with the mark at its beginning and the line ends that it was read with: toml_edit
/// forgets the one, and knows one kind of the others alone.
fn written(document: &DocumentMut, before: &str) -> String {
    let mark = if before.starts_with('\u{feff}') {
        "\u{feff}"
    } else {
        ""
    };
    let text = format!("{mark}{document}");
    if before.contains("\r\n") && before.matches("\r\n").count() == before.matches('\n').count() {
        text.replace('\n', "\r\n")
    } else {
        text
    }
}

fn not_a_table(name: &str) -> TextError {
    TextError::of_the_whole(format!("\"{name}\" is no table"))
}

/// The table at the end of `keys`; `None`: one of them is missing.
fn table<'a>(
    document: &'a mut DocumentMut,
    keys: &[&str],
) -> Result<Option<&'a mut dyn TableLike>, TextError> {
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in keys {
        let Some(item) = table.get_mut(name) else {
            return Ok(None);
        };
        table = item.as_table_like_mut().ok_or_else(|| not_a_table(name))?;
    }
    Ok(Some(table))
}

pub(super) fn get(text: &str, keys: &[&str]) -> Result<Option<serde_json::Value>, TextError> {
    let mut document = parse(text)?;
    let Some((last, way)) = keys.split_last() else {
        return Ok(Some(plain_table(document.as_table())));
    };
    Ok(table(&mut document, way)?
        .and_then(|table| table.get(last))
        .map(plain))
}

pub(super) fn set(text: &str, keys: &[&str], value: &Value) -> Result<String, TextError> {
    let mut document = parse(text)?;
    let Some((last, way)) = keys.split_last() else {
        return Ok(text.to_owned());
    };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in way {
        let mut made = Table::new();
        made.set_implicit(true);
        let item = table.entry(name).or_insert(Item::Table(made));
        table = item.as_table_like_mut().ok_or_else(|| not_a_table(name))?;
    }
    match (table.get_mut(last), value) {
        (Some(old), Value::Object(members)) if old.is_table_like() => {
            if let Some(old) = old.as_table_like_mut() {
                old.clear();
                for (key, value) in members {
                    old.insert(key, Item::Value(inline(value)));
                }
            }
        }
        (Some(Item::Value(old)), value) => {
            let mut new = inline(value);
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        (_, value) => drop(table.insert(last, item(value))),
    }
    Ok(written(&document, text))
}

pub(super) fn remove(text: &str, keys: &[&str]) -> Result<String, TextError> {
    let mut document = parse(text)?;
    for end in (1..=keys.len()).rev() {
        let Some((last, way)) = keys.get(..end).and_then(<[_]>::split_last) else {
            break;
        };
        if let Some(table) = table(&mut document, way)?
            && (end == keys.len() || table.get(last).is_some_and(is_empty))
        {
            table.remove(last);
        }
    }
    Ok(written(&document, text))
}

/// True if it is a table that holds nothing, and has no comment.
fn is_empty(item: &Item) -> bool {
    let prefix = item
        .as_table()
        .and_then(|table| table.decor().prefix()?.as_str());
    let has_comment = prefix.is_some_and(|prefix| prefix.contains('#'));
    !has_comment && item.as_table_like().is_some_and(TableLike::is_empty)
}

/// A value as an item: an object as a table of its own, with its objects as inline tables.
fn item(value: &Value) -> Item {
    match value {
        Value::Object(members) => {
            let mut table = Table::new();
            for (key, value) in members {
                table.insert(key, Item::Value(inline(value)));
            }
            Item::Table(table)
        }
        other => Item::Value(inline(other)),
    }
}

fn inline(value: &Value) -> toml_edit::Value {
    match value {
        // TOML has no null: an empty text is what is left of it.
        Value::Null => "".into(),
        Value::Bool(value) => (*value).into(),
        Value::Number(digits) => match digits.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => digits.parse::<f64>().unwrap_or_default().into(),
        },
        Value::String(text) => text.into(),
        Value::Array(values) => values.iter().map(inline).collect::<Array>().into(),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key, inline(value)));
            members.collect::<InlineTable>().into()
        }
    }
}

fn plain_table(table: &dyn TableLike) -> serde_json::Value {
    table
        .iter()
        .map(|(key, item)| (key.to_owned(), plain(item)))
        .collect()
}

fn plain(item: &Item) -> serde_json::Value {
    if let Some(table) = item.as_table_like() {
        return plain_table(table);
    }
    if let Some(tables) = item.as_array_of_tables() {
        return tables.iter().map(|table| plain_table(table)).collect();
    }
    item.as_value().map_or(serde_json::Value::Null, plain_value)
}

fn plain_value(value: &toml_edit::Value) -> serde_json::Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(text) => text.value().as_str().into(),
        Toml::Integer(number) => (*number.value()).into(),
        Toml::Float(number) => (*number.value()).into(),
        Toml::Boolean(value) => (*value.value()).into(),
        Toml::Datetime(at) => at.value().to_string().into(),
        Toml::Array(values) => values.iter().map(plain_value).collect(),
        Toml::InlineTable(table) => plain_table(table),
    }
}
