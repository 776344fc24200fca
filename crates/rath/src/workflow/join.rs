//! Joining branches: what each branch contributes to the session that continues.

use std::fmt;

use rath_core::body::BranchContext;
use rath_core::files::Drivers;
use rath_core::{BoxWorkflow, BranchMerge, Error, ErrorKind, How, Outline, Result, Session, SessionId, Workflow};
use serde_json::Value;

use super::branches::BranchEnd;
use super::codes;
use super::validator::{BoxValidator, Validation, Validator};

/// How the results of branches are combined.
#[derive(Clone)]
pub struct Join(pub(super) Kind);

#[derive(Clone)]
pub(super) enum Kind {
    All,
    Answers,
    Best(BoxValidator),
    First(usize),
    /// Like `First(1)`, but the winner's context replaces the session's.
    Winner,
    Majority,
    Synthesize(BoxWorkflow),
}

impl Join {
    /// Merges every branch: contexts are appended in branch order, files are merged.
    pub fn all() -> Self {
        Self(Kind::All)
    }

    /// Merges files and usage. Of each branch only its value, or else its last answer, enters the context: one message
    /// lists them in branch order.
    pub fn answers() -> Self {
        Self(Kind::Answers)
    }

    /// Keeps the branch that `validator` accepts with the highest score, and rejects the others with their scores and
    /// reasons. A branch without a score counts as 0. Of branches with equal scores the first wins. Fails with the code
    /// `no-branch-accepted` if the validator accepts none.
    pub fn best(validator: impl Validator + 'static) -> Self {
        Self(Kind::Best(BoxValidator::new(validator)))
    }

    /// Merges the first `count` branches that succeed, in branch order. Cancels and rejects the others.
    pub fn first(count: usize) -> Self {
        Self(Kind::First(count.max(1)))
    }

    /// Keeps the first branch whose value equals the value of more than half of the branches, and rejects those with
    /// other values. A branch without a value is compared by its last answer. Fails with the code `no-majority` if no
    /// value has a majority.
    pub fn majority() -> Self {
        Self(Kind::Majority)
    }

    /// Like [`all`](Self::all). Then `workflow` runs on the merged session, and a summary replaces the branches' items in
    /// the context.
    pub fn synthesize(workflow: impl Workflow + 'static) -> Self {
        Self(Kind::Synthesize(BoxWorkflow::new(workflow)))
    }

    /// The number of branches that must succeed before the others are cancelled; `None` if all run to their end.
    pub(super) fn enough(&self) -> Option<usize> {
        match self.0 {
            Kind::First(count) => Some(count),
            Kind::Winner => Some(1),
            _ => None,
        }
    }

    /// The validator that each branch runs after its work.
    pub(super) fn validator(&self) -> Option<&BoxValidator> {
        match &self.0 {
            Kind::Best(validator) => Some(validator),
            _ => None,
        }
    }

    pub(super) fn describe(&self) -> String {
        match &self.0 {
            Kind::All => "all".into(),
            Kind::Answers => "answers".into(),
            Kind::Best(validator) => format!("best by {}", validator.name()),
            Kind::First(count) => format!("first {count}"),
            Kind::Winner => "winner".into(),
            Kind::Majority => "majority".into(),
            Kind::Synthesize(_) => "synthesize".into(),
        }
    }

    pub(super) fn outline(&self, outline: Outline) -> Outline {
        match &self.0 {
            Kind::Synthesize(workflow) => outline.child("synthesize", workflow.outline()),
            _ => outline,
        }
    }
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Join({})", self.describe())
    }
}

/// What a join does when branches changed the same file in different ways.
#[derive(Clone, Debug, Default)]
pub enum OnConflict {
    /// Fails with the code `merge-conflict`. Nothing is merged, and the branches are kept.
    #[default]
    Fail,
    /// Lets one side win by path. Fails as above if a path has no rule.
    Drivers(Drivers),
    /// Merges with the conflict open, and waits until a person has resolved it.
    Ask,
    /// Merges with the conflict open and runs this workflow. Fails if the conflict is still open afterwards.
    Resolve(BoxWorkflow),
}

impl OnConflict {
    /// Runs `workflow` on the merged session to resolve conflicts.
    pub fn resolve(workflow: impl Workflow + 'static) -> Self {
        Self::Resolve(BoxWorkflow::new(workflow))
    }
}

/// A branch that ended, with its name. The end is not [`BranchEnd::Open`].
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) end: BranchEnd,
}

impl Ended {
    /// The branch.
    pub(super) fn id(&self) -> Option<SessionId> {
        match &self.end {
            BranchEnd::Done(branch) | BranchEnd::Failed(branch, _) => Some(branch.id()),
            BranchEnd::Open(_) => None,
        }
    }
}

/// What a join decided about one branch.
struct Part {
    context: BranchContext,
    files: bool,
    rejected: Option<String>,
}

