//! Version 1: pictures and documents, as the APIs take them. Frozen: see [`super`].

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rath_core::BlobRef;
use rath_core::body::Attached;

use crate::talk::Talk;

/// Something that comes with a message.
#[derive(Clone, Debug)]
pub(crate) struct File<'a> {
    /// Its name; never empty.
    pub(crate) name: Cow<'a, str>,
    /// What it is, without parameters.
    pub(crate) media_type: &'a str,
    /// What is sent of it.
    pub(crate) holds: Holds<'a>,
}

/// What a file holds.
#[derive(Clone, Debug)]
pub(crate) enum Holds<'a> {
    /// A picture, in base64.
    Picture(String),
    /// A PDF, in base64.
    Pdf(String),
    /// Words.
    Text(Cow<'a, str>),
}

impl<'a> Talk<'a> {
    /// A file for a request. What no API takes is told of in words.
    pub(crate) fn file(&self, attached: &'a Attached) -> File<'a> {
        let Attached { content: BlobRef { media_type, digest, .. }, name } = attached;
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        let name = match name {
            Some(name) => Cow::Borrowed(name.as_str()),
            None => Cow::Owned(media_type.replace('/', ".")),
        };
        let bytes = self.files.get(digest).map(|bytes| &**bytes).unwrap_or_default();
        let holds = match media_type {
            "image/png" | "image/jpeg" | "image/gif" | "image/webp" => Holds::Picture(STANDARD.encode(bytes)),
            "application/pdf" => Holds::Pdf(STANDARD.encode(bytes)),
            _ => match std::str::from_utf8(bytes) {
                Ok(text) if is_text(media_type) => Holds::Text(text.into()),
                _ => Holds::Text(described(attached).into()),
            },
        };
        File { name, media_type, holds }
    }
}

impl File<'_> {
    /// As an address that holds all of it.
    pub(crate) fn data_url(media_type: &str, base64: &str) -> String {
        format!("data:{media_type};base64,{base64}")
    }

    /// Words with the name of the file before them, for APIs that know no documents of words.
    pub(crate) fn titled(name: &str, text: &str) -> String {
        format!("{name}:\n\n{text}")
    }
}

/// The words for a file that no API takes.
fn described(Attached { content: BlobRef { media_type, bytes, .. }, name }: &Attached) -> String {
    match name {
        Some(name) => format!("[attached: {name}, {media_type}, {bytes} bytes]"),
        None => format!("[attached: {media_type}, {bytes} bytes]"),
    }
}

fn is_text(media_type: &str) -> bool {
    let others = ["application/json", "application/xml", "application/yaml", "application/toml"];
    media_type.starts_with("text/") || others.contains(&media_type)
}
