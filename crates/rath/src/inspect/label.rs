//! Labels as text: `NAME` or `NAME=VALUE`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::str::FromStr;

/// A filter for labels: by name, or by name and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFilter {
    /// The name that a session's label must have.
    pub name: String,
    /// The value; any value if absent.
    pub value: Option<String>,
}

impl FromStr for LabelFilter {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value.to_owned())));
        Ok(Self { name: name.to_owned(), value })
    }
}

impl LabelFilter {
    /// Whether one of these labels matches.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.get(&self.name).is_some_and(|have| self.value.as_ref().is_none_or(|value| value == have))
    }
}

/// A label as text. A label without a value is only its name.
pub fn label_text(name: &str, value: &str) -> String {
    if value.is_empty() { name.to_owned() } else { format!("{name}={value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_by_name_or_by_name_and_value() {
        let labels = BTreeMap::from([("kind".to_owned(), "bug=2".to_owned()), ("urgent".to_owned(), String::new())]);
        let matches = |text: &str| text.parse::<LabelFilter>().unwrap().matches(&labels);
        assert!(matches("kind") && matches("kind=bug=2") && matches("urgent") && matches("urgent="));
        assert!(!matches("kind=bug") && !matches("") && !matches("Kind"));
        assert_eq!((label_text("a", ""), label_text("a", "b")), ("a".into(), "a=b".into()));
    }
}
