//! Tool results that are shown shorter.

use pollster::block_on;
use rath_core::body::{Assistant, Block};
use rath_core::{Actor, How, Memory, Said, Session};

fn said(session: &Session) -> Vec<String> {
    block_on(session.context()).unwrap().iter().map(|message| message.said.to_string()).collect()
}

fn session_with_a_call() -> Session {
    let mut session = Session::create(&Memory::new(), Actor::person("ada"));
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
    // A second cut takes the place of the first, and what is stored folds into the same.
    block_on(session.trim(2, "shorter")).unwrap();
    block_on(session.publish()).unwrap();
    let view = block_on(session.at(session.head().seq)).unwrap();
    let messages = block_on(view.context()).unwrap();
    assert_eq!(messages.len(), 4);
    assert!(matches!(&messages[2].said, Said::Tool(result) if result.call == "c1" && !result.failed));
    assert_eq!(messages[2].said.to_string(), "[c1] shorter");
    // The history keeps everything.
    assert_eq!(block_on(block_on(session.at(3)).unwrap().context()).unwrap()[2].said.to_string(), "[c1] a long result");
    // The two leave the context together.
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
fn a_branch_trims_for_itself() {
    let mut session = session_with_a_call();
    let mut branch = session.fork("shorter");
    block_on(branch.trim(2, "short")).unwrap();
    branch.assistant("Done.").unwrap();
    assert_eq!(said(&branch)[2], "[c1] short");
    block_on(session.publish()).unwrap();
    let session = block_on(session.merge([branch], How::Append)).unwrap();
    // The line's own view of what both had stays.
    let texts = said(&session);
    assert_eq!((texts[2].as_str(), texts.len()), ("[c1] a long result", 6));
    assert_eq!(texts[5], "Done.");
}

#[test]
fn what_is_detached_can_be_trimmed_and_copies_what_was() {
    let mut session = session_with_a_call();
    block_on(session.trim(2, "short")).unwrap();
    let mut alone = block_on(session.detach("on its own")).unwrap();
    assert_eq!(said(&alone)[2], "[c1] short");
    block_on(alone.trim(2, "shorter")).unwrap();
    block_on(alone.publish()).unwrap();
    let reopened = block_on(alone.at(alone.head().seq)).unwrap();
    assert_eq!(block_on(reopened.context()).unwrap()[2].said.to_string(), "[c1] shorter");
}
