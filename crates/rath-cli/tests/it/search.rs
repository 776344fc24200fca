//! Looking for words, and the operator's view, from the command line.

use std::fs;

use serde_json::Value;

use crate::workspace::{Bench, text};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_is_found_is_shown_with_the_lines_around_it() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "Bread", "--message", "flour\nwater\nsalt and yeast\nheat\ntime"]);
    let at = format!("{session}@2");
    let shown = bench.ok(&["grep", "yeast"]);
    assert!(shown.starts_with(&format!("{at} user person ada ")), "{shown}");
    assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), ["  3: salt and yeast"]);
    let shown = bench.ok(&["grep", "YEAST", "-C", "1", &session]);
    assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), ["  2- water", "  3: salt and yeast", "  4- heat"]);
    let shown = bench.ok(&["grep", "flour OR time", "-A", "1", "-B", "0"]);
    assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), ["  1: flour", "  2- water", "  --", "  5: time"]);
    // Two that are near each other are not shown twice.
    let shown = bench.ok(&["grep", "water OR heat", "-C", "1"]);
    let expected = ["  1- flour", "  2: water", "  3- salt and yeast", "  4: heat", "  5- time"];
    assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), expected);
    let coloured = bench.ok(&["grep", "yeast", "--color", "always"]);
    assert!(coloured.contains("\u{1b}[31m") && coloured.contains("yeast"), "{coloured:?}");
    let found = lines(&bench.ok(&["grep", "salt", "--json", "-C", "1"]));
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["at"], &found[0]["kind"], &found[0]["seq"]), (&at.into(), &"user".into(), &2.into()));
    let line = &found[0]["found"][0]["lines"][0];
    assert_eq!((&line["line"], &line["text"]), (&3.into(), &"salt and yeast".into()));
    assert_eq!((&line["places"][0]["start"], &line["places"][0]["end"]), (&0.into(), &4.into()));
    assert_eq!((&line["before"][0], &line["after"][0]), (&"water".into(), &"heat".into()));
}

#[test]
fn filters_and_answers_of_a_script() {
    let bench = Bench::new();
    let one = bench.ok(&["new", "One", "--message", "apple"]);
    let two = bench.ok(&["fork", &one, "second try"]);
    bench.ok(&["add", &two, "--as", "assistant", "--by", "agent:Cook", "apple pie"]);
    bench.ok(&["label", &two, "kitchen"]);
    bench.ok(&["add", &one, "an apple a day"]);
    let count = |arguments: &[&str]| -> u64 {
        let out = bench.run(&[&["grep", "apple", "--count"], arguments].concat());
        assert!(matches!(out.status.code(), Some(0 | 3)), "{}", text(&out.stderr));
        text(&out.stdout).trim().parse().unwrap()
    };
    assert_eq!(count(&[]), 3);
    assert_eq!(count(&[&one]), 2);
    assert_eq!(count(&[&format!("{one}@2")]), 1);
    assert_eq!(count(&["--branch", &two]), 2);
    assert_eq!(count(&["--kind", "assistant"]), 1);
    assert_eq!(count(&["--kind", "assistant,user"]), 3);
    assert_eq!(count(&["--actor", "cook"]), 1);
    assert_eq!(count(&["--actor", "person:"]), 2);
    assert_eq!(count(&["--label", "kitchen"]), 1);
    assert_eq!(count(&["--since", "1h"]), 3);
    assert_eq!(count(&["--until", "yesterday"]), 0);
    assert_eq!(bench.json(&["grep", "apple", "--count"])["count"], 3);
    let first = |arguments: &[&str]| bench.ok(&[&["grep", "apple", "-n", "1"], arguments].concat());
    assert!(first(&[]).contains("an apple a day") && first(&["--oldest"]).contains(&format!("{one}@2 ")));
    let out = bench.run(&["grep", "apple", "-n", "1"]);
    assert!(text(&out.stderr).contains("there is more"), "{}", text(&out.stderr));
    let said = bench.fails(3, &["grep", "appl"]);
    assert!(said.contains("nothing found") && said.contains("check*"), "{said}");
    assert!(bench.fails(3, &["grep", "apple", "--kind", "asistant"]).contains("no records of kind asistant"));
    assert_eq!(bench.run(&["grep", "--json", "nothing"]).stdout, b"");
}

