//! `#[device_inline]`: where a function is inlined.

use proc_macro2::TokenStream;
use quote::quote;

/// The item as it is, which is not parsed: there are many.
pub fn expand(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(syn::Error::new_spanned(attribute, "`#[device_inline]` takes nothing"));
    }
    Ok(quote! {
        #[cfg_attr(target_arch = "nvptx64", inline(always))]
        #item
    })
}
