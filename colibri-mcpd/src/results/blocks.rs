//! Blocks of a result that are no text: images, sound, files in their bytes.

use colibri_wire::Json;

/// The most bytes of such a block beside its data.
const AROUND: usize = 1024;

/// The data of a block in base64, with its quotes; `None`: it is text.
fn data<'a>(block: &Json<'a>) -> Option<Json<'a>> {
    let is_media = || {
        block
            .get("type")
            .is_some_and(|kind| kind.is_string("image") || kind.is_string("audio"))
    };
    let data = match block.get("data").filter(|_| is_media()) {
        Some(data) => Some(data),
        None => block.get("blob").or_else(|| block.get("resource")?.get("blob")),
    };
    data.filter(|data| data.text().starts_with('"'))
}

/// The blocks of the content of a tool call, of a resource, of the messages of a prompt.
pub(super) fn blocks<'a>(result: &Json<'a>) -> impl Iterator<Item = Json<'a>> + use<'a> {
    let items = ["content", "contents", "messages"].map(|key| result.get(key));
    let items = items.into_iter().flatten().collect::<Vec<_>>();
    items.into_iter().flat_map(|items| {
        items.elements().flat_map(|item| {
            // A prompt's message has one block in it, or several.
            let inner = item.get("content");
            let several = inner.iter().flat_map(Json::elements).collect::<Vec<_>>();
            [item].into_iter().chain(inner).chain(several)
        })
    })
}

/// True if the block is no text.
pub(super) fn is_media(block: &Json<'_>) -> bool {
    data(block).is_some()
}

/// Bytes of a result that are the data of such blocks.
pub fn media_bytes(result: &Json<'_>) -> usize {
    blocks(result)
        .filter_map(|block| data(&block))
        .map(|data| data.text().len())
        .sum()
}

/// The blocks of a tool's result that are no text, as they are written. What says much beside its data is text.
pub fn media<'a>(result: &Json<'a>) -> Vec<&'a str> {
    let content = result.get("content");
    let blocks = content.iter().flat_map(Json::elements);
    let is_media = |block: &Json<'_>| data(block).is_some_and(|data| block.text().len() - data.text().len() <= AROUND);
    blocks.filter(is_media).map(|block| block.text()).collect()
}

/// The block at a place in the content of a tool's result.
pub(super) fn at<'a>(result: &Json<'a>, place: usize) -> Option<Json<'a>> {
    result.get("content")?.elements().nth(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_blocks_that_are_no_text_is_counted_and_nothing_else() {
        let long = "x".repeat(AROUND);
        for (result, bytes, count) in [
            (
                r#"{"content":[{"type":"text","text":"abc"},{"type":"image","data":"AAAA"}]}"#.to_owned(),
                6,
                1,
            ),
            (
                r#"{"content":[{"type":"audio","data":"AA"},{"type":"resource","resource":{"blob":"BBB"}}]}"#
                    .to_owned(),
                9,
                2,
            ),
            (
                r#"{"content":[{"type":"resource","resource":{"text":"a"}},{"type":"note","data":"AA"}]}"#.to_owned(),
                0,
                0,
            ),
            (
                r#"{"content":[{"type":"image","data":["AA"]},{"type":"image","data":7}]}"#.to_owned(),
                0,
                0,
            ),
            (
                format!(r#"{{"content":[{{"type":"image","data":"AA","alt":"{long}"}}]}}"#),
                4,
                0,
            ),
            (
                r#"{"contents":[{"uri":"a","blob":"AA"},{"uri":"b","text":"t"}]}"#.to_owned(),
                4,
                0,
            ),
            (
                r#"{"messages":[{"content":{"type":"image","data":"AA"}},{"content":[{"type":"image","data":"A"}]}]}"#
                    .to_owned(),
                7,
                0,
            ),
            (r#"{"structuredContent":{"data":"AA"}}"#.to_owned(), 0, 0),
        ] {
            let result = Json::parse(result.as_bytes()).unwrap();
            assert_eq!(
                (media_bytes(&result), media(&result).len()),
                (bytes, count),
                "{}",
                result.text()
            );
        }
    }
}