#[test]
fn what_cannot_be_read_is_a_clear_error() {
    let bench = Bench::new();
    bench.ok(&["new", "One", "--message", "apple"]);
    for (pattern, why) in [
        ("\"apple", "is not closed"),
        ("apple OR", "OR stands between"),
        ("*pple", "a star ends"),
        ("!?", "there is no word"),
        ("", "there is no word"),
    ] {
        let said = bench.fails(2, &["grep", pattern]);
        assert!(said.contains(why) && said.contains("help:") && !said.contains("fts5"), "{pattern:?}: {said}");
    }
    assert!(bench.fails(2, &["grep", "--", "-apple"]).contains("must be there"));
    let said = bench.fails(2, &["grep", "apple", "pie"]);
    assert!(said.contains("rath grep 'apple pie'"), "{said}");
    assert!(bench.fails(2, &["grep", "apple", "--since", "soon"]).contains("is no time"));
    assert!(bench.fails(2, &["grep", "apple", "--kind", "No Kind"]).contains("is not a kind"));
    // Text of others cannot move the cursor.
    bench.ok(&["new", "Two", "--message", "evil \u{1b}[2J apple\u{202e}"]);
    let shown = bench.ok(&["grep", "evil", "--color", "always"]);
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains('\u{202e}'), "{shown:?}");
}

#[test]
fn long_lines_and_many_lines_are_cut_for_people_and_whole_for_programs() {
    let bench = Bench::new();
    let long = format!("{} needle {}", "a ".repeat(3000), "b ".repeat(3000));
    bench.ok(&["new", "Long", "--message", &long]);
    let shown = bench.ok(&["grep", "needle"]);
    let line = shown.lines().nth(1).unwrap();
    assert!(line.contains("needle") && line.chars().count() < 260 && line.contains('…'), "{line}");
    assert_eq!(lines(&bench.ok(&["grep", "needle", "--json"]))[0]["found"][0]["lines"][0]["text"], long.as_str());
    bench.ok(&["new", "Many", "--message", &"thread\n".repeat(40)]);
    let shown = bench.ok(&["grep", "thread"]);
    assert_eq!(shown.lines().count(), 12);
    assert!(shown.ends_with("  … 30 lines more"), "{shown}");
}

#[test]
fn sessions_are_listed_with_what_they_do() {
    let bench = Bench::new();
    assert!(bench.run(&["sessions"]).stderr.starts_with(b"no sessions yet"));
    let small = bench.ok(&["new", "Small", "--message", "a"]);
    let large = bench.ok(&["new", "Large and with a title that goes on", "--message", &"words ".repeat(1000)]);
    for n in 0..5 {
        bench.ok(&["add", &small, &format!("note {n}")]);
    }
    bench.ok(&["label", &large, "team=payments"]);
    bench.ok(&["close", &small]);
    let order = |arguments: &[&str]| -> Vec<String> {
        let listed = bench.ok(&[&["sessions", "--json"], arguments].concat());
        lines(&listed).iter().map(|line| line["title"].as_str().unwrap()[..5].to_owned()).collect()
    };
    assert_eq!(order(&[]), ["Small", "Large"]);
    assert_eq!(order(&["--sort", "size"]), ["Large", "Small"]);
    assert_eq!(order(&["--sort", "records"]), ["Small", "Large"]);
    assert_eq!(order(&["--open"]), ["Large"]);
    assert_eq!(order(&["--closed"]), ["Small"]);
    assert_eq!(order(&["--label", "team=payments"]), ["Large"]);
    assert_eq!(order(&["--since", "1h", "-n", "1"]), ["Small"]);
    for none in ["--waiting", "--running", "--stopped", "--held"] {
        assert_eq!(order(&[none]), Vec::<String>::new(), "{none}");
        assert!(text(&bench.run(&["sessions", none]).stderr).contains("none of 2 sessions"), "{none}");
    }
    let one = &lines(&bench.ok(&["sessions", "--json", "--closed"]))[0];
    assert_eq!((&one["state"], &one["records"]), (&"closed".into(), &9.into()));
    assert!(one["bytes"].as_u64().unwrap() > 1000);
    for width in ["30", "60", "80", "200"] {
        let out = crate::workspace::command(bench.root(), &["sessions"]).env("COLUMNS", width).output().unwrap();
        let table = text(&out.stdout);
        assert_eq!(table.lines().count(), 3, "{table}");
        let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width.parse::<usize>().unwrap().max(40), "{width}: {table}");
        assert!(table.contains("Large") && table.contains("closed"), "{table}");
    }
}