impl Part {
    const APPEND: Self = Self { context: BranchContext::Append, files: true, rejected: None };
    const KEEP: Self = Self { context: BranchContext::Keep, files: true, rejected: None };
    const FILES: Self = Self { context: BranchContext::Omit, files: true, rejected: None };

    fn rejected(why: impl Into<String>) -> Self {
        Self { context: BranchContext::Omit, files: false, rejected: Some(why.into()) }
    }
}

/// The value of a branch: that of its step, or else its last answer.
pub(super) async fn value_of(name: &str, branch: &Session) -> Result<Value> {
    match branch.value::<Value>(name).await? {
        Some(value) if !value.is_null() => Ok(value),
        _ => Ok(branch.text().await?.map_or(Value::Null, Value::String)),
    }
}

impl Join {
    /// Merges the branches into `session` in one commit. `winners` are the names of the branches that succeeded first,
    /// for joins that need only some.
    pub(super) async fn apply(
        &self,
        mut session: Session,
        ended: Vec<Ended>,
        winners: &[String],
        on_conflict: &OnConflict,
    ) -> Result<Session> {
        let decided = match self.decide(&ended, winners).await {
            Ok(decided) => decided,
            Err(error) => return Err(error.with_sessions(with_branches(session, ended))),
        };
        let answers = match (&self.0, answers_of(&ended).await) {
            (Kind::Answers, Ok(answers)) => Some(answers),
            (Kind::Answers, Err(error)) => return Err(error.with_sessions(with_branches(session, ended))),
            _ => None,
        };
        let mut parts = Vec::with_capacity(ended.len());
        let mut branches = Vec::with_capacity(ended.len());
        for (Ended { end, .. }, part) in ended.into_iter().zip(decided) {
            let branch = match end {
                BranchEnd::Done(branch) | BranchEnd::Failed(branch, _) => branch,
                BranchEnd::Open(error) => return Err(error.with_sessions(vec![session])),
            };
            let Part { context, files, rejected } = part;
            parts.push(BranchMerge { branch: branch.id(), context, files, rejected });
            branches.push(branch);
        }
        if branches.is_empty() {
            return Ok(session);
        }
        let drivers = match on_conflict {
            OnConflict::Drivers(drivers) => drivers.clone(),
            _ => Drivers::default(),
        };
        let allow_conflicts = matches!(on_conflict, OnConflict::Ask | OnConflict::Resolve(_));
        let synthesis = match &self.0 {
            Kind::Synthesize(workflow) => Some(workflow.clone()),
            _ => None,
        };
        let how = How::PerBranch { branches: parts, allow_conflicts, then: synthesis };
        session = session.merge_with(branches, how, &drivers).await?;
        if let Some(answers) = answers
            && let Err(error) = session.user(answers)
        {
            return Err(error.with_sessions(vec![session]));
        }
        resolve_conflicts(session, on_conflict).await
    }

    async fn decide(&self, ended: &[Ended], winners: &[String]) -> Result<Vec<Part>> {
        let mut parts: Vec<Option<Part>> = ended
            .iter()
            .map(|Ended { end, .. }| match end {
                BranchEnd::Failed(_, error) => Some(Part::rejected(error.to_string())),
                _ => None,
            })
            .collect();
        match &self.0 {
            Kind::All | Kind::Synthesize(_) => fill(&mut parts, || Part::APPEND),
            Kind::Answers => fill(&mut parts, || Part::FILES),
            Kind::First(_) | Kind::Winner => {
                let why = match winners {
                    [winner] => format!("branch {winner} finished first"),
                    winners => format!("branches {} finished first", winners.join(", ")),
                };
                for (part, Ended { name, .. }) in parts.iter_mut().zip(ended) {
                    let wins = winners.contains(name);
                    match (&self.0, wins) {
                        (_, false) => *part = Some(Part::rejected(&why)),
                        (Kind::Winner, true) => *part = Some(Part::KEEP),
                        (_, true) => *part = Some(Part::APPEND),
                    }
                }
            }
            Kind::Best(validator) => keep_best(ended, &mut parts, &validator.name()).await?,
            Kind::Majority => keep_majority(ended, &mut parts).await?,
        }
        Ok(parts.into_iter().map(|part| part.unwrap_or_else(|| Part::rejected("not chosen"))).collect())
    }
}

/// Decides the same for all branches that are not decided yet.
fn fill(parts: &mut [Option<Part>], part: impl Fn() -> Part) {
    for undecided in parts.iter_mut().filter(|part| part.is_none()) {
        *undecided = Some(part());
    }
}

