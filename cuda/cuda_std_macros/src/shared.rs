//! `shared_array!`.

use std::sync::atomic::{AtomicUsize, Ordering};

use proc_macro2::TokenStream;
use quote::quote;
use syn::TypeArray;

/// How many arrays this crate has so far. The compiler expands macros in a fixed order, so that a crate's arrays have
/// the same names in every build; names made of the place in the source would change with every comment above it.
static ARRAYS: AtomicUsize = AtomicUsize::new(0);

pub fn expand(input: TokenStream) -> syn::Result<TokenStream> {
    // `[T; N]` without its brackets.
    let array: TypeArray = syn::parse2(quote!([#input]))?;
    let (element, length) = (&array.elem, &array.len);
    let crate_name = std::env::var("CARGO_CRATE_NAME").unwrap_or_else(|_| String::from("crate"));
    let name = format!("__shared_{crate_name}_{}", ARRAYS.fetch_add(1, Ordering::Relaxed));
    let declaration = format!(".shared .align 16 .b8 {name}[{{bytes}}];");
    let address = format!("mov.u32 {{address}}, {name};");
    Ok(quote! {{
        #[cfg(target_arch = "nvptx64")]
        {
            // `global_asm!` is an item that no function body takes directly.
            #[allow(unused_imports)]
            mod declaration {
                use super::*;
                ::core::arch::global_asm!(#declaration, bytes = const {
                    let length: usize = #length;
                    length * ::core::mem::size_of::<#element>()
                });
            }
            let address: u32;
            // SAFETY: the address of a variable that the declaration above makes.
            #[allow(unused_unsafe)]
            unsafe {
                ::core::arch::asm!(#address, address = out(reg32) address,
                    options(pure, nomem, nostack, preserves_flags));
            }
            // SAFETY: there are N elements at the address.
            #[allow(unused_unsafe)]
            unsafe { ::cuda_std::shared::SharedArray::<#element, { #length }>::from_address(address) }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            static ARRAY: ::cuda_std::shared::StaticArray = ::cuda_std::shared::StaticArray::new(#name);
            ::cuda_std::shared::SharedArray::<#element, { #length }>::from_static(&ARRAY)
        }
    }})
}
