//! One key of an object, looked up before the object is read.

use std::borrow::Cow;

use colibri_json::{Fault, Kind, Reader};

use super::refusal::{BodyRefusal, wrong};

/// The key that says what an object is.
pub(super) const TYPE: &str = "type";

/// The `type` of an object that begins here.
pub(super) fn type_of(mut reader: Reader<'_>) -> Result<Option<Cow<'_, str>>, BodyRefusal> {
    let mut first = true;
    reader.enter()?;
    while let Some((_, key)) = reader.key(first)? {
        first = false;
        reader.colon()?;
        match (key == TYPE, reader.kind()?) {
            (true, Kind::String) => return Ok(Some(reader.string()?)),
            (true, Kind::Null) => return Ok(None),
            (true, _) => return wrong("type: must be text"),
            (false, _) => skip(&mut reader)?,
        }
    }
    Ok(None)
}

/// Reads past a value.
pub(super) fn skip(reader: &mut Reader<'_>) -> Result<(), Fault> {
    match reader.kind()? {
        Kind::Null => reader.null(),
        Kind::Bool => reader.boolean().map(drop),
        Kind::Number => reader.number().map(drop),
        Kind::String => reader.pass_string(),
        Kind::Array => {
            let mut first = true;
            reader.enter()?;
            while reader.element(first)? {
                first = false;
                skip(reader)?;
            }
            Ok(())
        }
        Kind::Object => {
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
