//! Explains what a verification found missing: what was erased or omitted on purpose is not lost.

use std::collections::{HashMap, HashSet};

use rath_core::body::Forked;
use rath_core::store::Lookup;
use rath_core::verify::{Finding, FindingKind, VerifyReport};
use rath_core::{Digest, Point, Result, SessionId};

use super::{Erasures, StoreAdmin};
use crate::bundle::Omissions;

/// The maximum number of findings about missing bodies.
const MAX_FINDINGS: usize = 100;

impl StoreAdmin {
    /// Compares the findings of a verification with the operator session. Removes findings about blobs that a bundle
    /// omitted, and returns their number. Adds findings about missing bodies that neither an erasure nor a bundle
    /// explains. If the operator session cannot be read, nothing is explained.
    pub async fn explain(&self, report: &mut VerifyReport) -> u64 {
        let erasures = Erasures::of(&self.store).await.unwrap_or_default();
        let omissions = Omissions::of(&self.store).await.unwrap_or_default();
        self.add_missing_bodies(report, &erasures, &omissions);
        self.excuse_blobs(report, &omissions).await.unwrap_or(0)
    }

    fn add_missing_bodies(&self, report: &mut VerifyReport, erasures: &Erasures, omissions: &Omissions) {
        let mut erased: HashMap<SessionId, Vec<(u64, u64)>> = HashMap::new();
        for range in erasures.all().iter().flat_map(|erasure| &erasure.erased.records) {
            erased.entry(range.session).or_default().push((range.from, range.to));
        }
        let omissions: HashSet<Point> = omissions.records.values().map(|left| left.record.point()).collect();
        let is_explained = |point: Point| {
            let mut ranges = erased.get(&point.session).into_iter().flatten();
            ranges.any(|(from, to)| (*from..=*to).contains(&point.seq)) || omissions.contains(&point)
        };
        let gone = report.without_body.iter().flat_map(|range| range.points());
        let unexplained = gone.filter(|point| !is_explained(*point)).take(MAX_FINDINGS);
        let findings: Vec<Finding> = unexplained
            .map(|Point { session, seq }| Finding {
                what: FindingKind::BodyMissing,
                session: Some(session),
                seq: Some(seq),
                why: "its body is missing: no recorded erasure and no bundle explains it".into(),
            })
            .collect();
        report.findings.extend(findings);
    }

    async fn excuse_blobs(&self, report: &mut VerifyReport, omissions: &Omissions) -> Result<u64> {
        let blob = |finding: &Finding| match finding.what {
            FindingKind::BlobMissing => finding.why.strip_prefix("blob ")?.get(..64)?.parse::<Digest>().ok(),
            _ => None,
        };
        let missing: HashSet<Digest> =
            report.findings.iter().filter_map(blob).filter(|digest| omissions.blobs.contains_key(digest)).collect();
        if missing.is_empty() {
            return Ok(0);
        }
        let named = self.embedded.blob_referrers(&missing)?;
        let before = report.findings.len();
        let mut lost = Vec::new();
        for finding in std::mem::take(&mut report.findings) {
            if let Some(digest) = blob(&finding) {
                let mut named_by = named.get(&digest).cloned().unwrap_or_default();
                // A blob that only a file tree refers to counts as named by the record of that version.
                named_by.extend(finding.session.zip(finding.seq).map(|(session, seq)| Point { session, seq }));
                for point in &mut named_by {
                    *point = self.imported_head(*point).await;
                }
                if omissions.explains(digest, &named_by) {
                    continue;
                }
            }
            lost.push(finding);
        }
        report.findings = lost;
        Ok((before - report.findings.len()) as u64)
    }

    /// If the session is a fork that repeats records of a bundle, the head of the bundle's session; otherwise the point
    /// itself.
    async fn imported_head(&self, point: Point) -> Point {
        let first = self.store.get(Lookup::At(Point { session: point.session, seq: 0 })).await.unwrap_or_default();
        let tail = first.first().and_then(|first| first.body::<Forked>().ok()?.imported_tail);
        tail.map_or(point, |tail| tail.head.point())
    }
}
