//! The order of keys within a mapping: numbers within text compare as numbers (`x9` before `x10`), letters
//! come after all other characters (`go.yaml.in/yaml/v2/sorter.go`).

/// Sorts keys as Go does.
///
/// This is an insertion sort, because the order of some sets of keys is not transitive. For such sets Go's result is random, and the sorts
/// of the standard library may panic.
pub(super) fn sort<'a, V>(entries: impl Iterator<Item = (&'a String, V)>) -> Vec<(&'a str, V)> {
    let mut sorted: Vec<(&str, V)> = Vec::new();
    for (key, value) in entries {
        let at = sorted.partition_point(|(other, _)| precedes(other, key));
        sorted.insert(at, (key, value));
    }
    sorted
}

fn precedes(a: &str, b: &str) -> bool {
    let same = a.char_indices().zip(b.chars()).find(|((_, a), b)| a != b);
    let Some(((at, of_a), of_b)) = same else { return a.len() < b.len() };
    match (of_a.is_alphabetic(), of_b.is_alphabetic()) {
        (true, true) => of_a < of_b,
        (false, false) => number_precedes((&a[at..], of_a), (&b[at..], of_b), &a[..at]),
        (_, b_is_letter) => b_is_letter,
    }
}

/// Whether the first key comes before the second key. Both keys begin with the text `before`. Then the first key continues with `a`, and
/// the second key continues with `b`. `of_a` and `of_b` are the first characters of `a` and `b`, and differ. Compares the numbers at this
/// position, then the lengths of the numbers, then the characters.
fn number_precedes((a, of_a): (&str, char), (b, of_b): (&str, char), before: &str) -> bool {
    let continues_a_number = (of_a == '0' || of_b == '0')
        && before.chars().rev().take_while(char::is_ascii_digit).any(|c| c != '0');
    let start = i64::from(continues_a_number);
    let (a_number, a_digits) = number(a, start);
    let (b_number, b_digits) = number(b, start);
    (a_number, a_digits, of_a) < (b_number, b_digits, of_b)
}

fn number(text: &str, start: i64) -> (i64, usize) {
    let digits = text.chars().map_while(|c| c.to_digit(10));
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
