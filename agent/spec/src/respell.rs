//! Converts a document from one version of kOps' API to the internal version. Errors spell a field as the
//! user's file does.
//!
//! The versions differ in the names and places of a few dozen fields, and some fields are inverted
//! (`disableMasquerade`, `masquerade`). Each difference is one [`Move`]. All other fields are equal.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::SpecError;
use super::go_value::kind;

/// A field whose name or place differs between a file and the internal API.
///
/// Paths are dotted. `[]` after a name stands for every item of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    from: &'static str,
    to: &'static str,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    AsItIs,
    Inverted,
    SplitAtCommas,
    PairsToMapping,
    TrueMeans(&'static str),
    Dropped,
}

/// Moves a value unchanged from `from` to `to`.
pub(crate) const fn moved(from: &'static str, to: &'static str) -> Move {
    Move { from, to, how: How::AsItIs }
}

/// Moves a boolean and inverts its value.
pub(crate) const fn inverted(from: &'static str, to: &'static str) -> Move {
    Move { from, to, how: How::Inverted }
}

/// Moves a string and splits it at commas into a list.
pub(crate) const fn split_at_commas(from: &'static str, to: &'static str) -> Move {
    Move { from, to, how: How::SplitAtCommas }
}

/// Moves a list of `key=value` entries and converts it to a mapping.
pub(crate) const fn pairs_to_mapping(from: &'static str, to: &'static str) -> Move {
    Move { from, to, how: How::PairsToMapping }
}

/// Writes `word` to `to` if the value is true. Writes nothing if the value is false.
pub(crate) const fn true_means(from: &'static str, to: &'static str, word: &'static str) -> Move {
    Move { from, to, how: How::TrueMeans(word) }
}

/// Removes a valid field that never has an effect.
pub(crate) const fn dropped(from: &'static str) -> Move {
    Move { from, to: "", how: How::Dropped }
}

/// A document during its conversion to the internal version.
pub(crate) struct Respelling<'a> {
    document: Value,
    source_file: &'a str,
    /// The past moves, by destination path. Each item has the number of the move, and the path from which the value came.
    done: BTreeMap<String, Vec<(usize, String)>>,
    /// The number of moves that were applied so far.
    moves: usize,
    /// The `from` paths of all moves that were applied so far.
    sources: Vec<&'static str>,
}

impl<'a> Respelling<'a> {
    pub(crate) fn new(document: Value, source_file: &'a str) -> Respelling<'a> {
        Respelling { document, source_file, done: BTreeMap::new(), moves: 0, sources: Vec::new() }
    }

    /// Applies these moves in order.
    pub(crate) fn apply(&mut self, moves: &[Move]) -> Result<(), SpecError> {
        moves.iter().try_for_each(|step| self.apply_one(step))
    }

    /// The value at a path that contains no lists. `None` if there is no value.
    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.document, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    /// Sets the value at a path that contains no lists.
    pub(crate) fn set(&mut self, path: &str, value: Value) {
        put(&mut self.document, path, &[], value);
    }

    /// Returns an error about a field. `path` is the path in the user's file.
    pub(crate) fn refuse<T>(&self, path: &str, problem: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::of_field(self.source_file, path, problem))
    }

