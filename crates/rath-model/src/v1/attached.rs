//! Version 1: images and documents, as the APIs accept them. Frozen: see [`super`].

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rath_core::BlobRef;
use rath_core::body::Attachment;

use crate::request_input::RequestInput;

/// A file that is attached to a message.
#[derive(Clone, Debug)]
pub(crate) struct File<'a> {
    /// The file's name; never empty.
    pub(crate) name: Cow<'a, str>,
    /// The media type, without parameters.
    pub(crate) media_type: &'a str,
    /// The content that is sent.
    pub(crate) content: FileContent<'a>,
}

/// The content of a file.
#[derive(Clone, Debug)]
pub(crate) enum FileContent<'a> {
    /// An image, in base64.
    Picture(String),
    /// A PDF, in base64.
    Pdf(String),
    /// Text.
    Text(Cow<'a, str>),
}

impl<'a> RequestInput<'a> {
    /// An attached file for a request. A file that no API accepts is replaced by a description.
    pub(crate) fn file(&self, attached: &'a Attachment) -> File<'a> {
        let Attachment { content: BlobRef { media_type, digest, .. }, name } = attached;
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        let name = match name {
            Some(name) => Cow::Borrowed(name.as_str()),
            None => Cow::Owned(media_type.replace('/', ".")),
        };
        let bytes = self.files.get(digest).map(|bytes| &**bytes).unwrap_or_default();
        let content = match media_type {
            "image/png" | "image/jpeg" | "image/gif" | "image/webp" => FileContent::Picture(STANDARD.encode(bytes)),
            "application/pdf" => FileContent::Pdf(STANDARD.encode(bytes)),
            _ => match std::str::from_utf8(bytes) {
                Ok(text) if is_text(media_type) => FileContent::Text(text.into()),
                _ => FileContent::Text(described(attached).into()),
            },
        };
        File { name, media_type, content }
    }
}

impl File<'_> {
    /// A data URL with the content.
    pub(crate) fn data_url(media_type: &str, base64: &str) -> String {
        format!("data:{media_type};base64,{base64}")
    }

    /// Text with the name of the file before it, for APIs without text documents.
    pub(crate) fn titled(name: &str, text: &str) -> String {
        format!("{name}:\n\n{text}")
    }
}

/// The description of a file that no API accepts.
fn described(Attachment { content: BlobRef { media_type, bytes, .. }, name }: &Attachment) -> String {
    match name {
        Some(name) => format!("[attached: {name}, {media_type}, {bytes} bytes]"),
        None => format!("[attached: {media_type}, {bytes} bytes]"),
    }
}

fn is_text(media_type: &str) -> bool {
    let others = ["application/json", "application/xml", "application/yaml", "application/toml"];
    media_type.starts_with("text/") || others.contains(&media_type)
}
