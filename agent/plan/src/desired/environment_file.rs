//! Environment files of systemd units (systemd.exec(5), `EnvironmentFile=`), such as the files that
//! distributions keep in `/etc/sysconfig`.

/// One line that sets a variable. The value may contain any character except a line break.
pub(super) fn variable(name: &str, value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '"' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    format!("{name}=\"{escaped}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_a_value_do_not_end_it() {
        assert_eq!(variable("DAEMON_ARGS", "--v=2 --a=b"), "DAEMON_ARGS=\"--v=2 --a=b\"\n");
        assert_eq!(variable("X", r#"a "b" \c"#), "X=\"a \\\"b\\\" \\\\c\"\n");
    }
}
