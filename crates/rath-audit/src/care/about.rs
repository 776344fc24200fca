//! Everything about a subject: records, waiting posts, files, and names that cannot be erased.

use std::collections::{BTreeSet, HashMap, HashSet};

use rath_core::files::{TREE, Tree};
use rath_core::store::{Cursor, Scan};
use rath_core::{Digest, Record, Result, SessionId, blob_references};

use super::Care;
use crate::bundle;
use crate::needle::{Needle, Reader};

/// Where a subject was found.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Records that say it, or name a content that does.
    pub records: Vec<Record>,
    /// Posts that wait, by session and id.
    pub posts: Vec<(SessionId, String)>,
    /// Records whose maker is called so: makers stand in headers.
    pub made_by: u64,
    /// Files in versions that hold it, by their names.
    pub files: BTreeSet<String>,
}

impl Care {
    /// Reads the whole store for a subject. `progress` hears how many records were read.
    pub async fn about(&self, subject: &str, progress: &mut dyn FnMut(u64)) -> Result<About> {
        let needle = Needle::new(subject);
        let mut about = About::default();
        let mut contents = Contents::new(self, &needle);
        let mut trees: HashSet<Digest> = HashSet::new();
        let (mut after, mut seen) = (Cursor::start(), 0);
        loop {
            let page = self.store.scan(Scan::store(after)).await?;
            for record in &page.records {
                seen += 1;
                let header = record.header_bytes();
                if needle.in_body(header)
                    && record.header().is_ok_and(|header| {
                        needle.in_text(&header.actor.name)
                            || header.actor.principal.is_some_and(|principal| needle.in_text(&principal))
                    })
                {
                    about.made_by += 1;
                }
                let Some(body) = record.body_bytes() else { continue };
                let mut says = needle.in_body(body);
                for blob in blob_references(body) {
                    if blob.media_type == TREE {
                        trees.insert(blob.digest);
                        continue;
                    }
                    says = says || contents.has(blob.digest).await?;
                }
                if says {
                    about.records.push(record.clone());
                }
            }
            progress(seen);
            if !page.more {
                break;
            }
            after = page.cursor;
        }
        // Behind erased records only folded states name the files.
        let folded = self.embedded.folded_blobs()?.into_iter();
        trees.extend(folded.filter(|blob| blob.media_type == TREE).map(|blob| blob.digest));
        let posts = self.embedded.waiting_posts()?.into_iter();
        about.posts = posts.filter(|(.., body)| needle.in_body(body)).map(|(session, id, _)| (session, id)).collect();
        about.files = self.files_about(&needle, &mut contents, trees).await?;
        Ok(about)
    }

    /// Files of these versions that hold it or are called so.
    async fn files_about(
        &self,
        needle: &Needle,
        contents: &mut Contents<'_>,
        trees: HashSet<Digest>,
    ) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        let mut open: Vec<(Digest, String)> = trees.into_iter().map(|digest| (digest, String::new())).collect();
        let mut seen: HashSet<Digest> = HashSet::new();
        while let Some((digest, path)) = open.pop() {
            if !seen.insert(digest) {
                continue;
            }
            let Some(bytes) = self.store.blob_get(digest).await? else { continue };
            let Ok(tree) = Tree::decode(&bytes) else { continue };
            for entry in tree.entries {
                let name = format!("{path}{}", entry.name);
                let node = entry.node;
                if node.is_directory() {
                    open.push((node.sha256, format!("{name}/")));
                } else if needle.in_text(&name) || contents.has(node.sha256).await? {
                    found.insert(name);
                }
            }
        }
        Ok(found)
    }
}

/// Contents that are looked at, each once and by parts, so that none is too long.
struct Contents<'a> {
    care: &'a Care,
    reader: Reader,
    known: HashMap<Digest, bool>,
}

impl<'a> Contents<'a> {
    fn new(care: &'a Care, needle: &Needle) -> Self {
        Self { care, reader: Reader::new(vec![needle.clone()]), known: HashMap::new() }
    }

    /// Whether a content has it.
    async fn has(&mut self, digest: Digest) -> Result<bool> {
        if let Some(known) = self.known.get(&digest) {
            return Ok(*known);
        }
        let store = &self.care.store;
        if let Some(mut parts) = bundle::parts(store, digest).await? {
            while let Some(part) = parts.next(store).await? {
                self.reader.part(&part);
            }
        }
        let holds = self.reader.end();
        self.known.insert(digest, holds);
        Ok(holds)
    }
}

/// Whether a text says what is looked for, as [`Care::about`] compares. A subject without words is in every text.
pub fn says(text: &str, subject: &str) -> bool {
    Needle::new(subject).in_text(text)
}
