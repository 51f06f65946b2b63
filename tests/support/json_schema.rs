//! Validates JSON against a schema, as far as our schema goes: JSON Schema 2020-12 without anything remote.
//!
//! A keyword that is not known here is an error, so no rule of the schema is passed over.

use serde_json::{Map, Value};

pub struct Schema(Value);

impl Schema {
    pub fn new(text: &str) -> Schema {
        Schema(serde_json::from_str(text).expect("the schema is JSON"))
    }

    /// The first violation, with its place.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        self.visit(&self.0, value, "$")
    }

    fn visit(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let rules = schema.as_object().ok_or("a schema is an object")?;
        for (keyword, rule) in rules {
            let holds = match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "title" | "description" => true,
                "$ref" => {
                    self.visit(self.definition(rule)?, value, at)?;
                    true
                }
                "type" => is_a(value, rule.as_str().ok_or("a type is a word")?)?,
                "const" => value == rule,
                "enum" => rule.as_array().ok_or("a list")?.contains(value),
                "minimum" => value.as_f64() >= rule.as_f64(),
                "minLength" => value
                    .as_str()
                    .is_some_and(|s| Some(s.len() as u64) >= rule.as_u64()),
                "required" => has_all(value, rule)?,
                "properties" | "additionalProperties" => {
                    self.members(rules, value, at)?;
                    true
                }
                "items" => {
                    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.visit(rule, item, &format!("{at}[{i}]"))?;
                    }
                    true
                }
                unknown => return Err(format!("the keyword {unknown} is not known here")),
            };
            if !holds {
                return Err(format!("{at}: {value} is not {keyword} {rule}"));
            }
        }
        Ok(())
    }

    fn members(&self, rules: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
        let none = Map::new();
        let known = rules.get("properties").and_then(Value::as_object);
        let known = known.unwrap_or(&none);
        for (name, member) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            match (known.get(name), rules.get("additionalProperties")) {
                (Some(schema), _) => self.visit(schema, member, &at)?,
                (None, Some(Value::Bool(false))) => return Err(format!("{at} is not foreseen")),
                (None, Some(schema)) if schema.is_object() => self.visit(schema, member, &at)?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn definition(&self, name: &Value) -> Result<&Value, String> {
        let path = name.as_str().and_then(|name| name.strip_prefix('#'));
        let found = path.and_then(|path| self.0.pointer(path));
        found.ok_or_else(|| format!("no definition {name}"))
    }
}

fn has_all(value: &Value, names: &Value) -> Result<bool, String> {
    let names = names.as_array().ok_or("a list of names")?;
    let members = value.as_object();
    Ok(members.is_none_or(|members| {
        let has = |name: &Value| name.as_str().is_some_and(|name| members.contains_key(name));
        names.iter().all(has)
    }))
}

fn is_a(value: &Value, name: &str) -> Result<bool, String> {
    Ok(match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        other => return Err(format!("the type {other} is not known here")),
    })
}
