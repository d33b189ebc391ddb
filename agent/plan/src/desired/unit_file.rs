//! The text of systemd unit files.

/// A unit file as it is being written, section by section.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitFile {
    sections: Vec<(String, Vec<(String, String)>)>,
}

impl UnitFile {
    /// Adds a directive. Sections come out in the order of their first use, directives in the order given.
    pub(super) fn set(mut self, section: &str, directive: &str, value: impl Into<String>) -> UnitFile {
        let directive = (directive.to_owned(), value.into());
        match self.sections.iter_mut().find(|(name, _)| name == section) {
            Some((_, directives)) => directives.push(directive),
            None => self.sections.push((section.to_owned(), vec![directive])),
        }
        self
    }

    /// The text.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for (name, directives) in &self.sections {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("[{name}]\n"));
            for (directive, value) in directives {
                text.push_str(&format!("{directive}={value}\n"));
            }
        }
        text
    }
}

/// One command line for `ExecStart=`, quoted as systemd reads it (systemd.service(5), "Command lines").
pub(super) fn command_line<S: AsRef<str>>(words: &[S]) -> String {
    words.iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let mut escaped = String::with_capacity(word.len());
    for c in word.chars() {
        match c {
            '"' | '\'' | '\\' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c if c.is_ascii_graphic() || c == ' ' => escaped.push(c),
            c => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    escaped.push_str(&format!("\\x{byte:02x}"));
                }
            }
        }
    }
    if word.contains(' ') { format!("\"{escaped}\"") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keep_their_order_and_their_directives() {
        let unit = UnitFile::default()
            .set("Unit", "Description", "x")
            .set("Service", "ExecStart", "/bin/a")
            .set("Unit", "After", "b.service");
        assert_eq!(unit.render(), "[Unit]\nDescription=x\nAfter=b.service\n\n[Service]\nExecStart=/bin/a\n");
    }

    #[test]
    fn words_that_systemd_would_split_or_change_are_quoted() {
        assert_eq!(
            command_line(&["/bin/a", "b c", "d\"e", "f\\g", "h\ti"]),
            r#"/bin/a "b c" d\"e f\\g h\x09i"#
        );
    }
}
