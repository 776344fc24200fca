//! What the tests of several crates share: the conformance suites that every store ([`store_conformance!`]) and every
//! sandbox backend ([`sandbox_conformance!`]) passes, a plain model of sessions that the real ones are held against
//! ([`world`]), a simulator of the protocol by which stores decide ([`simulation`]), processes whose files fail ([`faults`])
//! and the power cuts they are put through ([`power`]).

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test kit fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests are configured by the environment")]

pub mod conformance;
pub mod faults;
mod mortal;
pub mod power;
mod requirement;
pub mod sandbox;
mod scale;
pub mod simulation;
pub mod traces;
pub mod world;

pub use mortal::{Moment, Mortal};
pub use requirement::{REQUIRE, Requirement};
pub use scale::{SCALE, scaled};

/// Turns the conformance suite into tests for one store: `store_conformance!(make)`, where `make` gives an empty
/// store and whatever must live as long as it.
#[macro_export]
macro_rules! store_conformance {
    ($make:path) => {
        $crate::store_conformance!($make =>
            published_records_come_back, unknown_sessions_are_errors, commits_are_idempotent, a_moved_head_is_a_conflict,
            a_batch_is_all_or_nothing, fences_stop_old_holders, a_session_has_one_holder, closed_sessions_take_nothing,
            scans_page_in_both_directions, scans_filter_by_kind, the_store_is_scanned_in_commit_order,
            each_record_has_a_cursor, a_scan_moves_on_past_what_is_not_wanted, changes_wake_those_who_wait, projections_catch_up_before_they_answer, lists_are_filtered_and_paged,
            snapshots_shorten_scans, pages_are_as_of_when_they_are_asked_for, sessions_are_listed, records_are_found_by_id, blobs_come_with_their_record,
            blobs_are_put_together, blobs_are_joined_from_pieces, blobs_wait_for_a_commit,
            erased_bodies_leave_the_chain, erased_bodies_take_along_what_came_of_them, a_child_publishes_its_parent, a_merge_is_one_commit,
            many_writers_work_side_by_side, unknown_kinds_survive, posts_wait_in_order, taken_posts_do_not_come_back,
            a_fork_takes_its_parents_posts, a_batch_in_disorder_is_refused,
            a_run_is_found_by_its_key, a_run_has_one_session, of_many_that_begin_a_run_one_succeeds
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

/// Copies a directory with all that is in it, as somebody does who copies a store.
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
