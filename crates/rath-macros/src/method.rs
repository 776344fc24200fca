//! Code generation that functions and methods share.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;
use syn::{Attribute, Error, Result, Signature};

use crate::docs;
use crate::options::{Options, check_name};
use crate::parameter::Parameter;

/// A function that becomes a tool.
pub(crate) struct Method {
    options: Options,
    name: String,
    description: String,
    parameters: Vec<Parameter>,
    is_async: bool,
}

impl Method {
    /// Parses a function, and removes what only the tool needs from its signature. The first `skip` parameters are
    /// ignored.
    pub(crate) fn take(
        options: TokenStream,
        attributes: &[Attribute],
        signature: &mut Signature,
        skip: usize,
    ) -> Result<Self> {
        let options = Options::parse(options)?;
        if let Some(parameter) = signature.generics.params.first() {
            return Err(Error::new_spanned(parameter, "a tool cannot have type parameters: it has exactly one schema"));
        }
        let description = docs::text(attributes);
        if description.is_empty() {
            let why = "a tool needs a doc comment: it is the description that the model reads";
            return Err(Error::new(signature.ident.span(), why));
        }
        let name = match &options.name {
            Some(name) => name.value(),
            None => signature.ident.unraw().to_string(),
        };
        check_name(&name, signature.ident.span())?;
        let parameters = signature.inputs.iter_mut().skip(skip).map(Parameter::take).collect::<Result<Vec<_>>>()?;
        let arguments = parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Argument(argument) => Some(argument.shown_name()),
            Parameter::Call | Parameter::Resource(_) => None,
        });
        options.check_paths(arguments.collect::<Option<Vec<_>>>().as_deref())?;
        Ok(Self { options, name, description, parameters, is_async: signature.asyncness.is_some() })
    }

    /// Generates the struct `Arguments`, and the implementation of `Tool` for `tool`, which calls `function`.
    pub(crate) fn implement(&self, tool: &TokenStream, function: &TokenStream) -> TokenStream {
        let arguments = self.arguments();
        let spec = self.spec();
        let call = self.call(function);
        quote! {
            #arguments

            impl ::rath::tool::Tool for #tool {
                #spec

                fn check(&self, arguments: &str) -> ::core::result::Result<(), ::std::string::String> {
                    ::rath::__private::arguments::<Arguments>(::rath::tool::Tool::spec(self), arguments)
                        .map(::core::mem::drop)
                }

                fn call<'a>(&'a self, __call: &'a ::rath::tool::Call) -> ::rath::store::BoxFuture<'a, ::rath::tool::ToolOutcome> {
                    ::std::boxed::Box::pin(async move { #call })
                }
            }
        }
    }

    /// The struct that the model's JSON is deserialized into.
    fn arguments(&self) -> TokenStream {
        let all = self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Argument(argument) => Some(argument),
            Parameter::Call | Parameter::Resource(_) => None,
        });
        let (fields, checks): (Vec<_>, Vec<_>) = all.map(|argument| (argument.field(), argument.check())).unzip();
        quote! {
            #[allow(dead_code)]
            fn __arguments_can_be_read() { #(#checks)* }

            #[derive(::rath::__private::serde::Deserialize, ::rath::__private::schemars::JsonSchema)]
            #[serde(crate = "::rath::__private::serde", deny_unknown_fields)]
            #[schemars(crate = "::rath::__private::schemars")]
            struct Arguments { #(#fields),* }
        }
    }

    fn spec(&self) -> TokenStream {
        let Method { options, name, description, .. } = self;
        let fields = options.spec_tokens();
        quote! {
            fn spec(&self) -> &::rath::tool::ToolSpec {
                static SPEC: ::std::sync::OnceLock<::rath::tool::ToolSpec> = ::std::sync::OnceLock::new();
                SPEC.get_or_init(|| {
                    ::rath::tool::ToolSpec { #fields, ..::rath::__private::spec::<Arguments>(#name, #description) }
                })
            }
        }
    }

    /// Generates the body of `call`: it parses the arguments, finds the resources and calls `function`.
    fn call(&self, function: &TokenStream) -> TokenStream {
        let mut states = Vec::new();
        let mut given = Vec::new();
        for (at, parameter) in self.parameters.iter().enumerate() {
            match parameter {
                Parameter::Argument(argument) => {
                    let name = argument.name();
                    given.push(quote!(__arguments.#name));
                }
                Parameter::Call => given.push(quote!(__call)),
                Parameter::Resource(kind) => {
                    let state = format_ident!("__state_{at}");
                    states.push(quote! {
                        let #state: #kind = match ::rath::__private::Resource::of(__call) {
                            ::core::result::Result::Ok(state) => state,
                            ::core::result::Result::Err(missing) => {
                                return ::rath::tool::ToolOutcome::failed(::std::string::ToString::to_string(&missing));
                            }
                        };
                    });
                    given.push(quote!(#state));
                }
            }
        }
        let wait = self.is_async.then(|| quote!(.await));
        quote! {
            #[allow(unused_variables)]
            let __arguments = match ::rath::__private::arguments::<Arguments>(
                ::rath::tool::Tool::spec(self),
                &__call.arguments,
            ) {
                ::core::result::Result::Ok(arguments) => arguments,
                ::core::result::Result::Err(why) => return ::rath::tool::ToolOutcome::failed(why),
            };
            #(#states)*
            ::rath::tool::IntoOutcome::into_outcome(#function(#(#given),*)#wait)
        }
    }
}
