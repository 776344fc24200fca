use proptest::prelude::*;

use super::*;

fn parts(text: &str) -> Option<Vec<Vec<String>>> {
    let line = CommandLine::parse(text);
    line.parsed.then_some(line.parts)
}

fn plain(parts: &[&[&str]]) -> Option<Vec<Vec<String>>> {
    Some(parts.iter().map(|part| part.iter().map(|word| (*word).to_owned()).collect()).collect())
}

#[test]
fn plain_lines_are_parsed() {
    assert_eq!(parts("ls"), plain(&[&["ls"]]));
    assert_eq!(parts("ls -l; rm -rf x"), plain(&[&["ls", "-l"], &["rm", "-rf", "x"]]));
    assert_eq!(parts("a&&b||c|d&e\nf"), plain(&[&["a"], &["b"], &["c"], &["d"], &["e"], &["f"]]));
    assert_eq!(parts("a \\\n b"), plain(&[&["a", "b"]]));
    assert_eq!(parts("grep 'a; b' \"c && d\" e\\;f"), plain(&[&["grep", "a; b", "c && d", "e;f"]]));
    assert_eq!(parts("g'i't \"pu\"sh"), plain(&[&["git", "push"]]));
    assert_eq!(parts("echo '' \"\\\"\\$x\" 'it'\\''s'"), plain(&[&["echo", "", "\"$x", "it's"]]));
    assert_eq!(parts("cargo test 2>&1 | tail -5"), plain(&[&["cargo", "test"], &["tail", "-5"]]));
    assert_eq!(parts("ls >/dev/null 2> /dev/null </dev/null"), plain(&[&["ls"]]));
    assert_eq!(parts("ls &>/dev/null"), plain(&[&["ls"]]));
    assert_eq!(parts("ls a#b"), plain(&[&["ls", "a#b"]]));
}

#[test]
fn expansions_redirections_and_keywords_are_not_parsed() {
    for text in [
        "ls $(rm x)",
        "ls `rm x`",
        "ls \"$(rm x)\"",
        "ls \"`rm x`\"",
        "ls $X",
        "ls > x",
        "ls >> x",
        "ls >| x",
        "ls <> x",
        "ls &> x",
        "ls >& x",
        "ls > /dev/nullx",
        "ls > /dev/null\"x\"",
        "ls > /dev/null$X",
        "ls >/dev/null/../../etc/passwd",
        "ls <(rm x)",
        "ls << x\nrm\nx",
        "(rm x)",
        "{ rm x; }",
        "ls {a,b}",
        "ls() { rm x; }; ls",
        "ls # '\nrm -rf x # '",
        "ls 'open",
        "ls \"open",
        "ls \\",
        "! rm x",
        "if true; then rm x; fi",
        "while rm x; do ls; done",
        "X=1 ls",
        "LD_PRELOAD=./x.so ls",
        "l? x",
        "/bin/* x",
        "'' x",
        "ls\u{a0}x",
        "ls\rrm x",
        "ls \0 x",
        "ls\u{2028}rm",
    ] {
        assert!(!CommandLine::parse(text).parsed, "{text:?}");
    }
    assert!(!CommandLine::parse(&format!("ls {}", "a".repeat(LONGEST))).parsed);
    assert!(CommandLine::parse("").parts.is_empty() && CommandLine::parse(" ;; & \n").parts.is_empty());
}

#[test]
fn commands_within_commands_are_found() {
    let finds = |text: &str, words: &[&str]| {
        let line = CommandLine::parse(text);
        let is_it = |reading: &[String]| reading.iter().zip(words).filter(|(a, b)| a == b).count() == words.len();
        match line.parsed {
            true => line.parts.iter().any(|part| CommandLine::may_invoke(part, is_it)),
            false => line.may_invoke_anywhere(is_it),
        }
    };
    for text in [
        "git push",
        "true && git push -f",
        "sh -c 'git push'",
        "sudo git push",
        "env X=1 git push",
        "X=1 git push",
        "echo $(git push)",
        "echo \"`git push`\"",
        "if true; then git push; fi",
        "xargs git push < x",
        "/usr/bin/env git push",
        "(git push)",
        "git \\\n push",
    ] {
        assert!(finds(text, &["git", "push"]), "{text:?}");
    }
    assert!(!finds("echo 'git push'", &["git", "push"]));
}

