//! Search, lists of sessions, statistics and doctor.

use std::fs;

use crate::workspace::{TestProject, lines, text};

#[test]
fn matches_are_shown_with_the_lines_around_them() {
    let project = TestProject::new();
    let session = project.ok(&["new", "Bread", "--message", "flour\nwater\nsalt and yeast\nheat\ntime"]);
    let at = format!("{session}@2");
    let shown = project.ok(&["grep", "yeast"]);
    assert!(shown.starts_with(&format!("{at} user person ada ")), "{shown}");
    assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), ["  3: salt and yeast"]);
    let shown = project.ok(&["grep", "YEAST", "-C", "1", &session]);
    assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), ["  2- water", "  3: salt and yeast", "  4- heat"]);
    let shown = project.ok(&["grep", "flour OR time", "-A", "1", "-B", "0"]);
    assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), ["  1: flour", "  2- water", "  --", "  5: time"]);
    // Overlapping contexts are shown once.
    let shown = project.ok(&["grep", "water OR heat", "-C", "1"]);
    let expected = ["  1- flour", "  2: water", "  3- salt and yeast", "  4: heat", "  5- time"];
    assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), expected);
    let coloured = project.ok(&["grep", "yeast", "--color", "always"]);
    assert!(coloured.contains("\u{1b}[31m") && coloured.contains("yeast"), "{coloured:?}");
    let found = lines(&project.ok(&["grep", "salt", "--json", "-C", "1"]));
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["at"], &found[0]["kind"], &found[0]["seq"]), (&at.into(), &"user".into(), &2.into()));
    let line = &found[0]["found"][0]["lines"][0];
    assert_eq!((&line["line"], &line["text"]), (&3.into(), &"salt and yeast".into()));
    assert_eq!((&line["places"][0]["start"], &line["places"][0]["end"]), (&0.into(), &4.into()));
    assert_eq!((&line["before"][0], &line["after"][0]), (&"water".into(), &"heat".into()));
}

#[test]
fn search_filters_and_json() {
    let project = TestProject::new();
    let one = project.ok(&["new", "One", "--message", "apple"]);
    let two = project.ok(&["fork", &one, "second try"]);
    project.ok(&["add", &two, "--as", "assistant", "--by", "agent:Cook", "apple pie"]);
    project.ok(&["label", &two, "kitchen"]);
    project.ok(&["add", &one, "an apple a day"]);
    let count = |arguments: &[&str]| -> u64 {
        let out = project.run(&[&["grep", "apple", "--count"], arguments].concat());
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
    assert_eq!(project.json(&["grep", "apple", "--count"])["count"], 3);
    let first = |arguments: &[&str]| project.ok(&[&["grep", "apple", "-n", "1"], arguments].concat());
    assert!(first(&[]).contains("an apple a day") && first(&["--oldest"]).contains(&format!("{one}@2 ")));
    let out = project.run(&["grep", "apple", "-n", "1"]);
    assert!(text(&out.stderr).contains("there are more matches"), "{}", text(&out.stderr));
    let said = project.fails(3, &["grep", "appl"]);
    assert!(said.contains("nothing found") && said.contains("check*"), "{said}");
    assert!(project.fails(3, &["grep", "apple", "--kind", "asistant"]).contains("no records of kind asistant"));
    assert!(lines(&text(&project.run(&["grep", "--json", "nothing"]).stdout)).is_empty());
}

#[test]
fn an_invalid_pattern_or_filter_is_a_usage_error() {
    let project = TestProject::new();
    project.ok(&["new", "One", "--message", "apple"]);
    for (pattern, why) in [
        ("\"apple", "is not closed"),
        ("apple OR", "OR needs a word on both sides"),
        ("*pple", "a star is allowed only at the end of a word"),
        ("!?", "there is no word"),
        ("", "there is no word"),
    ] {
        let said = project.fails(2, &["grep", pattern]);
        assert!(said.contains(why) && said.contains("help:") && !said.contains("fts5"), "{pattern:?}: {said}");
    }
    assert!(project.fails(2, &["grep", "--", "-apple"]).contains("must occur"));
    let said = project.fails(2, &["grep", "apple", "pie"]);
    assert!(said.contains("rath grep 'apple pie'"), "{said}");
    assert!(project.fails(2, &["grep", "apple", "--since", "soon"]).contains("soon"));
    assert!(project.fails(2, &["grep", "apple", "--kind", "No Kind"]).contains("is not a kind"));
    // Stored text cannot control the terminal.
    project.ok(&["new", "Two", "--message", "evil \u{1b}[2J apple\u{202e}"]);
    let shown = project.ok(&["grep", "evil", "--color", "always"]);
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains('\u{202e}'), "{shown:?}");
}

