//! Patterns that the shell fills in: what a word of a command may become.

/// Whether the shell may make of a word with a pattern in it what a rule names. (An option may come of `*` too, where a
/// file is called like one; a rule against `rm -rf` is not about `rm *`.)
pub(super) fn becomes(word: &str, named: &str) -> bool {
    word.contains(['*', '?', '[']) && !named.starts_with('-') && meet(&pieces(word), &pieces(named))
}

/// One piece of a pattern: any number of characters, any one, or this one.
#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Any,
    One,
    This(char),
}

fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        pieces.push(match next {
            '*' => Piece::Any,
            '?' => Piece::One,
            '[' => {
                if let Some((_, after)) = rest.as_str().split_once(']') {
                    rest = after.chars();
                }
                Piece::One
            }
            other => Piece::This(other),
        });
    }
    pieces
}

/// Whether some text fits both patterns.
fn meet(left: &[Piece], right: &[Piece]) -> bool {
    // Whether the rest of `left` meets the rest of `right` from each piece on, from the end backwards.
    let mut below: Vec<bool> = Vec::new();
    for at in (0..=left.len()).rev() {
        let mut row = vec![false; right.len() + 1];
        for to in (0..=right.len()).rev() {
            row[to] = match (left.get(at), right.get(to)) {
                (None, None) => true,
                (Some(Piece::Any), Some(_)) | (Some(_), Some(Piece::Any)) => below[to] || row[to + 1],
                (Some(Piece::Any), None) => below[to],
                (None, Some(Piece::Any)) => row[to + 1],
                (Some(Piece::This(one)), Some(Piece::This(other))) if one != other => false,
                (Some(_), Some(_)) => below[to + 1],
                (None, Some(_)) | (Some(_), None) => false,
            };
        }
        below = row;
    }
    below[0]
}
