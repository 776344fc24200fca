//! `#[derive(Workflow)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Index, LitStr, Result};

pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        let why = "`#[derive(Workflow)]` can be used only on a struct; implement `Workflow` for an enum by hand";
        return Err(Error::new_spanned(&input.ident, why));
    };
    let name = &input.ident;
    let kind = name.unraw().to_string();
    let step = step(&input.attrs, &kind)?;
    let parts = parts(&data.fields);
    let (parameters, arguments, bounds) = input.generics.split_for_impl();
    let run = quote_spanned!(name.span()=> self.run(session));
    Ok(quote! {
        #[automatically_derived]
        impl #parameters ::rath::Workflow for #name #arguments #bounds {
            fn forward(
                &self,
                session: ::rath::Session,
            ) -> impl ::core::future::Future<Output = ::rath::Result<::rath::Session>> + ::core::marker::Send {
                #[allow(unused_imports)]
                use ::rath::__private::WithoutRun as _;
                let step = #step;
                session.in_step(step, ::core::option::Option::None, move |session, _| #run)
            }

            fn outline(&self) -> ::rath::workflow::Outline {
                #[allow(unused_imports)]
                use ::rath::__private::{Part, PartIsAnything as _, PartIsAWorkflow as _, PartIsAList as _};
                let outline = ::rath::workflow::Outline::leaf(#kind);
                #(#parts)*
                outline
            }
        }
    })
}

/// The `StepEntered` body of the step.
fn step(attributes: &[Attribute], kind: &str) -> Result<TokenStream> {
    let mut name = snake_case(kind);
    let mut version = quote!(::core::option::Option::None);
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("workflow")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = meta.value()?.parse::<LitStr>()?.value();
            } else if meta.path.is_ident("version") {
                let text: LitStr = meta.value()?.parse()?;
                version = quote!(::core::option::Option::Some(#text.into()));
            } else {
                return Err(meta.error("unknown option: use `name` or `version`"));
            }
            Ok(())
        })?;
    }
    Ok(quote! {
        ::rath::body::StepEntered {
            role: ::core::option::Option::Some(::rath::body::Role::Workflow),
            version: #version,
            ..::rath::body::StepEntered::new(#name)
        }
    })
}

/// Adds the fields that are workflows to the outline. The compiler selects them by their types.
fn parts(fields: &Fields) -> Vec<TokenStream> {
    let all = fields.iter().enumerate().map(|(at, field)| {
        let (member, name) = match &field.ident {
            Some(ident) => (ident.to_token_stream(), ident.unraw().to_string()),
            None => (Index::from(at).to_token_stream(), at.to_string()),
        };
        quote_spanned!(field.ty.span()=> let outline = (&&&Part(&self.#member)).put(#name, outline);)
    });
    all.collect()
}

/// `TwoOpinions` is `two_opinions`, `HTTPServer` is `http_server`.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_small = at > 0 && !letters[at - 1].is_uppercase() && letters[at - 1] != '_';
        let before_small =
            at > 0 && letters[at - 1] != '_' && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_small || before_small) {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::snake_case;

    #[test]
    fn names_become_snake_case() {
        for (name, snake) in [
            ("TwoOpinions", "two_opinions"),
            ("HTTPServer", "http_server"),
            ("A", "a"),
            ("Version2Writer", "version2_writer"),
            ("already_there", "already_there"),
        ] {
            assert_eq!(snake_case(name), snake);
        }
    }
}
