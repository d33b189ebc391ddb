//! Actions of templates in manifests: `{{ .ClusterName }}`, and the control lines of Go's and Jinja's templates.

use serde_json::Value;

const BEGIN: &str = "{{";
const END: &str = "}}";
/// The placeholder for a template action while a text is parsed.
const WORD: &str = "kops-agent-template-action";
/// The keywords of template actions that control other lines (pkg.go.dev/text/template, "Actions").
const CONTROLS: [&str; 9] = ["if", "else", "end", "range", "with", "define", "block", "template", "/*"];

/// Whether a text contains a template action.
pub fn has_action(text: &str) -> bool {
    text.contains(BEGIN)
}

/// Whether a value contains a template action at any depth.
pub fn has_action_within(value: &Value) -> bool {
    match value {
        Value::String(text) => has_action(text),
        Value::Array(items) => items.iter().any(has_action_within),
        Value::Object(fields) => fields.values().any(has_action_within),
        _ => false,
    }
}

/// Whether a line consists only of template actions, or begins with an action that controls other lines. Such a text is YAML only after
/// its template is rendered.
pub fn has_control_line(text: &str) -> bool {
    text.lines().map(str::trim).any(is_control_line)
}

fn is_control_line(line: &str) -> bool {
    let Some(action) = line.strip_prefix(BEGIN) else { return line.starts_with("{%") };
    let action = action.trim_start_matches('-').trim_start();
    let decides = |word: &str| {
        action.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    CONTROLS.iter().any(|word| decides(word)) || with_words(line).replace(WORD, "").trim().is_empty()
}

/// Replaces each template action in a text with a placeholder word. The number of lines does not change.
pub fn with_words(text: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, action)) = rest.split_once(BEGIN) {
        let Some((action, after)) = action.split_once(END) else { break };
        replaced.push_str(before);
        replaced.push_str(WORD);
        replaced.extend(action.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    replaced + rest
}

/// Replaces the placeholder words of [`with_words`] in a parsed value with `{{ … }}`.
pub fn without_words(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(WORD, "{{ … }}")),
        Value::Array(items) => Value::Array(items.into_iter().map(without_words).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| (key.replace(WORD, "{{ … }}"), without_words(value)))
                .collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_actions_of_templates_are_found() {
        assert!(has_action_within(&json!({"a": [{"b": "x-{{ .name }}"}]})));
        assert!(!has_action_within(&json!({"a": [{"b": "x"}], "c": {}})));
    }

    #[test]
    fn lines_that_decide_about_other_lines_are_told_from_values() {
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
        let text = with_words("a: {{ .x }}\nb: {{ fn\n \"y\" }}z\nc: {{ open\n");
        assert_eq!(text, format!("a: {WORD}\nb: {WORD}\nz\nc: {{{{ open\n"));
        assert_eq!(
            without_words(json!({"a": [WORD], "b": 1, WORD: format!("x{WORD}")})),
            json!({"a": ["{{ … }}"], "b": 1, "{{ … }}": "x{{ … }}"})
        );
    }
}
