//! Truncating text for a model.

/// The largest number of characters of a command's output that a model is shown.
pub(super) const MOST_SHOWN: usize = 30_000;

/// Truncates `text` in the middle if it is longer than `most` characters. `advice` gets the omitted text and returns
/// how to see it.
pub(super) fn middle(text: &str, most: usize, advice: impl FnOnce(&str) -> String) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let (head, rest) = text.split_at(after(text, half));
    let (left_out, tail) = rest.split_at(after(rest, length - 2 * half));
    let advice = advice(left_out);
    format!("{head}\n[… {} characters omitted. {advice}]\n{tail}", length - 2 * half)
}

/// Splits `text` after `count` characters.
pub(super) fn at(text: &str, count: usize) -> (&str, &str) {
    text.split_at(after(text, count))
}

/// Truncates a line that is longer than `most` characters.
pub(super) fn line(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{} [… line of {} characters]", &text[..at], text.chars().count()),
        None => text.to_owned(),
    }
}

/// The byte position after the first `count` characters.
fn after(text: &str, count: usize) -> usize {
    text.char_indices().nth(count).map_or(text.len(), |(at, _)| at)
}
