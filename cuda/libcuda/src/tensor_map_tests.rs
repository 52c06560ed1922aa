//! One test per error: what `validate` refuses, and what it lets through.

use super::*;

/// A sound array: 100 x 50 x 7 half-precision numbers, rows of 128.
const SOUND: TiledArray<'static> = TiledArray {
    element: TensorMapType::Bf16,
    address: 0x7f00_0000_0010,
    dims: &[100, 50, 7],
    strides: &[256, 256 * 50],
    box_dims: &[64, 128, 1],
    element_strides: None,
    swizzle: Swizzle::Bytes128,
    l2_promotion: L2Promotion::Bytes128,
    out_of_bounds: OutOfBounds::Zero,
};

#[track_caller]
fn refused(array: TiledArray<'_>, text: &str) {
    let error = array.validate().expect_err("refused");
    assert_eq!(error.to_string(), text);
}

#[test]
fn sound_arrays_pass() {
    SOUND.validate().expect("sound");
    TiledArray { dims: &[1 << 31], strides: &[], box_dims: &[64], ..SOUND }.validate().expect("the longest");
    TiledArray { element_strides: Some(&[1, 8, 2]), ..SOUND }.validate().expect("strided");
    let nan = OutOfBounds::NanZeroFma;
    TiledArray { out_of_bounds: nan, ..SOUND }.validate().expect("NaN among numbers that have one");
    let bytes = TiledArray { element: TensorMapType::U8, box_dims: &[256, 256, 2], swizzle: Swizzle::None, ..SOUND };
    bytes.validate().expect("without swizzle a row may have 256 bytes");
}

#[test]
fn is_what_the_hardware_reads() {
    assert_eq!((size_of::<TensorMap>(), align_of::<TensorMap>()), (128, 64));
}

#[test]
fn rank() {
    let none = TiledArray { dims: &[], strides: &[], box_dims: &[], ..SOUND };
    refused(none, "tensor map: `dims` has 0 dimensions, expected 1 to 5");
    let six = TiledArray { dims: &[1; 6], strides: &[16; 5], box_dims: &[8; 6], ..SOUND };
    refused(six, "tensor map: `dims` has 6 dimensions, expected 1 to 5");
}

#[test]
fn lengths() {
    refused(
        TiledArray { strides: &[256; 3], ..SOUND },
        "tensor map: `strides` has 3 entries, expected 2 for 3 dimensions",
    );
    refused(
        TiledArray { box_dims: &[64, 1], ..SOUND },
        "tensor map: `box_dims` has 2 entries, expected 3 for 3 dimensions",
    );
    refused(
        TiledArray { element_strides: Some(&[1]), ..SOUND },
        "tensor map: `element_strides` has 1 entries, expected 3 for 3 dimensions",
    );
}

#[test]
fn alignment() {
    refused(TiledArray { address: 0x1008, ..SOUND }, "tensor map: `address` is 4104, expected a multiple of 16");
    refused(
        TiledArray { strides: &[256, 12808], ..SOUND },
        "tensor map: `strides[1]` is 12808, expected a multiple of 16",
    );
    refused(
        TiledArray { box_dims: &[12, 1, 1], ..SOUND },
        "tensor map: `box_dims[0] in bytes` is 24, expected a multiple of 16",
    );
}

#[test]
fn ranges() {
    refused(TiledArray { dims: &[100, 0, 7], ..SOUND }, "tensor map: `dims[1]` is 0, expected 1 to 2147483648");
    refused(
        TiledArray { strides: &[256, 1 << 40], ..SOUND },
        "tensor map: `strides[1]` is 1099511627776, expected 0 to 1099511627775",
    );
    refused(TiledArray { box_dims: &[64, 257, 1], ..SOUND }, "tensor map: `box_dims[1]` is 257, expected 1 to 256");
    refused(TiledArray { box_dims: &[64, 1, 0], ..SOUND }, "tensor map: `box_dims[2]` is 0, expected 1 to 256");
    refused(
        TiledArray { element_strides: Some(&[1, 9, 1]), ..SOUND },
        "tensor map: `element_strides[1]` is 9, expected 1 to 8",
    );
}

#[test]
fn swizzle() {
    for (swizzle, most) in [(Swizzle::Bytes32, 32), (Swizzle::Bytes64, 64), (Swizzle::Bytes128, 128)] {
        let fits = [most / 2, 8, 1];
        TiledArray { swizzle, box_dims: &fits, ..SOUND }.validate().expect("fits");
        let longer = [most / 2 + 8, 8, 1];
        refused(
            TiledArray { swizzle, box_dims: &longer, ..SOUND },
            &format!(
                "tensor map: a row of the box has {} bytes, expected at most {most} with {swizzle:?} swizzling",
                most + 16
            ),
        );
    }
}

#[test]
fn nan_for_integers() {
    refused(
        TiledArray {
            element: TensorMapType::I32,
            box_dims: &[32, 1, 1],
            out_of_bounds: OutOfBounds::NanZeroFma,
            ..SOUND
        },
        "tensor map: `out_of_bounds` is NanZeroFma, expected Zero for I32",
    );
}
