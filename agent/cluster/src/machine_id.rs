//! The id of a machine in its cloud: a number or a UUID. The cloud's API, its token and the Node use this id.

use std::fmt;

/// The maximum number of digits of a machine's number. Every such number fits into 63 bits, which upstream requires.
const MOST_DIGITS: usize = 18;
/// The number of digits in each group of a UUID (RFC 9562).
const UUID_GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// The id of a machine. A cloud never uses an id for two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MachineId {
    Number(u64),
    Uuid(u128),
}

impl From<u64> for MachineId {
    fn from(number: u64) -> MachineId {
        MachineId::Number(number)
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineId::Number(number) => write!(f, "{number}"),
            MachineId::Uuid(uuid) => {
                let digits = format!("{uuid:032x}");
                let mut rest = digits.as_str();
                for (group, length) in UUID_GROUPS.into_iter().enumerate() {
                    let (digits, following) = rest.split_at(length);
                    write!(f, "{}{digits}", if group == 0 { "" } else { "-" })?;
                    rest = following;
                }
                Ok(())
            }
        }
    }
}

/// The form of a cloud's machine ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdForm {
    Number,
    Uuid,
}

impl IdForm {
    /// A valid example, for messages.
    pub const fn example(self) -> &'static str {
        match self {
            IdForm::Number => "4711",
            IdForm::Uuid => "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb",
        }
    }

    /// Reads an id, but only in the exact form that clouds use: a number in plain digits without leading zeros, or a UUID in lower case.
    pub fn parse(self, text: &str) -> Option<MachineId> {
        match self {
            IdForm::Number => number(text),
            IdForm::Uuid => uuid(text),
        }
    }
}

fn number(text: &str) -> Option<MachineId> {
    let is_plain =
        text.len() <= MOST_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain).map(MachineId::Number)
}

fn uuid(text: &str) -> Option<MachineId> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let groups = || text.split('-');
    let is_written_so =
        groups().map(str::len).eq(UUID_GROUPS) && groups().all(|group| group.bytes().all(is_digit));
    let digits = is_written_so.then(|| groups().collect::<String>())?;
    u128::from_str_radix(&digits, 16).ok().map(MachineId::Uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_valid_form() {
        let number = |text| IdForm::Number.parse(text);
        assert_eq!(number("4711"), Some(MachineId::Number(4711)));
        assert_eq!(number("999999999999999999"), Some(MachineId::Number(999_999_999_999_999_999)));
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
            IdForm::Uuid.example(),
        ] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_uuid_has_one_valid_form() {
        let uuid = |text: &str| IdForm::Uuid.parse(text);
        for text in [
            IdForm::Uuid.example(),
            "00000000-0000-0000-0000-000000000000",
            "00000000-0000-4000-8000-000000000001",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
        ] {
            assert_eq!(uuid(text).map(|id| id.to_string()).as_deref(), Some(text));
        }
        for text in [
            "",
            "4711",
            "5C89F7B6-01a0-4eaa-ac03-85cd43d82eeb",
            "5c89f7b601a04eaaac0385cd43d82eeb",
            "{5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb}",
            "5c89f7b6-01a0-4eaa-ac03-85cd43d82ee",
            "5c89f7b6-01a0-4eaa-ac03-85cd43d82eebb",
            "5c89f7b-601a0-4eaa-ac03-85cd43d82eeb",
            "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb-",
            "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeg",
            "+c89f7b6-01a0-4eaa-ac03-85cd43d82eeb",
            " 5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb",
            "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb\n",
            "5c89f7b6-01a0-4eaa-ac03-85cd43d8\u{ff}eb",
            "5c89f7b6/01a0/4eaa/ac03/85cd43d82eeb",
        ] {
            assert_eq!(uuid(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_examples_are_valid_ids() {
        for form in [IdForm::Number, IdForm::Uuid] {
            assert_eq!(form.parse(form.example()).map(|id| id.to_string()).as_deref(), Some(form.example()));
        }
    }
}
