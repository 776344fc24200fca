//! Writes what was read from files into a store.

use std::sync::Arc;

use rath_core::body::{
    Assistant, Block, Imported, ImportedParent, Linked, Repair, Source, Sourced, System, ToolResult, User,
};
use rath_core::store::{Lookup, Piece, Scan, Store, Which};
use rath_core::{Actor, Blob, BlobRef, Digest, Kind, Point, Reference, Session, SessionId, View};
use serde::Serialize;

use super::{Error, Parsed, Said, What};

/// What is said of a file of lines.
const LINES: &str = "application/x-ndjson";

/// Files above this are kept in pieces of this length.
const PIECE: usize = 1 << 20;

/// A session that was imported, as far as later files ask.
struct Known {
    session: SessionId,
    imported: Imported,
    /// Every file that it was imported from, the last one last.
    sources: Vec<BlobRef>,
}

/// Takes files into a store, and knows which ones were taken in before.
pub struct Intake {
    store: Arc<dyn Store>,
    actor: Actor,
    known: Vec<Known>,
    anew: bool,
}

/// What became of a file.
#[derive(Clone, Debug, Serialize)]
pub struct Taken {
    /// The session.
    pub session: SessionId,
    /// What was done.
    #[serde(flatten)]
    pub fate: Fate,
    /// What was not as the format wants it.
    pub repairs: Vec<Repair>,
}

/// What was done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// It is a new session with so many records.
    New {
        /// Records.
        records: u64,
    },
    /// It had grown: the session went on by so many records.
    GoneOn {
        /// Records.
        records: u64,
    },
    /// It was taken in before.
    Known,
}

