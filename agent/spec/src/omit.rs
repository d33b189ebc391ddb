//! When a field is left out of what we write, so that it is left out where kOps leaves it out.

/// Whether Go's `omitempty` drops this value: `None`, zero, false, and empty strings, lists and maps.
/// A struct that is not behind an `Option` is never dropped, so its fields must not use this.
pub fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
