//! Fits a parsed document into our types by the rules of Go's decoder (`sigs.k8s.io/yaml` over
//! `encoding/json`), which kOps reads its own files with: null leaves the zero value, and a bare
//! number or bool is taken where a string is wanted (`featureGates: {X: true}`). Everything else
//! must have the right type.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde_json::{Map, Value, map};

/// A document, or a part of one, to be read as Go would.
#[derive(Clone, Copy)]
pub(crate) struct GoValue<'de>(pub(crate) &'de Value);

/// What a value is, for a message. Never the value itself: it may be secret.
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

impl<'de> GoValue<'de> {
    fn refuse<T>(self, wanted: &str) -> Result<T, Error> {
        Err(Error::custom(format!("it is {}, but should be {wanted}", kind(self.0))))
    }

    fn integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_u64(0),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(unsigned), _) => visitor.visit_u64(unsigned),
                (None, Some(signed)) => visitor.visit_i64(signed),
                (None, None) => self.refuse("a whole number"),
            },
            _ => self.refuse("a whole number"),
        }
    }

    fn float<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_f64(0.0),
            Value::Number(number) => match number.as_f64() {
                Some(float) => visitor.visit_f64(float),
                None => self.refuse("a number"),
            },
            _ => self.refuse("a number"),
        }
    }

    fn string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_str(""),
            Value::String(string) => visitor.visit_borrowed_str(string),
            Value::Bool(bool) => visitor.visit_str(if *bool { "true" } else { "false" }),
            Value::Number(number) => visitor.visit_string(number.to_string()),
            Value::Array(_) | Value::Object(_) => self.refuse("a string"),
        }
    }

    fn list<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_seq(Items(&[])),
            Value::Array(items) => visitor.visit_seq(Items(items)),
            _ => self.refuse("a list"),
        }
    }

    fn mapping<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_map(Entries::none()),
            Value::Object(entries) => visitor.visit_map(Entries::of(entries)),
            _ => self.refuse("a mapping"),
        }
    }
}

macro_rules! forward {
    ($to:ident: $($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.$to(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for GoValue<'de> {
    type Error = Error;

    forward!(integer: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
                      deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64);
    forward!(float: deserialize_f32 deserialize_f64);
    forward!(string: deserialize_str deserialize_string deserialize_char deserialize_identifier
                     deserialize_bytes deserialize_byte_buf);
    forward!(list: deserialize_seq);
    forward!(mapping: deserialize_map);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            Value::Number(number) if number.is_f64() => self.float(visitor),
            Value::Number(_) => self.integer(visitor),
            Value::String(_) => self.string(visitor),
            Value::Array(_) => self.list(visitor),
            Value::Object(_) => self.mapping(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            _ => self.refuse("true or false"),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.list(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.list(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.mapping(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(variant) => visitor.visit_enum(variant.as_str().into_deserializer()),
            _ => self.refuse("a string"),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

struct Items<'de>(&'de [Value]);

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(None) };
        self.0 = rest;
        seed.deserialize(GoValue(first)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'de> {
    rest: Option<map::Iter<'de>>,
    value: &'de Value,
}

impl<'de> Entries<'de> {
    fn none() -> Entries<'de> {
        Entries { rest: None, value: &Value::Null }
    }

    fn of(entries: &'de Map<String, Value>) -> Entries<'de> {
        Entries { rest: Some(entries.iter()), value: &Value::Null }
    }
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.as_mut().and_then(Iterator::next) else { return Ok(None) };
        self.value = value;
        let key: StrDeserializer<'_, Error> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(GoValue(self.value))
    }
}
