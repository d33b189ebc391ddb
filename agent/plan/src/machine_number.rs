//! The number by which a cloud knows a machine, as its token and its Node say it.

/// The digits of the greatest number: upstream reads it into 63 bits.
const MOST_DIGITS: usize = 18;

/// A number that is written as clouds do, in plain digits, and in no other way.
pub(crate) fn machine_number(text: &str) -> Option<u64> {
    let is_plain =
        text.len() <= MOST_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_in_one_way() {
        assert_eq!(machine_number("4711"), Some(4711));
        assert_eq!(machine_number("999999999999999999"), Some(999_999_999_999_999_999));
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "007",
            " 1",
            "1 ",
            "1\n",
            "1/2",
            "1/../2",
            "0x1",
            "1e3",
            "\u{0661}",
            "9999999999999999999",
        ] {
            assert_eq!(machine_number(text), None, "{text:?}");
        }
    }
}
