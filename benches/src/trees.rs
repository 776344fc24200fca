//! Deterministic trees of files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// A deterministic random number generator.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides.max(1)
    }
}

/// Generates text that compresses about as well as source code.
pub fn text(dice: &mut Dice, bytes: usize) -> String {
    const WORDS: &[&str] = &[
        "let", "mut", "self", "fn", "pub", "match", "return", "value", "index", "for", "in", "if", "else", "struct",
        "impl", "Result", "Option", "Some", "None", "buffer", "length", "offset", "error", "state", "record", "=>",
        "{", "}", "();",
    ];
    let mut text = String::with_capacity(bytes + 80);
    while text.len() < bytes {
        for _ in 0..4 + dice.roll(8) {
            text.push_str(WORDS[dice.roll(WORDS.len())]);
            text.push(' ');
        }
        text.push_str(&format!("// {:x}\n", dice.roll(1 << 24)));
    }
    text
}

/// Creates `files` files of 9.5 KB on average, 20 per directory, three levels deep.
pub fn make_tree(root: &Path, files: usize) -> Result<Vec<PathBuf>> {
    let mut dice = Dice(42);
    let mut paths = Vec::with_capacity(files);
    for n in 0..files {
        let dir = root.join(format!("part{:02}/module{:03}", n / 400, n / 20));
        if n % 20 == 0 {
            fs::create_dir_all(&dir)?;
        }
        let path = dir.join(format!("file{n:05}.rs"));
        let size = 1_000 + dice.roll(17_000);
        fs::write(&path, text(&mut dice, size))?;
        paths.push(path);
    }
    // Wait, so that the modification times are clearly in the past and the files need not be read again to detect
    // changes.
    std::thread::sleep(std::time::Duration::from_millis(50));
    Ok(paths)
}

/// Inserts a line at a random position into `count` of the files.
pub fn edit(paths: &[PathBuf], count: usize, dice: &mut Dice) -> Result<()> {
    for _ in 0..count {
        let path = &paths[dice.roll(paths.len())];
        let mut text = fs::read_to_string(path)?;
        let at = dice.roll(text.lines().count().max(1));
        let line = text.lines().take(at).map(|line| line.len() + 1).sum::<usize>().min(text.len());
        text.insert_str(line, &format!("// edit {:x}\n", dice.roll(1 << 30)));
        fs::write(path, text)?;
    }
    Ok(())
}
