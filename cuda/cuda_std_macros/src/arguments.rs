//! The keys of `#[kernel(..)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, MetaNameValue, Token};

const KEYS: &str = "`block`, `max_threads`, `min_blocks`, `cluster` and `barriers`";

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
}

impl Arguments {
    pub fn parse(attribute: TokenStream) -> syn::Result<Self> {
        let pairs = syn::parse::Parser::parse2(Punctuated::<MetaNameValue, Token![,]>::parse_terminated, attribute)?;
        let mut arguments = Self::default();
        for MetaNameValue { path, value, .. } in pairs {
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