#[test]
fn the_store_is_counted() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "Counted", "--message", "a"]);
    bench.put("script.toml", "[[turn]]\ntext = \"Done.\"\nusage = { input_tokens = 1200, output_tokens = 40 }\n");
    bench.ok(&["run", "-m", "scripted/script.toml", "--on", "host", "--in", "work", "Do it."]);
    let stats = bench.json(&["stats"]);
    assert_eq!((&stats["sessions"], &stats["kinds"]["user"]["records"]), (&2.into(), &2.into()), "{stats}");
    assert_eq!(stats["usage"]["input_tokens"], 1200, "{stats}");
    assert_eq!(stats["models"].as_object().unwrap().len(), 1);
    let days = stats["days"].as_object().unwrap();
    let by_day: u64 = days.values().map(|day| day["records"].as_u64().unwrap()).sum();
    assert_eq!(Some(by_day), stats["records"].as_u64());
    assert!(stats["sizes"]["database"].as_u64().unwrap() > 0);
    let shown = bench.ok(&["stats"]);
    assert!(shown.contains("2 (0 closed)") && shown.contains("1,200") && shown.contains(&session), "{shown}");
    assert_eq!(bench.json(&["stats", "--since", "now"])["records"], 0);
}

#[test]
fn the_doctor_tells_of_lag_leftovers_and_strangers() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "One", "--message", "apple"]);
    let doctor = || bench.ok(&["doctor", "--offline"]);
    let said = doctor();
    assert!(said.contains("none yet; the first `rath grep` makes it"), "{said}");
    assert!(said.ends_with("✓ the store is well; `rath verify` checks every record"), "{said}");
    bench.ok(&["grep", "apple"]);
    assert!(doctor().contains("search       up to date"));
    bench.ok(&["add", &session, "more"]);
    let said = doctor();
    assert!(said.contains("1 segment behind") && said.contains("catches up at the next `rath grep`"), "{said}");
    fs::write(bench.path(".rath/notes.txt"), "mine").unwrap();
    fs::create_dir_all(bench.path(".rath/packs")).unwrap();
    fs::write(bench.path(".rath/packs/left.pack"), "half").unwrap();
    let said = doctor();
    assert!(said.contains("notes.txt; move them elsewhere") && said.contains("left.pack; `rath gc`"), "{said}");
    fs::write(bench.path(".rath/search.db"), "not a database ".repeat(100)).unwrap();
    let out = bench.run(&["doctor", "--offline"]);
    let said = text(&out.stdout);
    assert!(said.contains("damaged") && said.contains("makes it anew"), "{said}");
    assert!(out.status.code() == Some(3) && !said.contains("the store is well"), "{said}");
    let said = bench.ok(&["doctor", "--reindex"]);
    assert!(said.starts_with("made anew: the search index over 4 records"), "{said}");
    assert!(doctor().contains("id index     up to date"));
    let value = bench.json(&["doctor", "--offline"]);
    assert_eq!((&value["store_well"], &value["search"]["behind"]), (&true.into(), &0.into()));
    assert_eq!(bench.ok(&["grep", "apple", "--count"]), "1");
}

#[test]
fn work_that_stopped_is_found_by_the_operator() {
    let bench = Bench::new();
    let agent = "task = \"Ask.\"\n[agents.asker]\nprompt = \"You ask.\"\ntools = [\"ask_human\"]\n";
    let turn = "[[turn]]\ncall = [{ tool = \"ask_human\", arguments = { question = \"Really?\" } }]\n";
    bench.put("run.toml", format!("{agent}{turn}"));
    let out = bench.run(&["run", "-a", "run.toml", "--on", "host"]);
    assert_eq!(out.status.code(), Some(5), "{}", text(&out.stderr));
    let waiting = lines(&bench.ok(&["sessions", "--waiting", "--json"]));
    assert_eq!((waiting.len(), &waiting[0]["state"]), (1, &"waiting".into()));
    let said = bench.ok(&["doctor", "--offline"]);
    assert!(said.contains("a person is asked") && said.contains("`rath inbox`"), "{said}");
}

#[test]
fn no_limit_and_no_points_are_no_reason_to_find_nothing() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "Names", "--message", "needle"]);
    for n in 0..60 {
        bench.ok(&["add", &session, &format!("needle {n}")]);
    }
    let found = bench.ok(&["grep", "needle", "-n", "0", "--json"]);
    assert_eq!(found.lines().count(), 61);
    bench.ok(&["add", &session, "שָׁלוֹם and مُحَمَّد"]);
    for word in ["שלום", "שָׁלוֹם", "محمد", "مُحَمَّد"] {
        assert_eq!(bench.ok(&["grep", word, "--count"]), "1", "{word}");
    }
}
