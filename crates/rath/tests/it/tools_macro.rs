//! What `#[tool]` and `#[derive(Workflow)]` make.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pollster::block_on;
use rath::body::{Effect, Role, StepEntered};
use rath::toolkit::State;
use rath::{
    Actor, Call, Cancel, Digest, Equipment, IntoTools, Json, Kind, Memory, Outline, Result, Session, Tool, ToolOutcome,
    Touches, Workflow, seq, tool,
};
use serde_json::json;

/// A call made by hand.
fn call(tool: &dyn Tool, arguments: &str) -> Call {
    Call {
        id: "call-1".into(),
        tool: tool.spec().name.clone(),
        arguments: arguments.into(),
        key: Digest::of(b"call-1"),
        attempt: 1,
        cancel: Cancel::new(),
        equipment: Equipment::new().with(Arc::new(Notes::default())),
    }
}

/// The text of an outcome, and whether the call failed.
fn said(outcome: ToolOutcome) -> (String, bool) {
    (outcome.text(), outcome.failed)
}

fn done(text: impl Into<String>) -> (String, bool) {
    (text.into(), false)
}

fn failed(text: impl Into<String>) -> (String, bool) {
    (text.into(), true)
}

fn ask(tool: &dyn Tool, arguments: &str) -> (String, bool) {
    said(block_on(tool.call(&call(tool, arguments))))
}

fn why(tool: &dyn Tool, arguments: &str) -> String {
    let why = tool.check(arguments).unwrap_err();
    assert_eq!(ask(tool, arguments), failed(&*why), "the call says the same as the check");
    why
}

/// Nothing but `rath` is needed to make a tool.
mod with_rath_alone {
    use rath::{IntoTools as _, tool};

    /// Says hello.
    #[tool]
    async fn hello(name: String) -> String {
        format!("hello {name}")
    }

    struct Door;

    #[tool]
    impl Door {
        /// Opens it.
        #[tool]
        fn open(&self) {}
    }

