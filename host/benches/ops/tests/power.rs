use crate::power::median;

#[test]
fn the_median_is_in_the_middle() {
    assert_eq!(median(vec![1980, 1200, 1500]), Some(1500.0));
    assert_eq!(median(vec![1980, 1200]), Some(1980.0));
    assert_eq!(median(vec![]), None);
}