#[test]
fn long_lines_and_many_lines_are_cut_for_people_and_whole_for_programs() {
    let project = TestProject::new();
    let long = format!("{} needle {}", "a ".repeat(3000), "b ".repeat(3000));
    project.ok(&["new", "Long", "--message", &long]);
    let shown = project.ok(&["grep", "needle"]);
    let line = shown.lines().nth(1).unwrap();
    assert!(line.contains("needle") && line.chars().count() < 260 && line.contains('…'), "{line}");
    assert_eq!(lines(&project.ok(&["grep", "needle", "--json"]))[0]["found"][0]["lines"][0]["text"], long.as_str());
    project.ok(&["new", "Many", "--message", &"thread\n".repeat(40)]);
    let shown = project.ok(&["grep", "thread"]);
    assert_eq!(shown.lines().count(), 12);
    assert!(shown.ends_with("  … 30 lines more"), "{shown}");
}

#[test]
fn sessions_are_listed_with_their_state() {
    let project = TestProject::new();
    assert!(project.run(&["sessions"]).stderr.starts_with(b"no sessions yet"));
    let small = project.ok(&["new", "Small", "--message", "a"]);
    let large = project.ok(&["new", "Large and with a title that goes on", "--message", &"words ".repeat(1000)]);
    for n in 0..5 {
        project.ok(&["add", &small, &format!("note {n}")]);
    }
    project.ok(&["label", &large, "team=payments"]);
    project.ok(&["close", &small]);
    let order = |arguments: &[&str]| -> Vec<String> {
        let listed = project.ok(&[&["sessions", "--json"], arguments].concat());
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
        assert!(text(&project.run(&["sessions", none]).stderr).contains("no matching sessions (2 total)"), "{none}");
    }
    let one = &lines(&project.ok(&["sessions", "--json", "--closed"]))[0];
    assert_eq!((&one["state"], &one["records"]), (&"closed".into(), &9.into()));
    assert!(one["bytes"].as_u64().unwrap() > 1000);
    for width in ["30", "60", "80", "200"] {
        let out = crate::workspace::command(project.root(), &["sessions"]).env("COLUMNS", width).output().unwrap();
        let table = text(&out.stdout);
        assert_eq!(table.lines().count(), 3, "{table}");
        let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width.parse::<usize>().unwrap().max(40), "{width}: {table}");
        assert!(table.contains("Large") && table.contains("closed"), "{table}");
    }
}

#[test]
fn statistics_count_records_and_usage() {
    let project = TestProject::new();
    let session = project.ok(&["new", "Counted", "--message", "a"]);
    project.put("script.toml", "[[turn]]\ntext = \"Done.\"\nusage = { input_tokens = 1200, output_tokens = 40 }\n");
    project.ok(&["run", "-m", "scripted/script.toml", "--on", "host", "--in", "work", "Do it."]);
    let stats = project.json(&["stats"]);
    assert_eq!((&stats["sessions"], &stats["kinds"]["user"]["records"]), (&2.into(), &2.into()), "{stats}");
    assert_eq!(stats["usage"]["input_tokens"], 1200, "{stats}");
    assert_eq!(stats["models"].as_object().unwrap().len(), 1);
    let days = stats["days"].as_object().unwrap();
    let by_day: u64 = days.values().map(|day| day["records"].as_u64().unwrap()).sum();
    assert_eq!(Some(by_day), stats["records"].as_u64());
    assert!(stats["sizes"]["database"].as_u64().unwrap() > 0);
    let shown = project.ok(&["stats"]);
    assert!(shown.contains("2 (0 closed)") && shown.contains("1,200") && shown.contains(&session), "{shown}");
    assert_eq!(project.json(&["stats", "--since", "now"])["records"], 0);
}

