//! Answers that are JSON.

use rath_core::{ErrorKind, Result, Session};
use serde::de::DeserializeOwned;

/// The last answer of a session as a value: for agents that [answer](super::Agent::answers) with JSON.
///
/// ```
/// use rath::prelude::*;
/// use rath::agent::answer_of;
/// # use schemars::JsonSchema;
/// # use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Weather {
///     degrees: i64,
///     rain: bool,
/// }
///
/// # pollster::block_on(async {
/// let model = Scripted::new("scripted").say(r#"{"degrees": 21, "rain": false}"#);
/// let agent = Agent::new("weather").model(model).answers::<Weather>();
/// let mut session = Memory::new().create(Actor::person("ada"));
/// session.user("How is the weather?")?;
/// let weather: Weather = answer_of(&agent.forward(session).await?).await?;
/// assert_eq!((weather.degrees, weather.rain), (21, false));
/// # Ok::<(), rath::Error>(())
/// # }).unwrap();
/// ```
pub async fn answer_of<T: DeserializeOwned>(session: &Session) -> Result<T> {
    let text = session.text().await?.unwrap_or_default();
    let json = unfenced(text.trim());
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json)).map_err(|error| {
        let (shown, more): (String, _) = (json.chars().take(200).collect(), json.chars().count() > 200);
        let shown = if more { format!("{shown}…") } else { shown };
        let why = match error.path().to_string().as_str() {
            "." => format!("the answer is not the JSON that was asked for: {}\n{shown}", error.inner()),
            path => format!("the answer is not the JSON that was asked for: {path}: {}\n{shown}", error.inner()),
        };
        ErrorKind::Workflow(why.into()).into()
    })
}

/// The same without the fence that models without schemas put around JSON.
fn unfenced(text: &str) -> &str {
    let inner =
        text.strip_prefix("```json").or_else(|| text.strip_prefix("```")).and_then(|text| text.strip_suffix("```"));
    inner.unwrap_or(text).trim()
}
