//! Reads a parsed document into our types by the rules of Go's decoder (`sigs.k8s.io/yaml` over
//! `encoding/json`), with which kOps reads its own files. Null leaves the zero value. A bare number or bool
//! is accepted as a string (`featureGates: {X: true}`), except in manifests: kOps reads these by another decoder of Kubernetes, which refuses it.
//! All other values must have the right type.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, Visitor,
};
use serde_json::{Map, Value, map};

use crate::field_warnings::LONGEST_NAME;
use crate::terminal::shortened;

/// A document, or a part of a document, that this module decodes by the rules of Go's decoder.
#[derive(Clone, Copy)]
struct GoValue<'de, 'u> {
    value: &'de Value,
    /// Collects the fields that the target type does not have.
    unknown: &'u RefCell<UnknownFields<'de>>,
    /// Whether the document is a manifest that a user wrote. If so, a number or a boolean is not accepted as a string.
    is_manifest: bool,
}

/// The reason why a document does not fit a type.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The path of the wrong field in the document, such as `list[1].name`. Empty if the document itself is wrong.
    pub(crate) field: String,
    /// The problem, such as `it is a list, but should be a string`.
    pub(crate) problem: String,
}

impl Misfit {
    /// Adds `part` to the beginning of the field's path. `part` is the place of this document in an outer document.
    fn within(self, part: Part<'_>) -> Misfit {
        Misfit { field: joined(&part.to_string(), &self.field), ..self }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(problem: T) -> Misfit {
        Misfit { field: String::new(), problem: problem.to_string() }
    }
}

/// A step of a path: an entry of a mapping, or an item of a list.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Value(&'a str),
    Item(usize),
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Value(key) => f.write_str(key),
            Part::Item(index) => write!(f, "[{index}]"),
        }
    }
}

/// Appends the path `below` to the path `above`. `below` is relative to `above`.
fn joined(above: &str, below: &str) -> String {
    let dot = if above.is_empty() || below.is_empty() || below.starts_with('[') { "" } else { "." };
    format!("{above}{dot}{below}")
}

/// The fields of a document that the target type does not have.
#[derive(Debug, Default)]
struct UnknownFields<'de> {
    /// The path of the value that is being read, from the root of the document.
    at: Vec<Part<'de>>,
    paths: Vec<String>,
}

impl UnknownFields<'_> {
    /// The path of the value that is being read. Long names are cut, because a document may have many unknown fields below one name.
    fn path(&self) -> String {
        let shown = |part: &Part<'_>| match part {
            Part::Value(key) => shortened(key, LONGEST_NAME),
            Part::Item(_) => part.to_string(),
        };
        self.at.iter().fold(String::new(), |above, part| joined(&above, &shown(part)))
    }
}

/// Reads a document into a type. Also returns the paths of the document's fields that the type does not have.
pub(crate) fn read<T: DeserializeOwned>(document: &Value) -> Result<(T, Vec<String>), Misfit> {
    let unknown = RefCell::default();
    let read = T::deserialize(GoValue { value: document, unknown: &unknown, is_manifest: false })?;
    Ok((read, unknown.into_inner().paths))
}

/// Reads a document that a user wrote. Like kOps, rejects a number or a boolean in place of a string.
pub(crate) fn read_manifest<T: DeserializeOwned>(document: &Value) -> Result<T, Misfit> {
    T::deserialize(GoValue { value: document, unknown: &RefCell::default(), is_manifest: true })
}

/// The kind of a value, for a message. A message never contains the value itself, because it may be secret.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

