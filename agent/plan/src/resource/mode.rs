//! Permission bits of files and directories.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Unix permission bits, written as four octal digits (`"0644"`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mode(pub u32);

impl Mode {
    /// All users can read the file. Only the owner can write it.
    pub const FILE: Mode = Mode(0o644);
    /// For programs, and for directories that all users may enter.
    pub const EXECUTABLE: Mode = Mode(0o755);
    /// Only the owner can read and write the file.
    pub const PRIVATE: Mode = Mode(0o600);

    /// Reads permission bits as kOps and users write them: octal digits, with or without a leading zero.
    pub fn parse(text: &str) -> Option<Mode> {
        let bits = u32::from_str_radix(text, 8).ok()?;
        (bits <= 0o7777).then_some(Mode(bits))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Mode::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is not an octal file mode such as 0644"))
        })
    }
}
