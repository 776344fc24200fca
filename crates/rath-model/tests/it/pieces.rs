//! Property tests of the decoders: however the input is split, the result is the same, and no input causes a panic.

use proptest::prelude::*;
use rath_model::HttpResponse;
use rath_recordings::{RecordedApi, pieces};

const APIS: [RecordedApi; 3] = [RecordedApi::Messages, RecordedApi::Chat, RecordedApi::Responses];

/// Fragments of streams of all vendors.
const FRAGMENTS: &[&str] = &[
    "data: [DONE]\n\n",
    "\n\n",
    "\r\n",
    "\r",
    ": comment\n",
    "event: error\n",
    "data: ",
    "data: {}\n\n",
    "data: null\n\n",
    "data: [1]\n\n",
    "data: {\"type\":\n\n",
    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":-1}}}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"é\"}}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"input\":[]}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\ud83d\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}\r\n\r\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"citations_delta\",\"citation\":1}}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":7},\"usage\":[]}\n\n",
    "data: {\"type\":\"message_stop\"}\n\n",
    "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"x\",\"reasoning\":{}}}]}\n\n",
    "data: {\"choices\":[{\"index\":-1,\"delta\":{\"content\":[{\"text\":\"x\"}],\"tool_calls\":[{}]}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":9,\"id\":\"a\",\"function\":{\"name\":\"f\"}}]}}]}\n\n",
    "data: {\"choices\":{},\"usage\":3,\"x\":{\"a\":1}}\n\n",
    "data: {\"choices\":[{\"delta\":null,\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"output\":{}}}\n\n",
    "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"message\",\"content\":7}}\n\n",
    "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":9,\"delta\":\"x\"}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":4,\"item\":{\"type\":\"reasoning\"}}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{},1]}}\n\n",
    "data: {\"type\":\"response.failed\"}\n\n",
    "data: {\"error\":{}}\n\n",
    "data: {\"error\":\"no\"}\n\n",
];

fn check_splitting(bytes: &[u8], seed: u64) -> Result<(), TestCaseError> {
    for api in APIS {
        let whole = api.decode(std::iter::once(bytes));
        prop_assert_eq!(&api.decode(pieces(bytes, 0).into_iter()), &whole);
        prop_assert_eq!(&api.decode(pieces(bytes, seed).into_iter()), &whole);
        if let Ok(turn) = &whole.0 {
            api.write(turn).to_json();
        }
        if let Ok(turn) = api.decode_whole(&HttpResponse::new(200, bytes)) {
            api.write(&turn).to_json();
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn fragments(fragments in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..24), seed in any::<u64>()) {
        check_splitting(fragments.concat().as_bytes(), seed)?;
    }

    #[test]
    fn fragments_with_a_byte_changed(
        fragments in prop::collection::vec(prop::sample::select(FRAGMENTS), 1..12),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        seed in any::<u64>(),
    ) {
        let mut bytes = fragments.concat().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_splitting(&bytes, seed)?;
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), seed in any::<u64>()) {
        check_splitting(&bytes, seed)?;
    }
}
