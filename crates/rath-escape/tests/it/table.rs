//! The results of the attempts.

use std::fmt;

use crate::role::Role;

pub(crate) enum Verdict {
    Refused(String),
    Escaped(String),
    CannotTry(String),
    /// No result, because of an error in the suite.
    Broken(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Refused(how) => write!(f, "refused: {how}"),
            Verdict::Escaped(what) => write!(f, "ESCAPED: {what}"),
            Verdict::CannotTry(why) => write!(f, "cannot try: {why}"),
            Verdict::Broken(how) => write!(f, "BROKEN: {how}"),
        }
    }
}

#[derive(Default)]
pub(crate) struct Table(Vec<(String, Verdict)>);

impl Table {
    pub(crate) fn add(&mut self, name: String, verdict: Verdict) {
        self.0.push((name, verdict));
    }

    fn names(&self, which: fn(&Verdict) -> bool) -> Vec<&str> {
        self.0.iter().filter(|(_, verdict)| which(verdict)).map(|(name, _)| name.as_str()).collect()
    }

    pub(crate) fn refused(&self) -> Vec<&str> {
        self.names(|verdict| matches!(verdict, Verdict::Refused(_)))
    }

    pub(crate) fn escaped(&self) -> Vec<&str> {
        self.names(|verdict| matches!(verdict, Verdict::Escaped(_)))
    }

    pub(crate) fn broken(&self) -> Vec<&str> {
        self.names(|verdict| matches!(verdict, Verdict::Broken(_)))
    }

    fn not_tried(&self) -> Vec<&str> {
        self.names(|verdict| matches!(verdict, Verdict::CannotTry(_)))
    }

    /// Prints a summary line, after the whole table if that was requested.
    pub(crate) fn print_line(&self, backend: &str, role: &Role, admitted: &[&str]) {
        if role.table {
            eprint!("{self}");
        }
        let (refused, not_tried) = (self.refused().len(), self.not_tried());
        let (admitted, escaped): (Vec<_>, Vec<_>) =
            self.escaped().into_iter().partition(|name| admitted.contains(name));
        let (admitted, escaped) = (admitted.len(), escaped.len());
        let admitted = if admitted == 0 { String::new() } else { format!("{admitted} listed as not enforced, ") };
        let names = if not_tried.is_empty() { String::new() } else { format!(" ({})", not_tried.join(", ")) };
        let (name, not_tried) = (&role.name, not_tried.len());
        eprintln!(
            "escape suite on {backend} as {name}: {refused} refused, {not_tried} cannot try{names}, {admitted}{escaped} escaped"
        );
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, verdict)| writeln!(f, "{name:28} {verdict}"))
    }
}
