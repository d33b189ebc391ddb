//! Lays a value out as a block document, folding long texts as Go does.

use std::fmt::Write;

use serde_json::{Number, Value};

use super::key_order;
use super::scalar::{self, Style};

const INDENT: usize = 2;
/// The column after which a space becomes a line break.
const BEST_WIDTH: usize = 80;
/// The maximum length of a simple key, in bytes. A longer key is written as `? key`.
const LONGEST_SIMPLE_KEY: usize = 128;

pub(super) fn document(value: &Value) -> String {
    let mut emitter = Emitter { out: String::new(), column: 0, at: At::LineStart };
    match value {
        Value::Object(entries) if !entries.is_empty() => emitter.mapping(entries, 0),
        Value::Array(items) if !items.is_empty() => emitter.sequence(items, 0),
        scalar => emitter.scalar(scalar, INDENT),
    }
    emitter.end_line();
    emitter.out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// The position after a line break or after indentation.
    LineStart,
    /// The position after `-`, `?` or `:`, where a block may continue in the same line.
    Indicator,
    /// The position after the colon of a simple key, or after a scalar.
    Token,
}

struct Emitter {
    out: String,
    column: usize,
    at: At,
}

impl Emitter {
    fn mapping(&mut self, entries: &serde_json::Map<String, Value>, indent: usize) {
        for (key, value) in key_order::sort(entries.iter()) {
            self.start_entry(indent);
            if key.len() <= LONGEST_SIMPLE_KEY && !key.contains(is_line_break) {
                self.text(key, scalar::key_style(key), None, indent + INDENT);
                self.put_str(":");
                self.at = At::Token;
                self.value_of_simple_key(value, indent);
            } else {
                self.indicator("?");
                self.text(key, scalar::style(key), Some(BEST_WIDTH), indent + INDENT);
                self.start_entry(indent);
                self.indicator(":");
                self.item(value, indent);
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize) {
        for item in items {
            self.start_entry(indent);
            self.indicator("-");
            self.item(item, indent);
        }
    }

    /// Writes the value of a simple key. A list is not indented below its key.
    fn value_of_simple_key(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Array(items) if !items.is_empty() => self.sequence(items, indent),
            _ => self.item(value, indent),
        }
    }

    fn item(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(entries) if !entries.is_empty() => self.mapping(entries, indent + INDENT),
            Value::Array(items) if !items.is_empty() => self.sequence(items, indent + INDENT),
            scalar => self.scalar(scalar, indent + INDENT),
        }
    }

    fn scalar(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.token("null"),
            Value::Bool(true) => self.token("true"),
            Value::Bool(false) => self.token("false"),
            Value::Number(number) => self.token(&number_text(number)),
            Value::String(text) => self.text(text, scalar::style(text), Some(BEST_WIDTH), indent),
            Value::Array(_) => self.token("[]"),
            Value::Object(_) => self.token("{}"),
        }
    }

    /// Writes a text. The second and later lines start at column `indent`. If `width` is given, lines are folded after this column.
    fn text(&mut self, text: &str, style: Style, width: Option<usize>, indent: usize) {
        self.space();
        match style {
            Style::Plain => self.folded(text, width, indent, |c, emitter| emitter.put(c)),
            Style::SingleQuoted => {
                self.put('\'');
                self.folded(text, width, indent, |c, emitter| {
                    if c == '\'' {
                        emitter.put(c);
                    }
                    emitter.put(c);
                });
                self.put('\'');
            }
            Style::DoubleQuoted => self.double_quoted(text, width, indent),
            Style::Literal => {
                self.literal(text, indent);
                return;
            }
        }
        self.at = At::Token;
    }

    /// Writes a text and breaks its lines at single spaces.
    fn folded(&mut self, text: &str, width: Option<usize>, indent: usize, put: fn(char, &mut Emitter)) {
        let mut previous_is_space = false;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c != ' ' {
                put(c, self);
                previous_is_space = false;
                continue;
            }
            let single = !previous_is_space && at > 0 && chars.peek().is_some_and(|(_, next)| *next != ' ');
            if single && width.is_some_and(|width| self.column > width) {
                self.break_line(indent);
            } else {
                self.put(' ');
            }
            previous_is_space = true;
        }
    }

    fn double_quoted(&mut self, text: &str, width: Option<usize>, indent: usize) {
        self.put('"');
        let mut previous_is_space = false;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let inner = at > 0 && chars.peek().is_some();
            if c == ' ' {
                if inner && !previous_is_space && width.is_some_and(|width| self.column > width) {
                    self.break_line(indent);
                    if chars.peek().is_some_and(|(_, next)| *next == ' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                previous_is_space = true;
                continue;
            }
            previous_is_space = false;
            match escape(c) {
                Some(escape) => self.put_str(&escape),
                None => self.put(c),
            }
        }
        self.put('"');
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put('|');
        if text.starts_with([' ', '\n']) {
            self.put_str(&INDENT.to_string());
        }
        if !text.ends_with('\n') {
            self.put('-');
        } else if text == "\n" || text.ends_with("\n\n") {
            self.put('+');
        }
        for line in text.split_inclusive('\n') {
            let line_text = line.strip_suffix('\n').unwrap_or(line);
            if self.at != At::LineStart {
                self.line_break();
            }
            if !line_text.is_empty() {
                self.pad(indent);
                self.put_str(line_text);
            }
            self.at = At::Token;
            if line.len() > line_text.len() {
                self.line_break();
            }
        }
    }

    fn token(&mut self, token: &str) {
        self.space();
        self.put_str(token);
        self.at = At::Token;
    }

    fn indicator(&mut self, indicator: &str) {
        self.space();
        self.put_str(indicator);
        self.at = At::Indicator;
    }

    fn start_entry(&mut self, indent: usize) {
        if self.at == At::Token || self.column > indent {
            self.line_break();
        }
        self.pad(indent);
        self.at = At::LineStart;
    }

    fn space(&mut self) {
        if self.at != At::LineStart {
            self.put(' ');
        }
        self.at = At::Token;
    }

    fn break_line(&mut self, indent: usize) {
        self.line_break();
        self.pad(indent);
    }

    fn end_line(&mut self) {
        if self.column > 0 {
            self.line_break();
        }
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
        self.at = At::LineStart;
    }

    fn pad(&mut self, indent: usize) {
        while self.column < indent {
            self.put(' ');
        }
    }

    fn put_str(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }
}

fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The escape sequence of a character within double quotes. `None` if the character needs no escape sequence.
fn escape(c: char) -> Option<String> {
    let short = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ if scalar::is_printable(c) => return None,
        _ => {
            let code = u32::from(c);
            let mut escape = String::new();
            // Writing to a String cannot fail.
            let _ = match code {
                0..=0xff => write!(escape, "\\x{code:02X}"),
                0x100..=0xffff => write!(escape, "\\u{code:04X}"),
                _ => write!(escape, "\\U{code:08X}"),
            };
            return Some(escape);
        }
    };
    Some(format!("\\{short}"))
}

/// Formats a number as Go does after a conversion to JSON: whole numbers without a decimal point, and other numbers in Go's shortest form.
fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float_text(float),
        _ => number.to_string(),
    }
}

fn float_text(float: f64) -> String {
    let json = float.to_string();
    if json == "-0" {
        return "0".to_owned();
    }
    if json.parse::<i64>().is_ok() || json.parse::<u64>().is_ok() {
        return json;
    }
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return json };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..LEAST_EXPONENT).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => json,
    }
}

/// Go's shortest form of a number has an exponent if the number is at least ten to this power.
const LEAST_EXPONENT: i32 = 6;
