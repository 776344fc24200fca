//! Writes parsed files into a store.

use std::sync::Arc;

use rath_core::body::{
    Assistant, Block, ImportSource, Imported, ImportedParent, Linked, Repair, Sourced, System, ToolResult, User,
};
use rath_core::store::{Chunk, Lookup, Scan, SessionFilter, Store};
use rath_core::{Actor, Blob, BlobRef, Digest, Kind, Point, Reference, Session, SessionId, View};
use serde::Serialize;

use super::{ImportError, ImportedContent, ImportedMessage, ParsedConversation};

/// The media type of imported files.
const LINES: &str = "application/x-ndjson";

/// Longer files are stored in chunks of this length, in bytes.
const CHUNK: usize = 1 << 20;

/// What is known of a session that was imported before.
struct Known {
    session: SessionId,
    imported: Imported,
    /// Every file that the session was imported from, the last one last.
    sources: Vec<BlobRef>,
}

/// Imports files into a store. Recognizes files that were imported before.
pub struct Importer {
    store: Arc<dyn Store>,
    actor: Actor,
    known: Vec<Known>,
    force_new: bool,
}

/// The result of importing a file.
#[derive(Clone, Debug, Serialize)]
pub struct ImportedFile {
    /// The session.
    pub session: SessionId,
    /// What was done with the file.
    #[serde(flatten)]
    pub outcome: ImportOutcome,
    /// Deviations from the format, and how they were handled.
    pub repairs: Vec<Repair>,
}

/// What was done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum ImportOutcome {
    /// A new session was created.
    New {
        /// The number of records that were written.
        records: u64,
    },
    /// The file had grown, and its session was extended.
    #[serde(rename = "gone_on")]
    Extended {
        /// The number of records that were written.
        records: u64,
    },
    /// The file was imported before; nothing was written.
    Known,
}

impl Importer {
    /// Reads which files were imported before. With `force_new`, every file becomes a new session instead.
    pub async fn new(store: &Arc<dyn Store>, actor: Actor, force_new: bool) -> Result<Self, ImportError> {
        let mut known = Vec::new();
        for row in store.sessions(SessionFilter::All.into()).await? {
            if row.first_kind != Kind::Imported {
                continue;
            }
            let first = store.get(Lookup::At(Point { session: row.id, seq: 0 })).await?;
            let Some(imported) = first.first().and_then(|first| first.body::<Imported>().ok()) else { continue };
            let mut sources = vec![imported.source.clone()];
            let mut from = 0;
            while from <= row.seq {
                let page = store.scan(Scan::session(row.id, from, row.seq).kinds(&[Kind::Linked])).await?;
                for record in &page.records {
                    let linked = record.body::<Linked>().ok().filter(|linked| linked.system == imported.from);
                    sources.extend(linked.and_then(|linked| linked.source));
                }
                from = if page.more { page.position } else { row.seq + 1 };
            }
            known.push(Known { session: row.id, imported, sources });
        }
        Ok(Self { store: store.clone(), actor, known, force_new })
    }

    /// Imports a parsed file.
    pub async fn import(
        &mut self,
        name: &str,
        bytes: &[u8],
        parsed: ParsedConversation,
    ) -> Result<ImportedFile, ImportError> {
        let digest = Digest::of(bytes);
        let source = BlobRef { digest, bytes: bytes.len() as u64, media_type: LINES.into() };
        let known = match self.force_new {
            true => None,
            false => self.find(name, &source, &parsed),
        };
        match known {
            None => self.create(name, bytes, source, parsed).await,
            Some(at) => self.extend(at, name, bytes, source, parsed).await,
        }
    }

    /// The session that a file belongs to: by its exact bytes, by its id in the other system, or by its name.
    fn find(&self, name: &str, source: &BlobRef, parsed: &ParsedConversation) -> Option<usize> {
        let same_format = |known: &&Known| known.imported.from == parsed.from;
        let at = |known: &Known| self.known.iter().position(|other| other.session == known.session);
        let mut of_format = self.known.iter().filter(same_format);
        let exact = of_format.find(|known| known.sources.iter().any(|have| have.digest == source.digest));
        let by_name = |known: &&Known| match &parsed.original {
            Some(_) => known.imported.original == parsed.original,
            None => known.imported.original.is_none() && known.imported.name.as_deref() == Some(name),
        };
        exact.or_else(|| self.known.iter().filter(same_format).find(by_name)).and_then(at)
    }

