//! Parses the options in `#[tool(…)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser as _;
use syn::{Error, LitStr, Path, Result};

/// The options in `#[tool(…)]`.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    effect: Option<LitStr>,
    reads: bool,
    writes: Option<Span>,
    paths: Option<Paths>,
    asks: bool,
    branches: bool,
    timeout: Option<u64>,
    version: Option<LitStr>,
}

/// Which arguments are paths.
enum Paths {
    /// The arguments that the string names, separated by commas.
    Named(LitStr),
    /// The paths that this function returns.
    Found(Path),
}

impl Options {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Options::default();
        syn::meta::parser(|meta| options.take(&meta)).parse2(tokens)?;
        options.check()?;
        Ok(options)
    }

    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("name") {
            self.name = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("effect") {
            self.effect = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("reads") {
            self.reads = true;
        } else if meta.path.is_ident("writes") {
            self.writes = Some(meta.path.get_ident().map_or_else(Span::call_site, syn::Ident::span));
        } else if meta.path.is_ident("paths") {
            let value = meta.value()?;
            self.paths = Some(match value.peek(LitStr) {
                true => Paths::Named(value.parse()?),
                false => Paths::Found(value.parse()?),
            });
        } else if meta.path.is_ident("asks") {
            self.asks = true;
        } else if meta.path.is_ident("branches") {
            self.branches = true;
        } else if meta.path.is_ident("timeout") {
            self.timeout = Some(milliseconds(&meta.value()?.parse()?)?);
        } else if meta.path.is_ident("version") {
            self.version = Some(meta.value()?.parse()?);
        } else {
            return Err(meta.error(
                "unknown option: use `name`, `effect`, `reads`, `writes`, `paths`, `asks`, `branches`, `timeout` or \
                 `version`",
            ));
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if let Some(name) = &self.name {
            check_name(&name.value(), name.span())?;
        }
        if let Some(effect) = &self.effect
            && !["pure", "idempotent", "workspace", "irreversible"].contains(&effect.value().as_str())
        {
            let why = format!(
                "unknown effect \"{}\": use \"pure\", \"idempotent\", \"workspace\" or \"irreversible\"",
                effect.value()
            );
            return Err(Error::new(effect.span(), why));
        }
        match self.writes {
            Some(span) if self.effect().as_deref() == Some("pure") => {
                Err(Error::new(span, "a pure tool cannot write: use `reads`, or another effect"))
            }
            _ => Ok(()),
        }
    }

    fn effect(&self) -> Option<String> {
        self.effect.as_ref().map(LitStr::value)
    }

    /// The effect as a value. An unspecified effect counts as irreversible.
    fn effect_tokens(&self) -> TokenStream {
        let variant = match self.effect().as_deref() {
            Some("pure") => quote!(Pure),
            Some("idempotent") => quote!(Idempotent),
            Some("workspace") => quote!(Workspace),
            _ => quote!(Irreversible),
        };
        quote!(::rath::body::Effect::#variant)
    }

    fn file_access_tokens(&self) -> TokenStream {
        let writes = self.writes.is_some() || self.effect().as_deref() == Some("workspace");
        let variant = match (writes, self.reads) {
            (true, _) => quote!(Writes),
            (false, true) => quote!(Reads),
            (false, false) => quote!(Nothing),
        };
        quote!(::rath::tool::FileAccess::#variant)
    }

    /// Fails if `paths` names something that is not an argument. `arguments` has the names of all arguments, or is
    /// `None` if the model may see other names.
    pub(crate) fn check_paths(&self, arguments: Option<&[String]>) -> Result<()> {
        let (Some(Paths::Named(text)), Some(arguments)) = (&self.paths, arguments) else { return Ok(()) };
        let names = text.value();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let first = name.split('.').next().unwrap_or_default().trim_end_matches("[]");
            if !arguments.iter().any(|argument| argument == first) {
                let why = match arguments {
                    [] => format!("there is no argument `{first}`: the tool takes none"),
                    some => format!("there is no argument `{first}`: the arguments are `{}`", some.join("`, `")),
                };
                return Err(Error::new(text.span(), why));
            }
        }
        Ok(())
    }

    fn paths_tokens(&self) -> TokenStream {
        match &self.paths {
            None => quote!(::rath::tool::PathArguments::Unknown),
            Some(Paths::Named(names)) => quote!(::rath::tool::PathArguments::named(#names)),
            Some(Paths::Found(function)) => quote!(::rath::tool::PathArguments::Found(#function)),
        }
    }

    /// The fields of the spec, except name, description and schema.
    pub(crate) fn spec_tokens(&self) -> TokenStream {
        let (effect, file_access, paths) = (self.effect_tokens(), self.file_access_tokens(), self.paths_tokens());
        let (asks, branches, timeout) = (self.asks, self.branches, self.timeout_tokens());
        let version = self.version_tokens();
        quote! {
            version: #version,
            effect: #effect,
            file_access: #file_access,
            paths: #paths,
            asks: #asks,
            branches: #branches,
            timeout: #timeout
        }
    }

    fn version_tokens(&self) -> TokenStream {
        match &self.version {
            Some(version) => quote!(::core::option::Option::Some(::std::string::String::from(#version))),
            None => quote!(::core::option::Option::None),
        }
    }

    fn timeout_tokens(&self) -> TokenStream {
        match self.timeout {
            Some(milliseconds) => {
                quote!(::core::option::Option::Some(::core::time::Duration::from_millis(#milliseconds)))
            }
            None => quote!(::core::option::Option::None),
        }
    }
}

/// Checks the name against the rules of model providers.
pub(crate) fn check_name(name: &str, span: Span) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(Error::new(span, "a tool's name is 1 to 64 letters a-z, A-Z, digits, `_` and `-`"))
}

fn milliseconds(text: &LitStr) -> Result<u64> {
    let value = text.value();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let factor = match unit.trim() {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let parsed = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    parsed.filter(|milliseconds| *milliseconds > 0).ok_or_else(|| {
        Error::new(text.span(), "a timeout is a whole number and a unit: \"500ms\", \"30s\", \"5m\" or \"1h\"")
    })
}
