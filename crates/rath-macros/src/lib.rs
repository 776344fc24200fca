//! Makes tools of functions and workflows of structs. Use it through `rath`: `rath::tool` and `rath::Workflow`.
//!
//! What is generated refers to `::rath` and the helpers in `rath::__private`.

mod docs;
mod function;
mod implementation;
mod method;
mod options;
mod parameter;
mod workflow;

use proc_macro::TokenStream;

/// Makes a tool of a function, or of the marked methods of an impl block.
///
/// The doc comment is the description that the model reads; the doc comments of the parameters describe the arguments.
/// An argument is optional where its type is `Option`. A parameter `&Call` gets the call, a parameter `State<T>` what
/// the call is equipped with; neither is shown to the model.
///
/// ```ignore
/// /// Adds two numbers.
/// #[tool(effect = "pure")]
/// async fn add(
///     /// The first number.
///     a: i64,
///     /// The second one. 1 if not given.
///     b: Option<i64>,
/// ) -> String {
///     (a + b.unwrap_or(1)).to_string()
/// }
/// ```
///
/// A function becomes a unit struct of its name that is a `Tool`. On an impl block, every method with `&self` and a
/// `#[tool]` of its own becomes a tool, and the object can be given to an agent as a set of tools.
///
/// Options:
/// - `name = "…"`: what models call it, instead of the function's name.
/// - `effect = "…"`: `pure`, `idempotent`, `workspace` or `irreversible`. Without one it is irreversible.
/// - `reads`, `writes`: what it does with the session's files. `effect = "workspace"` writes.
/// - `paths = "from, to"`: which arguments are paths of files, so that policy rules about paths hold for them. Each is a
///   text or a list of texts; `edits[].path` leads into objects. `paths = ""`: no argument is a path. `paths = function`:
///   a `fn(&serde_json::Value) -> Vec<String>` finds the paths in the arguments. Without this option the paths are
///   unknown: rules that deny or ask apply if any text in the arguments could be such a path, and rules that allow a path
///   do not apply.
/// - `asks`: all it does is ask a person, so no rule has a person asked before.
/// - `branches`: a call works on a branch of the session, `call.branch()`, which is merged after the call.
/// - `timeout = "30s"`: how long a call may take; `ms`, `s`, `m` or `h`.
/// - `version = "2"`: the version of what the tool does. A run that was begun with another version is not resumed; change it
///   when the tool does something else, not when its description is reworded.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = match syn::parse(item) {
        Ok(syn::Item::Fn(function)) => function::expand(options.into(), function),
        Ok(syn::Item::Impl(block)) => implementation::expand(options.into(), block),
        Ok(other) => Err(syn::Error::new_spanned(other, NOT_A_FUNCTION)),
        Err(error) => Err(error),
    };
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

const NOT_A_FUNCTION: &str = "`#[tool]` goes on a function, or on an impl block with methods that are marked `#[tool]`";

/// Makes a workflow of a struct that has `async fn run(&self, session: Session) -> Result<Session>`.
///
/// `forward` runs it as a step that is called like the type, in snake case. The outline has a part for every field
/// that is a workflow, or a list of them.
///
/// `#[workflow(name = "…", version = "2")]` gives the step another name, and a version: a run that was recorded with
/// another one is not resumed.
#[proc_macro_derive(Workflow, attributes(workflow))]
pub fn workflow(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(workflow::expand);
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
