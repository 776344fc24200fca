//! Shell wildcards: the words that a pattern in a command may expand to.

/// Whether the shell may expand a word with wildcards to the word `named` in a rule. Options are left out: a file named
/// like an option could match `*`, but a rule against `rm -rf` is not meant for `rm *`.
pub(super) fn may_expand_to(word: &str, named: &str) -> bool {
    word.contains(['*', '?', '[']) && !named.starts_with('-') && intersects(&pieces(word), &pieces(named))
}

/// A piece of a pattern: any number of characters, any single character, or one literal character.
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

/// Whether some text matches both patterns.
fn intersects(left: &[Piece], right: &[Piece]) -> bool {
    // Dynamic programming from the end: whether the suffix of `left` intersects the suffix of `right`.
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