impl<'de> GoValue<'de, '_> {
    fn read_part<T: DeserializeSeed<'de>>(
        self,
        part: Part<'de>,
        value: &'de Value,
        seed: T,
    ) -> Result<T::Value, Misfit> {
        self.unknown.borrow_mut().at.push(part);
        let read = seed.deserialize(GoValue { value, ..self });
        self.unknown.borrow_mut().at.pop();
        read.map_err(|misfit| misfit.within(part))
    }

    fn refuse<T>(self, wanted: &str) -> Result<T, Misfit> {
        Err(Misfit::custom(format!("it is {}, but should be {wanted}", kind(self.value))))
    }

    fn integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_u64(0),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(unsigned), _) => visitor.visit_u64(unsigned),
                (None, Some(signed)) => visitor.visit_i64(signed),
                (None, None) => self.refuse("a whole number"),
            },
            _ => self.refuse("a whole number"),
        }
    }

    fn float<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_f64(0.0),
            Value::Number(number) => match number.as_f64() {
                Some(float) => visitor.visit_f64(float),
                None => self.refuse("a number"),
            },
            _ => self.refuse("a number"),
        }
    }

    fn string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_str(""),
            Value::String(string) => visitor.visit_borrowed_str(string),
            Value::Bool(_) | Value::Number(_) if self.is_manifest => {
                self.refuse("a string; put it in quotes")
            }
            Value::Bool(bool) => visitor.visit_str(if *bool { "true" } else { "false" }),
            Value::Number(number) => visitor.visit_string(number.to_string()),
            Value::Array(_) | Value::Object(_) => self.refuse("a string"),
        }
    }

    fn list<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_seq(Items::new(self, &[])),
            Value::Array(items) => visitor.visit_seq(Items::new(self, items)),
            _ => self.refuse("a list"),
        }
    }

    fn mapping<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_map(Entries::new(self, None)),
            Value::Object(entries) => visitor.visit_map(Entries::new(self, Some(entries))),
            _ => self.refuse("a mapping"),
        }
    }
}

macro_rules! forward {
    ($to:ident: $($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            self.$to(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for GoValue<'de, '_> {
    type Error = Misfit;

    forward!(integer: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
                      deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64);
    forward!(float: deserialize_f32 deserialize_f64);
    forward!(string: deserialize_str deserialize_string deserialize_char deserialize_identifier
                     deserialize_bytes deserialize_byte_buf);
    forward!(list: deserialize_seq);
    forward!(mapping: deserialize_map);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            Value::Number(number) if number.is_f64() => self.float(visitor),
            Value::Number(_) => self.integer(visitor),
            Value::String(_) => self.string(visitor),
            Value::Array(_) => self.list(visitor),
            Value::Object(_) => self.mapping(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            _ => self.refuse("true or false"),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Misfit> {
        self.list(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.list(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.mapping(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.value {
            Value::String(variant) => visitor.visit_enum(variant.as_str().into_deserializer()),
            _ => self.refuse("a string"),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let mut unknown = self.unknown.borrow_mut();
        let path = unknown.path();
        unknown.paths.push(path);
        visitor.visit_unit()
    }
}

struct Items<'de, 'u> {
    list: GoValue<'de, 'u>,
    rest: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de, 'u> Items<'de, 'u> {
    fn new(list: GoValue<'de, 'u>, items: &'de [Value]) -> Items<'de, 'u> {
        Items { list, rest: items.iter().enumerate() }
    }
}

impl<'de> de::SeqAccess<'de> for Items<'de, '_> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some((index, item)) = self.rest.next() else { return Ok(None) };
        self.list.read_part(Part::Item(index), item, seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Entries<'de, 'u> {
    mapping: GoValue<'de, 'u>,
    rest: Option<map::Iter<'de>>,
    /// The key and the value of the last entry that was read.
    entry: (&'de str, &'de Value),
}

impl<'de, 'u> Entries<'de, 'u> {
    fn new(mapping: GoValue<'de, 'u>, entries: Option<&'de Map<String, Value>>) -> Entries<'de, 'u> {
        Entries { mapping, rest: entries.map(Map::iter), entry: ("", &Value::Null) }
    }
}

impl<'de> de::MapAccess<'de> for Entries<'de, '_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let Some((key, value)) = self.rest.as_mut().and_then(Iterator::next) else { return Ok(None) };
        self.entry = (key, value);
        let deserializer: StrDeserializer<'_, Misfit> = key.as_str().into_deserializer();
        seed.deserialize(deserializer).map(Some).map_err(|misfit| misfit.within(Part::Value(key)))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let (key, value) = self.entry;
        self.mapping.read_part(Part::Value(key), value, seed)
    }
}
