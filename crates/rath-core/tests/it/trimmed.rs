//! Trimmed tool results.

use pollster::block_on;
use rath_core::body::{Assistant, Block};
use rath_core::{Actor, How, InMemory, MessageBody, Session};

fn said(session: &Session) -> Vec<String> {
    block_on(session.context()).unwrap().iter().map(|message| message.body.to_string()).collect()
}

fn session_with_a_call() -> Session {
    let mut session = Session::create(&InMemory::new(), Actor::person("ada"));
    session.user("look").unwrap();
    let block = Block::ToolUse { id: "c1".into(), name: "look".into(), arguments: "".into() };
    session.append(Assistant::new(vec![block])).unwrap();
    session.tool_result("c1", "a long result").unwrap();
    session.assistant("I see.").unwrap();
    session
}

#[test]
fn a_trimmed_result_stays_the_result_of_its_call() {
    let mut session = session_with_a_call();
    block_on(session.trim(2, "short")).unwrap();
    let expected = ["look", "→ look() [c1]", "[c1] short", "I see."];
    assert_eq!(said(&session), expected);
    // A second trim replaces the first, and reading the stored session gives the same.
    block_on(session.trim(2, "shorter")).unwrap();
    block_on(session.publish()).unwrap();
    let view = block_on(session.at(session.head().seq)).unwrap();
    let messages = block_on(view.context()).unwrap();
    assert_eq!(messages.len(), 4);
    assert!(matches!(&messages[2].body, MessageBody::Tool(result) if result.call == "c1" && !result.failed));
    assert_eq!(messages[2].body.to_string(), "[c1] shorter");
    // The history keeps everything.
    assert_eq!(block_on(block_on(session.at(3)).unwrap().context()).unwrap()[2].body.to_string(), "[c1] a long result");
    // The call and its result can only be removed together.
    assert_eq!(block_on(session.compress(2, 1, "…")).unwrap_err().code(), "bad-range");
    block_on(session.compress(1, 2, "looked")).unwrap();
    assert_eq!(said(&session), ["look", "looked", "I see."]);
}

#[test]
fn only_results_are_trimmed() {
    let mut session = session_with_a_call();
    for at in [0, 1, 3, 4] {
        assert_eq!(block_on(session.trim(at, "x")).unwrap_err().code(), "bad-range", "{at}");
    }
    assert!(session.append_json("trimmed", "{}").is_err());
}

#[test]
fn trimming_on_a_branch_does_not_change_the_parent() {
    let mut session = session_with_a_call();
    let mut branch = session.fork("shorter");
    block_on(branch.trim(2, "short")).unwrap();
    branch.assistant("Done.").unwrap();
    assert_eq!(said(&branch)[2], "[c1] short");
    block_on(session.publish()).unwrap();
    let session = block_on(session.merge([branch], How::Append)).unwrap();
    // The parent's version of the shared items stays.
    let texts = said(&session);
    assert_eq!((texts[2].as_str(), texts.len()), ("[c1] a long result", 6));
    assert_eq!(texts[5], "Done.");
}

#[test]
fn a_detached_session_copies_trimmed_results_and_can_be_trimmed() {
    let mut session = session_with_a_call();
    block_on(session.trim(2, "short")).unwrap();
    let mut alone = block_on(session.detach("on its own")).unwrap();
    assert_eq!(said(&alone)[2], "[c1] short");
    block_on(alone.trim(2, "shorter")).unwrap();
    block_on(alone.publish()).unwrap();
    let reopened = block_on(alone.at(alone.head().seq)).unwrap();
    assert_eq!(block_on(reopened.context()).unwrap()[2].body.to_string(), "[c1] shorter");
}
