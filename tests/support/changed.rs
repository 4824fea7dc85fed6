//! What struct-update syntax is within a crate, for types that may gain fields.

/// A value with some of its public fields changed.
pub(crate) fn changed<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
