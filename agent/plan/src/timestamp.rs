//! Instants as they are written: into records, annotations and conditions, for Kubernetes and for people.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An instant in RFC 3339 and whole seconds, as Kubernetes writes its own; empty for a year beyond 9999, which has no such form.
pub fn timestamp(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_is_left_out() {
        let at = OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(1999);
        assert_eq!(timestamp(at), "1970-01-01T00:00:01Z");
    }
}
