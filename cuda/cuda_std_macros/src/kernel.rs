//! `#[kernel]`: what is a kernel, and its entry on the device.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, GenericArgument, ItemFn, Pat, PathArguments, ReturnType, Type, Visibility};

use crate::arguments::Arguments;
use crate::instances::Instance;
use crate::{inline, launch_type};

/// How a parameter gets into the kernel.
pub enum Kind {
    /// `Global<T>` or `GlobalMut<T>`, perhaps in an `Option`.
    Buffer { element: Box<Type>, writes: bool, optional: bool },
    /// `TensorMap`.
    TensorMap,
    /// Any `KernelParam`.
    Value,
}

pub struct Parameter {
    pub name: Ident,
    pub kind: Kind,
    pub ty: Type,
    /// Its doc comments.
    pub docs: Vec<Attribute>,
}

/// A checked kernel.
pub struct Kernel {
    pub function: ItemFn,
    pub parameters: Vec<Parameter>,
    pub arguments: Arguments,
    pub instances: Vec<Instance>,
}

impl Kernel {
    /// The attribute of what is there on the device alone, or on the devices that the kernel is for.
    fn on_device(&self) -> TokenStream {
        match &self.arguments.only {
            None => quote!(#[cfg(target_arch = "nvptx64")]),
            Some(arch) => quote!(#[cfg(all(target_arch = "nvptx64", target_feature = #arch))]),
        }
    }
}

pub fn expand(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let arguments = Arguments::parse(attribute)?;
    let mut function: ItemFn = syn::parse2(item)?;
    check_signature(&function)?;
    let parameters = function.sig.inputs.iter_mut().map(parameter).collect::<syn::Result<Vec<_>>>()?;
    let instances = Instance::all(&function.sig.ident, &function.sig.generics, &arguments)?;
    let kernel = Kernel { function, parameters, arguments, instances };
    let entries = kernel.instances.iter().map(|instance| entry(&kernel, instance));
    let launch = launch_type::expand(&kernel);
    let function = &kernel.function;
    // A generic kernel is the function that its entries call; any other is its entry.
    let generic = !function.sig.generics.params.is_empty();
    let where_it_is = match (generic, &kernel.arguments.only) {
        // Inline: compiled with what runs it, so not at all where nothing does.
        (false, None) => quote!(#[cfg(not(target_arch = "nvptx64"))] #[inline]),
        (true, None) => inline::on_device(),
        (false, Some(_)) => quote!(#[cfg(any())]),
        (true, Some(_)) => {
            let on_device = kernel.on_device();
            quote!(#on_device #[inline(always)])
        }
    };
    Ok(quote! {
        #(#entries)*

        #where_it_is
        #[allow(clippy::too_many_arguments)]
        #function

        #launch
    })
}

fn check_signature(function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    let refuse = |span: proc_macro2::Span, why: &str| Err(syn::Error::new(span, why));
    if !matches!(function.vis, Visibility::Public(_)) {
        return refuse(signature.fn_token.span(), "a kernel must be `pub`: it is an entry point of the PTX");
    }
    if signature.unsafety.is_none() {
        return refuse(
            signature.fn_token.span(),
            "a kernel must be an `unsafe fn`: nothing on the device checks its buffers",
        );
    }
    if let Some(token) = &signature.asyncness {
        return refuse(token.span(), "a kernel cannot be `async`");
    }
    if let Some(token) = &signature.constness {
        return refuse(token.span(), "a kernel cannot be `const`");
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi.span(), "a kernel's ABI is given by `#[kernel]`");
    }
    if let Some(clause) = &signature.generics.where_clause {
        return refuse(clause.span(), "a kernel cannot have a `where` clause");
    }
    if let Some(variadic) = &signature.variadic {
        return refuse(variadic.span(), "a kernel cannot be variadic");
    }
    if let ReturnType::Type(_, ty) = &signature.output {
        return refuse(ty.span(), "a kernel returns nothing: let it store its result through a `GlobalMut<T>`");
    }
    Ok(())
}

/// Reads a parameter and takes its doc comments away, which rustc does not accept there.
fn parameter(argument: &mut FnArg) -> syn::Result<Parameter> {
    let argument = match argument {
        FnArg::Typed(argument) => argument,
        FnArg::Receiver(receiver) => {
            return Err(syn::Error::new(receiver.span(), "a kernel is a function, not a method"));
        }
    };
    let Pat::Ident(pattern) = argument.pat.as_ref() else {
        return Err(syn::Error::new(
            argument.pat.span(),
            "a kernel's parameter is a plain name: it becomes a field of the launch type",
        ));
    };
    let name = pattern.ident.clone();
    let (docs, others) = argument.attrs.drain(..).partition(|attribute| attribute.path().is_ident("doc"));
    argument.attrs = others;
    Ok(Parameter { name, kind: kind(&argument.ty)?, ty: argument.ty.as_ref().clone(), docs })
}

fn kind(ty: &Type) -> syn::Result<Kind> {
    match ty {
        Type::Reference(reference) => Err(syn::Error::new(
            reference.span(),
            "a kernel cannot take a reference: take `Global<T>` to read a buffer, `GlobalMut<T>` to write one",
        )),
        Type::Ptr(pointer) => Err(syn::Error::new(
            pointer.span(),
            "a kernel does not take raw pointers, which no launch can check: take `Global<T>` to read a buffer, \
             `GlobalMut<T>` to write one",
        )),
        Type::ImplTrait(ty) => {
            Err(syn::Error::new(ty.span(), "a kernel's types have names: `#[kernel(instances(T = [..]))]`"))
        }
        Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == "TensorMap") => {
            Ok(Kind::TensorMap)
        }
        ty => Ok(buffer(ty, false).or_else(|| buffer(argument_of(ty, "Option")?, true)).unwrap_or(Kind::Value)),
    }
}

fn buffer(ty: &Type, optional: bool) -> Option<Kind> {
    let (element, writes) = match argument_of(ty, "Global") {
        Some(element) => (element, false),
        None => (argument_of(ty, "GlobalMut")?, true),
    };
    Some(Kind::Buffer { element: Box::new(element.clone()), writes, optional })
}

/// The `T` of `path::name<T>`.
fn argument_of<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last()?;
    if segment.ident != name {
        return None;
    }
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    match arguments.args.first() {
        Some(GenericArgument::Type(ty)) if arguments.args.len() == 1 => Some(ty),
        _ => None,
    }
}

/// An entry point on the device, and what `cuda_builder` needs to know of it.
fn entry(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let (entry, function) = (&instance.entry, &kernel.function.sig.ident);
    let (attributes, block) = (&kernel.function.attrs, &kernel.function.block);
    let inputs = &kernel.function.sig.inputs;
    let (mut raw, mut checks, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (place, Parameter { name, kind, ty, .. }) in kernel.parameters.iter().enumerate() {
        match kind {
            Kind::Buffer { element, writes, optional } => {
                let element = instance.put_into(element);
                let (pointer, handle) = if *writes {
                    (quote!(*mut #element), quote!(GlobalMut))
                } else {
                    (quote!(*const #element), quote!(Global))
                };
                let from = format_ident!("{}", if *optional { "from_nullable" } else { "from_raw" });
                raw.push(quote!(#name: #pointer));
                values.push(quote!(::cuda_std::global::#handle::#from(#name)));
            }
            Kind::TensorMap => {
                // Its address, which a copy takes, is that of the parameter, as LLVM names it.
                let address = format!("mov.b64 {{map}}, {entry}_param_{place}; cvta.param.u64 {{map}}, {{map}};");
                raw.push(quote!(#name: ::cuda_std::tensor_map::Parameter));
                values.push(quote! {{
                    let _ = #name;
                    let map: u64;
                    // SAFETY: the address of this entry's parameter.
                    unsafe {
                        ::core::arch::asm!(#address, map = out(reg64) map, options(pure, nomem, nostack, preserves_flags));
                    }
                    ::cuda_std::tensor_map::TensorMap::from_address(map)
                }});
            }
            Kind::Value => {
                let ty = instance.put_into(ty);
                raw.push(quote!(#name: #ty));
                checks.push(quote_spanned!(ty.span()=> ::cuda_std::launch::assert_kernel_param::<#ty>();));
                values.push(quote!(#name));
            }
        }
    }
    let only = kernel.on_device();
    let turbofish = instance.turbofish();
    let (body, called) = if turbofish.is_empty() {
        let body = quote! {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn kernel(#inputs) #block
        };
        (body, quote!(kernel))
    } else {
        (TokenStream::new(), quote!(#function #turbofish))
    };
    let begin = kernel.arguments.begins.is_none().then(|| quote!(::cuda_std::grid::begin();));
    let metadata_name = format_ident!("__ferrolayer_kernel_{entry}");
    let metadata = metadata(&instance.arguments(&kernel.arguments));
    quote! {
        #(#attributes)*
        #only
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "ptx-kernel" fn #entry(#(#raw),*) {
            #body
            const _: fn() = || { #(#checks)* };
            #begin
            // SAFETY: the launch gives what the kernel asks for.
            unsafe { #called(#(#values),*) }
        }

        #only
        #[used]
        #[unsafe(no_mangle)]
        #[doc(hidden)]
        #[allow(non_upper_case_globals)]
        pub static #metadata_name: [u32; 10] = #metadata;
    }
}

/// Block, most threads, fewest blocks, cluster, whether barriers are given, barriers; 0 where not given.
fn metadata(arguments: &Arguments) -> TokenStream {
    let none = [quote!(0), quote!(0), quote!(0)];
    let [x, y, z] = arguments.block.as_ref().unwrap_or(&none);
    let [cluster_x, cluster_y, cluster_z] = arguments.cluster.as_ref().unwrap_or(&none);
    let or_zero = |value: &Option<TokenStream>| value.clone().unwrap_or_else(|| quote!(0));
    let (max_threads, min_blocks) = (or_zero(&arguments.max_threads), or_zero(&arguments.min_blocks));
    let (given, barriers) = (u32::from(arguments.barriers.is_some()), or_zero(&arguments.barriers));
    quote! {
        [#x, #y, #z, #max_threads, #min_blocks, #cluster_x, #cluster_y, #cluster_z, #given, #barriers]
    }
}
