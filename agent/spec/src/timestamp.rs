//! Formats and parses instants of records, annotations and conditions.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Formats a time in RFC 3339 with whole seconds, as Kubernetes does. Returns an empty text for years after 9999, which RFC 3339 cannot
/// express.
pub fn timestamp(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_default()
}

/// Parses a time in RFC 3339. `None` if the text has a different form.
pub fn parse_timestamp(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_a_second_are_dropped() {
        let at = OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(1999);
        assert_eq!(timestamp(at), "1970-01-01T00:00:01Z");
    }
}
