//! Parsing and applying patches as models write them.

/// A patch's change to one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Creates the file.
    Add { path: String, content: String },
    /// Deletes the file.
    Delete { path: String },
    /// Changes the file, and may rename it.
    Update { path: String, to: Option<String>, hunks: Vec<Hunk> },
}

/// A change of consecutive lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Lines above the hunk, from `@@`, in order.
    below: Vec<String>,
    /// The old lines, context included.
    old: Vec<String>,
    /// The new lines, context included.
    new: Vec<String>,
    /// Whether the hunk is at the end of the file.
    at_end: bool,
}

/// The paths in a patch, including the new paths of renamed files. `None` if the patch cannot be parsed.
pub(super) fn paths(text: &str) -> Option<Vec<String>> {
    let paths = parse(text).ok()?.into_iter().flat_map(|action| match action {
        Action::Add { path, .. } | Action::Delete { path } => vec![path],
        Action::Update { path, to, .. } => [vec![path], Vec::from_iter(to)].concat(),
    });
    Some(paths.collect())
}

/// Parses a patch.
pub(super) fn parse(text: &str) -> Result<Vec<Action>, String> {
    let lines: Vec<&str> = text.lines().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let begin = lines.iter().position(|line| line.trim() == "*** Begin Patch");
    let begin = begin.ok_or("the patch does not begin with `*** Begin Patch`")?;
    let end = lines.iter().rposition(|line| line.trim() == "*** End Patch").filter(|end| *end > begin);
    let end = end.ok_or("the patch does not end with `*** End Patch`")?;
    let mut rest = lines[begin + 1..end].iter().copied().enumerate().peekable();
    let mut actions = Vec::new();
    while let Some((at, line)) = rest.next() {
        let number = begin + at + 2;
        if let Some(path) = line.strip_prefix("*** Add File: ") {
            let mut content = String::new();
            while let Some((_, line)) = rest.next_if(|(_, line)| !line.starts_with("*** ")) {
                let line = line.strip_prefix('+').ok_or_else(|| {
                    format!(
                        "line {number} and after: every line of an added file begins with `+`, and `{line}` does not"
                    )
                })?;
                content.push_str(line);
                content.push('\n');
            }
            actions.push(Action::Add { path: path.trim().into(), content });
        } else if let Some(path) = line.strip_prefix("*** Delete File: ") {
            actions.push(Action::Delete { path: path.trim().into() });
        } else if let Some(path) = line.strip_prefix("*** Update File: ") {
            let to = rest.next_if(|(_, line)| line.starts_with("*** Move to: "));
            let to = to.and_then(|(_, line)| line.strip_prefix("*** Move to: ")).map(|to| to.trim().to_owned());
            let mut body = Vec::new();
            while let Some((_, line)) =
                rest.next_if(|(_, line)| !line.starts_with("*** ") || line.trim() == "*** End of File")
            {
                body.push(line);
            }
            let hunks = hunks(&body).map_err(|why| format!("{}: {why}", path.trim()))?;
            if hunks.is_empty() && to.is_none() {
                return Err(format!("{}: the update changes nothing", path.trim()));
            }
            actions.push(Action::Update { path: path.trim().into(), to, hunks });
        } else if !line.trim().is_empty() {
            return Err(format!(
                "line {number}: `{line}` is not `*** Add File: …`, `*** Update File: …` or `*** Delete File: …`"
            ));
        }
    }
    match actions.is_empty() {
        true => Err("the patch is empty".into()),
        false => Ok(actions),
    }
}

