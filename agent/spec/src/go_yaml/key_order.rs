//! The order of keys within a mapping: numbers within text compare as numbers (`x9` before `x10`), letters
//! come after all other characters (`go.yaml.in/yaml/v2/sorter.go`).

/// Sorts keys as Go does.
///
/// This is an insertion sort, because the order is not transitive for every set of keys. Go's result then
/// depends on chance, and the sorts of the standard library may panic on such an order.
pub(super) fn sort<'a, V>(entries: impl Iterator<Item = (&'a String, V)>) -> Vec<(&'a str, V)> {
    let mut sorted: Vec<(&str, V)> = Vec::new();
    for (key, value) in entries {
        let at = sorted.partition_point(|(other, _)| precedes(other, key));
        sorted.insert(at, (key, value));
    }
    sorted
}

fn precedes(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else { return a.len() < b.len() };
    match (a[at].is_alphabetic(), b[at].is_alphabetic()) {
        (true, true) => a[at] < b[at],
        (false, false) => number_precedes(&a, &b, at),
        (_, b_is_letter) => b_is_letter,
    }
}

/// Whether `a` comes before `b`. They first differ at `at`. Compares the numbers at this position, then how
/// many digits the numbers have, then the characters.
fn number_precedes(a: &[char], b: &[char], at: usize) -> bool {
    let continues_a_number = (a[at] == '0' || b[at] == '0')
        && a[..at].iter().rev().take_while(|c| c.is_ascii_digit()).any(|c| *c != '0');
    let start = i64::from(continues_a_number);
    let (a_number, a_digits) = number(&a[at..], start);
    let (b_number, b_digits) = number(&b[at..], start);
    (a_number, a_digits, a[at]) < (b_number, b_digits, b[at])
}

fn number(text: &[char], start: i64) -> (i64, usize) {
    let digits = text.iter().map_while(|c| c.to_digit(10));
    digits.fold((start, 0), |(number, length), digit| {
        (number.wrapping_mul(10).wrapping_add(i64::from(digit)), length + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(keys: &[&str]) -> Vec<String> {
        let owned: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        sort(owned.iter().map(|key| (key, ()))).into_iter().map(|(key, ())| key.to_owned()).collect()
    }

    #[test]
    fn numbers_compare_as_numbers_and_letters_come_last() {
        assert_eq!(
            sorted(&["x10", "b", "x9", "B", "_", "a.b", "ab", "a", "x01", "x1", "10", "9"]),
            ["_", "9", "10", "B", "a", "a.b", "ab", "b", "x1", "x01", "x9", "x10"]
        );
    }

    #[test]
    fn numbers_with_zeros_compare_by_value() {
        assert_eq!(sorted(&["a11", "a100", "a10", "a1"]), ["a1", "a10", "a11", "a100"]);
    }
}