    /// Reads the document in its current state. Errors contain the names of fields as in the user's file.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, SpecError> {
        super::yaml::from_document(&self.document, self.source_file).map_err(|error| self.respelled(error))
    }

    /// Like [`Respelling::read`], for a document that a user wrote. Like kOps, rejects a number or a boolean in place of a string.
    pub(crate) fn read_manifest<T: serde::de::DeserializeOwned>(&self) -> Result<T, SpecError> {
        super::yaml::from_manifest(&self.document, self.source_file).map_err(|error| self.respelled(error))
    }

    /// The fields under `spec` that `T` does not know, with their names in the user's file.
    pub(crate) fn ignored<T: serde::de::DeserializeOwned>(&self) -> Vec<String> {
        // If moves have taken all fields out of a mapping, the mapping is not reported, because its fields are known.
        let is_emptied = |field: &String| {
            let is_above =
                |from: &&str| from.strip_prefix(field).is_some_and(|rest| rest.starts_with(['.', '[']));
            self.get(field).is_some_and(is_hollow) && self.sources.iter().any(is_above)
        };
        super::yaml::ignored_fields::<T>(&self.document)
            .iter()
            .filter(|field| !is_emptied(field))
            .map(|field| self.spelled_by_user(field))
            .filter(|field| field.starts_with("spec."))
            .collect()
    }

    fn apply_one(&mut self, step: &Move) -> Result<(), SpecError> {
        self.sources.push(step.from);
        let mut found = Vec::new();
        take(&mut self.document, step.from, String::new(), &mut Vec::new(), &mut found)
            .map_err(|(path, problem)| SpecError::of_field(self.source_file, &path, problem))?;
        for (path, indices, value) in found {
            let converted = step
                .how
                .convert(value)
                .map_err(|problem| SpecError::of_field(self.source_file, &path, problem))?;
            if let Some(value) = converted {
                let to = put(&mut self.document, step.to, &indices, value);
                self.done.entry(to).or_default().push((self.moves, path));
                self.moves += 1;
            }
        }
        Ok(())
    }

    fn respelled(&self, error: SpecError) -> SpecError {
        SpecError { field: self.spelled_by_user(&error.field), ..error }
    }

    /// The path of a field in the user's file. Undoes all moves of the field, beginning with the last move.
    fn spelled_by_user(&self, internal: &str) -> String {
        let mut path = internal.to_owned();
        let mut undone = self.moves;
        loop {
            let ends = path.match_indices(['.', '[']).map(|(end, _)| end).chain([path.len()]);
            let earlier = |end: usize| {
                let moves = self.done.get(&path[..end])?;
                let (number, from) = moves.iter().rev().find(|(number, _)| *number < undone)?;
                Some((*number, from, end))
            };
            let Some((number, from, end)) = ends.filter_map(earlier).max_by_key(|(number, ..)| *number)
            else {
                return path;
            };
            path = format!("{from}{}", &path[end..]);
            undone = number;
        }
    }
}

impl How {
    fn convert(self, value: Value) -> Result<Option<Value>, String> {
        match (self, value) {
            (_, Value::Null) => Ok(None),
            (How::AsItIs, value) => Ok(Some(value)),
            (How::Inverted, Value::Bool(value)) => Ok(Some(Value::Bool(!value))),
            (How::TrueMeans(word), Value::Bool(value)) => Ok(value.then(|| word.into())),
            (How::Dropped, _) => Ok(None),
            (How::SplitAtCommas, Value::String(text)) => Ok(Some(text.split(',').collect())),
            (How::PairsToMapping, Value::Array(pairs)) => {
                pairs.iter().map(pair).collect::<Result<Map<_, _>, _>>().map(|map| Some(Value::Object(map)))
            }
            (How::Inverted | How::TrueMeans(_), other) => Err(wrong(&other, "true or false")),
            (How::SplitAtCommas, other) => Err(wrong(&other, "a string")),
            (How::PairsToMapping, other) => Err(wrong(&other, "a list of key=value")),
        }
    }
}

fn pair(value: &Value) -> Result<(String, Value), String> {
    let (key, value) = value
        .as_str()
        .and_then(|text| text.split_once('='))
        .ok_or("every item of it must be written as key=value")?;
    Ok((key.to_owned(), value.into()))
}

fn wrong(value: &Value, wanted: &str) -> String {
    format!("it is {}, but should be {wanted}", kind(value))
}

/// Removes all values whose path matches `pattern`. For each value, adds to `found` the path, the list indices in the path, and the value.
fn take(
    value: &mut Value,
    pattern: &str,
    path: String,
    indices: &mut Vec<usize>,
    found: &mut Vec<(String, Vec<usize>, Value)>,
) -> Result<(), (String, String)> {
    let mapping = match value {
        Value::Null => return Ok(()),
        Value::Object(mapping) => mapping,
        other => return Err((path, wrong(other, "a mapping"))),
    };
    let Some((head, rest)) = pattern.split_once('.') else {
        if let Some(value) = mapping.remove(pattern) {
            found.push((join(&path, pattern), indices.clone(), value));
        }
        return Ok(());
    };
    let Some(key) = head.strip_suffix("[]") else {
        let below = join(&path, head);
        return mapping.get_mut(head).map_or(Ok(()), |value| take(value, rest, below, indices, found));
    };
    let below = join(&path, key);
    match mapping.get_mut(key) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(items)) => items.iter_mut().enumerate().try_for_each(|(index, item)| {
            indices.push(index);
            let result = take(item, rest, format!("{below}[{index}]"), indices, found);
            indices.pop();
            result
        }),
        Some(other) => Err((below, wrong(other, "a list"))),
    }
}

