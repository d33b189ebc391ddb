//! Finds the line of a field in a YAML text. The parser of YAML reports no lines of values.
//!
//! Block mappings and block lists are followed. A field in a flow collection (`{a: 1}`) has the line at which the collection begins.

use std::cmp::Reverse;
use std::ops::Range;

use super::field_path::{Step, after_key, step};

/// The lines of the fields in a text. A search visits each key and each list item at most once.
#[derive(Debug, Default)]
pub struct Lines {
    entries: Vec<Entry>,
}

/// A key of a block mapping, or a dash of a block list.
#[derive(Debug)]
struct Entry {
    /// The number of the line in the text. The first line is 1.
    number: u32,
    indent: u32,
    /// The start and the end of the key in the text. `None` for a dash.
    key: Option<(u32, u32)>,
    /// The index of the first later entry that is not a part of this entry's value.
    end: u32,
}

impl Entry {
    /// Whether a later entry is a part of this entry's value. A list's items may have the indentation of the list's key.
    fn contains(&self, later: &Entry) -> bool {
        later.indent > self.indent || later.indent == self.indent && self.key.is_some() && later.key.is_none()
    }
}

impl Lines {
    /// Indexes a text. The index of a text of 4 GiB or more is empty.
    pub fn parse(text: &str) -> Lines {
        let mut lines = Lines::default();
        if u32::try_from(text.len()).is_err() {
            return lines;
        }
        let (mut open, mut at) = (Vec::<usize>::new(), 0);
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let shown = line.trim();
            let is_left_out = shown.is_empty() || shown.starts_with(['#', '%']) || shown.starts_with("---");
            if !is_left_out {
                lines.add(line, index + 1, at, &mut open);
            }
            at += line.len();
        }
        let end = lines.entries.len() as u32;
        for index in open {
            lines.entries[index].end = end;
        }
        lines
    }

    /// Adds the entries of a line. `at` is the line's offset in the text. `open` lists the entries whose values may continue.
    fn add(&mut self, line: &str, number: usize, at: usize, open: &mut Vec<usize>) {
        let line = line.trim_end();
        let mut indent = line.len() - line.trim_start_matches(' ').len();
        loop {
            let rest = &line[indent..];
            let key = match rest.strip_prefix('-') {
                Some(item) if item.is_empty() || item.starts_with(' ') => None,
                _ => match key(rest) {
                    Some(key) => Some(((at + indent + key.start) as u32, (at + indent + key.end) as u32)),
                    None => return,
                },
            };
            let (entry, index) =
                (Entry { number: number as u32, indent: indent as u32, key, end: 0 }, self.entries.len());
            while let Some(last) = open.pop_if(|last| !self.entries[*last].contains(&entry)) {
                self.entries[last].end = index as u32;
            }
            self.entries.push(entry);
            open.push(index);
            // The rest of the line after a dash is parsed as if a space replaced the dash.
            let Some(item) = rest.strip_prefix('-').filter(|_| key.is_none()) else { return };
            indent = line.len() - item.trim_start_matches(' ').len();
            if line[indent..].is_empty() || line[indent..].starts_with('#') {
                return;
            }
        }
    }

    /// The line of the field at a path. If the field has no line, returns the line of its closest parent that has a line. The first line
    /// is 1. `None` if no part of the path is in the text. `text` must be the indexed text.
    pub fn line_of(&self, text: &str, path: &str) -> Option<usize> {
        self.within(0..self.entries.len(), text, path)
    }

    /// The line of a field. `collection` is the range of the entries to search.
    fn within(&self, collection: Range<usize>, text: &str, path: &str) -> Option<usize> {
        let indent = self.entries.get(collection.start).filter(|_| !collection.is_empty())?.indent;
        let next = |at: &usize| self.entries.get(*at).map(|entry| entry.end as usize);
        let siblings = std::iter::successors(Some(collection.start), next)
            .take_while(|at| *at < collection.end)
            .map(|at| (at, &self.entries[at]))
            .filter(|(_, entry)| entry.indent == indent);
        let (at, rest) = match step(path) {
            Step::End => return None,
            Step::Index(index, rest) => {
                (siblings.filter(|(_, entry)| entry.key.is_none()).nth(index)?.0, rest)
            }
            // Keys may contain dots, so the longest matching key is used. If a key occurs twice, the last one is used.
            Step::Key(path) => siblings
                .filter_map(|(at, entry)| {
                    let (begin, end) = entry.key?;
                    Some((at, after_key(path, text.get(begin as usize..end as usize)?)?))
                })
                .max_by_key(|(_, rest)| Reverse(rest.len()))?,
        };
        let entry = &self.entries[at];
        Some(self.within(at + 1..entry.end as usize, text, rest).unwrap_or(entry.number as usize))
    }
}

/// The range of the key in a line of a block mapping.
fn key(line: &str) -> Option<Range<usize>> {
    let quote = line.chars().next().filter(|quote| matches!(quote, '"' | '\''));
    if let Some(quote) = quote {
        let (key, rest) = line[1..].split_once(quote)?;
        return rest.trim_start().starts_with(':').then_some(1..1 + key.len());
    }
    let end = line.find(": ").or_else(|| line.strip_suffix(':').map(str::len))?;
    Some(0..line[..end].trim_end().len())
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
            assert_eq!(Lines::parse(TEXT).line_of(TEXT, path), line, "{path}");
        }
        let line_of = |text: &str, path: &str| Lines::parse(text).line_of(text, path);
        assert_eq!(line_of("{kind: Cluster}", "kind"), None);
        assert_eq!(line_of("- a: 1\n- b: 2\n", "[1].b"), Some(2));
        assert_eq!(line_of("ä:\r\n- 1\r\n- - 2\r\n  -   b: c\r\n", "ä[1][1].b"), Some(4));
    }

    #[test]
    fn the_longest_key_and_the_last_value_count() {
        let line_of = |text: &str, path: &str| Lines::parse(text).line_of(text, path);
        for (labels, line) in [("a: 1\na.b: 2\n", 2), ("a.b: 2\na: 1\n", 1), ("a.b: 0\na: 1\na.b: 2\n", 3)] {
            assert_eq!(line_of(labels, "a.b"), Some(line), "{labels}");
        }
        assert_eq!(line_of("a:\n  x: 1\nb: 2\na:\n  y: 1\n  x: 2\n", "a.x"), Some(6));
    }

    #[test]
    fn a_comment_after_a_dash_is_no_key() {
        let text = "a:\n-   # first: x\n  b: 1\n- # second: y\n  b: 2\n";
        assert_eq!(Lines::parse(text).line_of(text, "a[0].b"), Some(3));
        assert_eq!(Lines::parse(text).line_of(text, "a[1].b"), Some(5));
    }

    #[test]
    fn values_end_where_their_collections_end() {
        let ends =
            |text: &str| -> Vec<u32> { Lines::parse(text).entries.iter().map(|entry| entry.end).collect() };
        assert_eq!(ends("a:\n- b: 1\n  c: 2\n- d\ne:\n  f: 1\n"), [5, 4, 3, 4, 5, 7, 7]);
        // The search for the last field skips the values of all earlier fields.
        let many = format!("a:\n{}z: 1\n", "  b: 1\n".repeat(1000));
        assert_eq!(ends(&many)[0], 1001);
    }
}
