//! Procedural macros that turn functions into tools and structs into workflows. Use them through `rath`: `rath::tool`
//! and `rath::Workflow`.
//!
//! The generated code refers to `::rath` and to helpers in `rath::__private`.

mod docs;
mod function;
mod implementation;
mod method;
mod options;
mod parameter;
mod workflow;

use proc_macro::TokenStream;

/// Turns a function, or the marked methods of an impl block, into a tool.
///
/// The doc comment is the description that the model reads; the doc comments of the parameters describe the arguments.
/// An argument is optional if its type is `Option`. A parameter `&Call` receives the call, and a parameter
/// `Resource<T>` a resource that was provided to the session; the model sees neither.
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
/// A function becomes a unit struct of the same name that implements `Tool`. On an impl block, every method with
/// `&self` and its own `#[tool]` becomes a tool, and the object can be given to an agent as a set of tools.
///
/// Options:
/// - `name = "…"`: the tool's name for models. Default: the function's name.
/// - `effect = "…"`: `pure`, `idempotent`, `workspace` or `irreversible` (the default).
/// - `reads`, `writes`: whether the tool reads or writes the session's files. `effect = "workspace"` implies `writes`.
/// - `paths = "from, to"`: which arguments are file paths, so that policy rules about paths apply to them. Each is a
///   string or a list of strings; `edits[].path` selects fields of objects in a list. `paths = ""`: no argument is a
///   path. `paths = function`: a `fn(&serde_json::Value) -> Vec<String>` returns the paths in the arguments. Without
///   this option the paths are unknown: rules that deny or ask apply if any string in the arguments could be such a
///   path, and rules that allow a path do not apply.
/// - `asks`: the tool only asks a person a question, so no policy rule asks for approval first.
/// - `branches`: a call works on a branch of the session, `call.branch()`, which is merged after the call.
/// - `timeout = "30s"`: the time limit of a call, in `ms`, `s`, `m` or `h`.
/// - `version = "2"`: the version of the tool's behaviour. A run that was started with another version is not resumed;
///   change it if the tool's behaviour changes, not if its description is reworded.
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

const NOT_A_FUNCTION: &str =
    "`#[tool]` can be used on a function, or on an impl block with methods that are marked `#[tool]`";

/// Implements `Workflow` for a struct that has `async fn run(&self, session: Session) -> Result<Session>`.
///
/// `forward` runs the workflow as a step named after the type, in snake case. The outline has a part for every field
/// that is a workflow or a list of workflows.
///
/// `#[workflow(name = "…", version = "2")]` sets the step's name and version: a run that was recorded with another
/// version is not resumed.
#[proc_macro_derive(Workflow, attributes(workflow))]
pub fn workflow(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(workflow::expand);
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}
