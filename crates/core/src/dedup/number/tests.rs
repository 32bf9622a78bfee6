//! Goal: canonical forms are equal exactly if the numbers are, whatever their size.

use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> String {
    let mut out = Vec::new();
    write_canonical(text.as_bytes(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn number_has_one_form_however_it_is_written() {
    for text in ["1", "1.0", "1e0", "10e-1", "0.1e1", "1E+0", "100.00e-2", "1e-0", "1e00000000000000000000000"] {
        assert_eq!(canonical(text), "1", "{text}");
    }
    for text in ["0", "-0", "0.0", "-0.000e5", "0e99999999999999999999"] {
        assert_eq!(canonical(text), "0", "{text}");
    }
    assert_eq!(canonical("-12.50"), "-125e-1");
    assert_eq!(canonical("1000"), "1e3");
    assert_eq!(canonical("0.0010"), "1e-3");
    assert_eq!(canonical("9007199254740993"), "9007199254740993");
    assert_ne!(canonical("9007199254740993"), canonical("9007199254740992.9999999999999999"));
    assert_eq!(canonical("1e1000000"), "1e1000000");
    assert_eq!(canonical("1.05"), "105e-2");
    assert_eq!(canonical("10.05"), "1005e-2");
}

#[test]
fn overlong_exponent_is_refused() {
    assert_eq!(write_canonical(b"1e9999999999999999999", &mut Vec::new()), Err(TooLong));
    assert_eq!(canonical("1e999999999999999999"), "1e999999999999999999");
    assert_eq!(canonical("1e-999999999999999999"), "1e-999999999999999999");
}

#[test]
fn humanized_numbers_are_plain() {
    let human = |text: &str| humanize(&canonical(text));
    assert_eq!(human("1000"), "1000");
    assert_eq!(human("-0.5"), "-0.5");
    assert_eq!(human("0.005"), "0.005");
    assert_eq!(human("12.50"), "12.5");
    assert_eq!(human("1e300"), "1e300");
    assert_eq!(human("1e-300"), "1e-300");
    assert_eq!(human("-0"), "0");
    assert_eq!(human("9223372036854775808"), "9223372036854775808");
}

/// The number digits · 10^exponent, with `padding` zeros on either side and its point moved.
fn rewrite(digits: &str, exponent: i64, padding: usize, point: usize) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let zeros = "0".repeat(padding);
    let written = format!("{digits}{zeros}");
    let point = point % (written.len() + 3);
    let padded = format!("{written:0>0$}", point + 1);
    let (whole, fraction) = padded.split_at(padded.len() - point);
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    format!("{sign}{whole}{fraction}e{}", exponent - padding as i64 + point as i64)
}

proptest! {
    #[test]
    fn rewriting_a_number_keeps_its_form(digits in "-?[1-9][0-9]{0,40}", exponent in -500_i64..500, padding in 0_usize..9, point in 0_usize..60) {
        let other = rewrite(&digits, exponent, padding, point);
        prop_assert!(is_number(other.as_bytes()), "{}", other);
        prop_assert_eq!(canonical(&other), canonical(&format!("{digits}e{exponent}")), "{}", other);
    }

    #[test]
    fn different_numbers_have_different_forms(a in any::<(i64, i8)>(), b in any::<(i64, i8)>()) {
        let text = |(digits, exponent): (i64, i8)| format!("{digits}e{}", exponent % 12);
        // Exact, since there are at most 19 digits and 22 powers of ten.
        let value = |(digits, exponent): (i64, i8)| i128::from(digits) * 10_i128.pow((exponent % 9 + 8) as u32);
        let narrow = |(digits, exponent): (i64, i8)| text((digits, exponent % 9));
        prop_assert_eq!(canonical(&narrow(a)) == canonical(&narrow(b)), value(a) == value(b));
    }

    #[test]
    fn humanized_form_is_the_same_number(digits in "-?[1-9][0-9]{0,30}", exponent in -40_i64..40) {
        let form = canonical(&format!("{digits}e{exponent}"));
        prop_assert_eq!(canonical(&humanize(&form)), form);
    }

    #[test]
    fn integers_are_written_in_decimal(value in any::<i64>()) {
        let text = value.to_string();
        prop_assert!(format_i64(value, &mut [0; 20]) == text.as_bytes());
    }
}

#[test]
fn least_integer_fits() {
    assert_eq!(format_i64(i64::MIN, &mut [0; 20]), i64::MIN.to_string().as_bytes());
}
