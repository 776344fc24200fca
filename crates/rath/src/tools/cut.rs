//! Long text, made short enough for a model.

/// How many characters of a command's output a model is shown.
pub(super) const MOST_SHOWN: usize = 30_000;

/// The beginning and the end of `text`, where it is longer than `most` characters. `advice` is shown what is left out,
/// and says how to see it.
pub(super) fn middle(text: &str, most: usize, advice: impl FnOnce(&str) -> String) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let (head, rest) = text.split_at(after(text, half));
    let (left_out, tail) = rest.split_at(after(rest, length - 2 * half));
    let advice = advice(left_out);
    format!("{head}\n[… {} characters are left out here. {advice}]\n{tail}", length - 2 * half)
}

/// `text` up to so many characters, and what follows.
pub(super) fn at(text: &str, count: usize) -> (&str, &str) {
    text.split_at(after(text, count))
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
