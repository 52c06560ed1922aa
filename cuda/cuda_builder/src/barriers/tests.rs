use super::*;

fn sources(files: &[(&str, &str)]) -> Sources {
    let mut sources = Sources::default();
    for (path, text) in files {
        sources.add(Path::new(path), Path::new(path), text).unwrap();
    }
    sources.drop_host_files();
    sources.index();
    sources
}

fn count(files: &[(&str, &str)], entry: &str) -> Option<u32> {
    sources(files).count([entry]).get(entry).map(|counted| counted.barriers)
}

#[test]
fn calls_count_once_each_and_loops_are_not_multiplied() {
    let text = "
        #[kernel(block = 256)]
        pub unsafe fn k(n: u32) {
            thread::sync_threads(); // sync_threads();
            let name = \"sync_threads()\";
            for i in 0..n { cuda_std::thread::sync_threads(); }
            let total = if sync_threads_count(n > 1) > 3 { 1 } else { 2 };
            let not_called = thread::sync_threads;
        }";
    assert_eq!(count(&[("k.rs", text)], "k"), Some(3));
    let place = &sources(&[("k.rs", text)]).count(["k"])["k"].place;
    assert_eq!(place, "k.rs:3");
}

#[test]
fn an_instance_counts_as_the_generic_kernel_that_its_name_begins_with() {
    let text = "
        pub unsafe fn sum<T: Storage, const N: u32>() { sync_threads(); sync_threads() }
        pub unsafe fn sum_all() { sync_threads() }";
    assert_eq!(count(&[("k.rs", text)], "sum_f32_4"), Some(2));
    assert_eq!(count(&[("k.rs", text)], "sum_all"), Some(1));
    assert_eq!(count(&[("k.rs", text)], "sum_all_f16"), Some(1));
    assert_eq!(count(&[("k.rs", text)], "product_f32"), None);
}

#[test]
fn functions_count_for_each_call_and_recursion_ends() {
    let text = "
        pub unsafe fn k() { stage(1); stage::<f32>(2); recurse(3); }
        fn stage<T>(i: u32) { fence(); fence() }
        fn fence() { sync_threads() }
        fn recurse(i: u32) { sync_threads(); recurse(i - 1) }";
    assert_eq!(count(&[("k.rs", text)], "k"), Some(5));
}

#[test]
fn a_name_means_the_same_file_s_function_first_then_the_qualified_one_then_any() {
    let files = [
        ("a.rs", "pub unsafe fn in_a() { step() } fn step() { sync_threads() }"),
        ("b.rs", "pub fn step() { sync_threads(); sync_threads() } pub unsafe fn other() {}"),
        ("c.rs", "pub unsafe fn in_c() { crate::b::step() } fn step() {}"),
        ("d.rs", "use crate::b::step; pub unsafe fn in_d() { step() }"),
        (
            "e.rs",
            "mod inner { pub fn step() { sync_threads(); sync_threads(); sync_threads() } } fn step() {}
                  pub unsafe fn in_e() { inner::step() }",
        ),
    ];
    assert_eq!(count(&files, "in_a"), Some(1));
    assert_eq!(count(&files, "in_c"), Some(2));
    // Unqualified and not in its file: any of that name, the one with the most.
    assert_eq!(count(&files, "in_d"), Some(3));
    assert_eq!(count(&files, "in_e"), Some(3));
}

#[test]
fn methods_and_associated_functions_count() {
    let text = "
        impl<const N: usize> Tile<N> {
            fn new() -> Self { Self::fill(); Tile }
            fn fill() { sync_threads() }
            fn put(self) { sync_threads(); sync_threads() }
        }
        impl Copy for Other { fn fill() {} }
        pub unsafe fn k() { let t = Tile::<4>::new(); t.put(); Other::fill(); }";
    assert_eq!(count(&[("k.rs", text)], "k"), Some(3));
}

