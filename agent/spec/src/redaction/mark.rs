//! The mark that replaces hidden text.

pub const MARK: &str = "[***]";

/// Appends one mark for each line of the hidden text to `shown`.
pub(super) fn push_marks(hidden: &str, shown: &mut String) {
    shown.push_str(MARK);
    hidden.matches('\n').for_each(|_| shown.extend(["\n", MARK]));
}
