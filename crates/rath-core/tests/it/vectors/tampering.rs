//! Makes the tampered vectors from the valid ones.

use super::making::*;
use super::*;

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) lines: Vec<Line>,
    pub(super) first: Option<Place>,
    pub(super) heads: Vec<Reference>,
}

/// The same record with changed header fields: still canonical, but with another id.
pub(super) fn altered(line: &Line, change: impl FnOnce(&mut Value)) -> Line {
    let mut fields = line.fields();
    change(&mut fields);
    Line { header: serde_jcs::to_string(&fields).unwrap(), ..line.clone() }
}

pub(super) fn later(fields: &mut Value) {
    fields["time"] = json!(fields["time"].as_u64().unwrap() + 1);
}

/// The same record with changed header text.
pub(super) fn respelled(line: &Line, from: &str, to: &str) -> Line {
    assert_eq!(line.header.matches(from).count(), 1, "{from} in {}", line.header);
    Line { header: line.header.replace(from, to), ..line.clone() }
}

/// The same lines with one replaced.
pub(super) fn with(lines: &[Line], at: usize, line: Line) -> Vec<Line> {
    let mut lines = lines.to_vec();
    lines[at] = line;
    lines
}

/// Tampering with records. Most cases change record 3 of the first six of `plain`.
pub(super) fn tampered(plain: &[Line], graph: &[Line]) -> Vec<Case> {
    const K: usize = 3;
    let base = &plain[..6];
    let session = base[0].reference().session;
    let stranger = graph[0].reference().session;
    let head = base[5].reference();
    let mut cases = Vec::new();
    let mut case = |name, lines: Vec<Line>, first: Option<(&str, u64)>, heads: &[Reference]| {
        let place = |(what, seq): (&str, u64)| Place { what: what.into(), session: Some(session), seq: Some(seq) };
        cases.push(Case { name, lines, first: first.map(place), heads: heads.to_vec() });
    };
    let with = |at: usize, line: Line| with(base, at, line);
    let spelled = |from: &str, to: &str| with(K, respelled(&base[K], from, to));
    let without = |at: usize| [&base[..at], &base[at + 1..]].concat();
    let and_then = |lines: &[Line], more: Line| [lines, &[more]].concat();

    // Bodies.
    let body = base[K].body.as_ref().unwrap().replace("quick", "quack");
    case("flipped_body", with(K, Line { body: Some(body), ..base[K].clone() }), Some(("altered_body", 3)), &[]);
    let mut salt = base[K].salt.clone().unwrap();
    let flipped = if salt.pop() == Some('0') { '1' } else { '0' };
    salt.push(flipped);
    case("flipped_salt", with(K, Line { salt: Some(salt), ..base[K].clone() }), Some(("altered_body", 3)), &[]);
    let swapped = Line { header: base[K].header.clone(), ..base[2].clone() };
    case("body_of_another", with(K, swapped), Some(("altered_body", 3)), &[]);

    // Valid headers with another id.
    case("altered_header", with(K, altered(&base[K], later)), Some(("altered_record", 3)), &[]);
    case("altered_first_header", with(0, altered(&base[0], later)), Some(("altered_record", 0)), &[]);
    let last = with(5, altered(&base[5], later));
    case("altered_last_header", last.clone(), Some(("altered_record", 5)), &[head]);
    case("altered_last_header_unpinned", last, None, &[]);
    let parent = altered(&base[K], |fields| fields["parents"] = json!([Digest::of(b"nothing")]));
    case("broken_parent", with(K, parent), Some(("altered_record", 3)), &[]);
    let foreign = altered(&base[K], |fields| fields["session"] = json!(stranger));
    case("foreign", with(K, foreign), Some(("foreign", 3)), &[]);
    let moved = altered(&base[K], |fields| fields["seq"] = json!(9));
    case("altered_seq", with(K, moved), Some(("reordered", 3)), &[]);

    // Records that are added, removed or moved.
    case("dropped", without(K), Some(("dropped", 3)), &[]);
    case("dropped_first", without(0), Some(("dropped", 0)), &[]);
    case("dropped_last", without(5), Some(("dropped", 5)), &[head]);
    case("dropped_last_unpinned", without(5), None, &[]);
    case("longer_than_pinned", base.to_vec(), Some(("index", 5)), &[base[4].reference()]);
    let mut pair = base.to_vec();
    pair.swap(K, K + 1);
    case("reordered", pair, Some(("reordered", 3)), &[]);
    let mut twice = base.to_vec();
    twice.insert(K + 1, sealed(successor(&base[K - 1], "user"), r#"{"text":"another"}"#));
    case("duplicate_seq", twice, Some(("duplicate", 3)), &[]);
    case("doubled_line", [&base[..=K], &base[K..]].concat(), Some(("duplicate", 3)), &[]);

    // Headers in a non-canonical form.
    let malformed = Some(("malformed", 3));
    case("white_space", spelled("{\"actor\"", "{ \"actor\""), malformed, &[]);
    let v_first = respelled(&respelled(&base[K], ",\"v\":1}", "}"), "{\"actor\"", "{\"v\":1,\"actor\"");
    case("unsorted_keys", with(K, v_first), malformed, &[]);
    let time = format!("\"time\":{}", base[K].fields()["time"]);
    case("number_with_fraction", spelled(&time, &format!("{time}.0")), malformed, &[]);
    case("unknown_number_with_fraction", spelled("\"v\":1}", "\"v\":1,\"z\":1.0}"), malformed, &[]);
    case("needless_escape", spelled("os-user", "os\\u002duser"), malformed, &[]);
    case("doubled_key", spelled("\"v\":1}", "\"v\":1,\"v\":1}"), malformed, &[]);
    let digest = base[K].fields()["body_digest"].as_str().unwrap().to_owned();
    case("upper_case_digest", spelled(&digest, &digest.to_uppercase()), malformed, &[]);
    case("future_envelope", spelled("\"v\":1}", "\"v\":2}"), Some(("unreadable", 3)), &[]);

    // Records with a correct hash that break a rule.
    let note = r#"{"text":"one more"}"#;
    let after_closed = sealed(successor(plain.last().unwrap(), "note"), note);
    case("after_closed", and_then(plain, after_closed), Some(("malformed", plain.len() as u64)), &[]);
    let next = |change: &dyn Fn(&mut Value)| {
        let mut fields = successor(&base[5], "note");
        change(&mut fields);
        and_then(base, sealed(fields, note))
    };
    let earlier = json!(base[5].fields()["time"].as_u64().unwrap() - 1);
    case("time_runs_back", next(&|fields| fields["time"] = earlier.clone()), Some(("malformed", 6)), &[]);
    case("begins_again", next(&|fields| fields["kind"] = json!("created")), Some(("malformed", 6)), &[]);
    case("merge_of_one", next(&|fields| fields["kind"] = json!("merged")), Some(("malformed", 6)), &[]);
    let two = json!([base[5].id(), base[4].id()]);
    case("note_of_two", next(&|fields| fields["parents"] = two.clone()), Some(("malformed", 6)), &[]);

    // Nesting up to the limit of JSON parsers, not counting brackets in strings, and deeper.
    let nested = |levels: usize| {
        let inside = format!("{}\"]]\\\"{}\"{}", "[".repeat(levels - 2), "[{".repeat(levels), "]".repeat(levels - 2));
        and_then(base, sealed(successor(&base[5], "my.kind"), &format!("{{\"in\":[{inside}]}}")))
    };
    case("nested_deeply", nested(127), None, &[]);
    case("nested_too_deeply", nested(128), Some(("malformed", 6)), &[]);
    case("nested_without_end", nested(5000), Some(("malformed", 6)), &[]);
    // Bodies that some parsers accept and others reject are invalid, also if a name is repeated and the last value is
    // valid.
    let saying = |body: &str| and_then(base, sealed(successor(&base[5], "my.kind"), body));
    let twice = format!("{{\"in\":{}{},\"in\":0}}", "[".repeat(127), "]".repeat(127));
    let digits = format!("{{\"in\":1{}}}", "0".repeat(400));
    case("nested_too_deeply_before", saying(&twice), Some(("malformed", 6)), &[]);
    case("half_a_character", saying(r#"{"in":"\ud800"}"#), Some(("malformed", 6)), &[]);
    case("half_a_name", saying(r#"{"\udc00":1,"a":{"b":2}}"#), Some(("malformed", 6)), &[]);
    case("half_a_character_before", saying(r#"{"in":"\ud83e","in":1}"#), Some(("malformed", 6)), &[]);
    case("whole_character", saying(r#"{"in":"\ud83e\udd80 \\ud800"}"#), None, &[]);
    case("number_without_end", saying(r#"{"in":[1e999]}"#), Some(("malformed", 6)), &[]);
    case("digits_without_end", saying(&digits), Some(("malformed", 6)), &[]);
    case("numbers_of_all_kinds", saying(r#"{"in":[-0,0e9,1e308,1e-999,18446744073709551616,1.50]}"#), None, &[]);
    let lengths = ["-0", "-1", "1.0", "1e2", "true", "18446744073709551616"]
        .map(|length| format!(r#"{{"digest":"{}","bytes":{length},"media_type":"x"}}"#, Digest::of(b"nowhere")));
    case("no_blobs", saying(&format!("{{\"in\":[{}]}}", lengths.join(","))), None, &[]);

    let not_json = spelled("{\"actor\"", "\"actor\"");
    let nowhere = Some(Place { what: "unreadable".into(), session: None, seq: None });
    cases.push(Case { name: "not_json", lines: not_json, first: nowhere, heads: vec![] });
    cases.extend(tampered_graph(graph));
    cases
}

/// Tampering with links between sessions.
pub(super) fn tampered_graph(graph: &[Line]) -> Vec<Case> {
    let at = |kind: &str| graph.iter().position(|line| line.fields()["kind"] == kind).unwrap();
    let (merged, forked, said) = (at("merged"), at("forked"), at("assistant"));
    let of_branch = |line: &Line| line.reference().session == graph[forked].reference().session;
    let (branch, others): (Vec<Line>, Vec<Line>) = graph.iter().cloned().partition(of_branch);
    let other = altered(&graph[merged], |fields| fields["parents"][1] = json!(Digest::of(b"nothing")));
    let moved = altered(&graph[said], |fields| fields["session"] = json!(graph[0].reference().session));
    let heads = vec![branch.last().unwrap().reference()];
    let case = |name, lines, what: &str, at: usize, heads: Vec<Reference>| {
        let first = Some(Place::new(what, graph[at].reference()));
        Case { name, lines, first, heads }
    };
    vec![
        case("fork_without_origin", branch, "broken_parent", forked, vec![]),
        case("missing_session", others, "dropped", forked, heads),
        case("altered_merge", with(graph, merged, other), "altered_record", merged, vec![]),
        case("altered_branch", with(graph, said, altered(&graph[said], later)), "altered_record", said, vec![]),
        case("foreign_in_graph", with(graph, said, moved), "foreign", said, vec![]),
    ]
}
