//! What stands in the place of what is hidden.

/// Stands in the place of what is hidden.
pub const MARK: &str = "[***]";

/// A mark for each line of what is hidden.
pub(super) fn push_marks(hidden: &str, shown: &mut String) {
    shown.push_str(MARK);
    hidden.matches('\n').for_each(|_| shown.extend(["\n", MARK]));
}
