//! One key of an object, looked up before the object is read.

use std::borrow::Cow;

use colibri_json::{JsonFault, JsonReader, ValueKind};

use super::refusal::{BodyRefusal, wrong};

/// The key that says what an object is.
pub(super) const TYPE: &str = "type";

/// The `type` of an object that begins here.
pub(super) fn type_of(mut reader: JsonReader<'_>) -> Result<Option<Cow<'_, str>>, BodyRefusal> {
    let mut first = true;
    reader.enter()?;
    while let Some((_, key)) = reader.key(first)? {
        first = false;
        reader.colon()?;
        match (key == TYPE, reader.kind()?) {
            (true, ValueKind::String) => return Ok(Some(reader.string()?)),
            (true, ValueKind::Null) => return Ok(None),
            (true, _) => return wrong("type: must be text"),
            (false, _) => skip(&mut reader)?,
        }
    }
    Ok(None)
}

/// Reads past a value.
pub(super) fn skip(reader: &mut JsonReader<'_>) -> Result<(), JsonFault> {
    match reader.kind()? {
        ValueKind::Null => reader.null(),
        ValueKind::Bool => reader.boolean().map(drop),
        ValueKind::Number => reader.number().map(drop),
        ValueKind::String => reader.pass_string(),
        ValueKind::Array => {
            let mut first = true;
            reader.enter()?;
            while reader.element(first)? {
                first = false;
                skip(reader)?;
            }
            Ok(())
        }
        ValueKind::Object => {
            let mut first = true;
            reader.enter()?;
            while reader.key(first)?.is_some() {
                first = false;
                reader.colon()?;
                skip(reader)?;
            }
            Ok(())
        }
    }
}
