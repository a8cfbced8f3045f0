//! The JSON Schema of the results, and a check against it.
//!
//! The check knows the keywords that this schema uses and no others; a keyword that it does not know is an error, so
//! that none is passed over in silence.

use serde_json::{Map, Value};

/// The JSON Schema of [`crate::results::Document`].
pub const TEXT: &str = include_str!("../schema/results.schema.json");

/// Keywords that say nothing about what is valid.
const REMARKS: [&str; 5] = ["$schema", "$id", "$defs", "title", "description"];

/// Checks a document against the schema; an error says where it differs and how.
pub fn check(document: &Value) -> Result<(), String> {
    let schema: Value = serde_json::from_str(TEXT).map_err(|error| format!("the schema itself: {error}"))?;
    Checker { root: &schema }.check(&schema, document, "$")
}

struct Checker<'a> {
    root: &'a Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let Value::Object(keywords) = schema else { return Err(format!("{place}: the schema is no object")) };
        for (keyword, argument) in keywords {
            self.check_keyword(keywords, keyword, argument, value, place)?;
        }
        Ok(())
    }

    fn check_keyword(
        &self,
        keywords: &Map<String, Value>,
        keyword: &str,
        argument: &Value,
        value: &Value,
        place: &str,
    ) -> Result<(), String> {
        let fail = |what: String| Err(format!("{place}: {what}"));
        match keyword {
            "$ref" => self.check(self.resolve(argument)?, value, place),
            "allOf" => items(argument).iter().try_for_each(|schema| self.check(schema, value, place)),
            "const" if argument != value => fail(format!("{value} instead of {argument}")),
            "enum" if !items(argument).contains(value) => fail(format!("{value} is none of {argument}")),
            "type" if !is_of_type(argument, value) => fail(format!("{value} is no {argument}")),
            "minimum" if value.as_f64() < argument.as_f64() => {
                fail(format!("{value} is less than {argument}"))
            }
            "required" => match items(argument)
                .iter()
                .find(|key| key.as_str().is_none_or(|key| value.get(key).is_none()))
            {
                Some(missing) => fail(format!("{missing} is missing")),
                None => Ok(()),
            },
            "items" => (0..).zip(items(value)).try_for_each(|(number, item): (usize, _)| {
                self.check(argument, item, &format!("{place}[{number}]"))
            }),
            "properties" => entries(argument).try_for_each(|(key, schema)| match value.get(key) {
                Some(found) => self.check(schema, found, &format!("{place}.{key}")),
                None => Ok(()),
            }),
            "additionalProperties" => {
                let known = keywords.get("properties");
                entries(value)
                    .filter(|(key, _)| known.is_none_or(|known| known.get(key).is_none()))
                    .try_for_each(|(key, found)| self.check(argument, found, &format!("{place}.{key}")))
            }
            "const" | "enum" | "type" | "minimum" => Ok(()),
            remark if REMARKS.contains(&remark) => Ok(()),
            unknown => fail(format!("the schema says {unknown}, which is not understood")),
        }
    }

    fn resolve(&self, reference: &Value) -> Result<&Value, String> {
        let name = reference.as_str().and_then(|text| text.strip_prefix('#'));
        name.and_then(|pointer| self.root.pointer(pointer))
            .ok_or_else(|| format!("no {reference} in the schema"))
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

fn is_of_type(names: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("null") => value.is_null(),
        _ => false,
    };
    if names.is_array() { items(names).iter().any(is) } else { is(names) }
}
