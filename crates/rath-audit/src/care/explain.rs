//! Whether what a store lacks is gone on purpose.

use std::collections::{HashMap, HashSet};

use rath_core::body::Forked;
use rath_core::store::Lookup;
use rath_core::verify::{Finding, Report, What};
use rath_core::{Digest, Point, Result, SessionId};

use super::{Care, Erasures};
use crate::bundle::LeftOut;

/// After so many findings the rest is not worth reading.
const ENOUGH: usize = 100;

impl Care {
    /// Holds what a verification found missing against what the operator session says. A blob that a bundle came without
    /// is not lost: such findings are taken away, and counted. A body that is gone although no erasure names it, and that
    /// no bundle came without, was taken out: that is a finding. Where the operator session cannot be read nothing is
    /// explained.
    pub async fn explain(&self, report: &mut Report) -> u64 {
        let erasures = Erasures::of(&self.store).await.unwrap_or_default();
        let left_out = LeftOut::of(&self.store).await.unwrap_or_default();
        self.add_missing_bodies(report, &erasures, &left_out);
        self.excuse_blobs(report, &left_out).await.unwrap_or(0)
    }

    fn add_missing_bodies(&self, report: &mut Report, erasures: &Erasures, left_out: &LeftOut) {
        let mut erased: HashMap<SessionId, Vec<(u64, u64)>> = HashMap::new();
        for stretch in erasures.all().iter().flat_map(|erasure| &erasure.erased.records) {
            erased.entry(stretch.session).or_default().push((stretch.from, stretch.to));
        }
        let left_out: HashSet<Point> = left_out.records.values().map(|left| left.record.point()).collect();
        let is_explained = |point: Point| {
            let mut stretches = erased.get(&point.session).into_iter().flatten();
            stretches.any(|(from, to)| (*from..=*to).contains(&point.seq)) || left_out.contains(&point)
        };
        let gone = report.without_body.iter().flat_map(|stretch| stretch.points());
        let unexplained = gone.filter(|point| !is_explained(*point)).take(ENOUGH);
        let findings: Vec<Finding> = unexplained
            .map(|Point { session, seq }| Finding {
                what: What::BodyMissing,
                session: Some(session),
                seq: Some(seq),
                why: "its body is gone: no erasure is on record for it, and no bundle came without it".into(),
            })
            .collect();
        report.findings.extend(findings);
    }

    async fn excuse_blobs(&self, report: &mut Report, left_out: &LeftOut) -> Result<u64> {
        let blob = |finding: &Finding| match finding.what {
            What::BlobMissing => finding.why.strip_prefix("blob ")?.get(..64)?.parse::<Digest>().ok(),
            _ => None,
        };
        let missing: HashSet<Digest> =
            report.findings.iter().filter_map(blob).filter(|digest| left_out.blobs.contains_key(digest)).collect();
        if missing.is_empty() {
            return Ok(0);
        }
        let named = self.embedded.who_names(&missing)?;
        let before = report.findings.len();
        let mut lost = Vec::new();
        for finding in std::mem::take(&mut report.findings) {
            if let Some(digest) = blob(&finding) {
                let mut by = named.get(&digest).cloned().unwrap_or_default();
                // What only a version of files holds is named by the record of that version.
                by.extend(finding.session.zip(finding.seq).map(|(session, seq)| Point { session, seq }));
                for point in &mut by {
                    *point = self.line_of(*point).await;
                }
                if left_out.explains(digest, &by) {
                    continue;
                }
            }
            lost.push(finding);
        }
        report.findings = lost;
        Ok((before - report.findings.len()) as u64)
    }

    /// A fork that says again what a line of a bundle said came with that line.
    async fn line_of(&self, point: Point) -> Point {
        let first = self.store.get(Lookup::At(Point { session: point.session, seq: 0 })).await.unwrap_or_default();
        let copied = first.first().and_then(|first| first.body::<Forked>().ok()?.copied);
        copied.map_or(point, |copied| copied.head.point())
    }
}
