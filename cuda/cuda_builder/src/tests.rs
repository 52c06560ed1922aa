use super::*;

const SOURCE: &str = "pub unsafe fn k(n: u32) { if n > 1 { sync_threads(); } }";

fn sources(text: &str) -> Sources {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/lib.rs"), text).unwrap();
    Sources::read(&[folder.path().to_owned()]).unwrap()
}

fn ptx(name: &str, barriers: usize) -> String {
    let body = "\tbar.sync \t0;\n".repeat(barriers);
    format!(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry {name}()\n{{\n{body}\tret;\n}}\n")
}

#[test]
fn as_many_barriers_as_in_the_source_or_fewer_are_fine() {
    for barriers in [0, 1] {
        let (text, entries) = finish(&ptx("k", barriers), &sources(SOURCE)).unwrap();
        assert_eq!(text, ptx("k", barriers));
        assert!(entries.contains_key("k"));
    }
}

#[test]
fn a_copied_barrier_is_refused() {
    match finish(&ptx("k", 2), &sources(SOURCE)) {
        Err(BuildError::CopiedBarriers { kernel, found: 2, counted: 1, place }) => {
            assert_eq!(kernel, "k");
            assert!(place.ends_with("src/lib.rs:1"), "{place}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_attribute_s_number_is_taken_instead_of_counting() {
    let given = |number: u32| {
        let attribute = format!(
            ".visible .global .align 4 .u32 __ferrolayer_kernel_k[10] = {{0, 0, 0, 0, 0, 0, 0, 0, 1, {number}}};\n"
        );
        ptx("k", 3).replace(".visible .entry", &format!("{attribute}.visible .entry"))
    };
    finish(&given(3), &sources(SOURCE)).unwrap();
    let error = finish(&given(2), &sources(SOURCE)).unwrap_err();
    assert!(matches!(error, BuildError::CopiedBarriers { found: 3, counted: 2, .. }), "{error}");
}

#[test]
fn a_kernel_whose_source_is_not_found_may_have_no_barriers() {
    finish(&ptx("other", 0), &sources(SOURCE)).unwrap();
    let error = finish(&ptx("other", 1), &sources(SOURCE)).unwrap_err();
    assert!(matches!(error, BuildError::UncountedBarriers { found: 1, .. }), "{error}");
}

#[test]
fn architectures_are_spelt_as_compilers_do() {
    for arch in Arch::ALL {
        assert_eq!(arch.to_string().parse(), Ok(arch));
    }
    assert_eq!("sm_75".parse::<Arch>().unwrap_err().to_string(), "architecture \"sm_75\", expected sm_80 or sm_90a");
}

#[test]
fn a_file_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/a.ptx");
    write_whole(&path, "first").unwrap();
    write_whole(&path, "second").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}