    async fn create(
        &mut self,
        name: &str,
        bytes: &[u8],
        source: BlobRef,
        parsed: ParsedConversation,
    ) -> Result<ImportedFile, ImportError> {
        self.keep(bytes, &source, None).await?;
        let mut parents = Vec::new();
        for original in &parsed.parents {
            let known = self
                .known
                .iter()
                .find(|known| known.imported.from == parsed.from && known.imported.original.as_ref() == Some(original));
            let here = match known {
                Some(known) => Some(View::of(&self.store, known.session, None).await?.reference()),
                None => None,
            };
            parents.push(ImportedParent { original: original.clone(), here });
        }
        let imported = Imported {
            from: parsed.from.into(),
            source: source.clone(),
            name: Some(name.into()),
            original: parsed.original,
            created_at: parsed.created_at,
            lineage: parsed.lineage,
            parents,
            trailer: parsed.trailer,
            repairs: parsed.repairs.clone(),
        };
        let mut session = Session::import(&self.store, self.actor.clone(), &imported);
        session.set_title(name)?;
        for message in parsed.messages {
            append(&mut session, message, source.digest)?;
        }
        session.publish().await?;
        let (id, records) = (session.id(), session.head().seq + 1);
        self.known.push(Known { session: id, imported, sources: vec![source] });
        Ok(ImportedFile { session: id, outcome: ImportOutcome::New { records }, repairs: parsed.repairs })
    }

    async fn extend(
        &mut self,
        at: usize,
        name: &str,
        bytes: &[u8],
        source: BlobRef,
        parsed: ParsedConversation,
    ) -> Result<ImportedFile, ImportError> {
        let Known { session, sources, .. } = &self.known[at];
        let (session, repairs) = (*session, parsed.repairs.clone());
        let Some(last) = sources.last().cloned() else { return self.create(name, bytes, source, parsed).await };
        let known = ImportedFile { session, outcome: ImportOutcome::Known, repairs: Vec::new() };
        let mut is_stored = sources.iter().any(|have| have.digest == source.digest);
        let shared = usize::try_from(last.bytes).unwrap_or(usize::MAX);
        if !is_stored && bytes.get(..shared).map(Digest::of) != Some(last.digest) {
            let before = self.store.blob_get(last.digest).await?.unwrap_or_default();
            is_stored = before.starts_with(bytes);
            if !is_stored {
                let same = before.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                let line = 1 + bytes[..same].iter().filter(|byte| **byte == b'\n').count() as u64;
                return Err(ImportError::Differs { name: name.into(), session, line });
            }
        }
        let cannot_continue = |why: String| ImportError::CannotContinue { name: name.into(), session, why };
        let lines = self.lines_of(session).await?;
        // If the session itself came from a bundle, it may have only the first part of the file.
        if is_stored && parsed.messages.len() as u64 <= lines.count + lines.erased {
            return Ok(known);
        }
        if let Some(why) = lines.blocked {
            return Err(cannot_continue(why));
        }
        let Lines { count, last_line, .. } = lines;
        let is_in_order = parsed.messages.is_sorted_by_key(|message| message.line > last_line);
        let (before, new): (Vec<ImportedMessage>, Vec<ImportedMessage>) =
            parsed.messages.into_iter().partition(|message| message.line <= last_line);
        if !is_in_order {
            let why = "its new lines belong between imported ones; --again imports the file as a new session";
            return Err(cannot_continue(why.into()));
        }
        if before.len() as u64 != count {
            let why = "its new lines replace imported ones; --again imports the file as a new session";
            return Err(cannot_continue(why.into()));
        }
        // Also a known file: a bundle may have omitted it.
        self.keep(bytes, &source, Some(&last)).await?;
        let mut open = Session::open(&self.store, session, self.actor.clone()).await?;
        if !is_stored {
            open.append(Linked {
                system: parsed.from.into(),
                uri: Some(name.into()),
                source: Some(source.clone()),
                why: Some("the file has grown".into()),
                heads: Vec::new(),
                repairs: repairs.clone(),
            })?;
        }
        let records = new.len() as u64;
        for message in new {
            append(&mut open, message, source.digest)?;
        }
        open.publish().await?;
        if !is_stored {
            self.known[at].sources.push(source);
        }
        Ok(ImportedFile { session, outcome: ImportOutcome::Extended { records }, repairs })
    }