impl Intake {
    /// Looks through what was imported before. With `anew`, that is not asked: every file becomes a session.
    pub async fn new(store: &Arc<dyn Store>, actor: Actor, anew: bool) -> Result<Self, Error> {
        let mut known = Vec::new();
        for row in store.sessions(Which::All.into()).await? {
            if row.birth != Kind::Imported {
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
        Ok(Self { store: store.clone(), actor, known, anew })
    }

    /// Takes in a file that was read.
    pub async fn take(&mut self, name: &str, bytes: &[u8], parsed: Parsed) -> Result<Taken, Error> {
        let digest = Digest::of(bytes);
        let source = BlobRef { digest, bytes: bytes.len() as u64, media_type: LINES.into() };
        let known = match self.anew {
            true => None,
            false => self.find(name, &source, &parsed),
        };
        match known {
            None => self.begin(name, bytes, source, parsed).await,
            Some(at) => self.go_on(at, name, bytes, source, parsed).await,
        }
    }

    /// The session that a file belongs to: by its exact bytes, by the id it has in its system, or by its name.
    fn find(&self, name: &str, source: &BlobRef, parsed: &Parsed) -> Option<usize> {
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

    async fn begin(&mut self, name: &str, bytes: &[u8], source: BlobRef, parsed: Parsed) -> Result<Taken, Error> {
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
        for said in parsed.said {
            say(&mut session, said, source.digest)?;
        }
        session.publish().await?;
        let (id, records) = (session.id(), session.head().seq + 1);
        self.known.push(Known { session: id, imported, sources: vec![source] });
        Ok(Taken { session: id, fate: Fate::New { records }, repairs: parsed.repairs })
    }

    async fn go_on(
        &mut self,
        at: usize,
        name: &str,
        bytes: &[u8],
        source: BlobRef,
        parsed: Parsed,
    ) -> Result<Taken, Error> {
        let Known { session, sources, .. } = &self.known[at];
        let (session, repairs) = (*session, parsed.repairs.clone());
        let Some(last) = sources.last().cloned() else { return self.begin(name, bytes, source, parsed).await };
        let known = Taken { session, fate: Fate::Known, repairs: Vec::new() };
        let mut is_kept = sources.iter().any(|have| have.digest == source.digest);
        let shared = usize::try_from(last.bytes).unwrap_or(usize::MAX);
        if !is_kept && bytes.get(..shared).map(Digest::of) != Some(last.digest) {
            let before = self.store.blob_get(last.digest).await?.unwrap_or_default();
            is_kept = before.starts_with(bytes);
            if !is_kept {
                let same = before.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                let line = 1 + bytes[..same].iter().filter(|byte| **byte == b'\n').count() as u64;
                return Err(Error::Differs { name: name.into(), session, line });
            }
        }
        let stuck = |why: String| Error::Stuck { name: name.into(), session, why };
        let lines = self.lines_of(session).await?;
        // A bundle may have brought no more than the beginning of what the file says.
        if is_kept && parsed.said.len() as u64 <= lines.count + lines.erased {
            return Ok(known);
        }
        if let Some(why) = lines.ended {
            return Err(stuck(why));
        }
        let Lines { count, until, .. } = lines;
        let is_in_order = parsed.said.is_sorted_by_key(|said| said.line > until);
        let (before, new): (Vec<Said>, Vec<Said>) = parsed.said.into_iter().partition(|said| said.line <= until);
        if !is_in_order {
            let why = "its new lines belong between some that were taken in; --anew makes a session of its own";
            return Err(stuck(why.into()));
        }
        if before.len() as u64 != count {
            let why = "its new lines replace some that were taken in; --anew makes a session of its own";
            return Err(stuck(why.into()));
        }
        // Also a file that is known: a bundle may have come without it.
        self.keep(bytes, &source, Some(&last)).await?;
        let mut open = Session::open(&self.store, session, self.actor.clone()).await?;
        if !is_kept {
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
        for said in new {
            say(&mut open, said, source.digest)?;
        }
        open.publish().await?;
        if !is_kept {
            self.known[at].sources.push(source);
        }
        Ok(Taken { session, fate: Fate::GoneOn { records }, repairs })
    }

    /// What a session has of the lines of its files.
    async fn lines_of(&self, session: SessionId) -> Result<Lines, Error> {
        let Reference { seq, .. } = View::of(&self.store, session, None).await?.reference();
        let (mut lines, mut from) = (Lines::default(), 0);
        loop {
            let page = self.store.scan(Scan::session(session, from, seq)).await?;
            for record in &page.records {
                let kind = record.kind();
                let is_said = matches!(kind, Kind::System | Kind::User | Kind::Assistant | Kind::ToolResult);
                match Source::of(record) {
                    Ok(Some(source)) => {
                        lines.count += 1;
                        lines.until = source.line.max(lines.until);
                    }
                    _ if matches!(kind, Kind::Imported | Kind::Labelled | Kind::Linked | Kind::Note) => {}
                    _ => {
                        let is_erased = is_said && record.body_bytes().is_none();
                        let why = if is_erased { "it was erased at" } else { "it went on by itself at" };
                        lines.erased += u64::from(is_erased);
                        lines.ended.get_or_insert_with(|| format!("{why} {}", record.point()));
                    }
                }
            }
            if !page.more {
                return Ok(lines);
            }
            from = page.position;
        }
    }

    /// Keeps a file as a blob. Of a long one that grew only what is new is written, from the last whole piece on.
    async fn keep(&self, bytes: &[u8], whole: &BlobRef, before: Option<&BlobRef>) -> Result<(), Error> {
        // What is joined is never short: that is how it is known for joined when garbage is looked for.
        if bytes.len() <= PIECE {
            self.store.blob_put(vec![Blob::new(bytes, LINES)]).await?;
            return Ok(());
        }
        let mut pieces = match before {
            Some(before) => self.store.blob_pieces(before.digest).await?.unwrap_or_default(),
            None => Vec::new(),
        };
        let whole_ones = pieces.iter().take_while(|piece| piece.bytes == PIECE as u64).count();
        pieces.truncate(whole_ones);
        let kept: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        for piece in bytes.get(usize::try_from(kept).unwrap_or(0)..).unwrap_or_default().chunks(PIECE) {
            let blob = Blob::new(piece, LINES);
            pieces.push(Piece { digest: blob.reference.digest, bytes: blob.reference.bytes });
            self.store.blob_put(vec![blob]).await?;
        }
        Ok(self.store.blob_join(whole.clone(), pieces).await?)
    }
}

/// What a session has of the lines of its files.
#[derive(Default)]
struct Lines {
    /// Records that come from lines.
    count: u64,
    /// The furthest of those.
    until: u64,
    /// Records that may have come from lines, and whose bodies are gone.
    erased: u64,
    /// Why it cannot go on as its files do.
    ended: Option<String>,
}

/// Adds a record for one thing said.
fn say(session: &mut Session, said: Said, blob: Digest) -> Result<(), Error> {
    let Said { line, time, what } = said;
    let source = Source { blob, line, time };
    match what {
        What::System(text) => session.append(Sourced { body: System { text: text.into() }, source })?,
        What::User(text) => {
            let body = User { text: text.into(), post: None, attached: Vec::new() };
            session.append(Sourced { body, source })?
        }
        What::Assistant { text, calls } => {
            let text = Some(text).filter(|text| !text.is_empty()).map(|text| Block::Text { text: text.into() });
            let calls = calls.into_iter().map(|call| Block::ToolUse {
                id: call.id,
                name: call.name,
                arguments: call.arguments.into(),
            });
            let body = Assistant::new(text.into_iter().chain(calls).collect());
            session.append(Sourced { body, source })?
        }
        What::Result { call, text } => {
            let shown = Some(text.into());
            let body = ToolResult { shown, ..ToolResult::new(call) };
            session.append(Sourced { body, source })?
        }
    };
    Ok(())
}
