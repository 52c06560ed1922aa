use super::*;

/// A workspace with a crate of kernels that depends on a local crate, which depends on `half`.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.write(
            "Cargo.toml",
            "[workspace]\nmembers = [\"kernels\", \"std\"]\n[workspace.dependencies]\n\
             gpu = { package = \"gpu-std\", path = \"std\" }\nhalf = { version = \"2.7\", default-features = false }\n",
        );
        tree.write(
            "kernels/Cargo.toml",
            "[package]\nname = \"kernels\"\n[dependencies]\ngpu.workspace = true\n[dev-dependencies]\nrand = \"0.9\"\n",
        );
        tree.write("kernels/src/lib.rs", "pub fn k() {}\n");
        tree.write("kernels/src/ops/relu.rs", "pub fn relu() {}\n");
        tree.write("kernels/tests/t.rs", "");
        tree.write(
            "std/Cargo.toml",
            "[package]\nname = \"gpu-std\"\n[dependencies]\nhalf.workspace = true\n\
             [target.'cfg(not(target_arch = \"nvptx64\"))'.dependencies]\nrayon = \"1\"\n",
        );
        tree.write("std/src/lib.rs", "pub fn s() {}\n");
        tree.lock("2.7.0", "1.0.0");
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn lock(&self, half: &str, rayon: &str) {
        self.write(
            "Cargo.lock",
            &format!(
                "version = 4\n\
                 [[package]]\nname = \"gpu-std\"\nversion = \"0.1.0\"\ndependencies = [\"half\", \"rayon\"]\n\
                 [[package]]\nname = \"half\"\nversion = \"{half}\"\nchecksum = \"aa\"\ndependencies = [\"cfg-if\"]\n\
                 [[package]]\nname = \"cfg-if\"\nversion = \"1.0.4\"\nchecksum = \"bb\"\n\
                 [[package]]\nname = \"rayon\"\nversion = \"{rayon}\"\nchecksum = \"cc\"\n"
            ),
        );
    }

    fn hash(&self) -> String {
        source_hash(&self.0.path().join("kernels")).unwrap()
    }
}

#[test]
fn the_hash_is_the_same_elsewhere_with_other_line_ends_and_with_other_host_files() {
    let tree = Tree::new();
    let hash = tree.hash();
    assert_eq!(hash.len(), 64);
    assert_eq!(Tree::new().hash(), hash);
    tree.write("kernels/src/lib.rs", "pub fn k() {}\r\n");
    tree.write("kernels/tests/t.rs", "#[test] fn t() {}");
    tree.write("kernels/src/.lib.rs.swp", "an editor's");
    tree.lock("2.7.0", "1.12.0");
    assert_eq!(tree.hash(), hash);
}

#[test]
fn the_hash_changes_with_anything_that_the_ptx_comes_from() {
    type Change = (&'static str, fn(&Tree));
    let changes: [Change; 6] = [
        ("a constant", |tree| tree.write("kernels/src/ops/relu.rs", "pub fn relu() { 1; }\n")),
        ("a new file", |tree| tree.write("kernels/src/ops/new.rs", "")),
        ("a local dependency", |tree| tree.write("std/src/lib.rs", "pub fn s() { 1; }\n")),
        ("a version", |tree| tree.lock("2.7.1", "1.0.0")),
        ("a manifest", |tree| {
            tree.write(
                "kernels/Cargo.toml",
                "[package]\nname = \"kernels\"\n[dependencies]\ngpu = { path = \"../std\" }\n",
            );
        }),
        ("the features of a dependency", |tree| {
            let manifest = tree.0.path().join("Cargo.toml");
            let text = std::fs::read_to_string(&manifest).unwrap().replace("false", "true");
            std::fs::write(manifest, text).unwrap();
        }),
    ];
    let unchanged = Tree::new().hash();
    for (what, change) in changes {
        let tree = Tree::new();
        change(&tree);
        assert_ne!(tree.hash(), unchanged, "{what}");
    }
}

#[test]
fn the_crates_a_ptx_comes_from_are_those_the_device_needs() {
    let tree = Tree::new();
    let kernels = KernelCrate::open(&tree.0.path().join("kernels")).unwrap();
    assert_eq!(kernels.package, "kernels");
    assert_eq!(kernels.local.keys().collect::<Vec<_>>(), ["gpu-std", "kernels"]);
    assert_eq!(kernels.locked.iter().collect::<Vec<_>>(), ["cfg-if 1.0.4 bb", "half 2.7.0 aa"]);
}

#[test]
fn what_is_not_a_crate_is_refused_with_the_reason() {
    let tree = Tree::new();
    let error = source_hash(&tree.0.path().join("kernels/src")).unwrap_err().to_string();
    assert!(error.ends_with("has no kernels to build: it has no Cargo.toml"), "{error}");
    tree.write("std/Cargo.toml", "[package]\nname = \"gpu-std\"\n[dependencies]\nlibm.workspace = true\n");
    let error = source_hash(&tree.0.path().join("kernels")).unwrap_err().to_string();
    assert!(error.contains("the workspace has no such dependency"), "{error}");
}
