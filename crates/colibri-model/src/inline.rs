//! Data within a body: pictures, documents, sound.

/// The kind of data by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediaType {
    /// Of a few thousand tokens at most, however few its bytes are.
    Picture,
    /// Of as many tokens as the model reads at most: pages, seconds of sound or film.
    Document,
}

/// Media types of pictures. None of them names other files: SVG does.
const PICTURES: [&str; 9] = [
    "image/png",
    "image/jpeg",
    "image/jpg",
    "image/gif",
    "image/webp",
    "image/bmp",
    "image/tiff",
    "image/heic",
    "image/heif",
];

/// Media types of what else a model reads. None of them is a list of addresses: those of HLS and
/// DASH are.
const DOCUMENTS: [&str; 38] = [
    "application/pdf",
    "application/json",
    "application/x-javascript",
    "application/x-typescript",
    "application/rtf",
    "application/msword",
    "application/vnd.openxmlformats-officedocument.*",
    "text/plain",
    "text/markdown",
    "text/html",
    "text/css",
    "text/csv",
    "text/xml",
    "text/rtf",
    "text/javascript",
    "text/x-*",
    "audio/wav",
    "audio/x-wav",
    "audio/mp3",
    "audio/mpeg",
    "audio/mp4",
    "audio/aac",
    "audio/aiff",
    "audio/ogg",
    "audio/opus",
    "audio/flac",
    "audio/webm",
    "video/mp4",
    "video/mpeg",
    "video/mov",
    "video/quicktime",
    "video/avi",
    "video/webm",
    "video/x-flv",
    "video/x-msvideo",
    "video/x-matroska",
    "video/wmv",
    "video/3gpp",
];

impl MediaType {
    /// The kind of data of this type; `None`: it is not one that passes.
    pub(super) fn of(text: &str) -> Option<MediaType> {
        let name = text
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        let is_of = |known: &[&str]| {
            known.iter().any(|known| match known.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *known,
            })
        };
        match () {
            () if is_of(&PICTURES) => Some(MediaType::Picture),
            () if is_of(&DOCUMENTS) => Some(MediaType::Document),
            () => None,
        }
    }
}

/// The kind of data of a `data:` URL; `None`: it is another one, or of a type that does not pass.
pub(super) fn data_url(text: &str) -> Option<MediaType> {
    let (scheme, rest) = text.split_once(':')?;
    let (media, _) = rest.split_once(',')?;
    match scheme.eq_ignore_ascii_case("data") {
        true if media.is_empty() || media.starts_with(';') => Some(MediaType::Document),
        true => MediaType::of(media),
        false => None,
    }
}

/// True if this is base64 of either alphabet, without line breaks.
pub(super) fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    text.len() - digits.len() <= 2
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_'))
}
