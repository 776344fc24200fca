//! The first lines of a text.

use std::sync::Arc;

use rath_core::{Content, Result, Store};
use serde::Serialize;

/// The largest number of lines.
const LINES: usize = 10;
/// The longest line in characters. Longer lines are cut and end with `…`.
const WIDTH: usize = 200;
/// The largest blob that is read for an excerpt, in bytes.
const READ: u64 = 1 << 20;

/// The first lines of a text, unescaped: escape control characters before printing them to a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The lines.
    pub lines: Vec<String>,
    /// Whether the text is longer.
    pub cut: bool,
}

impl Excerpt {
    /// The excerpt of a text.
    pub fn of_text(text: &str) -> Self {
        let mut excerpt = Self::default();
        for line in text.trim_end_matches('\n').lines() {
            if excerpt.lines.len() == LINES {
                excerpt.cut = true;
                break;
            }
            match line.char_indices().nth(WIDTH) {
                Some((at, _)) => {
                    excerpt.cut = true;
                    excerpt.lines.push(format!("{}…", &line[..at]));
                }
                None => excerpt.lines.push(line.to_owned()),
            }
        }
        excerpt
    }

    /// The excerpt of a content, which may be a blob.
    pub async fn of(store: &Arc<dyn Store>, content: &Content) -> Result<Self> {
        Ok(match content {
            Content::Text(text) => Self::of_text(text),
            Content::Blob(blob) if blob.bytes <= READ && blob.media_type.starts_with("text/") => {
                match store.blob_get(blob.digest).await? {
                    Some(bytes) => Self::of_text(&String::from_utf8_lossy(&bytes)),
                    None => Self { lines: vec![format!("({} bytes, not in the store)", blob.bytes)], cut: false },
                }
            }
            Content::Blob(blob) => Self { lines: vec![format!("({} bytes)", blob.bytes)], cut: true },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert!(!Excerpt::of_text(&"x\n".repeat(10)).cut);
        let cut = Excerpt::of_text(&"x\n".repeat(11));
        assert!(cut.cut && cut.lines.len() == 10);
        let wide = Excerpt::of_text(&"é".repeat(201));
        assert!(wide.cut && wide.lines == ["é".repeat(200) + "…"]);
    }
}