/// Names that functions of types and others share.
#[test]
fn a_method_is_a_types_and_a_name_alone_is_nobodys() {
    let text = "
        impl Tile { fn load(&self) { sync_threads(); sync_threads() } }
        fn load() { sync_threads() }
        fn store() { sync_threads() }
        pub unsafe fn by_name() { let store = 0; load(); tile.store(); }
        pub unsafe fn by_method(tile: Tile) { tile.load() }";
    assert_eq!(count(&[("k.rs", text)], "by_name"), Some(1));
    assert_eq!(count(&[("k.rs", text)], "by_method"), Some(2));
}

#[test]
fn macro_bodies_and_macro_arguments_count() {
    let text = "
        macro_rules! both {
            ($a:expr) => { both!($a, 0) };
            ($a:expr, $b:expr) => {{ sync_threads(); $a; helper() }};
        }
        fn helper() { sync_threads() }
        pub unsafe fn k() { both!(sync_threads()); }";
    assert_eq!(count(&[("k.rs", text)], "k"), Some(3));
}

#[test]
fn entries_that_a_macro_makes_count_as_its_function() {
    let text = "
        macro_rules! kernels {
            ($($name:ident: $t:ty, $body:ident;)*) => {$(
                #[kernel(block = 256)]
                pub unsafe fn $name(x: Global<$t>) { sync_threads(); $body::<$t>(x) }
            )*};
        }
        fn body<T>(x: Global<T>) { sync_threads() }
        kernels! { k_f32: f32, body; k_f16: f16, body; }";
    assert_eq!(count(&[("k.rs", text)], "k_f16"), Some(2));
    assert_eq!(sources(&[("k.rs", text)]).count(["k_f32"])["k_f32"].place, "k.rs:9");
    assert_eq!(count(&[("k.rs", text)], "k_bf16"), None);
    // A name that is written in the macro.
    let text = "macro_rules! one { ($t:ty) => { pub unsafe fn fixed() { sync_threads() } }; } one!(f32);";
    assert_eq!(count(&[("k.rs", text)], "fixed"), Some(1));
}

#[test]
fn barriers_below_cuda_std_s_names_count() {
    let text = "
        unsafe extern \"unadjusted\" {
            #[link_name = \"llvm.nvvm.barrier.cluster.arrive\"]
            fn arrive();
            #[link_name = \"llvm.nvvm.bar.warp.sync\"]
            fn warp(mask: u32);
        }
        pub fn cluster_sync() { unsafe { arrive(); asm!(\"barrier.cluster.wait;\", \"fence.sc.gpu;\"); warp(1) } }
        pub unsafe fn k() { cluster_sync() }";
    assert_eq!(count(&[("sm_90a.rs", text)], "k"), Some(2));
}

#[test]
fn what_is_for_the_host_or_for_tests_does_not_count() {
    let files = [
        ("lib.rs", "#[cfg(not(target_arch = \"nvptx64\"))] pub mod emulator;"),
        ("emulator/grid.rs", "pub fn stage() { sync_threads(); sync_threads(); sync_threads() }"),
        (
            "k.rs",
            "
            pub unsafe fn k() { stage(); #[cfg(not(target_arch = \"nvptx64\"))] { sync_threads(); } }
            #[cfg(target_arch = \"nvptx64\")]
            fn stage() { sync_threads() }
            #[cfg(not(target_arch = \"nvptx64\"))]
            fn stage() { sync_threads(); sync_threads() }
            #[cfg(test)]
            mod tests { fn k() { sync_threads(); sync_threads() } }",
        ),
    ];
    assert_eq!(count(&files, "k"), Some(1));
}

#[test]
fn text_that_is_not_rust_is_an_error_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/lib.rs"), "fn k( {").unwrap();
    let error = Sources::read(&[folder.path().to_owned()]).unwrap_err();
    assert!(matches!(&error, BuildError::Source { path, .. } if path.ends_with("src/lib.rs")), "{error}");
}
