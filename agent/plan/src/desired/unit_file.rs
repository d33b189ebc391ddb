//! The text of systemd unit files.

/// A unit file under construction, section by section.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitFile {
    sections: Vec<(String, String)>,
}

impl UnitFile {
    /// Adds a directive. Sections are written in the order of their first use, and directives in the order of
    /// the calls.
    pub(super) fn set(mut self, section: &str, directive: &str, value: impl Into<String>) -> UnitFile {
        let line = format!("{directive}={}\n", value.into());
        self.push(section, &line);
        self
    }

    /// Adds directives unchanged. If the final line break is missing, adds it.
    pub(super) fn raw(mut self, section: &str, directives: &str) -> UnitFile {
        self.push(section, directives);
        if !directives.ends_with('\n') {
            self.push(section, "\n");
        }
        self
    }

    fn push(&mut self, section: &str, text: &str) {
        match self.sections.iter_mut().find(|(name, _)| name == section) {
            Some((_, body)) => body.push_str(text),
            None => self.sections.push((section.to_owned(), text.to_owned())),
        }
    }

    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for (name, body) in &self.sections {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("[{name}]\n{body}"));
        }
        text
    }
}

/// Formats a command line for `ExecStart=`, quoted as systemd reads it (systemd.service(5), "Command lines").
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
    // Without quotes, a lone `;` would start another command.
    if word.is_empty() || word == ";" || word.contains(' ') { format!("\"{escaped}\"") } else { escaped }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// The words of a command line as systemd reads them, with quotes and escapes as in C.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), None::<Vec<u8>>, false);
        let mut bytes = line.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                b' ' if !quoted => words.extend(word.take()),
                b'\\' => word.get_or_insert_default().push(match bytes.next().unwrap() {
                    b'x' => {
                        let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                        u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                    }
                    escaped => escaped,
                }),
                byte => word.get_or_insert_default().push(byte),
            }
        }
        words.extend(word);
        words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn words_survive_systemds_quoting(written: Vec<String>) {
            let line = command_line(&written);
            prop_assert!(!line.chars().any(char::is_control));
            prop_assert!(!line.split(' ').any(|part| part == ";"));
            prop_assert_eq!(words(&line), written);
        }
    }

    #[test]
    fn sections_keep_their_order_and_their_directives() {
        let unit = UnitFile::default()
            .set("Unit", "Description", "x")
            .set("Service", "ExecStart", "/bin/a")
            .set("Unit", "After", "b.service");
        assert_eq!(unit.render(), "[Unit]\nDescription=x\nAfter=b.service\n\n[Service]\nExecStart=/bin/a\n");
    }

    #[test]
    fn raw_directives_stay_unchanged() {
        let unit =
            UnitFile::default().set("Unit", "Description", "x").raw("Service", "Type=oneshot\n# why\nUser=a");
        assert_eq!(unit.render(), "[Unit]\nDescription=x\n\n[Service]\nType=oneshot\n# why\nUser=a\n");
    }

    #[test]
    fn words_that_systemd_would_split_or_change_are_quoted() {
        assert_eq!(
            command_line(&["/bin/a", "b c", "d\"e", "f\\g", "h\ti", ""]),
            r#"/bin/a "b c" d\"e f\\g h\x09i """#
        );
    }
}
