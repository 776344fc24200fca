//! Long text, made short enough for a model.

/// How many characters of a command's output a model is shown.
pub(super) const MOST_SHOWN: usize = 30_000;

/// The beginning and the end of `text`, where it is longer than `most` characters. `advice` says how to see the rest.
pub(super) fn middle(text: &str, most: usize, advice: &str) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let (head, _) = text.split_at(after(text, half));
    let (_, tail) = text.split_at(after(text, length - half));
    format!("{head}\n[… {} characters are left out here. {advice}]\n{tail}", length - 2 * half)
}

/// The beginning of a line that is longer than `most` characters.
pub(super) fn line(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{} [… line of {} characters]", &text[..at], text.chars().count()),
        None => text.to_owned(),
    }
}

/// Where the characters after the first `count` begin.
fn after(text: &str, count: usize) -> usize {
    text.char_indices().nth(count).map_or(text.len(), |(at, _)| at)
}
