//! The documentation is complete: every link leads to a page and a heading, and the book contains every page.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All Markdown files below `directory`.
fn pages_below(directory: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// The text of a page without its code blocks.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    let mut in_block = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// The anchors of a page's headings, as code hosts and mdBook derive them.
fn anchors(page: &Path) -> HashSet<String> {
    let prose = prose(page);
    let headings = prose
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    headings
        .map(|heading| {
            let kept = heading.to_lowercase().replace(|c: char| !(c.is_alphanumeric() || " -_".contains(c)), "");
            kept.replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let root = project();
    let mut pages = pages_below(&root.join("docs"));
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    let (code, link) = (Regex::new("`[^`\n]*`").unwrap(), Regex::new(r"\]\(([^)\s]*)\)").unwrap());
    let mut broken = Vec::new();
    for page in pages {
        let prose = prose(&page);
        for found in link.captures_iter(&code.replace_all(&prose, "")) {
            let address = &found[1];
            if address.starts_with("http") {
                continue;
            }
            let (path, anchor) = address.split_once('#').unwrap_or((address, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            if !target.exists() || (!anchor.is_empty() && !anchors(&target).contains(anchor)) {
                broken.push(format!("{}: {address}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_book_contains_every_page() {
    let docs = project().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let is_missing = |page: &&PathBuf| {
        let name = page.strip_prefix(&docs).unwrap().display().to_string();
        name != "SUMMARY.md" && !summary.contains(&format!("({name})"))
    };
    let pages = pages_below(&docs);
    let missing: Vec<&PathBuf> = pages.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not list {missing:?}");
}

#[test]
fn indexes_list_every_decision_and_every_error() {
    let docs = project().join("docs");
    for (directory, index) in [("decisions", "decisions/README.md"), ("errors", "reference/errors.md")] {
        let index = fs::read_to_string(docs.join(index)).unwrap();
        for page in pages_below(&docs.join(directory)) {
            let name = page.file_name().unwrap().to_str().unwrap();
            assert!(
                name == "README.md" || index.contains(&format!("{name})")),
                "{directory}/{name} is not in its index"
            );
        }
    }
}
