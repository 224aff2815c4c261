//! JSON with comments and trailing commas.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstNode, CstObject, CstObjectProp, CstRootNode};

use super::{TextError, Value};

/// The syntax that editors read: JSON, comments, trailing commas, and no more.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

fn parse(text: &str) -> Result<CstRootNode, TextError> {
    CstRootNode::parse(text, &OPTIONS).map_err(|error| TextError {
        line: error.line_display(),
        column: error.column_display(),
        why: error.kind().to_string(),
    })
}

/// The member of this name. A name that is there twice means one thing to one reader and another to
/// the next.
fn member(object: &CstObject, name: &str) -> Result<Option<CstObjectProp>, TextError> {
    let mut found = object
        .properties()
        .into_iter()
        .filter(|member| member.decoded_name().as_deref() == Some(name));
    let first = found.next();
    if found.next().is_some() {
        return Err(TextError::of_the_whole(format!(
            "\"{name}\" is there twice: leave one of the two out"
        )));
    }
    Ok(first)
}

fn not_an_object(name: &str) -> TextError {
    TextError::of_the_whole(format!("\"{name}\" is no object"))
}

/// The objects on the way to the last key, outermost first, and the member there; `None`: one of
/// them is missing.
fn find(root: &CstRootNode, keys: &[&str]) -> Result<Option<Vec<CstObjectProp>>, TextError> {
    let mut object = match root.value() {
        None => return Ok(None),
        Some(value) => value
            .as_object()
            .ok_or_else(|| TextError::of_the_whole("the file holds no object"))?,
    };
    let mut way = Vec::new();
    for (at, name) in keys.iter().enumerate() {
        let Some(found) = member(&object, name)? else {
            return Ok(None);
        };
        if at + 1 < keys.len() {
            object = found.object_value().ok_or_else(|| not_an_object(name))?;
        }
        way.push(found);
    }
    Ok(Some(way))
}

pub(super) fn get(text: &str, keys: &[&str]) -> Result<Option<serde_json::Value>, TextError> {
    let root = parse(text)?;
    if keys.is_empty() {
        return Ok(root.to_serde_value());
    }
    Ok(find(&root, keys)?.and_then(|way| way.last().and_then(CstObjectProp::to_serde_value)))
}

pub(super) fn set(text: &str, keys: &[&str], value: &Value) -> Result<String, TextError> {
    let root = parse(text)?;
    let whole = "the file holds no object";
    let mut object = root
        .object_value_or_create()
        .ok_or_else(|| TextError::of_the_whole(whole))?;
    for (at, name) in keys.iter().enumerate() {
        let found = member(&object, name)?;
        if at + 1 == keys.len() {
            match found {
                Some(found) => found.set_value(value.clone()),
                None => drop(object.append(name, value.clone())),
            }
            break;
        }
        let found = found.unwrap_or_else(|| object.append(name, Value::Object(Vec::new())));
        object = found.object_value().ok_or_else(|| not_an_object(name))?;
    }
    Ok(root.to_string())
}

pub(super) fn remove(text: &str, keys: &[&str]) -> Result<String, TextError> {
    let root = parse(text)?;
    let way = find(&root, keys)?.unwrap_or_default();
    for (at, found) in way.into_iter().enumerate().rev() {
        if at + 1 == keys.len() || found.object_value().is_some_and(|object| is_empty(&object)) {
            found.remove();
        }
    }
    Ok(root.to_string())
}

/// True if it holds nothing, not even a comment.
fn is_empty(object: &CstObject) -> bool {
    object.children_exclude_trivia_and_tokens().is_empty()
        && !object.children().iter().any(CstNode::is_comment)
}
