//! Finds the nesting depth and the number of directives of a YAML text without parsing it.

use super::bounds::{DEEPEST, MOST_DIRECTIVES, TooCostly};

/// Follows the rules of libyaml's scanner (`yaml_parser_fetch_next_token` and the functions that it calls). libyaml stops at an error. This
/// scanner continues after the error, so it never finds a smaller depth than libyaml.
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The current column, counted in characters as in libyaml.
    column: usize,
    flow: usize,
    directives: usize,
    /// The columns of all open block collections.
    indents: Vec<usize>,
    /// Whether a key may begin at the current position. Used only in block context.
    key_allowed: bool,
    /// The position in the current line at which a key may have begun.
    key: Option<usize>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8]) -> Scanner<'a> {
        Scanner {
            text,
            at: 0,
            column: 0,
            flow: 0,
            directives: 0,
            indents: Vec::new(),
            key_allowed: true,
            key: None,
        }
    }

    /// Checks the whole text. Fails if collections nest deeper than [`DEEPEST`], or if the text has more directives than
    /// [`MOST_DIRECTIVES`].
    pub(super) fn scan(mut self) -> Result<(), TooCostly> {
        loop {
            self.skip_to_token();
            if self.flow == 0 {
                while self.indents.last().is_some_and(|indent| *indent > self.column) {
                    self.indents.pop();
                }
            }
            if self.is_at_end(0) {
                return Ok(());
            }
            if self.column == 0 && self.byte(0) == b'%' {
                self.directives += 1;
                if self.directives > MOST_DIRECTIVES {
                    return Err(TooCostly::Directives);
                }
                self.skip_line();
                continue;
            }
            if self.is_document_marker() {
                self.indents.clear();
                (0..3).for_each(|_| self.bump());
                continue;
            }
            if self.indents.len() + self.flow > DEEPEST {
                return Err(TooCostly::Deep);
            }
            let is_apart = self.is_blank_or_end(1);
            match self.byte(0) {
                b'[' | b'{' => {
                    self.begin_key();
                    self.flow += 1;
                    self.bump();
                }
                b']' | b'}' => {
                    self.flow = self.flow.saturating_sub(1);
                    self.bump();
                }
                b',' => self.bump(),
                b'-' | b'?' if is_apart && self.flow == 0 => {
                    self.indent_to(self.column);
                    self.key_allowed = true;
                    self.bump();
                }
                b'?' if self.flow > 0 => self.bump(),
                b':' if is_apart && self.flow == 0 => {
                    let key = self.key.take();
                    self.key_allowed = key.is_none();
                    self.indent_to(key.unwrap_or(self.column));
                    self.bump();
                }
                b'-' if is_apart => self.bump(),
                b':' if self.flow > 0 => self.bump(),
                b'*' | b'&' => {
                    self.begin_key();
                    self.bump();
                    while matches!(self.byte(0), b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-') {
                        self.bump();
                    }
                }
                b'!' => self.tag(),
                b'|' | b'>' if self.flow == 0 => self.block_scalar(),
                quote @ (b'\'' | b'"') => self.quoted(quote),
                _ => self.plain(),
            }
        }
    }

    /// The byte that is `ahead` bytes after the current byte. Returns NUL after the end of the text, because libyaml also treats NUL as the
    /// end.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn is_at_end(&self, ahead: usize) -> bool {
        self.byte(ahead) == 0
    }

    /// The length in bytes of the line break that is `ahead` bytes after the current byte. 0 if there is no line break.
    fn line_break(&self, ahead: usize) -> usize {
        match (self.byte(ahead), self.byte(ahead + 1), self.byte(ahead + 2)) {
            (b'\r', b'\n', _) | (0xc2, 0x85, _) => 2,
            (b'\r' | b'\n', ..) => 1,
            (0xe2, 0x80, 0xa8 | 0xa9) => 3,
            _ => 0,
        }
    }

    fn is_blank(&self) -> bool {
        matches!(self.byte(0), b' ' | b'\t')
    }

    fn is_blank_or_end(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t' | 0) || self.line_break(ahead) > 0
    }

    fn is_document_marker(&self) -> bool {
        let word = self.text.get(self.at..self.at + 3);
        self.column == 0 && matches!(word, Some(b"---" | b"...")) && self.is_blank_or_end(3)
    }

    fn bump(&mut self) {
        let width = match self.byte(0) {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
            _ => 1,
        };
        self.at = (self.at + width).min(self.text.len());
        self.column += 1;
    }

    /// Skips a line break. Returns whether there was a line break.
    fn bump_line(&mut self) -> bool {
        let width = self.line_break(0);
        if width > 0 {
            self.at += width;
            self.column = 0;
            self.key = self.key.filter(|_| self.flow > 0);
        }
        width > 0
    }

    fn skip_line(&mut self) {
        while self.line_break(0) == 0 && !self.is_at_end(0) {
            self.bump();
        }
    }

    fn skip_to_token(&mut self) {
        loop {
            if self.column == 0 && self.text[self.at..].starts_with("\u{feff}".as_bytes()) {
                self.at += 3;
            }
            while self.is_blank() {
                self.bump();
            }
            if self.byte(0) == b'#' {
                self.skip_line();
            }
            if !self.bump_line() {
                return;
            }
            self.key_allowed |= self.flow == 0;
        }
    }

    fn begin_key(&mut self) {
        if self.flow == 0 && std::mem::take(&mut self.key_allowed) {
            self.key = Some(self.column);
        }
    }

    fn indent_to(&mut self, column: usize) {
        if self.indents.last().is_none_or(|indent| *indent < column) {
            self.indents.push(column);
        }
    }

    /// The minimum column of content in the innermost block collection.
    fn inside(&self) -> usize {
        self.indents.last().map_or(0, |indent| indent + 1)
    }

    fn tag(&mut self) {
        self.begin_key();
        let is_verbatim = self.byte(1) == b'<';
        while !self.is_blank_or_end(0) {
            match self.byte(0) {
                b',' | b'[' | b']' | b'{' | b'}' if !is_verbatim => return,
                b'>' if is_verbatim => return self.bump(),
                _ => self.bump(),
            }
        }
    }

    fn quoted(&mut self, quote: u8) {
        self.begin_key();
        self.bump();
        while !self.is_at_end(0) {
            match self.byte(0) {
                b'\\' if quote == b'"' => {
                    self.bump();
                    if !self.bump_line() {
                        self.bump();
                    }
                }
                b'\'' if quote == b'\'' && self.byte(1) == b'\'' => (0..2).for_each(|_| self.bump()),
                byte if byte == quote => return self.bump(),
                _ if self.bump_line() => {}
                _ => self.bump(),
            }
        }
    }

    fn plain(&mut self) {
        self.begin_key();
        let (first, inside) = (self.at, self.inside());
        while !self.is_document_marker() && (self.byte(0) != b'#' || self.at == first) {
            while !self.is_blank_or_end(0) {
                let ends = match self.byte(0) {
                    b':' => {
                        self.is_blank_or_end(1)
                            || self.flow > 0
                                && matches!(self.byte(1), b',' | b'?' | b'[' | b']' | b'{' | b'}')
                    }
                    b',' | b'[' | b']' | b'{' | b'}' => self.flow > 0,
                    _ => false,
                };
                if ends && self.at > first {
                    return;
                }
                self.bump();
            }
            if self.is_at_end(0) {
                return;
            }
            while self.is_blank() || self.line_break(0) > 0 {
                match self.bump_line() {
                    true => self.key_allowed |= self.flow == 0,
                    false => self.bump(),
                }
            }
            if self.flow == 0 && self.column < inside {
                return;
            }
        }
    }

    fn block_scalar(&mut self) {
        self.bump();
        let mut more = 0;
        while matches!(self.byte(0), b'+' | b'-' | b'0'..=b'9') {
            more = if self.byte(0).is_ascii_digit() { usize::from(self.byte(0) - b'0') } else { more };
            self.bump();
        }
        self.skip_line();
        self.bump_line();
        let mut indent = match more {
            0 => 0,
            more => self.indents.last().unwrap_or(&0) + more,
        };
        self.skip_breaks(&mut indent);
        while self.column == indent && !self.is_at_end(0) {
            self.skip_line();
            self.bump_line();
            self.skip_breaks(&mut indent);
        }
        self.key_allowed = true;
    }

    /// Skips empty lines and the indentation of a block scalar. Sets `indent` if it is still 0.
    fn skip_breaks(&mut self, indent: &mut usize) {
        let mut deepest = 0;
        loop {
            while (*indent == 0 || self.column < *indent) && self.byte(0) == b' ' {
                self.bump();
            }
            deepest = deepest.max(self.column);
            if !self.bump_line() {
                break;
            }
        }
        if *indent == 0 {
            *indent = deepest.max(self.inside()).max(1);
        }
    }
}
