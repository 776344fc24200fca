//! The parameters of a tool's function: arguments from the model, and values from the runtime.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, FnArg, GenericArgument, Ident, Pat, PatType, PathArguments, PathSegment, Result, Type};

/// A parameter, by where its value comes from.
pub(crate) enum Parameter {
    /// An argument from the model.
    Argument(Box<Argument>),
    /// The call.
    Call,
    /// A resource that was provided to the session.
    Resource(Box<Type>),
}

/// An argument from the model.
pub(crate) struct Argument {
    name: Ident,
    kind: Type,
    attributes: Vec<Attribute>,
}

impl Parameter {
    /// Parses a parameter, and removes doc comments and attributes that belong to the argument.
    pub(crate) fn take(input: &mut FnArg) -> Result<Self> {
        let input = match input {
            FnArg::Typed(input) => input,
            FnArg::Receiver(receiver) => {
                return Err(Error::new_spanned(
                    receiver,
                    "this is a method: put `#[tool]` on its impl block as well, and use `&self`",
                ));
            }
        };
        let mut attributes = Vec::new();
        input.attrs.retain(|attribute| {
            let moves = ["doc", "serde", "schemars"].iter().any(|name| attribute.path().is_ident(name));
            if moves {
                attributes.push(attribute.clone());
            }
            !moves
        });
        match input.ty.as_ref() {
            Type::Reference(reference) if is(&reference.elem, "Call") => Ok(Parameter::Call),
            Type::Reference(reference) if is(&reference.elem, "str") => {
                Err(Error::new_spanned(reference, "arguments are owned: use `String`"))
            }
            Type::Reference(reference) => {
                Err(Error::new_spanned(reference, "arguments are owned: only `&Call` is borrowed"))
            }
            Type::ImplTrait(kind) => Err(Error::new_spanned(kind, "the type of an argument cannot be `impl`")),
            kind if is(kind, "Call") => Err(Error::new_spanned(kind, "the call is borrowed: use `&Call`")),
            kind if is_resource(kind) => Ok(Parameter::Resource(Box::new(kind.clone()))),
            kind => {
                let argument = Argument { name: name(input)?, kind: kind.clone(), attributes };
                Ok(Parameter::Argument(Box::new(argument)))
            }
        }
    }
}

impl Argument {
    pub(crate) fn name(&self) -> &Ident {
        &self.name
    }

    /// The argument's name for the model. `None` if an attribute may have renamed it.
    pub(crate) fn shown_name(&self) -> Option<String> {
        let is_plain = self.attributes.iter().all(|attribute| attribute.path().is_ident("doc"));
        is_plain.then(|| self.name.unraw().to_string())
    }

    /// The argument as a field of the struct that the arguments are deserialized into.
    pub(crate) fn field(&self) -> TokenStream {
        let Argument { name, kind, attributes } = self;
        quote!(#(#attributes)* #name: #kind)
    }

    /// A check that fails to compile, with a helpful error, if the type cannot be an argument.
    pub(crate) fn check(&self) -> TokenStream {
        let kind = &self.kind;
        quote_spanned!(kind.span()=> ::rath::__private::is_an_argument::<#kind>();)
    }
}

fn name(input: &PatType) -> Result<Ident> {
    match input.pat.as_ref() {
        Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => Ok(pattern.ident.clone()),
        other => Err(Error::new_spanned(other, "an argument needs a name: destructure it in the function body")),
    }
}

fn last(kind: &Type) -> Option<&PathSegment> {
    match kind {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        _ => None,
    }
}

fn is(kind: &Type, name: &str) -> bool {
    last(kind).is_some_and(|segment| segment.ident == name && segment.arguments.is_none())
}

fn is_resource(kind: &Type) -> bool {
    last(kind).is_some_and(|segment| match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => {
            segment.ident == "Resource" && matches!(arguments.args.first(), Some(GenericArgument::Type(_)))
        }
        _ => false,
    })
}
