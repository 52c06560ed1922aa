//! The launch type that stands beside a kernel on the host.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use crate::arguments::Arguments;
use crate::instances::Instance;
use crate::kernel::{Kernel, Kind, Parameter};

pub fn expand(kernel: &Kernel) -> TokenStream {
    let function = &kernel.function.sig.ident;
    let name = camel_case(function);
    let borrows = kernel.parameters.iter().any(|parameter| matches!(parameter.kind, Kind::Buffer { .. }));
    let parameters = kernel.function.sig.generics.params.iter().map(ToTokens::to_token_stream);
    let parameters: Vec<_> = borrows.then(|| quote!('a)).into_iter().chain(parameters).collect();
    let generics = if parameters.is_empty() { quote!() } else { quote!(<#(#parameters),*>) };
    let docs = match &kernel.arguments.only {
        None => format!("A launch of the kernel [`{function}`]: its arguments by name."),
        Some(arch) => {
            let arch = arch.value();
            format!("A launch of the kernel `{function}`, which is there for {arch} alone: its arguments by name.")
        }
    };
    let fields = kernel.parameters.iter().map(field);
    let launches = kernel.instances.iter().map(|instance| launch(kernel, instance, &name, borrows));
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #[doc = #docs]
        pub struct #name #generics { #(#fields),* }

        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = {
            #(#launches)*
        };
    }
}

/// `Launch` of one instance.
fn launch(kernel: &Kernel, instance: &Instance, name: &Ident, borrows: bool) -> TokenStream {
    let function = &kernel.function.sig.ident;
    let turbofish = instance.turbofish();
    let values = instance.values().cloned();
    let generics: Vec<_> = borrows.then(|| quote!('_)).into_iter().chain(values).collect();
    let generics = if generics.is_empty() { quote!() } else { quote!(<#(#generics),*>) };
    let arguments = instance.arguments(&kernel.arguments);
    let info = info(&instance.entry.to_string(), &arguments);
    let conditions = conditions(&instance.entry.to_string(), &arguments);
    let checks = kernel.parameters.iter().filter_map(|parameter| {
        let ty = instance.put_into(&parameter.ty);
        matches!(parameter.kind, Kind::Value)
            .then(|| quote_spanned!(ty.span()=> ::cuda_std::launch::assert_kernel_param::<#ty>();))
    });
    let pointers = kernel.parameters.iter().map(|parameter| pointer(parameter, instance));
    let pointer_names = kernel.parameters.iter().map(|parameter| &parameter.name);
    let emulated = kernel.parameters.iter().map(emulated);
    let names = kernel.parameters.iter().map(|parameter| &parameter.name);
    // Names of ours that no parameter's name can meet.
    let [visit, call, dims] = ["visit", "call", "dims"].map(|name| Ident::new(name, Span::mixed_site()));
    let buffers = kernel.parameters.iter().filter_map(|parameter| visit_buffer(&visit, parameter));
    let emulation = match &kernel.arguments.only {
        None => quote! {
            ::cuda_std::launch::check_host_memory(&self)?;
            #(#emulated)*
            ::cuda_std::emulator::run(
                &<Self as ::cuda_std::launch::Launch>::KERNEL,
                #dims,
                // SAFETY: the caller of `emulate` promises what the kernel asks for.
                &|| unsafe { #function #turbofish(#(#names),*) },
            )
        },
        Some(arch) => quote! {
            let _ = #dims;
            let kernel = <Self as ::cuda_std::launch::Launch>::KERNEL.name;
            ::core::result::Result::Err(::cuda_std::launch::EmulationError::NotEmulated { kernel, arch: #arch })
        },
    };
    quote! {
        #conditions
        const _: fn() = || { #(#checks)* };

        // SAFETY: written from the parameter list of the kernel itself.
        unsafe impl ::cuda_std::launch::LaunchArguments for #name #generics {
            fn kernel(&self) -> &'static ::cuda_std::launch::KernelInfo {
                &<Self as ::cuda_std::launch::Launch>::KERNEL
            }

            #[allow(unused_variables)]
            fn for_each_buffer(&self, #visit: &mut dyn ::core::ops::FnMut(::cuda_std::launch::BufferArg)) {
                #(#buffers)*
            }

            fn with_params(&self, #call: &mut dyn ::core::ops::FnMut(&mut [*mut ::core::ffi::c_void])) {
                #(#pointers)*
                #call(&mut [#((&raw mut #pointer_names).cast()),*])
            }
        }

        // SAFETY: the arguments' kernel is this one.
        unsafe impl ::cuda_std::launch::Launch for #name #generics {
            const KERNEL: ::cuda_std::launch::KernelInfo = #info;

            ::cuda_std::emulates! {
                unsafe fn emulate(
                    self,
                    #dims: ::cuda_std::launch::LaunchDims,
                ) -> ::core::result::Result<(), ::cuda_std::launch::EmulationError> {
                    #emulation
                }
            }
        }
    }
}

fn field(parameter: &Parameter) -> TokenStream {
    let Parameter { name, kind, ty, docs } = parameter;
    let (ty, what) = match kind {
        Kind::Buffer { element, writes, optional } => {
            let reference = if *writes {
                quote!(&'a mut dyn ::cuda_std::launch::DeviceMemory<#element>)
            } else {
                quote!(&'a dyn ::cuda_std::launch::DeviceMemory<#element>)
            };
            let ty = if *optional { quote!(::core::option::Option<#reference>) } else { reference };
            let what = if *writes { "Written by the kernel." } else { "Read by the kernel." };
            (ty, what)
        }
        Kind::TensorMap | Kind::Value => (quote!(#ty), "Passed by value."),
    };
    if docs.is_empty() {
        quote!(#[doc = #what] pub #name: #ty)
    } else {
        quote!(#(#docs)* #[doc = ""] #[doc = #what] pub #name: #ty)
    }
}

fn info(name: &str, arguments: &Arguments) -> TokenStream {
    let some = |value: &Option<TokenStream>| match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    };
    let shape = |value: &Option<[TokenStream; 3]>| some(&value.as_ref().map(|[x, y, z]| quote!([#x, #y, #z])));
    let (block, cluster) = (shape(&arguments.block), shape(&arguments.cluster));
    let (max_threads, min_blocks) = (some(&arguments.max_threads), some(&arguments.min_blocks));
    quote! {
        ::cuda_std::launch::KernelInfo {
            name: #name,
            block: #block,
            max_threads: #max_threads,
            min_blocks: #min_blocks,
            cluster: #cluster,
        }
    }
}

/// What no kernel may ask of the device, as compile errors.
fn conditions(name: &str, arguments: &Arguments) -> TokenStream {
    let block = arguments.block.as_ref().map(|[x, y, z]| {
        let message = format!("kernel `{name}`: a block has 1 to 1024 threads");
        quote! {
            const _: () = {
                let threads: u64 = {
                    let [x, y, z]: [u32; 3] = [#x, #y, #z];
                    x as u64 * y as u64 * z as u64
                };
                ::core::assert!(threads >= 1 && threads <= 1024, #message);
            };
        }
    });
    let max_threads = arguments.max_threads.as_ref().map(|threads| {
        let message = format!("kernel `{name}`: `max_threads` is 1 to 1024");
        quote! {
            const _: () = {
                let threads: u32 = #threads;
                ::core::assert!(threads >= 1 && threads <= 1024, #message);
            };
        }
    });
    quote!(#block #max_threads)
}

/// Shows a buffer to `visit`, if there is one.
fn visit_buffer(visit: &Ident, parameter: &Parameter) -> Option<TokenStream> {
    let (name, text) = (&parameter.name, parameter.name.to_string());
    let Kind::Buffer { writes, optional, .. } = parameter.kind else {
        return None;
    };
    let make = format_ident!("{}", if writes { "write" } else { "read" });
    Some(if optional {
        quote! {
            if let ::core::option::Option::Some(memory) = &self.#name {
                #visit(::cuda_std::launch::BufferArg::#make(#text, &**memory));
            }
        }
    } else {
        quote!(#visit(::cuda_std::launch::BufferArg::#make(#text, &*self.#name));)
    })
}

/// The argument as the driver copies it: buffers are 64-bit addresses.
fn pointer(parameter: &Parameter, instance: &Instance) -> TokenStream {
    let Parameter { name, kind, ty, .. } = parameter;
    match kind {
        Kind::Buffer { optional: true, .. } => quote! {
            let mut #name: u64 = self.#name.as_ref().map_or(0, |memory| memory.address());
        },
        Kind::Buffer { .. } => quote!(let mut #name: u64 = self.#name.address();),
        Kind::TensorMap | Kind::Value => {
            let ty = instance.put_into(ty);
            quote!(let mut #name: #ty = self.#name;)
        }
    }
}

/// The argument as the kernel takes it on the host.
fn emulated(parameter: &Parameter) -> TokenStream {
    let (name, text) = (&parameter.name, parameter.name.to_string());
    match parameter.kind {
        Kind::Buffer { writes, optional, .. } => {
            let handle = format_ident!("{}", if writes { "GlobalMut" } else { "Global" });
            let value = if optional {
                quote!(self.#name.map(|memory| unsafe {
                    ::cuda_std::global::#handle::from_memory(#text, memory)
                }))
            } else {
                quote!(unsafe { ::cuda_std::global::#handle::from_memory(#text, self.#name) })
            };
            quote! {
                // SAFETY: in host memory, as checked, and borrowed for the launch.
                let #name = #value;
            }
        }
        Kind::TensorMap | Kind::Value => quote!(let #name = self.#name;),
    }
}

/// `relu_forward` to `ReluForward`.
fn camel_case(name: &Ident) -> Ident {
    let text = name.to_string();
    let camel: String = text
        .split('_')
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters.collect::<Vec<_>>())
        })
        .collect();
    Ident::new(&camel, name.span())
}