/// Sets the value at the path `pattern`, and creates missing mappings. Returns the path with its list indices.
fn put(document: &mut Value, pattern: &str, indices: &[usize], value: Value) -> String {
    let mut indices = indices.iter();
    let mut path = String::new();
    let mut place = document;
    for segment in pattern.split('.') {
        let (key, index) = match segment.strip_suffix("[]") {
            Some(key) => (key, indices.next()),
            None => (segment, None),
        };
        path = join(&path, key);
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[key];
        if let Some(index) = index {
            path = format!("{path}[{index}]");
            place = &mut place[*index];
        }
    }
    *place = value;
    path
}

fn is_hollow(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.values().all(is_hollow))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn respelled(document: Value, moves: &[Move]) -> Result<Value, String> {
        let mut respelling = Respelling::new(document, "file");
        respelling.apply(moves).map_err(|error| error.to_string())?;
        Ok(respelling.document)
    }

    #[test]
    fn a_field_moves_with_its_value_and_keeps_its_neighbours() {
        let moves = [moved("a.b", "c.d"), inverted("off", "c.on"), moved("gone", "c.gone")];
        assert_eq!(
            respelled(json!({"a": {"b": 1, "x": 2}, "c": {"y": 3}, "off": true}), &moves),
            Ok(json!({"a": {"x": 2}, "c": {"y": 3, "d": 1, "on": false}}))
        );
    }

    #[test]
    fn every_item_of_a_list_is_respelled_in_its_place() {
        let moves = [moved("outer[].inner[].old", "outer[].inner[].new")];
        assert_eq!(
            respelled(json!({"outer": [{}, {"inner": [{"old": 1}, {}, {"old": 2}]}, null]}), &moves),
            Ok(json!({"outer": [{}, {"inner": [{"new": 1}, {}, {"new": 2}]}, null]}))
        );
    }

    #[test]
    fn values_change_their_form() {
        let moves = [
            split_at_commas("groups", "oidc.groups"),
            pairs_to_mapping("claims", "oidc.claims"),
            true_means("disable", "provider", "none"),
            true_means("other", "untouched", "none"),
        ];
        assert_eq!(
            respelled(json!({"groups": "a,b", "claims": ["k=v=w"], "disable": true, "other": false}), &moves),
            Ok(json!({"oidc": {"groups": ["a", "b"], "claims": {"k": "v=w"}}, "provider": "none"}))
        );
    }

    #[test]
    fn a_wrong_type_is_named_by_its_old_path() {
        let moves = [inverted("list[].off", "list[].on"), pairs_to_mapping("claims", "c")];
        assert_eq!(
            respelled(json!({"list": [{}, {"off": "yes"}]}), &moves),
            Err("cannot read field list[1].off of file: it is a string, but should be true or false"
                .to_owned())
        );
        assert_eq!(
            respelled(json!({"list": {}}), &moves),
            Err("cannot read field list of file: it is a mapping, but should be a list".to_owned())
        );
        assert_eq!(
            respelled(json!({"claims": ["k"]}), &moves),
            Err("cannot read field claims of file: every item of it must be written as key=value".to_owned())
        );
    }

    #[test]
    fn an_empty_mapping_is_reported_unless_a_move_emptied_it() {
        #[derive(serde::Deserialize)]
        struct Known {}
        #[derive(serde::Deserialize)]
        struct Root {
            #[serde(rename = "spec")]
            _spec: Known,
            #[serde(rename = "a")]
            _a: u8,
        }
        let document = json!({"spec": {"old": {"a": 1}, "other": {}, "misspelled": {}}});
        let mut respelling = Respelling::new(document, "file");
        respelling.apply(&[moved("spec.old.a", "a"), moved("spec.other.b", "b")]).unwrap();
        assert_eq!(respelling.ignored::<Root>(), ["spec.misspelled"]);
    }

    #[test]
    fn later_errors_use_the_users_spelling() {
        let mut respelling = Respelling::new(json!({"masters": {"count": "x"}, "mastersToo": 1}), "file");
        respelling.apply(&[moved("masters", "nodes"), moved("nodes.count", "nodes.number")]).unwrap();
        let error = respelling.read::<BTreeMap<String, BTreeMap<String, i32>>>().unwrap_err();
        assert_eq!(error.field, "mastersToo");
        respelling.set("mastersToo", json!({}));
        let error = respelling.read::<BTreeMap<String, BTreeMap<String, i32>>>().unwrap_err();
        assert_eq!(error.field, "masters.count");
    }
}
