//! A conservative parser of shell command lines.
//!
//! A line is *parsed* if it is a sequence of plain commands (separated by `;`, `&&`, `||`, `|`, `&` or newlines) with
//! literal words. Quotes and backslashes are understood, and redirections to `/dev/null` or to another stream. Anything
//! else (expansions, substitutions, groups, keywords, comments, other redirections) makes the line unparsed. An allow
//! rule about commands never matches an unparsed line.

/// The longest line that is parsed, in bytes.
const LONGEST: usize = 64 << 10;

/// Programs that run commands or code from their arguments.
const WRAPPERS: &[&str] = &[
    "ash",
    "bash",
    "builtin",
    "busybox",
    "bwrap",
    "chroot",
    "chrt",
    "command",
    "csh",
    "dash",
    "doas",
    "docker",
    "env",
    "eval",
    "exec",
    "find",
    "fish",
    "flock",
    "ionice",
    "ksh",
    "make",
    "mksh",
    "nice",
    "nohup",
    "npx",
    "nsenter",
    "parallel",
    "podman",
    "prlimit",
    "runuser",
    "script",
    "setpriv",
    "setsid",
    "sh",
    "source",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "tcsh",
    "time",
    "timeout",
    "trap",
    "unshare",
    "watch",
    "xargs",
    "zsh",
    ".",
    "awk",
    "bun",
    "deno",
    "lua",
    "node",
    "perl",
    "php",
    "python",
    "python3",
    "ruby",
];

/// Shell keywords, which are not programs.
const KEYWORDS: &[&str] = &[
    "!", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then",
    "until", "while", "[[", "]]",
];

/// A shell command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// The words of each command.
    pub(crate) parts: Vec<Vec<String>>,
    /// Whether the line was parsed completely, so that `parts` are all its commands.
    pub(crate) parsed: bool,
    /// Every word in the text, ignoring quotes.
    words: Vec<String>,
}

impl CommandLine {
    pub(crate) fn parse(text: &str) -> Self {
        let mut reader = Reader::new(text);
        reader.read();
        let parts: Vec<_> = reader.parts.into_iter().filter(|part| !part.is_empty()).collect();
        let plain = |part: &Vec<String>| {
            let program = part.first().map(String::as_str).unwrap_or_default();
            !KEYWORDS.contains(&program) && !program.contains(['*', '?', '[', '=']) && !program.is_empty()
        };
        let parsed = reader.parsed && text.len() <= LONGEST && parts.iter().all(plain);
        Self { parsed, parts, words: loose_words(text) }
    }

    /// Whether a command may invoke one that `matches`: the command itself, or any word in it if its program runs other
    /// commands. For rules that deny or ask.
    pub(crate) fn may_invoke(part: &[String], matches: impl Fn(&[String]) -> bool) -> bool {
        let assigned = part.iter().take_while(|word| is_assignment(word)).count();
        let plain = &part[assigned..];
        let runs_others = plain.first().is_some_and(|program| WRAPPERS.contains(&name_of(program)));
        let inner = || part.iter().flat_map(|word| loose_words(word)).collect::<Vec<_>>();
        matches(plain) || runs_others && any_suffix(inner().get(1..).unwrap_or_default(), &matches)
    }

    /// Like [`may_invoke`](Self::may_invoke), for an unparsed line, in which every word may start a command.
    pub(crate) fn may_invoke_anywhere(&self, matches: impl Fn(&[String]) -> bool) -> bool {
        let parsed: Vec<_> = self.parts.iter().flatten().cloned().collect();
        any_suffix(&parsed, &matches) || any_suffix(&self.words, &matches)
    }
}

/// Whether any suffix of the words matches.
fn any_suffix(words: &[String], matches: &impl Fn(&[String]) -> bool) -> bool {
    (0..words.len()).any(|at| matches(&words[at..]))
}

/// The file name of a program.
pub(crate) fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '+'))
}

/// The words of a text, split at white space and at every character that is special to the shell.
fn loose_words(text: &str) -> Vec<String> {
    let text = &text[..text.floor_char_boundary(LONGEST)];
    let apart = |c: char| c.is_whitespace() || c.is_control() || ";&|()<>{}$`'\"\\".contains(c);
    text.split(apart).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    parts: Vec<Vec<String>>,
    /// The word that is being read. A quoted empty word is a word too.
    word: Option<String>,
    parsed: bool,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.chars().peekable(), parts: vec![Vec::new()], word: None, parsed: true }
    }

    fn read(&mut self) {
        while let Some(c) = self.rest.next() {
            match c {
                ' ' | '\t' => self.end_word(),
                '\n' | ';' | '|' | '&' => self.separator(c),
                '\'' => self.single(),
                '"' => self.double(),
                '\\' => match self.rest.next() {
                    Some('\n') => {}
                    Some(c) => self.push(c),
                    None => self.parsed = false,
                },
                '<' | '>' => self.redirection(c),
                '#' if self.word.is_none() => {
                    self.parsed = false;
                    while self.rest.next_if(|c| *c != '\n').is_some() {}
                }
                '$' | '`' | '(' | ')' | '{' | '}' => {
                    self.parsed = false;
                    self.end_part();
                }
                c if c.is_control() || c.is_whitespace() => {
                    self.parsed = false;
                    self.end_word();
                }
                c => self.push(c),
            }
        }
        self.end_word();
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        if let (Some(word), Some(part)) = (self.word.take(), self.parts.last_mut()) {
            part.push(word);
        }
    }

    fn end_part(&mut self) {
        self.end_word();
        self.parts.push(Vec::new());
    }

    fn separator(&mut self, c: char) {
        // `&>` redirects both streams.
        if c == '&' && self.rest.peek() == Some(&'>') {
            self.end_word();
            self.rest.next();
            return self.redirection('>');
        }
        self.end_part();
    }

    fn single(&mut self) {
        self.word.get_or_insert_default();
        loop {
            match self.rest.next() {
                Some('\'') => return,
                Some(c) => self.push(c),
                None => return self.parsed = false,
            }
        }
    }

    fn double(&mut self) {
        self.word.get_or_insert_default();
        loop {
            match self.rest.next() {
                Some('"') => return,
                Some('$' | '`') => self.parsed = false,
                Some('\\') => match self.rest.next() {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => self.push(c),
                    Some(c) => {
                        self.push('\\');
                        self.push(c);
                    }
                    None => return self.parsed = false,
                },
                Some(c) => self.push(c),
                None => return self.parsed = false,
            }
        }
    }

    /// Reads a redirection. One to another stream or to `/dev/null` changes no file; any other makes the line unparsed.
    fn redirection(&mut self, first: char) {
        match &self.word {
            Some(word) if word.chars().all(|c| c.is_ascii_digit()) => self.word = None,
            _ => self.end_word(),
        }
        let mut operator = String::from(first);
        while let Some(c) = self.rest.next_if(|c| matches!(c, '<' | '>' | '&' | '|')) {
            operator.push(c);
        }
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        let mut target = String::new();
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '.' | '_')) {
            target.push(c);
        }
        let ends = self.rest.peek().is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | ';' | '|' | '&'));
        let harmless = match operator.as_str() {
            ">" | ">>" | "<" => target == "/dev/null",
            ">&" => matches!(target.as_str(), "1" | "2"),
            _ => false,
        };
        if !(harmless && ends) {
            self.parsed = false;
            if let (false, Some(part)) = (target.is_empty(), self.parts.last_mut()) {
                part.push(target);
            }
        }
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
