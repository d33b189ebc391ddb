//! Finds the fields of kOps' API by deserializing: a type reports its known fields and their kinds. So tests reach every field of the API,
//! including future ones.

// All modules are in one test binary, so no `pub` item is reachable from outside.
#![allow(dead_code, unreachable_pub)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Value, json};

/// A step on the path from a document to a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Goes to the field with this name.
    Field(&'static str),
    /// Goes to an item of a list.
    Item,
    /// Goes to the value of a key in a mapping.
    Entry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A text with a duration.
    Duration,
    /// A text that must be one of a few words.
    Word,
    Number,
    Bool,
    /// An amount: a text, a number, or any other value.
    Amount,
    /// A mapping. Only its presence matters.
    Mapping,
}

/// A field that has no nested fields, with its path.
#[derive(Clone, Debug)]
pub struct Field {
    pub path: Vec<Step>,
    pub kind: Kind,
}

impl Field {
    /// Returns the field's place in a document. Creates missing values on the path, and replaces values of a wrong type. A mapping gets the
    /// key `key`. A list gets a new item if it is empty or if `lengthen` is set. Otherwise the list's last item is used.
    pub fn reach<'a>(&self, document: &'a mut Value, lengthen: bool, key: &str) -> &'a mut Value {
        self.path.iter().fold(document, |value, step| match step {
            Step::Item => {
                if !value.is_array() {
                    *value = json!([]);
                }
                let items = value.as_array_mut().unwrap();
                if lengthen || items.is_empty() {
                    items.push(items.first().cloned().unwrap_or_default());
                }
                items.last_mut().unwrap()
            }
            Step::Field(_) | Step::Entry => {
                if !value.is_object() {
                    *value = json!({});
                }
                let name = if let Step::Field(name) = step { name } else { key };
                value.as_object_mut().unwrap().entry(name).or_insert(Value::Null)
            }
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.iter().try_for_each(|step| match step {
            Step::Field(name) => write!(f, "/{name}"),
            Step::Item => f.write_str("/[]"),
            Step::Entry => f.write_str("/*"),
        })
    }
}

/// Texts to try for a field, in this order, until the field accepts a text. The accepted text shows the kind of the field.
const ANSWERS: [(&str, Kind); 4] =
    [("text", Kind::Text), ("1m", Kind::Duration), ("Node", Kind::Word), ("aws", Kind::Word)];

/// Returns the fields of `T` that have no nested fields, with their paths.
pub fn fields<T: DeserializeOwned>() -> Vec<Field> {
    let mut answers = BTreeMap::new();
    loop {
        let trace = Trace { answers: &answers, found: RefCell::default(), last: RefCell::default() };
        let Err(error) = T::deserialize(Tracer { trace: &trace, path: Vec::new() }) else {
            let found = trace.found.into_inner();
            return found.into_iter().map(|(path, kind)| Field { path, kind }).collect();
        };
        // Deserializing stopped because a field rejected the last answer. The next attempt uses the next answer for that field.
        let last = trace.last.into_inner();
        let answer = answers.entry(last.clone()).or_insert(0);
        *answer += 1;
        assert!(*answer < ANSWERS.len(), "no answer suits {last:?}: {error}");
    }
}

struct Trace<'a> {
    answers: &'a BTreeMap<Vec<Step>, usize>,
    found: RefCell<BTreeMap<Vec<Step>, Kind>>,
    last: RefCell<Vec<Step>>,
}

struct Tracer<'a> {
    trace: &'a Trace<'a>,
    path: Vec<Step>,
}

impl<'a> Tracer<'a> {
    fn found(&self, kind: Kind) {
        self.trace.found.borrow_mut().insert(self.path.clone(), kind);
        self.trace.last.borrow_mut().clone_from(&self.path);
    }

    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (text, kind) = ANSWERS[self.trace.answers.get(&self.path).copied().unwrap_or_default()];
        self.found(kind);
        visitor.visit_str(text)
    }

    fn child(&self, step: Step) -> Tracer<'a> {
        let path = self.path.iter().cloned().chain([step]).collect();
        Tracer { trace: self.trace, path }
    }
}

macro_rules! leaves {
    ($kind:expr, $visit:ident $value:tt: $($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.found($kind);
            visitor.$visit $value
        })*
    };
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    leaves!(Kind::Bool, visit_bool(true): deserialize_bool);
    leaves!(Kind::Number, visit_u64(1): deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64);
    leaves!(Kind::Number, visit_f64(1.0): deserialize_f32 deserialize_f64);
    leaves!(Kind::Mapping, visit_unit(): deserialize_unit deserialize_ignored_any);

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.found(Kind::Amount);
        visitor.visit_str("1")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.text(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Inside { tracer: self, steps: vec![Step::Item], current: None })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Inside { tracer: self, steps: vec![Step::Entry], current: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if fields.is_empty() {
            self.found(Kind::Mapping);
        }
        let steps = fields.iter().rev().map(|name| Step::Field(name)).collect();
        visitor.visit_map(Inside { tracer: self, steps, current: None })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.found(Kind::Word);
        visitor.visit_enum(variants[0].into_deserializer())
    }
}

/// Gives access to the contents of a list, a mapping or a struct. `steps` has the remaining steps in reverse order.
struct Inside<'a> {
    tracer: Tracer<'a>,
    steps: Vec<Step>,
    current: Option<Step>,
}

impl<'de> SeqAccess<'de> for Inside<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.steps.pop().map(|step| seed.deserialize(self.tracer.child(step))).transpose()
    }
}

impl<'de> MapAccess<'de> for Inside<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(step) = self.steps.pop() else { return Ok(None) };
        let key: StrDeserializer<'_, Error> = match step {
            Step::Field(name) => name.into_deserializer(),
            Step::Item | Step::Entry => "amd64".into_deserializer(),
        };
        self.current = Some(step);
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.tracer.child(self.current.take().unwrap_or(Step::Entry)))
    }
}