    /// Reads which lines of its files a session has.
    async fn lines_of(&self, session: SessionId) -> Result<Lines, ImportError> {
        let Reference { seq, .. } = View::of(&self.store, session, None).await?.reference();
        let (mut lines, mut from) = (Lines::default(), 0);
        loop {
            let page = self.store.scan(Scan::session(session, from, seq)).await?;
            for record in &page.records {
                let kind = record.kind();
                let is_said = matches!(kind, Kind::System | Kind::User | Kind::Assistant | Kind::ToolResult);
                match ImportSource::of(record) {
                    Ok(Some(source)) => {
                        lines.count += 1;
                        lines.last_line = source.line.max(lines.last_line);
                    }
                    _ if matches!(kind, Kind::Imported | Kind::Labelled | Kind::Linked | Kind::Note) => {}
                    _ => {
                        let is_erased = is_said && record.body_bytes().is_none();
                        let why = if is_erased {
                            "a record was erased:"
                        } else {
                            "the session was continued after the import:"
                        };
                        lines.erased += u64::from(is_erased);
                        lines.blocked.get_or_insert_with(|| format!("{why} {}", record.point()));
                    }
                }
            }
            if !page.more {
                return Ok(lines);
            }
            from = page.position;
        }
    }

    /// Stores a file as a blob. If a long file grew, only the part after the last complete chunk is written.
    async fn keep(&self, bytes: &[u8], whole: &BlobRef, before: Option<&BlobRef>) -> Result<(), ImportError> {
        // Short files are never stored in chunks: garbage collection recognizes a joined blob by its length.
        if bytes.len() <= CHUNK {
            self.store.blob_put(vec![Blob::new(bytes, LINES)]).await?;
            return Ok(());
        }
        let mut chunks = match before {
            Some(before) => self.store.blob_chunks(before.digest).await?.unwrap_or_default(),
            None => Vec::new(),
        };
        let whole_ones = chunks.iter().take_while(|chunk| chunk.bytes == CHUNK as u64).count();
        chunks.truncate(whole_ones);
        let kept: u64 = chunks.iter().map(|chunk| chunk.bytes).sum();
        for chunk in bytes.get(usize::try_from(kept).unwrap_or(0)..).unwrap_or_default().chunks(CHUNK) {
            let blob = Blob::new(chunk, LINES);
            chunks.push(Chunk { digest: blob.reference.digest, bytes: blob.reference.bytes });
            self.store.blob_put(vec![blob]).await?;
        }
        Ok(self.store.blob_join(whole.clone(), chunks).await?)
    }
}

/// Which lines of its files a session has.
#[derive(Default)]
struct Lines {
    /// The number of records that come from lines.
    count: u64,
    /// The last line that a record comes from.
    last_line: u64,
    /// The number of records without a body that may have come from lines.
    erased: u64,
    /// Why the session cannot be extended from its file.
    blocked: Option<String>,
}

/// Adds a record for one message.
fn append(session: &mut Session, message: ImportedMessage, blob: Digest) -> Result<(), ImportError> {
    let ImportedMessage { line, time, content } = message;
    let source = ImportSource { blob, line, time };
    match content {
        ImportedContent::System(text) => session.append(Sourced { body: System { text: text.into() }, source })?,
        ImportedContent::User(text) => {
            let body = User { text: text.into(), post: None, attached: Vec::new() };
            session.append(Sourced { body, source })?
        }
        ImportedContent::Assistant { text, calls } => {
            let text = Some(text).filter(|text| !text.is_empty()).map(|text| Block::Text { text: text.into() });
            let calls = calls.into_iter().map(|call| Block::ToolUse {
                id: call.id,
                name: call.name,
                arguments: call.arguments.into(),
            });
            let body = Assistant::new(text.into_iter().chain(calls).collect());
            session.append(Sourced { body, source })?
        }
        ImportedContent::Result { call, text } => {
            let shown = Some(text.into());
            let body = ToolResult { shown, ..ToolResult::new(call) };
            session.append(Sourced { body, source })?
        }
    };
    Ok(())
}
