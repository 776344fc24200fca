use super::*;

const OURS: i32 = 10;

/// Two commands: number 1 with process 100, started at 1000; number 2 with process 200, started at 2000.
fn two() -> Live {
    let mut live = Live { commands: BTreeMap::new(), owed: None, spared: Vec::new(), next: 0 };
    for (number, process, start) in [(1, 100, 1000), (2, 200, 2000)] {
        live.add("box", Arc::new(Request::new().unwrap()));
        live.started(number, Pid::from_raw(process).unwrap());
        let entry = live.commands.get_mut(&number).unwrap();
        (entry.start, entry.marker) = (start, format!("mark {number}"));
    }
    live
}

fn suspect(group: i32, start: u64, marker: Option<&str>) -> Suspect {
    Suspect { process: 500, group, start, marker: marker.map(str::to_owned) }
}

#[test]
fn marks_and_groups_tell_the_owner() {
    let live = two();
    for (group, marker) in [(100, None), (77, Some("mark 1")), (OURS, Some("mark 1"))] {
        assert!(live.owns(1, &suspect(group, 2500, marker), OURS));
        assert!(!live.owns(2, &suspect(group, 2500, marker), OURS));
    }
}

#[test]
fn a_watched_process_is_nobodys_leftover() {
    let live = two();
    for command in [1, 2] {
        for process in [100, 200] {
            assert!(!live.owns(command, &Suspect { process, ..suspect(process, 2500, None) }, OURS));
        }
    }
}

#[test]
fn what_the_program_itself_started_is_spared() {
    let mut live = two();
    live.remove(2);
    assert!(!live.owns(1, &suspect(OURS, 5000, None), OURS), "in its own group");
    assert!(!live.owns(1, &suspect(77, 999, None), OURS), "before the command");
}

#[test]
fn an_unmarked_orphan_waits_until_its_owner_is_certain() {
    let mut live = two();
    assert!(live.owns(1, &suspect(77, 1500, None), OURS), "the other command began later");
    assert!(!live.owns(1, &suspect(77, 2500, None), OURS));
    assert!(!live.owns(2, &suspect(77, 2500, None), OURS));
    live.remove(1);
    assert!(live.owns(2, &suspect(77, 2500, None), OURS));
    assert!(live.owns(2, &suspect(77, 1500, None), OURS), "left by the one that ended before");
    assert!(live.owns(2, &suspect(77, 2500, Some("of a rath inside")), OURS));
    live.remove(2);
    assert_eq!(live.owed, None);
}

#[test]
fn children_of_another_backend_are_spared() {
    let mut live = two();
    let child = suspect(77, 1500, None);
    assert!(live.owns(1, &child, OURS));
    live.spare(500);
    assert!(!live.owns(1, &child, OURS));
    live.spare_no_longer(500);
    assert!(live.owns(1, &child, OURS));
}
