//! The keys of `#[kernel(..)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Meta, MetaNameValue, Token};

const KEYS: &str = "`block`, `max_threads`, `min_blocks`, `cluster`, `barriers`, `begins`, `only` and `instances(..)`";

/// What the attribute says; absent keys are `None`.
#[derive(Default)]
pub struct Arguments {
    /// x, y and z.
    pub block: Option<[TokenStream; 3]>,
    pub max_threads: Option<TokenStream>,
    pub min_blocks: Option<TokenStream>,
    /// x, y and z.
    pub cluster: Option<[TokenStream; 3]>,
    pub barriers: Option<TokenStream>,
    /// Who calls `cuda_std::grid::begin`: `"itself"`, or the attribute.
    pub begins: Option<LitStr>,
    /// The architecture that alone has the kernel.
    pub only: Option<LitStr>,
    /// What the generic parameters stand for.
    pub instances: Vec<Choice>,
}

/// Generic parameters that are chosen together, mostly one alone, and what they stand for in turn.
pub struct Choice {
    pub parameters: Vec<Ident>,
    /// For each instance as many as there are parameters.
    pub values: Vec<Vec<Expr>>,
}

impl Arguments {
    pub fn parse(attribute: TokenStream) -> syn::Result<Self> {
        let keys = syn::parse::Parser::parse2(Punctuated::<Meta, Token![,]>::parse_terminated, attribute)?;
        let mut arguments = Self::default();
        for key in keys {
            let MetaNameValue { path, value, .. } = match key {
                Meta::List(list) if list.path.is_ident("instances") => {
                    if !arguments.instances.is_empty() {
                        return Err(syn::Error::new(list.path.span(), "`instances` is given twice"));
                    }
                    let choices = list.parse_args_with(Punctuated::<Choice, Token![,]>::parse_terminated)?;
                    arguments.instances = choices.into_iter().collect();
                    continue;
                }
                key => key.require_name_value()?.clone(),
            };
            let key = path.get_ident().map(ToString::to_string).unwrap_or_default();
            let twice = match key.as_str() {
                "block" => arguments.block.replace(shape(&value)?).is_some(),
                "cluster" => arguments.cluster.replace(shape(&value)?).is_some(),
                "max_threads" => arguments.max_threads.replace(quote!(#value)).is_some(),
                "min_blocks" => arguments.min_blocks.replace(quote!(#value)).is_some(),
                "begins" => arguments.begins.replace(itself(&value)?).is_some(),
                "only" => arguments.only.replace(text(&value)?).is_some(),
                "barriers" => arguments.barriers.replace(quote!(#value)).is_some(),
                _ => {
                    return Err(syn::Error::new(path.span(), format!("a kernel has no such key: it has {KEYS}")));
                }
            };
            if twice {
                return Err(syn::Error::new(path.span(), format!("`{key}` is given twice")));
            }
        }
        Ok(arguments)
    }

    /// The same with every value passed through `put`.
    pub fn map(&self, put: impl Fn(&TokenStream) -> TokenStream) -> Self {
        let shape = |shape: &Option<[TokenStream; 3]>| shape.as_ref().map(|sides| sides.each_ref().map(&put));
        let value = |value: &Option<TokenStream>| value.as_ref().map(&put);
        Self {
            block: shape(&self.block),
            max_threads: value(&self.max_threads),
            min_blocks: value(&self.min_blocks),
            cluster: shape(&self.cluster),
            barriers: value(&self.barriers),
            begins: self.begins.clone(),
            only: self.only.clone(),
            instances: Vec::new(),
        }
    }
}

/// `T = [f32, f16]` or `(T, U) = [(f32, f16), (f32, f32)]`.
impl Parse for Choice {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let together = input.peek(syn::token::Paren);
        let parameters: Vec<Ident> = if together {
            let names;
            syn::parenthesized!(names in input);
            Punctuated::<Ident, Token![,]>::parse_terminated(&names)?.into_iter().collect()
        } else {
            vec![input.parse()?]
        };
        input.parse::<Token![=]>()?;
        let values = match input.parse()? {
            Expr::Array(values) if !values.elems.is_empty() => values.elems,
            value => {
                let text = "a list of what the parameter stands for, as in `T = [f32, f16]`";
                return Err(syn::Error::new(value.span(), text));
            }
        };
        let of_value = |value: Expr| match value {
            Expr::Tuple(tuple) if together && tuple.elems.len() == parameters.len() => {
                Ok(tuple.elems.into_iter().collect())
            }
            value if !together => Ok(vec![value]),
            value => {
                Err(syn::Error::new(value.span(), format!("a tuple of {}, one for each parameter", parameters.len())))
            }
        };
        let values = values.into_iter().map(of_value).collect::<syn::Result<_>>()?;
        Ok(Self { parameters, values })
    }
}

/// `n` or a tuple of up to three.
fn shape(value: &Expr) -> syn::Result<[TokenStream; 3]> {
    let mut shape = [quote!(1), quote!(1), quote!(1)];
    match value {
        Expr::Tuple(tuple) if tuple.elems.is_empty() || tuple.elems.len() > 3 => {
            return Err(syn::Error::new(tuple.span(), "a shape has one to three dimensions"));
        }
        Expr::Tuple(tuple) => {
            for (side, value) in shape.iter_mut().zip(&tuple.elems) {
                *side = quote!(#value);
            }
        }
        value => shape[0] = quote!(#value),
    }
    Ok(shape)
}

/// `"itself"`.
fn itself(value: &Expr) -> syn::Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value() == "itself" => Ok(text.clone()),
        value => Err(syn::Error::new(value.span(), "`begins` is \"itself\", or not given")),
    }
}

/// A text in quotes.
fn text(value: &Expr) -> syn::Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        value => Err(syn::Error::new(value.span(), "an architecture in quotes, as in `only = \"sm_90a\"`")),
    }
}
