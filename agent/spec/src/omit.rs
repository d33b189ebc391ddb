//! Decides which empty fields the output leaves out, as kOps does.

/// Whether Go's `omitempty` drops this value: `None`, zero, false, and empty strings, lists and maps. Go
/// never drops a struct that is not a pointer, so a field with a struct type and without `Option` must not
/// use this function.
pub fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
