//! `#[tool]` on a function.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::{ItemFn, Result, Visibility};

use crate::method::Method;

pub(crate) fn expand(options: TokenStream, mut function: ItemFn) -> Result<TokenStream> {
    let method = Method::take(options, &function.attrs, &mut function.sig, 0)?;
    let name = function.sig.ident.clone();
    let visibility = std::mem::replace(&mut function.vis, Visibility::Inherited);
    let docs: Vec<_> = function.attrs.extract_if(.., |attribute| attribute.path().is_ident("doc")).collect();
    let implementation = method.implement(&name.to_token_stream(), &name.to_token_stream());
    // The struct and the function have the same name: inside the block, the function is in the value namespace and the
    // struct in the type namespace.
    Ok(quote! {
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #name;

        const _: () = {
            #function
            #implementation
        };
    })
}
