//! Reads an API key from the terminal without echo, or from standard input.

use std::io::{IsTerminal as _, Read as _, Write as _};

use anyhow::{Context as _, Result, bail};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Longest accepted key, in bytes.
const LONGEST: u64 = 16 << 10;

/// Reads a key: from the terminal without echo, or from standard input if that is not a terminal.
pub(crate) fn read(prompt: &str) -> Result<String> {
    let text = match std::io::stdin().is_terminal() {
        true => typed(prompt)?,
        false => {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(LONGEST + 1).read_to_string(&mut text);
            read.context("reading the key from standard input")?;
            text
        }
    };
    Ok(checked(&text)?.to_owned())
}

/// Trims the text and checks that it can be an API key.
fn checked(text: &str) -> Result<&str> {
    let key = text.trim();
    let odd = |c: char| !c.is_ascii_graphic();
    match () {
        () if key.is_empty() => bail!("no key given: type it, or pipe it in, as in `pass show … | rath auth set …`"),
        () if key.len() as u64 > LONGEST => bail!("the key is longer than {LONGEST} bytes"),
        () if key.contains(['\n', '\r']) => bail!("a key is one line; got {} lines", key.lines().count()),
        () if key.contains(odd) => bail!("a key contains only printable ASCII characters without spaces"),
        () => Ok(key),
    }
}

/// Turns off echo and line editing of the terminal while it lives.
struct Unseen(Termios);

impl Unseen {
    fn begin() -> Result<Self> {
        let before = tcgetattr(stdin()).context("reading the terminal's settings")?;
        let mut unseen = before.clone();
        // Ctrl-C is read as a character, so that `drop` restores the settings.
        unseen.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(stdin(), OptionalActions::Flush, &unseen).context("changing the terminal's settings")?;
        Ok(Self(before))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

fn typed(prompt: &str) -> Result<String> {
    let mut screen = std::io::stderr();
    write!(screen, "{prompt}").and_then(|()| screen.flush()).context("writing to the terminal")?;
    let line = {
        let _unseen = Unseen::begin()?;
        line(&mut std::io::stdin().lock().bytes().map_while(Result::ok))
    };
    writeln!(screen).context("writing to the terminal")?;
    match line {
        Some(line) => Ok(String::from_utf8_lossy(&line).into_owned()),
        None => bail!("interrupted; no key was stored"),
    }
}

/// Reads keystrokes up to the end of the line and applies the erase keys. `None` on Ctrl-C.
fn line(keys: &mut dyn Iterator<Item = u8>) -> Option<Vec<u8>> {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    const ERASE: [u8; 2] = [8, 127];
    const ERASE_ALL: u8 = 21;
    let mut line = Vec::new();
    for key in keys {
        match key {
            b'\n' | b'\r' | END => break,
            INTERRUPT => return None,
            ERASE_ALL => line.clear(),
            key if ERASE.contains(&key) => drop(line.pop()),
            key => line.push(key),
        }
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_trimmed_and_checked() {
        assert_eq!(checked("  sk-1\r\n").unwrap(), "sk-1");
        for (text, why) in [
            ("", "no key given"),
            (" \n", "no key given"),
            ("a\nb\n", "got 2 lines"),
            ("sk 1", "without spaces"),
            ("sk\u{1b}[1", "printable ASCII"),
            ("sk-é", "printable ASCII"),
            (&"x".repeat(20_000), "longer than"),
        ] {
            let error = checked(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("sk"), "{text:?}: {error}");
        }
    }

    #[test]
    fn typed_keys_can_be_erased_or_interrupted() {
        let typed = |keys: &str| line(&mut keys.bytes()).map(|line| String::from_utf8(line).unwrap());
        assert_eq!(typed("sk-1\nrest").as_deref(), Some("sk-1"));
        assert_eq!(typed("wrong\u{15}sk-\u{7f}_1\r").as_deref(), Some("sk_1"));
        assert_eq!(typed("sk-1\u{3}"), None);
        assert_eq!(typed("").as_deref(), Some(""));
    }
}
