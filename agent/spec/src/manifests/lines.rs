//! Finds the line of a field in a YAML text. The parser of YAML reports no lines of values.
//!
//! Block mappings and block lists are followed. A field in a flow collection (`{a: 1}`) has the line at which the collection begins.

use super::field_path::{Step, after_key, step};

/// A line of the text, with its number. In the first line of a list's item, a space replaces the dash.
struct Line {
    number: usize,
    text: String,
}

impl Line {
    fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start_matches(' ').len()
    }

    fn begins_item(&self) -> bool {
        let text = self.text.trim_start_matches(' ');
        text == "-" || text.starts_with("- ")
    }

    /// The line of an item without its dash.
    fn without_dash(&self) -> Line {
        Line { number: self.number, text: self.text.replacen('-', " ", 1) }
    }
}

/// The line number of the field at a path, counted from 1. A field without a line gets the line of its closest parent. `None` if no
/// part of the path is in the text.
pub fn line_of(text: &str, path: &str) -> Option<usize> {
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && !line.starts_with("---") && !line.starts_with('%')
    });
    let lines: Vec<Line> =
        lines.map(|(index, text)| Line { number: index + 1, text: text.trim_end().to_owned() }).collect();
    within(&lines, path)
}

/// The line of a field within the lines of one collection.
fn within(lines: &[Line], path: &str) -> Option<usize> {
    let indent = lines.first()?.indent();
    match step(path) {
        Step::End => None,
        Step::Index(index, rest) => {
            let begins = |at: &usize| lines[*at].indent() == indent && lines[*at].begins_item();
            let mut items = (0..lines.len()).filter(begins).skip(index);
            let begin = items.next()?;
            let end = items.next().unwrap_or(lines.len());
            let item: Vec<Line> = std::iter::once(lines[begin].without_dash())
                .chain(
                    lines[begin + 1..end]
                        .iter()
                        .map(|line| Line { number: line.number, text: line.text.clone() }),
                )
                .filter(|line| !line.text.trim().is_empty())
                .collect();
            Some(within(&item, rest).unwrap_or(lines[begin].number))
        }
        Step::Key(path) => {
            let of_key = |(at, line): (usize, &Line)| {
                (line.indent() == indent && !line.begins_item()).then_some(())?;
                Some((at, after_key(path, key(line.text.trim_start())?)?))
            };
            let (at, rest) = lines.iter().enumerate().find_map(of_key)?;
            let below = &lines[at + 1..];
            // The items of a list may have the indentation of its key.
            let is_below =
                |line: &Line| line.indent() > indent || line.indent() == indent && line.begins_item();
            let end = below.iter().position(|line| !is_below(line)).unwrap_or(below.len());
            Some(within(&below[..end], rest).unwrap_or(lines[at].number))
        }
    }
}

/// The key of a line of a block mapping.
fn key(line: &str) -> Option<&str> {
    let quote = line.chars().next().filter(|quote| matches!(quote, '"' | '\''));
    if let Some(quote) = quote {
        let (key, rest) = line[1..].split_once(quote)?;
        return rest.trim_start().starts_with(':').then_some(key);
    }
    let end = line.find(": ").or_else(|| line.strip_suffix(':').map(str::len))?;
    Some(line[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
apiVersion: kops.k8s.io/v1alpha2
kind: Cluster
metadata:
  name: c

spec:
  # a comment
  hooks:
  - name: a
    manifest: |
      hooks:
        - name: no
  -
    name: b
    roles: [Node, Master]
  'quoted':
      deep:
        - - 1
          - 2
  nodeLabels:
    example.com/a: \"x: y\"
  kubelet: {maxPods: 3,
    featureGates: {A: \"true\"}}
  last: 1
";

    #[test]
    fn a_field_has_its_line() {
        for (path, line) in [
            ("kind", Some(2)),
            ("metadata.name", Some(4)),
            ("spec.hooks[0].name", Some(9)),
            ("spec.hooks[0].manifest", Some(10)),
            ("spec.hooks[1]", Some(13)),
            ("spec.hooks[1].name", Some(14)),
            ("spec.hooks[1].roles[0]", Some(15)),
            ("spec.hooks[2].name", Some(8)),
            ("spec.quoted.deep[0]", Some(18)),
            ("spec.nodeLabels.example.com/a", Some(21)),
            ("spec.kubelet.featureGates.A", Some(23)),
            ("spec.KUBELET.maxPods", Some(22)),
            ("spec.last", Some(24)),
            ("spec.other.field", Some(6)),
            ("status", None),
        ] {
            assert_eq!(line_of(TEXT, path), line, "{path}");
        }
        assert_eq!(line_of("{kind: Cluster}", "kind"), None);
        assert_eq!(line_of("- a: 1\n- b: 2\n", "[1].b"), Some(2));
    }
}
