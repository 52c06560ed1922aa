//! `#[device_inline]`: where a function is inlined.

use proc_macro2::TokenStream;
use quote::quote;

/// The attribute of a function that is copied into its callers on the device alone.
pub fn on_device() -> TokenStream {
    quote!(#[cfg_attr(target_arch = "nvptx64", inline(always))])
}

/// The item as it is, which is not parsed: there are many.
pub fn expand(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(syn::Error::new_spanned(attribute, "`#[device_inline]` takes nothing"));
    }
    let on_device = on_device();
    Ok(quote!(#on_device #item))
}
