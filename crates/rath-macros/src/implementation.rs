//! `#[tool]` on an impl block.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Error, FnArg, Ident, ImplItem, ImplItemFn, ItemImpl, Meta, Result, Type};

use crate::method::Method;

pub(crate) fn expand(options: TokenStream, mut block: ItemImpl) -> Result<TokenStream> {
    check(&options, &block)?;
    let object = block.self_ty.as_ref().clone();
    let mut makers = Vec::new();
    let mut names: Vec<Ident> = Vec::new();
    for item in &mut block.items {
        let ImplItem::Fn(function) = item else { continue };
        let Some(at) = function.attrs.iter().position(is_tool) else { continue };
        let options = options_of(function.attrs.remove(at))?;
        makers.push(maker(&object, options, function)?);
        names.push(maker_name(&function.sig.ident));
    }
    if names.is_empty() {
        return Err(Error::new_spanned(&object, "no method is marked `#[tool]`: mark the methods that are tools"));
    }
    Ok(quote! {
        #block

        const _: () = {
            #(#makers)*

            impl ::rath::tool::IntoTools for #object {
                fn into_tools(self) -> ::std::vec::Vec<::rath::tool::BoxTool> {
                    let shared = ::std::sync::Arc::new(self);
                    ::std::vec![#(#names(::std::sync::Arc::clone(&shared))),*]
                }
            }
        };
    })
}

fn check(options: &TokenStream, block: &ItemImpl) -> Result<()> {
    if !options.is_empty() {
        return Err(Error::new_spanned(options, "options go on the methods: `#[tool(…)]` on each"));
    }
    if let Some((_, path, _)) = &block.trait_ {
        return Err(Error::new_spanned(path, "`#[tool]` cannot be used on an impl block of a trait"));
    }
    match block.generics.params.first() {
        Some(parameter) => {
            Err(Error::new_spanned(parameter, "methods of a generic type cannot be tools: use a concrete type"))
        }
        None => Ok(()),
    }
}

/// Generates a function that creates the tool of one method.
fn maker(object: &Type, options: TokenStream, function: &mut ImplItemFn) -> Result<TokenStream> {
    let shared = matches!(
        function.sig.inputs.first(),
        Some(FnArg::Receiver(receiver)) if receiver.reference.is_some() && receiver.mutability.is_none()
    );
    if !shared {
        let why = "a tool method must take `&self`: calls run concurrently, so mutable state needs a lock";
        return Err(Error::new_spanned(&function.sig.ident, why));
    }
    let method = Method::take(options, &function.attrs, &mut function.sig, 1)?;
    let (maker, name) = (maker_name(&function.sig.ident), &function.sig.ident);
    let implementation = method.implement(&quote!(Method), &quote!(self.0.#name));
    Ok(quote! {
        #[allow(non_snake_case)]
        fn #maker(shared: ::std::sync::Arc<#object>) -> ::rath::tool::BoxTool {
            struct Method(::std::sync::Arc<#object>);
            #implementation
            ::std::sync::Arc::new(Method(shared))
        }
    })
}

fn maker_name(method: &Ident) -> Ident {
    format_ident!("__tool_{}", method)
}

fn is_tool(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "tool")
}

fn options_of(attribute: Attribute) -> Result<TokenStream> {
    match attribute.meta {
        Meta::Path(_) => Ok(TokenStream::new()),
        Meta::List(list) => Ok(list.tokens),
        Meta::NameValue(meta) => Err(Error::new_spanned(meta, "options go in brackets: `#[tool(…)]`")),
    }
}