#[test]
fn doctor_reports_index_lag_leftovers_and_unknown_files() {
    let project = TestProject::new();
    let session = project.ok(&["new", "One", "--message", "apple"]);
    let doctor = || project.ok(&["doctor", "--offline"]);
    let said = doctor();
    assert!(said.contains("none yet; the first `rath grep` creates it"), "{said}");
    assert!(said.ends_with("✓ no problems found; `rath verify` checks every record"), "{said}");
    project.ok(&["grep", "apple"]);
    assert!(doctor().contains("search       up to date"));
    project.ok(&["add", &session, "more"]);
    let said = doctor();
    assert!(said.contains("1 segment behind") && said.contains("catches up at the next `rath grep`"), "{said}");
    fs::write(project.path(".rath/notes.txt"), "mine").unwrap();
    fs::create_dir_all(project.path(".rath/packs")).unwrap();
    fs::write(project.path(".rath/packs/left.pack"), "half").unwrap();
    let said = doctor();
    assert!(
        said.contains("notes.txt; move them elsewhere") && said.contains("left.pack; remove them with `rath store gc`"),
        "{said}"
    );
    fs::write(project.path(".rath/search.db"), "not a database ".repeat(100)).unwrap();
    let out = project.run(&["doctor", "--offline"]);
    let said = text(&out.stdout);
    assert!(said.contains("damaged") && said.contains("rebuild it with"), "{said}");
    assert!(out.status.code() == Some(3) && !said.contains("no problems found"), "{said}");
    let said = project.ok(&["doctor", "--reindex"]);
    assert!(said.starts_with("rebuilt the search index (4 records)"), "{said}");
    assert!(doctor().contains("id index     up to date"));
    let value = project.json(&["doctor", "--offline"]);
    assert_eq!((&value["store_well"], &value["search"]["behind"]), (&true.into(), &0.into()));
    assert_eq!(project.ok(&["grep", "apple", "--count"]), "1");
}

#[test]
fn interrupted_runs_are_listed_by_doctor() {
    let project = TestProject::new();
    let agent = "task = \"Ask.\"\n[agents.asker]\nprompt = \"You ask.\"\ntools = [\"ask_human\"]\n";
    let turn = "[[turn]]\ncall = [{ tool = \"ask_human\", arguments = { question = \"Really?\" } }]\n";
    project.put("run.toml", format!("{agent}{turn}"));
    let out = project.run(&["run", "-a", "run.toml", "--on", "host"]);
    assert_eq!(out.status.code(), Some(5), "{}", text(&out.stderr));
    let waiting = lines(&project.ok(&["sessions", "--waiting", "--json"]));
    assert_eq!((waiting.len(), &waiting[0]["state"]), (1, &"waiting".into()));
    let said = project.ok(&["doctor", "--offline"]);
    assert!(said.contains("waiting for answers") && said.contains("`rath inbox`"), "{said}");
}

#[test]
fn search_works_without_a_limit_and_without_vowel_points() {
    let project = TestProject::new();
    let session = project.ok(&["new", "Names", "--message", "needle"]);
    for n in 0..60 {
        project.ok(&["add", &session, &format!("needle {n}")]);
    }
    let found = project.ok(&["grep", "needle", "-n", "0", "--json"]);
    assert_eq!(lines(&found).len(), 61);
    project.ok(&["add", &session, "שָׁלוֹם and مُحَمَّد"]);
    for word in ["שלום", "שָׁלוֹם", "محمد", "مُحَمَّد"] {
        assert_eq!(project.ok(&["grep", word, "--count"]), "1", "{word}");
    }
}
