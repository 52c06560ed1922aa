//! The keys of `#[kernel(..)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, Ident, Meta, MetaList, MetaNameValue, Token};

const KEYS: &str = "`block`, `max_threads`, `min_blocks`, `cluster`, `barriers` and `instances(..)`";

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
    /// Each generic parameter with what it stands for, in turn.
    pub instances: Vec<(Ident, Vec<Expr>)>,
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
                    arguments.instances = instances(&list)?;
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
}

/// `T = [f32, f16], N = [2, 3]`.
fn instances(list: &MetaList) -> syn::Result<Vec<(Ident, Vec<Expr>)>> {
    let pairs = list.parse_args_with(Punctuated::<MetaNameValue, Token![,]>::parse_terminated)?;
    let of_pair = |MetaNameValue { path, value, .. }: MetaNameValue| match value {
        Expr::Array(values) if !values.elems.is_empty() => {
            Ok((path.require_ident()?.clone(), values.elems.into_iter().collect()))
        }
        value => Err(syn::Error::new(value.span(), "a list of what the parameter stands for, as in `T = [f32, f16]`")),
    };
    pairs.into_iter().map(of_pair).collect()
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
