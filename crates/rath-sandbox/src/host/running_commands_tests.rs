use super::*;

const OURS: i32 = 10;

/// Two commands: number 1 with process 100 started at 1000, and number 2 with process 200 started at 2000.
fn two() -> RunningCommands {
    let mut commands =
        RunningCommands { commands: BTreeMap::new(), unswept_since: None, foreign_children: Vec::new(), next: 0 };
    for (number, process, start) in [(1, 100, 1000), (2, 200, 2000)] {
        commands.add("box", Arc::new(StopRequest::new().unwrap()));
        commands.started(number, Pid::from_raw(process).unwrap());
        let entry = commands.commands.get_mut(&number).unwrap();
        (entry.start, entry.marker) = (start, format!("mark {number}"));
    }
    commands
}

fn candidate(group: i32, start: u64, marker: Option<&str>) -> OrphanCandidate {
    OrphanCandidate { process: 500, group, start, marker: marker.map(str::to_owned) }
}

#[test]
fn markers_and_groups_identify_the_owner() {
    let commands = two();
    for (group, marker) in [(100, None), (77, Some("mark 1")), (OURS, Some("mark 1"))] {
        assert!(commands.owns(1, &candidate(group, 2500, marker), OURS));
        assert!(!commands.owns(2, &candidate(group, 2500, marker), OURS));
    }
}

#[test]
fn main_processes_of_commands_are_not_leftovers() {
    let commands = two();
    for command in [1, 2] {
        for process in [100, 200] {
            assert!(!commands.owns(command, &OrphanCandidate { process, ..candidate(process, 2500, None) }, OURS));
        }
    }
}

#[test]
fn children_of_the_program_itself_are_not_killed() {
    let mut commands = two();
    commands.remove(2);
    assert!(!commands.owns(1, &candidate(OURS, 5000, None), OURS), "in its own group");
    assert!(!commands.owns(1, &candidate(77, 999, None), OURS), "before the command");
}

#[test]
fn an_unmarked_orphan_is_killed_once_its_owner_is_known() {
    let mut commands = two();
    assert!(commands.owns(1, &candidate(77, 1500, None), OURS), "the other command began later");
    assert!(!commands.owns(1, &candidate(77, 2500, None), OURS));
    assert!(!commands.owns(2, &candidate(77, 2500, None), OURS));
    commands.remove(1);
    assert!(commands.owns(2, &candidate(77, 2500, None), OURS));
    assert!(commands.owns(2, &candidate(77, 1500, None), OURS), "left by the one that ended before");
    assert!(commands.owns(2, &candidate(77, 2500, Some("of a rath inside")), OURS));
    commands.remove(2);
    assert_eq!(commands.unswept_since, None);
}

#[test]
fn children_of_another_backend_are_not_killed() {
    let mut commands = two();
    let child = candidate(77, 1500, None);
    assert!(commands.owns(1, &child, OURS));
    commands.add_foreign_child(500);
    assert!(!commands.owns(1, &child, OURS));
    commands.remove_foreign_child(500);
    assert!(commands.owns(1, &child, OURS));
}