/// Whether the end of the text is neither inside quotes nor after a backslash.
fn is_plain_at_the_end(text: &str) -> bool {
    let (mut quote, mut escaped) = (None, false);
    for c in text.chars() {
        match (quote, escaped, c) {
            (_, true, _) => escaped = false,
            (None | Some('"'), _, '\\') => escaped = true,
            (None, _, '\'' | '"') => quote = Some(c),
            (Some(open), _, c) if open == c => quote = None,
            _ => {}
        }
    }
    quote.is_none() && !escaped
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// In a parsed line, text after a separator outside quotes is a command of its own.
    #[test]
    fn a_separator_never_hides_a_command(
        before in "[a-z '\"\\\\$#>]{0,8}",
        separator in prop::sample::select(vec![";", "&&", "||", "|", "&", "\n", "\n\n", " ; "]),
        after in "[a-z]{1,4}",
    ) {
        let text = format!("ls {before}{separator}evil {after}");
        let line = CommandLine::parse(&text);
        if line.parsed && is_plain_at_the_end(&before) {
            let evil = line.parts.iter().any(|part| part.first().is_some_and(|word| word == "evil"));
            prop_assert!(evil, "{text:?}: {line:?}");
        }
    }

    /// Parsing is stable: the commands of a parsed line, quoted and joined again, parse to the same commands.
    #[test]
    fn sure_lines_are_stable(text in "[a-z;&|\n '\"\\\\$()<>#{}*=-]{0,40}") {
        let line = CommandLine::parse(&text);
        if line.parsed {
            let quoted = |part: &Vec<String>| part.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ");
            let again = line.parts.iter().map(quoted).collect::<Vec<_>>().join("; ");
            prop_assert_eq!(CommandLine::parse(&again).parts, line.parts);
        }
    }
}

/// Runs a line of calls of `p` in a real shell. Returns the arguments of each call, and the number of files created.
#[allow(clippy::disallowed_methods, reason = "the shell itself says what a line means")]
fn run_by_a_shell(text: &str) -> (Vec<Vec<String>>, usize) {
    let dir = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let script =
        format!("p() {{ printf '%s\\037' p \"$@\" >> \"$LOG\"; printf '\\036' >> \"$LOG\"; }}\n{text}\nwait\n");
    let mut shell = std::process::Command::new("/bin/sh");
    shell.arg("-c").arg(script).current_dir(dir.path()).env_clear().env("LOG", log.path());
    shell.stdin(std::process::Stdio::null()).output().unwrap();
    let ran = std::fs::read_to_string(log.path()).unwrap();
    let calls = ran.split_terminator('\x1e').map(|call| call.split_terminator('\x1f').map(str::to_owned).collect());
    (calls.collect(), std::fs::read_dir(dir.path()).unwrap().count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Every command that a shell runs for a parsed line is among the parsed commands, and the line creates no file.
    #[test]
    fn a_shell_runs_no_command_that_was_not_parsed(tokens in prop::collection::vec(prop::sample::select(vec![
        "p", "p", "p ", " ", " ", "a", "b", ";", "&&", "||", "\n", "'", "'", "\"", "\"", "\\", "\\\n", "\\\\", "$X",
        "$(p evil)", "`p evil`", "#", " # ", ">", "<", " 2>&1", " >/dev/null", ">f", ">>f", "&>f", "2>f", "(", ")", "{", "}",
        "*", "=", "X=1 ", "!", "! ", "\t", "-", "\r",
    ]), 1..14)) {
        let text = format!("p {}", tokens.concat());
        let line = CommandLine::parse(&text);
        if line.parsed && line.parts.iter().all(|part| part[0] == "p") {
            let (ran, files) = run_by_a_shell(&text);
            prop_assert_eq!(files, 0, "{:?} makes a file", text);
            for call in ran {
                prop_assert!(line.parts.contains(&call), "{text:?} runs {call:?}, seen are {:?}", line.parts);
            }
        }
    }
}
