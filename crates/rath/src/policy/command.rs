//! Shell lines, taken apart as far as that is sure.
//!
//! A line is *sure* when it is plain commands one after the other (`;`, `&&`, `||`, `|`, `&`, newlines) whose words stand
//! there as they are: quotes and backslashes are understood, redirections only where they lead nowhere. Everything else
//! (expansions, substitutions, groups, keywords, comments, other redirections) makes it unsure, and nothing that is unsure
//! is allowed by a rule about commands.

/// Longer lines are not taken apart.
const LONGEST: usize = 64 << 10;

/// Programs that run what their arguments say.
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

/// Words that are no programs.
const KEYWORDS: &[&str] = &[
    "!", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then",
    "until", "while", "[[", "]]",
];

/// What a line says, as far as it is understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The words of each command.
    pub(crate) parts: Vec<Vec<String>>,
    /// Whether that is all, and nothing else.
    pub(crate) sure: bool,
    /// Every word that stands anywhere in the text, however it is quoted.
    words: Vec<String>,
}

impl Line {
    pub(crate) fn parse(text: &str) -> Self {
        let mut reader = Reader::new(text);
        reader.read();
        let parts: Vec<_> = reader.parts.into_iter().filter(|part| !part.is_empty()).collect();
        let plain = |part: &Vec<String>| {
            let program = part.first().map(String::as_str).unwrap_or_default();
            !KEYWORDS.contains(&program) && !program.contains(['*', '?', '[', '=']) && !program.is_empty()
        };
        let sure = reader.sure && text.len() <= LONGEST && parts.iter().all(plain);
        Self { sure, parts, words: crude(text) }
    }

    /// Where a rule that forbids or asks may find what it names in one of the commands: the command itself and, where it
    /// runs others, everything in it.
    pub(crate) fn may_say(part: &[String], is_it: impl Fn(&[String]) -> bool) -> bool {
        let assigned = part.iter().take_while(|word| is_assignment(word)).count();
        let plain = &part[assigned..];
        let runs_others = plain.first().is_some_and(|program| WRAPPERS.contains(&name_of(program)));
        let inner = || part.iter().flat_map(|word| crude(word)).collect::<Vec<_>>();
        is_it(plain) || runs_others && any_tail(inner().get(1..).unwrap_or_default(), &is_it)
    }

    /// The same for a line that is not sure: every word may begin a command.
    pub(crate) fn may_say_anywhere(&self, is_it: impl Fn(&[String]) -> bool) -> bool {
        let parsed: Vec<_> = self.parts.iter().flatten().cloned().collect();
        any_tail(&parsed, &is_it) || any_tail(&self.words, &is_it)
    }
}

/// Whether it is so of the words from any of them on.
fn any_tail(words: &[String], is_it: &impl Fn(&[String]) -> bool) -> bool {
    (0..words.len()).any(|at| is_it(&words[at..]))
}

/// A program without its directory.
pub(crate) fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '+'))
}

/// Words of a text without any regard to what the shell makes of it.
fn crude(text: &str) -> Vec<String> {
    let text = &text[..text.floor_char_boundary(LONGEST)];
    let apart = |c: char| c.is_whitespace() || c.is_control() || ";&|()<>{}$`'\"\\".contains(c);
    text.split(apart).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    parts: Vec<Vec<String>>,
    /// The word that is being read; a quoted empty one is a word.
    word: Option<String>,
    sure: bool,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.chars().peekable(), parts: vec![Vec::new()], word: None, sure: true }
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
                    None => self.sure = false,
                },
                '<' | '>' => self.redirection(c),
                '#' if self.word.is_none() => {
                    self.sure = false;
                    while self.rest.next_if(|c| *c != '\n').is_some() {}
                }
                '$' | '`' | '(' | ')' | '{' | '}' => {
                    self.sure = false;
                    self.end_part();
                }
                c if c.is_control() || c.is_whitespace() => {
                    self.sure = false;
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
        // `&>` sends both streams somewhere.
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
                None => return self.sure = false,
            }
        }
    }

    fn double(&mut self) {
        self.word.get_or_insert_default();
        loop {
            match self.rest.next() {
                Some('"') => return,
                Some('$' | '`') => self.sure = false,
                Some('\\') => match self.rest.next() {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => self.push(c),
                    Some(c) => {
                        self.push('\\');
                        self.push(c);
                    }
                    None => return self.sure = false,
                },
                Some(c) => self.push(c),
                None => return self.sure = false,
            }
        }
    }

    /// One that leads to another stream or to nothing changes no file; every other is not sure.
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
            self.sure = false;
            if let (false, Some(part)) = (target.is_empty(), self.parts.last_mut()) {
                part.push(target);
            }
        }
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
