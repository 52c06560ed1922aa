//! A generic kernel's instances: one entry for each combination of what its parameters stand for.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Expr, GenericParam, Generics};

use crate::arguments::{Arguments, Choice};

/// One entry.
#[derive(Clone)]
pub struct Instance {
    /// Its name: the function's, and what each parameter stands for.
    pub entry: Ident,
    /// The generic parameters and what they stand for; none of a kernel that is not generic.
    values: Vec<(Ident, TokenStream)>,
}

impl Instance {
    /// All of a kernel, in the order of the attribute, the last parameter the fastest.
    ///
    /// # Errors
    /// When the function's parameters and the attribute's do not go together.
    pub fn all(name: &Ident, generics: &Generics, arguments: &Arguments) -> syn::Result<Vec<Self>> {
        check(generics, arguments)?;
        let mut all = vec![Self { entry: name.clone(), values: Vec::new() }];
        for Choice { parameters, values } in &arguments.instances {
            let with = |instance: &Self, chosen: &[Expr]| {
                let Self { mut entry, mut values } = instance.clone();
                for (parameter, value) in parameters.iter().zip(chosen) {
                    entry = format_ident!("{entry}_{}", suffix(value)?);
                    values.push((parameter.clone(), value.to_token_stream()));
                }
                syn::Result::Ok(Self { entry, values })
            };
            all = all
                .iter()
                .flat_map(|instance| values.iter().map(move |chosen| with(instance, chosen)))
                .collect::<syn::Result<_>>()?;
        }
        Ok(all)
    }

    /// What the generic parameters stand for.
    pub fn values(&self) -> impl Iterator<Item = &TokenStream> {
        self.values.iter().map(|(_, value)| value)
    }

    /// `::<f32, 3>`, in the order of the attribute, which is the function's; nothing for a kernel that is not generic.
    pub fn turbofish(&self) -> TokenStream {
        if self.values.is_empty() {
            return TokenStream::new();
        }
        let values = self.values();
        quote!(::<#(#values),*>)
    }

    /// What the attribute says of this instance: its values may name the generic parameters.
    pub fn arguments(&self, arguments: &Arguments) -> Arguments {
        arguments.map(|value| self.put_into(value))
    }

    /// What the kernel's parameters stand for, put into `tokens`.
    pub fn put_into(&self, tokens: &impl ToTokens) -> TokenStream {
        self.replace(tokens.to_token_stream())
    }

    fn replace(&self, tokens: TokenStream) -> TokenStream {
        let of_tree = |tree: TokenTree| match tree {
            TokenTree::Ident(ident) => match self.values.iter().find(|(parameter, _)| *parameter == ident) {
                Some((_, value)) => value.clone(),
                None => ident.to_token_stream(),
            },
            TokenTree::Group(group) => Group::new(group.delimiter(), self.replace(group.stream())).to_token_stream(),
            tree => tree.to_token_stream(),
        };
        tokens.into_iter().map(of_tree).collect()
    }
}

fn check(generics: &Generics, arguments: &Arguments) -> syn::Result<()> {
    let all: Vec<_> = arguments.instances.iter().flat_map(|choice| &choice.parameters).collect();
    let given = |name: &Ident| all.iter().position(|parameter| *parameter == name);
    for (place, parameter) in generics.params.iter().enumerate() {
        let name = match parameter {
            GenericParam::Type(parameter) => &parameter.ident,
            GenericParam::Const(parameter) => &parameter.ident,
            GenericParam::Lifetime(lifetime) => {
                return Err(syn::Error::new(lifetime.span(), "a kernel borrows nothing"));
            }
        };
        if given(name) != Some(place) {
            let text = format!(
                "a generic kernel says what its parameters stand for, in their order: \
                 `#[kernel(instances({name} = [..]))]`"
            );
            return Err(syn::Error::new(name.span(), text));
        }
    }
    match all.get(generics.params.len()) {
        None => Ok(()),
        Some(name) => Err(syn::Error::new(name.span(), "the kernel has no such generic parameter")),
    }
}

/// What an entry's name says of a type or a number.
fn suffix(value: &Expr) -> syn::Result<String> {
    match value {
        Expr::Path(path) => Ok(path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()),
        Expr::Lit(literal) => Ok(literal.lit.to_token_stream().to_string()),
        value => Err(syn::Error::new(value.span(), "a type or a literal, of which the entry's name can be made")),
    }
}
