//! Everything about a subject: records, waiting posts, files, and names that cannot be erased.

use std::collections::{BTreeSet, HashMap, HashSet};

use rath_core::files::{TREE, Tree};
use rath_core::store::Scan;
use rath_core::{Digest, Record, Result, SessionId, blob_references};

use super::Care;
use crate::needle::Needle;

/// Contents above this are not searched as text.
const MOST: u64 = 16 << 20;

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
        let mut contents: HashMap<Digest, bool> = HashMap::new();
        let mut trees: HashSet<Digest> = HashSet::new();
        let (mut after, mut seen) = (0, 0);
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
                    if says || blob.bytes > MOST {
                        continue;
                    }
                    says = match contents.get(&blob.digest) {
                        Some(known) => *known,
                        None => {
                            let holds = self.content_has(&needle, blob.digest).await?;
                            contents.insert(blob.digest, holds);
                            holds
                        }
                    };
                }
                if says {
                    about.records.push(record.clone());
                }
            }
            progress(seen);
            if !page.more {
                break;
            }
            after = page.position;
        }
        let posts = self.embedded.waiting_posts()?.into_iter();
        about.posts = posts.filter(|(.., body)| needle.in_body(body)).map(|(session, id, _)| (session, id)).collect();
        about.files = self.files_about(&needle, trees).await?;
        Ok(about)
    }

    async fn content_has(&self, needle: &Needle, digest: Digest) -> Result<bool> {
        Ok(self.store.blob_get(digest).await?.is_some_and(|bytes| needle.in_content(&bytes)))
    }

    /// Files of these versions that hold it or are called so.
    async fn files_about(&self, needle: &Needle, trees: HashSet<Digest>) -> Result<BTreeSet<String>> {
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
                } else if needle.in_text(&name)
                    || node.size <= MOST && seen.insert(node.sha256) && self.content_has(needle, node.sha256).await?
                {
                    found.insert(name);
                }
            }
        }
        Ok(found)
    }
}
