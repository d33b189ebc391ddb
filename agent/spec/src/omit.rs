//! Decides which empty fields the output leaves out, as kOps does.

/// Whether Go's `omitempty` omits this value: `None`, zero, false, or an empty string, list or map. Go never omits a struct that is not a
/// pointer. So a field with a struct type and without `Option` must not use this function.
pub fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
