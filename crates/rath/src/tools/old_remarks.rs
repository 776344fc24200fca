//! Reading remarks of early records, which were the only place of this information. Later records have fields for it,
//! and this module reads only records without these fields. The texts below are stored and must not change.

use rath_core::body::{BackgroundCommand, BackgroundStatus};

use super::retained::RetainedByCall;

const STATUSES: [(&str, BackgroundStatus); 4] = [
    (" runs on in the background", BackgroundStatus::Running),
    (" has ended", BackgroundStatus::Ended),
    (" is gone with the process that started it", BackgroundStatus::LostWithProcess),
    (" is gone with the sandbox that it ran in", BackgroundStatus::LostWithSandbox),
];
const CONTINUED: &str = " has what was left out";

/// Parses remarks.
pub(super) fn read(remarks: &[String]) -> RetainedByCall {
    let mut kept = RetainedByCall::default();
    for remark in remarks {
        let number = |id: &str, prefix: &str| id.strip_prefix(prefix)?.parse::<u64>().ok();
        for (end, status) in STATUSES {
            if let Some(id) = remark.strip_suffix(end).filter(|id| number(id, "bg-").is_some()) {
                kept.background.push(BackgroundCommand { id: id.into(), status });
            }
        }
        kept.rest_ids
            .extend(remark.strip_suffix(CONTINUED).filter(|id| number(id, "out-").is_some()).map(str::to_owned));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_of_early_records_are_read() {
        let remarks = ["bg-1 runs on in the background", "bg-2 has ended", "out-3 has what was left out"];
        let more = ["bg-4 is gone with the process that started it", "bg-5 is gone with the sandbox that it ran in"];
        let none = ["the door has ended", "bg-x has ended", "out-3 is long"];
        let all: Vec<String> = remarks.into_iter().chain(more).chain(none).map(str::to_owned).collect();
        let kept = read(&all);
        let found: Vec<_> = kept.background.iter().map(|one| (one.id.as_str(), one.status)).collect();
        assert_eq!(
            found,
            [
                ("bg-1", BackgroundStatus::Running),
                ("bg-2", BackgroundStatus::Ended),
                ("bg-4", BackgroundStatus::LostWithProcess),
                ("bg-5", BackgroundStatus::LostWithSandbox),
            ]
        );
        assert_eq!(kept.rest_ids, ["out-3"]);
    }
}
