//! Blocks of a result that are no text: images, sound, files in their bytes.

use std::ops::Range;

use colibri_wire::Json;
use colibri_wire::json::JsonKind;
use memchr::memmem;

/// The most bytes for which the data of one block counts against a budget. The cost of an image
/// does not grow with its bytes: providers scale it down until it has some 1,600 tokens at most
/// (Anthropic, "Vision": width × height / 750 of at most 1,568 pixels a side; OpenAI, "Images and
/// vision": at most 1,536 patches), of four bytes each.
pub(crate) const MOST_COUNTED: usize = 8 << 10;
/// The most bytes of such a block beside its data.
const AROUND: usize = 1024;

/// Bytes of a result that are the data of such blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediaBytes {
    /// All of them.
    pub all: usize,
    /// Those that do not count against a budget: of each block what is beyond `MOST_COUNTED`.
    pub uncounted: usize,
}

impl MediaBytes {
    /// Measures a result that was parsed before. One without such data is not walked.
    pub fn of(result: &[u8]) -> MediaBytes {
        let has = |key: &str| memmem::find(result, key.as_bytes()).is_some();
        if !has("\"data\"") && !has("\"blob\"") {
            return MediaBytes::default();
        }
        let result = Json::part(result, 0..result.len());
        let lengths = result
            .iter()
            .flat_map(blocks)
            .filter_map(|block| data(&block));
        lengths.fold(MediaBytes::default(), |sum, data| MediaBytes {
            all: sum.all + data.text().len(),
            uncounted: sum.uncounted + data.text().len().saturating_sub(MOST_COUNTED),
        })
    }
}

/// The data of a block in base64, with its quotes; `None`: it is text.
fn data<'a>(block: &Json<'a>) -> Option<Json<'a>> {
    let is_media = || {
        block
            .get("type")
            .is_some_and(|kind| kind.is_string("image") || kind.is_string("audio"))
    };
    let data = match block.get("data").filter(|_| is_media()) {
        Some(data) => Some(data),
        None => block
            .get("blob")
            .or_else(|| block.get("resource")?.get("blob")),
    };
    data.filter(|data| data.text().starts_with('"'))
}

/// The blocks of the content of a tool call, of a resource, of the messages of a prompt.
pub(super) fn blocks<'a>(result: &Json<'a>) -> impl Iterator<Item = Json<'a>> + use<'a> {
    let [content, contents, messages] = result
        .pick::<3>(&["content", "contents", "messages"])
        .values;
    let items = [content, contents]
        .into_iter()
        .flatten()
        .flat_map(|items| items.elements());
    let messages = messages
        .into_iter()
        .flat_map(|messages| messages.elements());
    items.chain(messages.flat_map(|message| {
        // A prompt's message has one block in it, or several.
        let inner = message.get("content");
        let one = inner.filter(|inner| inner.kind() != JsonKind::Array);
        let several = inner.into_iter().flat_map(|inner| inner.elements());
        one.into_iter().chain(several)
    }))
}

/// The bytes for which a block counts against a budget.
fn counted(block: &Json<'_>) -> u64 {
    let uncounted = data(block).map_or(0, |data| data.text().len().saturating_sub(MOST_COUNTED));
    (block.text().len() - uncounted) as u64
}

/// True if the block is no text.
pub(super) fn is_media(block: &Json<'_>) -> bool {
    data(block).is_some()
}

/// A block of a tool's result that is no text.
#[derive(Debug, Clone, Copy)]
pub struct Media<'a> {
    /// Its place among the blocks of the result, from 0.
    pub place: usize,
    /// The block as it is written.
    pub text: &'a str,
    /// The bytes for which it counts against a budget; `None` where it says much beside its data,
    /// which is text.
    pub counted: Option<u64>,
}

/// The blocks of a tool's result that are no text, in their order.
pub fn media<'a>(result: &Json<'a>) -> Vec<Media<'a>> {
    let content = result.get("content");
    let blocks = content.iter().flat_map(Json::elements).enumerate();
    let media = blocks.filter_map(|(place, block)| {
        let (length, data) = (block.text().len(), data(&block)?.text().len());
        Some(Media {
            place,
            text: block.text(),
            counted: (length - data <= AROUND).then(|| counted(&block)),
        })
    });
    media.collect()
}

/// The places of the data of such blocks in a result, in its order.
pub(crate) fn media_spans(result: &Json<'_>) -> Vec<Range<usize>> {
    let mut spans: Vec<_> = blocks(result)
        .filter_map(|block| Some(data(&block)?.span()))
        .collect();
    spans.sort_by_key(|span| span.start);
    spans
}

