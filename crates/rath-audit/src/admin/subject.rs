//! Finds everything about a subject: records, queued posts, files, and names that cannot be erased.

use std::collections::{BTreeSet, HashMap, HashSet};

use rath_core::files::{TREE, Tree};
use rath_core::store::{Cursor, Scan};
use rath_core::{Digest, Record, Result, SessionId, blob_references};

use super::StoreAdmin;
use crate::bundle;
use crate::text_pattern::{StreamMatcher, TextPattern};

/// Where a subject was found.
#[derive(Clone, Debug, Default)]
pub struct SubjectMatches {
    /// Records that mention the subject, or refer to a blob that does.
    pub records: Vec<Record>,
    /// Queued posts that mention the subject, by session and post id.
    pub posts: Vec<(SessionId, String)>,
    /// The number of records whose actor has this name. Actors are in headers, which cannot be erased.
    pub actor_records: u64,
    /// Names of versioned files that mention the subject or have it in their name.
    pub files: BTreeSet<String>,
}

impl StoreAdmin {
    /// Searches the whole store for a subject. `progress` is called with the number of records read so far.
    pub async fn find_subject(&self, subject: &str, progress: &mut dyn FnMut(u64)) -> Result<SubjectMatches> {
        let pattern = TextPattern::new(subject);
        let mut matches = SubjectMatches::default();
        let mut blobs = BlobSearch::new(self, &pattern);
        let mut trees: HashSet<Digest> = HashSet::new();
        let (mut after, mut seen) = (Cursor::start(), 0);
        loop {
            let page = self.store.scan(Scan::store(after)).await?;
            for record in &page.records {
                seen += 1;
                let header = record.header_bytes();
                if pattern.in_body(header)
                    && record.header().is_ok_and(|header| {
                        pattern.in_text(&header.actor.name)
                            || header.actor.principal.is_some_and(|principal| pattern.in_text(&principal))
                    })
                {
                    matches.actor_records += 1;
                }
                let Some(body) = record.body_bytes() else { continue };
                let mut mentions = pattern.in_body(body);
                for blob in blob_references(body) {
                    if blob.media_type == TREE {
                        trees.insert(blob.digest);
                        continue;
                    }
                    mentions = mentions || blobs.has(blob.digest).await?;
                }
                if mentions {
                    matches.records.push(record.clone());
                }
            }
            progress(seen);
            if !page.more {
                break;
            }
            after = page.cursor;
        }
        // Records may be erased that referred to file trees; the folded states still refer to them.
        let folded = self.embedded.snapshot_blobs()?.into_iter();
        trees.extend(folded.filter(|blob| blob.media_type == TREE).map(|blob| blob.digest));
        let posts = self.embedded.queued_posts()?.into_iter();
        matches.posts =
            posts.filter(|(.., body)| pattern.in_body(body)).map(|(session, id, _)| (session, id)).collect();
        matches.files = self.files_mentioning(&pattern, &mut blobs, trees).await?;
        Ok(matches)
    }

    /// Files in these trees that contain the pattern or have it in their name.
    async fn files_mentioning(
        &self,
        pattern: &TextPattern,
        blobs: &mut BlobSearch<'_>,
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
                } else if pattern.in_text(&name) || blobs.has(node.sha256).await? {
                    found.insert(name);
                }
            }
        }
        Ok(found)
    }
}

/// Searches blobs, each once and in parts, so that none has to fit in memory.
struct BlobSearch<'a> {
    admin: &'a StoreAdmin,
    reader: StreamMatcher,
    known: HashMap<Digest, bool>,
}

impl<'a> BlobSearch<'a> {
    fn new(admin: &'a StoreAdmin, pattern: &TextPattern) -> Self {
        Self { admin, reader: StreamMatcher::new(vec![pattern.clone()]), known: HashMap::new() }
    }

    /// Whether a blob contains the pattern.
    async fn has(&mut self, digest: Digest) -> Result<bool> {
        if let Some(known) = self.known.get(&digest) {
            return Ok(*known);
        }
        let store = &self.admin.store;
        if let Some(mut parts) = bundle::parts(store, digest).await? {
            while let Some(part) = parts.next(store).await? {
                self.reader.part(&part);
            }
        }
        let found = self.reader.end();
        self.known.insert(digest, found);
        Ok(found)
    }
}

/// Whether a text mentions the subject, compared as in [`StoreAdmin::find_subject`]. Every text mentions an empty
/// subject.
pub fn mentions(text: &str, subject: &str) -> bool {
    TextPattern::new(subject).in_text(text)
}