/// Keeps the accepted branch with the highest score.
async fn keep_best(ended: &[Ended], parts: &mut [Option<Part>], validator: &str) -> Result<()> {
    let mut verdicts = Vec::with_capacity(ended.len());
    for Ended { end, .. } in ended {
        verdicts.push(match end {
            BranchEnd::Done(branch) => branch.value::<Validation>(&super::validator::step_name(validator)).await?,
            _ => None,
        });
    }
    let mut best: Option<(usize, f64)> = None;
    for (at, verdict) in verdicts.iter().enumerate() {
        let Some(verdict) = verdict.as_ref().filter(|verdict| verdict.is_accepted()) else { continue };
        let score = verdict.score.unwrap_or_default();
        if best.is_none_or(|(_, known)| score > known) {
            best = Some((at, score));
        }
    }
    let Some((chosen, _)) = best else {
        let mut reasons = Vec::new();
        for (Ended { name, end }, verdict) in ended.iter().zip(&verdicts) {
            let why = match (verdict, end) {
                (Some(verdict), _) => verdict.to_string(),
                (None, BranchEnd::Failed(_, error)) => error.to_string(),
                (None, _) => "no verdict".into(),
            };
            reasons.push(format!("{name}: {why}"));
        }
        let why = format!("{validator} accepted no branch: {}", reasons.join("; "));
        return Err(ErrorKind::Coded { code: codes::NO_BRANCH_ACCEPTED.into(), why: why.into() }.into());
    };
    for (at, verdict) in verdicts.into_iter().enumerate() {
        match verdict {
            Some(_) if at == chosen => parts[at] = Some(Part::KEEP),
            Some(verdict) => parts[at] = Some(Part::rejected(verdict.to_string())),
            None => {}
        }
    }
    Ok(())
}

/// Keeps the first branch that has the value of the majority.
async fn keep_majority(ended: &[Ended], parts: &mut [Option<Part>]) -> Result<()> {
    let mut values = Vec::with_capacity(ended.len());
    for Ended { name, end } in ended {
        values.push(match end {
            BranchEnd::Done(branch) => Some(value_of(name, branch).await?),
            _ => None,
        });
    }
    let count = |value: &Value| values.iter().flatten().filter(|other| *other == value).count();
    let winner = values.iter().flatten().find(|value| count(value) * 2 > ended.len()).cloned();
    let Some(winner) = winner else {
        let given: Vec<String> = values.iter().flatten().map(ToString::to_string).collect();
        let why = format!("no value has a majority of {} branches: {}", ended.len(), given.join("; "));
        return Err(ErrorKind::Coded { code: codes::NO_MAJORITY.into(), why: why.into() }.into());
    };
    let mut is_kept = false;
    for (part, value) in parts.iter_mut().zip(values) {
        let Some(value) = value else { continue };
        *part = Some(match value == winner {
            true if is_kept => Part { files: false, ..Part::FILES },
            true => {
                is_kept = true;
                Part::KEEP
            }
            false => Part::rejected(format!("its value {value} differs from that of the majority, {winner}")),
        });
    }
    Ok(())
}

/// The message that lists the answers of the branches.
async fn answers_of(ended: &[Ended]) -> Result<String> {
    let mut text = String::from("Answers of the branches:\n");
    for Ended { name, end } in ended {
        let answer = match end {
            BranchEnd::Done(branch) => match value_of(name, branch).await? {
                Value::String(text) => text,
                Value::Null => "(no answer)".into(),
                value => value.to_string(),
            },
            BranchEnd::Failed(_, error) => format!("(failed: {error})"),
            BranchEnd::Open(_) => continue,
        };
        text.push_str(&format!("\n## {name}\n\n{answer}\n"));
    }
    Ok(text)
}

/// The session and the branches, for an error.
fn with_branches(session: Session, ended: Vec<Ended>) -> Vec<Session> {
    let branches = ended.into_iter().flat_map(|Ended { end, .. }| match end {
        BranchEnd::Done(branch) | BranchEnd::Failed(branch, _) => vec![branch],
        BranchEnd::Open(error) => error.into_sessions(),
    });
    std::iter::once(session).chain(branches).collect()
}

/// Resolves the conflicts that the merge left open.
async fn resolve_conflicts(mut session: Session, on_conflict: &OnConflict) -> Result<Session> {
    let open = |session: &Session| -> Vec<String> {
        session.pending().conflicts.iter().map(|conflict| conflict.path.to_string()).collect()
    };
    let paths = open(&session);
    match on_conflict {
        _ if paths.is_empty() => Ok(session),
        OnConflict::Resolve(workflow) => {
            let session = workflow.forward(session).await?;
            match open(&session) {
                paths if paths.is_empty() => Ok(session),
                paths => Err(Error::new(ErrorKind::MergeConflict { paths }, vec![session])),
            }
        }
        OnConflict::Ask => {
            let id = session.id().short();
            let question = format!(
                "The branches changed these files in different ways: {}. Resolve them with `rath resolve {id}:PATH`, then answer yes.",
                paths.join(", ")
            );
            if let Err(error) = session.ask(question).await {
                return Err(error.with_sessions(vec![session]));
            }
            match open(&session) {
                paths if paths.is_empty() => Ok(session),
                paths => Err(Error::new(ErrorKind::MergeConflict { paths }, vec![session])),
            }
        }
        OnConflict::Fail | OnConflict::Drivers(_) => Ok(session),
    }
}
