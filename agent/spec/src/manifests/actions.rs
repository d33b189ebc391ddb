//! Actions of templates in manifests: `{{ .ClusterName }}`, and the control lines of Go's and Jinja's templates.

use std::collections::BTreeMap;

use serde_json::Value;

const BEGIN: &str = "{{";
const END: &str = "}}";
/// The beginning of the placeholder for a template action. The action's number and [`WORD_END`] follow.
const WORD: &str = "kops-agent-template-action-";
const WORD_END: char = '-';
/// The maximum number of characters that are shown of a template action. A longer action is cut.
const LONGEST: usize = 100;
/// The keywords of template actions that control other lines (pkg.go.dev/text/template, "Actions").
const CONTROLS: [&str; 9] = ["if", "else", "end", "range", "with", "define", "block", "template", "/*"];

pub fn has_action(text: &str) -> bool {
    text.contains(BEGIN)
}

/// Whether a value contains a template action at any depth, in a value or in a key.
pub fn has_action_within(value: &Value) -> bool {
    match value {
        Value::String(text) => has_action(text),
        Value::Array(items) => items.iter().any(has_action_within),
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| has_action(key) || has_action_within(value))
        }
        _ => false,
    }
}

/// Whether a line consists only of template actions, or begins with an action that controls other lines. A text with such a line is YAML
/// only after its template is rendered.
pub fn has_control_line(text: &str) -> bool {
    text.lines().map(str::trim).any(is_control_line)
}

fn is_control_line(line: &str) -> bool {
    let Some(action) = line.strip_prefix(BEGIN) else { return line.starts_with("{%") };
    let action = action.trim_start_matches('-').trim_start();
    let decides = |word: &str| {
        action.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    CONTROLS.iter().any(|word| decides(word)) || with_actions(line, |_, _| ()).trim().is_empty()
}

/// Removes each template action from a text. Calls `replace` for each action, with the result so far and the action including its
/// braces. `replace` may append a replacement to the result.
fn with_actions<'a>(text: &'a str, mut replace: impl FnMut(&mut String, &'a str)) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(BEGIN) {
        let Some(length) = rest[begin..].find(END) else { break };
        let (action, after) = rest[begin..].split_at(length + END.len());
        replaced.push_str(&rest[..begin]);
        replace(&mut replaced, action);
        rest = after;
    }
    replaced + rest
}

/// The template actions of a text. Equal actions are listed once.
#[derive(Debug)]
pub struct Actions {
    /// The text of each action. Long texts are cut, because YAML aliases may repeat an action many times.
    shown: Vec<String>,
}

/// Replaces each template action in a text with a placeholder word. Equal actions get equal words, and different
/// actions get different words. The number of lines does not change.
pub fn with_words(text: &str) -> (String, Actions) {
    let (mut shown, mut numbers) = (Vec::new(), BTreeMap::new());
    let replaced = with_actions(text, |replaced, action| {
        let number = *numbers.entry(action).or_insert_with(|| {
            shown.push(shown_action(action, shown.len()));
            shown.len() - 1
        });
        *replaced += &format!("{WORD}{number}{WORD_END}");
        replaced.extend(action.chars().filter(|c| *c == '\n'));
    });
    (replaced, Actions { shown })
}

/// The text of an action. A cut text contains the action's number, so that the texts of different actions differ.
fn shown_action(action: &str, number: usize) -> String {
    match action.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…{number} {END}", &action[..end]),
        None => action.to_owned(),
    }
}

impl Actions {
    /// Replaces the placeholder words in a text with the texts of their template actions.
    pub fn in_text(&self, text: &str) -> String {
        let mut parts = text.split(WORD);
        let mut restored = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let word = part.split_once(WORD_END);
            match word.and_then(|(number, rest)| Some((self.shown.get(number.parse::<usize>().ok()?)?, rest)))
            {
                Some((action, rest)) => restored.extend([action.as_str(), rest]),
                None => restored.extend([WORD, part]),
            }
        }
        restored
    }

    /// Replaces the placeholder words in all keys and strings of a value with their actions.
    pub fn in_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.in_text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.in_value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(key, value)| (self.in_text(&key), self.in_value(value))).collect()
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_actions_of_templates_are_found() {
        assert!(has_action_within(&json!({"a": [{"b": "x-{{ .name }}"}]})));
        assert!(has_action_within(&json!({"a": [{"x-{{ .name }}": 1}]})));
        assert!(!has_action_within(&json!({"a": [{"b": "x"}], "c": {}})));
    }

    #[test]
    fn lines_that_control_other_lines_differ_from_values() {
        for line in [
            "{{ if .x }}",
            "  {{- range .groups }}",
            "{{end}}",
            "{% if x %}",
            "{{ include \"x\" . }}",
            "{{ if .a }}b: 1{{ end }}",
        ] {
            assert!(has_control_line(&format!("a: 1\n{line}\n")), "{line}");
        }
        for line in
            ["a: {{ .x }}", "- {{ .x }}", "{{ .key }}: 1", "x --format '{{.State}}'", "{{ .ifx }}: 1", ""]
        {
            assert!(!has_control_line(&format!("a: 1\n{line}\n")), "{line}");
        }
    }

    #[test]
    fn words_replace_actions_and_keep_the_lines() {
        let source = "a: {{ .x }}\nb: {{ fn\n \"y\" }}z\nc: {{ .x }}{{ .y }}\nd: {{ open\n";
        let (text, actions) = with_words(source);
        let word = |number: usize| format!("{WORD}{number}{WORD_END}");
        let [x, fn_y, y] = [0, 1, 2].map(word);
        assert_eq!(text, format!("a: {x}\nb: {fn_y}\nz\nc: {x}{y}\nd: {{{{ open\n"));
        assert_eq!(
            actions.in_value(json!({"a": [x], "b": 1, format!("{x}0"): format!("x{y}{fn_y}")})),
            json!({"a": ["{{ .x }}"], "b": 1, "{{ .x }}0": "x{{ .y }}{{ fn\n \"y\" }}"})
        );
    }

    #[test]
    fn long_actions_are_cut_and_stay_different() {
        let long = |end: char| format!("{{{{ {}{end} }}}}", "x".repeat(100_000));
        let (text, actions) = with_words(&format!("{} {}", long('a'), long('b')));
        let shown = actions.in_text(&text);
        let [a, b] = shown.split(" {{").collect::<Vec<_>>()[..] else { panic!("{shown}") };
        assert!(a.starts_with("{{ xxx") && a.ends_with("xxx…0 }}") && b.ends_with("xxx…1 }}"), "{shown}");
        assert_eq!(a.chars().count(), 105);
    }

    #[test]
    fn a_text_that_looks_like_a_word_stays() {
        let (_, actions) = with_words("{{ .x }}");
        for text in [
            WORD,
            "kops-agent-template-action-1-",
            "kops-agent-template-action-0",
            "kops-agent-template-action-x-",
        ] {
            assert_eq!(actions.in_text(text), text);
        }
    }
}