    #[test]
    fn functions_and_methods_are_tools() {
        assert_eq!((hello, Door).into_tools().len(), 2);
    }
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

/// Adds two numbers.
///
/// The second one may be left out.
#[tool(effect = "pure")]
async fn add(
    /// The first number.
    a: i64,
    b: Option<i64>,
    call: &Call,
) -> Result<String, String> {
    let sum = a.checked_add(b.unwrap_or(1)).ok_or("the sum is too large")?;
    Ok(format!("{sum} in {}", call.id))
}

/// Writes something down.
#[tool(name = "write-down", effect = "workspace", timeout = "1500ms", version = "2")]
pub(crate) fn note(mut text: String, notes: State<Notes>) -> Json<usize> {
    text.push('!');
    let mut all = notes.0.lock().unwrap();
    all.push(text);
    Json(all.len())
}

/// Nothing to say.
#[tool(reads)]
async fn quiet() {}

/// Needs what nobody has.
#[tool]
async fn needy(clock: State<AtomicU64>) -> String {
    clock.load(Ordering::Relaxed).to_string()
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    /// How far to the east.
    x: u32,
    #[serde(default)]
    tags: Vec<String>,
}

/// Looks at places.
#[tool(effect = "idempotent")]
async fn look(
    r#type: String,
    places: Vec<Place>,
    #[serde(default = "ten")]
    #[schemars(range(min = 1))]
    limit: u8,
) -> Json<(String, u32, usize, u8)> {
    let tags = places.iter().map(|place| place.tags.len()).sum();
    Json((r#type, places.iter().map(|place| place.x).sum(), tags, limit))
}

fn ten() -> u8 {
    10
}

#[test]
fn a_function_becomes_a_tool() {
    let spec = add.spec();
    assert_eq!(spec.name, "add");
    assert_eq!(spec.description, "Adds two numbers.\n\nThe second one may be left out.");
    assert_eq!((spec.effect, spec.touches, spec.timeout), (Effect::Pure, Touches::Nothing, None));
    assert_eq!(spec.version, None);
    let schema = json!({
        "type": "object",
        "properties": {
            "a": { "type": "integer", "format": "int64", "description": "The first number." },
            "b": { "type": ["integer", "null"], "format": "int64" },
        },
        "required": ["a"],
        "additionalProperties": false,
    });
    assert_eq!(spec.schema, schema);
    assert!(std::ptr::eq(spec, add.spec()), "made once");
    assert_eq!(ask(&add, r#"{"a": 2, "b": 3}"#), done("5 in call-1"));
    assert_eq!(ask(&add, r#"{"a": 2, "b": null}"#), done("3 in call-1"));
    assert_eq!(ask(&add, r#"{"a": 9223372036854775807}"#), failed("the sum is too large"));
}

#[test]
fn options_are_in_the_spec() {
    let spec = note.spec();
    assert_eq!((&*spec.name, spec.effect, spec.touches), ("write-down", Effect::Workspace, Touches::Writes));
    assert_eq!(spec.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(spec.version.as_deref(), Some("2"));
    assert_eq!((quiet.spec().effect, quiet.spec().touches), (Effect::Irreversible, Touches::Reads));
    assert_eq!(quiet.spec().schema, json!({"type": "object", "properties": {}, "additionalProperties": false}));
}

#[test]
fn the_equipment_of_the_call_is_shared() {
    let one = call(&note, r#"{"text": "milk"}"#);
    assert_eq!(said(block_on(note.call(&one))), done("1"));
    assert_eq!(said(block_on(note.call(&one))), done("2"));
    assert_eq!(*one.get::<Notes>().unwrap().0.lock().unwrap(), ["milk!", "milk!"]);
    let (text, failed) = ask(&needy, "");
    assert!(failed && text.starts_with("this needs a "), "{text}");
    assert!(text.contains("AtomicU64") || text.contains("Atomic<u64>"), "{text}");
}

#[test]
fn no_text_is_an_object_without_fields() {
    for nothing in ["", "  ", "{}"] {
        assert_eq!(quiet.check(nothing), Ok(()));
        assert_eq!(ask(&quiet, nothing), done("done"));
    }
    assert_eq!(
        why(&add, ""),
        "the arguments of `add` cannot be used: missing field `a`\n\
         `add` takes: a (integer, required), b (integer, optional)"
    );
}

#[test]
fn what_is_wrong_with_arguments_is_said_in_words_to_act_on() {
    let takes = "`add` takes: a (integer, required), b (integer, optional)";
    for (arguments, wrong) in [
        (r#"{"a": "two"}"#, r#"`a`: invalid type: string "two", expected i64"#),
        (r#"{"a": 1, "b": 1.5}"#, "`b`: invalid type: floating point `1.5`, expected i64"),
        (r#"{"a": 1, "c": 1}"#, "`c`: unknown field `c`, expected `a` or `b`"),
        (r#"{"a": 1, "a": 2}"#, "duplicate field `a`"),
        ("[1, 2]", "they are an array, and an object is needed"),
        (r#"{"a": 1"#, "they are not JSON: EOF while parsing an object at line 1 column 7"),
    ] {
        assert_eq!(why(&add, arguments), format!("the arguments of `add` cannot be used: {wrong}\n{takes}"));
    }
    assert_eq!(
        why(&quiet, r#"{"a": 1}"#),
        "the arguments of `quiet` cannot be used: `a`: unknown field `a`, there are no fields\n\
         `quiet` takes no arguments: send {}"
    );
}

#[test]
fn arguments_inside_arguments_are_found_by_their_path() {
    let reply = ask(&look, r#"{"type": "hill", "places": [{"x": 1}, {"x": 2, "tags": ["a"]}]}"#);
    assert_eq!(reply, done(r#"["hill",3,1,10]"#));
    let why = why(&look, r#"{"type": "hill", "places": [{"x": 1}, {"x": -2}]}"#);
    assert_eq!(
        why,
        "the arguments of `look` cannot be used: `places[1].x`: invalid value: integer `-2`, expected u32\n\
         `look` takes: type (string, required), places (array, required), limit (integer, optional)"
    );
    let schema = &look.spec().schema;
    assert!(schema.get("$defs").is_none(), "in one piece: {schema}");
    assert_eq!(schema["properties"]["places"]["items"]["properties"]["x"]["description"], "How far to the east.");
    assert_eq!(schema["properties"]["limit"]["default"], 10);
    assert_eq!(schema["properties"]["limit"]["minimum"], 1);
    assert_eq!(look.spec().effect, Effect::Idempotent);
}

struct Counter {
    count: AtomicU64,
}

#[tool]
impl Counter {
    fn new() -> Self {
        Self { count: AtomicU64::new(0) }
    }

    /// Counts on.
    #[tool(effect = "idempotent", name = "count")]
    async fn up(
        &self,
        /// By how much.
        by: Option<u64>,
    ) -> String {
        let by = by.unwrap_or(1);
        (self.count.fetch_add(by, Ordering::Relaxed) + by).to_string()
    }

    /// Says how many.
    #[rath::tool(effect = "pure")]
    fn total(&self, call: &Call, _notes: State<Notes>) -> String {
        format!("{}: {}", call.tool, self.count.load(Ordering::Relaxed))
    }
}

#[test]
fn methods_become_tools_that_share_their_object() {
    let counter = Counter::new();
    assert_eq!(block_on(counter.up(Some(2))), "2", "still a method");
    let tools = counter.into_tools();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.spec().name).collect();
    assert_eq!(names, ["count", "total"]);
    assert_eq!(tools[0].spec().schema["properties"]["by"]["description"], "By how much.");
    assert_eq!(ask(&*tools[0], r#"{"by": 5}"#), done("7"));
    assert_eq!(ask(&*tools[0], ""), done("8"));
    assert_eq!(ask(&*tools[1], ""), done("total: 8"));
}

#[test]
fn tools_and_objects_go_together() {
    assert_eq!((add, note, Counter::new(), [quiet, quiet]).into_tools().len(), 6);
}

#[derive(Workflow)]
struct Draft;

impl Draft {
    async fn run(&self, mut session: Session) -> Result<Session> {
        session.assistant("A draft.")?;
        Ok(session)
    }
}

#[derive(Workflow)]
#[workflow(name = "check", version = "2")]
struct Review<W: Workflow> {
    strictness: u8,
    inner: W,
    names: Vec<String>,
}

impl<W: Workflow> Review<W> {
    async fn run(&self, session: Session) -> Result<Session> {
        assert!(self.strictness > 0 && self.names.is_empty());
        self.inner.forward(session).await
    }
}

#[derive(Workflow)]
struct HTTPPaper {
    title: &'static str,
    draft: Draft,
    reviews: Vec<Review<Draft>>,
    pair: [Draft; 2],
    then: Option<rath::Sequence>,
    never: Option<Draft>,
    count: Option<u32>,
}

impl HTTPPaper {
    async fn run(&self, mut session: Session) -> Result<Session> {
        session.user(self.title)?;
        assert!(self.count.is_none() && self.pair.len() == 2);
        session = self.draft.forward(session).await?;
        for review in &self.reviews {
            session = session.apply(review).await?;
        }
        session = self.never.forward(session).await?;
        self.then.forward(session).await
    }
}

fn paper() -> HTTPPaper {
    let review = || Review { strictness: 3, inner: Draft, names: Vec::new() };
    HTTPPaper {
        title: "Doors",
        draft: Draft,
        reviews: vec![review(), review()],
        pair: [Draft, Draft],
        then: Some(seq().then(Draft).then(review())),
        never: None,
        count: None,
    }
}

#[test]
fn an_outline_prints_as_a_tree() {
    let expected = "\
HTTPPaper(
  (draft): Draft()
  (reviews.0): Review(
    (inner): Draft()
  )
  (reviews.1): Review(
    (inner): Draft()
  )
  (pair.0): Draft()
  (pair.1): Draft()
  (then): seq(
    (0): Draft()
    (1): Review(
      (inner): Draft()
    )
  )
  (never): None()
)";
    assert_eq!(paper().outline().to_string(), expected);
    assert_eq!(Draft.outline(), Outline::leaf("Draft"));
}

#[test]
fn a_workflow_runs_as_a_step_of_its_name() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let store = Memory::new();
    let paper = paper();
    let session = Session::create(&store, Actor::person("ada"));
    let session = block_on(is_send(paper.forward(session))).unwrap();
    let scan = rath::store::Scan::session(session.id(), 0, session.head().seq).kinds(&[Kind::StepEntered]);
    let records = block_on(store.scan(scan)).unwrap().records;
    let steps: Vec<StepEntered> = records.iter().map(|record| record.body().unwrap()).collect();
    let names: Vec<&str> = steps.iter().map(|step| &*step.name).collect();
    assert_eq!(names, ["http_paper", "draft", "check", "draft", "check", "draft", "draft", "check", "draft"]);
    assert!(steps.iter().all(|step| step.role == Some(Role::Workflow)));
    assert_eq!(steps[2].version.as_deref(), Some("2"));
    assert_eq!(steps[1].version, None);
}
