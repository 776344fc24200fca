//! Test support that several crates share.
//!
//! It contains the conformance suites for stores ([`store_conformance!`]) and sandbox backends
//! ([`sandbox_conformance!`]), a simple model of sessions to compare the real ones with ([`world`]), a simulator of the
//! stores' commit protocol ([`simulation`]), fault injection for the file operations of a process ([`faults`]), and
//! simulated power cuts ([`power`]).

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test kit fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests are configured by the environment")]

pub mod conformance;
mod crashing_store;
pub mod faults;
pub mod power;
mod requirement;
pub mod sandbox;
mod scale;
pub mod simulation;
pub mod traces;
pub mod world;

pub use crashing_store::{CrashPoint, CrashingStore};
pub use requirement::{REQUIRE, Requirement};
pub use scale::{SCALE, scaled};

/// Expands the conformance suite to tests for one store: `store_conformance!(make)`, where `make` returns an empty
/// store and a value that must live as long as the store.
#[macro_export]
macro_rules! store_conformance {
    ($make:path) => {
        $crate::store_conformance!($make =>
            published_records_are_returned_unchanged, unknown_sessions_are_errors, commits_are_idempotent,
            a_moved_head_is_a_conflict, a_batch_is_committed_whole_or_not_at_all,
            a_stale_fencing_token_is_refused, only_one_process_can_lease_a_session,
            closed_sessions_can_be_forked_but_not_appended_to, scans_page_in_both_directions,
            scans_filter_by_kind, the_store_is_scanned_in_commit_order,
            a_scan_can_continue_after_each_record, a_scan_does_not_read_filtered_records_again,
            changes_wake_watchers, projections_are_up_to_date_when_read, lists_are_filtered_and_paged,
            snapshots_shorten_scans, a_scan_sees_changes_between_its_pages, sessions_are_listed,
            records_are_found_by_id, blobs_are_durable_with_their_record, many_blobs_are_written_at_once,
            blobs_are_joined_from_chunks, queued_blobs_are_written_with_the_next_commit,
            erasing_bodies_keeps_the_chain_valid, erasing_bodies_removes_what_was_derived_from_them,
            publishing_a_fork_publishes_the_records_it_is_based_on, a_merge_is_one_commit,
            many_sessions_can_be_written_in_parallel, records_of_unknown_kinds_are_returned_unchanged,
            posts_are_listed_in_order, consumed_posts_are_not_accepted_again,
            publishing_a_fork_consumes_posts_of_its_parent, an_inconsistent_batch_is_refused,
            a_run_is_found_by_its_key, a_run_has_one_session, only_one_of_many_processes_can_start_a_run
        );
    };
    ($make:path => $($check:ident),*) => {
        $(#[test]
        fn $check() {
            let (store, _keep) = $make();
            $crate::conformance::$check(&store);
        })*
    };
}

/// Copies a directory recursively.
pub fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