fn hunks(lines: &[&str]) -> Result<Vec<Hunk>, String> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut open = Hunk::default();
    let mut has_body = false;
    for line in lines {
        if let Some(below) = line.strip_prefix("@@") {
            if has_body {
                hunks.push(std::mem::take(&mut open));
                has_body = false;
            }
            let below = below.strip_suffix("@@").unwrap_or(below).trim();
            // Line numbers from other patch formats are ignored.
            if !below.is_empty() && !below.starts_with('-') {
                open.below.push(below.to_owned());
            }
            continue;
        }
        if line.trim() == "*** End of File" {
            open.at_end = true;
            continue;
        }
        has_body = true;
        match line.split_at_checked(1) {
            None => (open.old.push(String::new()), open.new.push(String::new())),
            Some((" ", text)) => (open.old.push(text.into()), open.new.push(text.into())),
            Some(("-", text)) => (open.old.push(text.into()), ()),
            Some(("+", text)) => (open.new.push(text.into()), ()),
            _ => return Err(format!("`{line}` begins with neither ` `, `-`, `+` nor `@@`")),
        };
    }
    if has_body {
        hunks.push(open);
    }
    Ok(hunks)
}

/// Applies all hunks to a file's text.
pub(super) fn apply(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let newline = if super::editing::ends_in_crlf(text.as_bytes()) { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let ends_in_newline = lines.last().is_some_and(String::is_empty);
    if ends_in_newline {
        lines.pop();
    }
    let mut from = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let at = locate(&lines, hunk, from).map_err(|why| format!("hunk {} of {}: {why}", number + 1, hunks.len()))?;
        let end = if newline == "\r\n" { "\r" } else { "" };
        let new: Vec<String> = hunk.new.iter().map(|line| format!("{line}{end}")).collect();
        from = at + new.len();
        lines.splice(at..at + hunk.old.len(), new);
    }
    let mut text = lines.join("\n");
    if (ends_in_newline || text.ends_with('\r')) && !lines.is_empty() {
        text.push('\n');
    }
    Ok(text)
}

/// The line at which a hunk applies, below its `@@` lines: an exact match, else one that ignores white space.
fn locate(lines: &[String], hunk: &Hunk, mut from: usize) -> Result<usize, String> {
    for below in &hunk.below {
        let found = (from..lines.len()).find(|at| lines[*at].trim() == below);
        from = found.ok_or_else(|| format!("there is no line `{below}` from line {} on", from + 1))? + 1;
    }
    if hunk.old.is_empty() {
        return Ok(if hunk.below.is_empty() || hunk.at_end { lines.len() } else { from });
    }
    let last = lines.len().checked_sub(hunk.old.len());
    let exactly = |have: &str, want: &str| have.strip_suffix('\r').unwrap_or(have) == want;
    let but_for_ends = |have: &str, want: &str| have.trim_end() == want.trim_end();
    let but_for_space = |have: &str, want: &str| have.trim() == want.trim();
    for same in [exactly, but_for_ends, but_for_space] as [fn(&str, &str) -> bool; 3] {
        let fits = |at: &usize| lines[*at..].iter().zip(&hunk.old).all(|(have, want)| same(have, want));
        let found = match (last, hunk.at_end) {
            (Some(last), true) => Some(last).filter(|at| *at >= from).filter(fits),
            (Some(last), false) => (from..=last).find(fits),
            (None, _) => None,
        };
        if let Some(at) = found {
            return Ok(at);
        }
    }
    Err(misfit(lines, hunk, from))
}

/// The error for a hunk that does not apply: the longest partial match, and the first line that differs.
fn misfit(lines: &[String], hunk: &Hunk, from: usize) -> String {
    let fits =
        |at: usize| lines[at..].iter().zip(&hunk.old).take_while(|(have, want)| have.trim() == want.trim()).count();
    let best = (0..lines.len()).map(|at| (fits(at), usize::MAX - at)).max().map(|(fits, at)| (fits, usize::MAX - at));
    let text = hunk.old.join("\n");
    match best {
        Some((length, at)) if length == hunk.old.len() => format!(
            "its lines are at line {}, before the hunk above it or not at the end; hunks are applied from line {} on",
            at + 1,
            from + 1
        ),
        Some((length, at)) if length > 0 => format!(
            "its lines are not in the file. The first {length} are at line {}; then the patch has `{}` and the file `{}`",
            at + 1,
            hunk.old[length],
            lines.get(at + length).map_or("its end", |line| line.trim_end_matches('\r')),
        ),
        _ => format!("its lines are not in the file:\n{text}"),
    }
}