/// The block at a place in a result, as a tool's content can have it, and the bytes for which it
/// counts against a budget. A part of a resource becomes an embedded resource.
pub(super) fn at(result: &Json<'_>, place: usize) -> Option<(String, u64)> {
    let block = blocks(result).nth(place)?;
    let is_part = block.get("type").is_none() && block.get("uri").is_some();
    let text = match is_part {
        true => format!("{{\"type\":\"resource\",\"resource\":{}}}", block.text()),
        false => block.text().to_owned(),
    };
    Some((text, counted(&block)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_blocks_that_are_no_text_is_measured_and_nothing_else() {
        let (around, large) = ("x".repeat(AROUND), "A".repeat(MOST_COUNTED + 98));
        for (result, all, uncounted, count) in [
            (
                r#"{"content":[{"type":"text","text":"abc"},{"type":"image","data":"AAAA"}]}"#.to_owned(),
                6,
                0,
                1,
            ),
            (
                r#"{"content":[{"type":"audio","data":"AA"},{"type":"resource","resource":{"blob":"BBB"}}]}"#
                    .to_owned(),
                9,
                0,
                2,
            ),
            (
                r#"{"content":[{"type":"resource","resource":{"text":"a"}},{"type":"note","data":"AA"}]}"#.to_owned(),
                0,
                0,
                0,
            ),
            (
                r#"{"content":[{"type":"image","data":["AA"]},{"type":"image","data":7}]}"#.to_owned(),
                0,
                0,
                0,
            ),
            (
                format!(r#"{{"content":[{{"type":"image","data":"{large}"}},{{"type":"audio","data":"{large}"}}]}}"#),
                2 * (MOST_COUNTED + 100),
                200,
                2,
            ),
            (
                format!(r#"{{"content":[{{"type":"image","data":"AA","alt":"{around}"}}]}}"#),
                4,
                0,
                1,
            ),
            (
                r#"{"contents":[{"uri":"a","blob":"AA"},{"uri":"b","text":"t"}]}"#.to_owned(),
                4,
                0,
                0,
            ),
            (
                r#"{"messages":[{"content":{"type":"image","data":"AA"}},{"content":[{"type":"image","data":"A"}]}]}"#
                    .to_owned(),
                7,
                0,
                0,
            ),
            (r#"{"structuredContent":{"data":"AA"}}"#.to_owned(), 0, 0, 0),
            (r#"{"content":[{"text":"\"data\""}]}"#.to_owned(), 0, 0, 0),
        ] {
            let json = Json::parse(result.as_bytes()).unwrap();
            let measured = MediaBytes::of(result.as_bytes());
            assert_eq!(measured, MediaBytes { all, uncounted }, "{result}");
            assert_eq!(media(&json).len(), count, "{result}");
            assert_eq!(
                media_spans(&json).into_iter().map(|span| span.len()).sum::<usize>(),
                all
            );
        }
    }

    #[test]
    fn a_block_counts_for_what_it_costs_and_as_text_where_it_says_much() {
        let (around, large) = ("x".repeat(AROUND), "A".repeat(100_000));
        let result = format!(
            r#"{{"content":[{{"type":"text","text":"a"}},{{"type":"image","data":"{large}"}},
                {{"type":"image","data":"{large}","alt":"{around}"}}]}}"#
        );
        let result = Json::parse(result.as_bytes()).unwrap();
        let blocks = media(&result)
            .into_iter()
            .map(|block| (block.place, block.counted));
        let counted = r#"{"type":"image","data":}"#.len() + MOST_COUNTED;
        assert_eq!(
            blocks.collect::<Vec<_>>(),
            [(1, Some(counted as u64)), (2, None)]
        );
    }

    #[test]
    fn every_block_is_found_by_its_place_and_fits_a_tools_content() {
        for (result, blocks) in [
            (
                r#"{"content":[{"type":"text","text":"a"},{"type":"image","data":"A"}]}"#,
                &[
                    r#"{"type":"text","text":"a"}"#,
                    r#"{"type":"image","data":"A"}"#,
                ][..],
            ),
            (
                r#"{"contents":[{"uri":"u","text":"t"},{"uri":"v","blob":"AA"}]}"#,
                &[
                    r#"{"type":"resource","resource":{"uri":"u","text":"t"}}"#,
                    r#"{"type":"resource","resource":{"uri":"v","blob":"AA"}}"#,
                ],
            ),
            (
                r#"{"messages":[{"role":"user","content":{"type":"image","data":"A"}},
                    {"role":"user","content":[{"type":"text","text":"a"},{"type":"audio","data":"B"}]}]}"#,
                &[
                    r#"{"type":"image","data":"A"}"#,
                    r#"{"type":"text","text":"a"}"#,
                    r#"{"type":"audio","data":"B"}"#,
                ],
            ),
            (r#"{"structuredContent":[1]}"#, &[]),
        ] {
            let result = Json::parse(result.as_bytes()).unwrap();
            let found = (0..)
                .map_while(|place| at(&result, place))
                .map(|(text, _)| text);
            assert_eq!(found.collect::<Vec<_>>(), blocks, "{}", result.text());
        }
    }
}
