//! The fingerprint by which single-object Avro names a schema: the CRC-64-AVRO of the schema's parsing canonical form.
//! Avro's specification describes both ("Transforming into Parsing Canonical Form", "Schema Fingerprints").
//!
//! The form keeps what a reader needs: types, full names, the order of fields, symbols and sizes.
//!
//! **Failure**: a text that is not a schema has no fingerprint.

use serde_json::Value;

use super::avro::{full_name, namespace_of, primitive};

/// The fingerprint of no bytes, and the polynomial.
const EMPTY: u64 = 0xC15D_213A_A4D7_A795;

/// CRC-64-AVRO of bytes.
fn crc64(bytes: &[u8]) -> u64 {
    let step = |print: u64| (print >> 1) ^ (EMPTY & (print & 1).wrapping_neg());
    bytes.iter().fold(EMPTY, |print, byte| {
        let low = (print ^ u64::from(*byte)) & 0xFF;
        (print >> 8) ^ (0..8).fold(low, |low, _| step(low))
    })
}

/// What walking through a schema has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// The schema's parsing canonical form.
    pub form: String,
    /// The full names of the types that it defines, the outermost first.
    pub defined: Vec<String>,
    /// The full names of the types that it uses and has not defined by then.
    pub missing: Vec<String>,
}

/// Walks through a schema; `None` if the text is not an Avro schema.
pub fn walked(schema: &str) -> Option<Walked> {
    let mut found = Walked::default();
    // serde_json bounds how deep values are nested, and so this recursion.
    found.schema(&serde_json::from_str(schema).ok()?, "")?;
    Some(found)
}

impl Walked {
    /// The schema's fingerprint.
    pub fn fingerprint(&self) -> u64 {
        crc64(self.form.as_bytes())
    }

    fn schema(&mut self, schema: &Value, namespace: &str) -> Option<()> {
        match schema {
            Value::String(name) if primitive(name).is_some() => self.quoted(name),
            Value::String(name) => {
                let full = full_name(name, namespace);
                self.quoted(&full);
                if !self.defined.contains(&full) && !self.missing.contains(&full) {
                    self.missing.push(full);
                }
            }
            Value::Array(branches) => self.list(branches, |found, branch| found.schema(branch, namespace))?,
            Value::Object(_) => self.object(schema, namespace)?,
            _ => return None,
        }
        Some(())
    }

    fn object(&mut self, schema: &Value, namespace: &str) -> Option<()> {
        let of_type = schema.get("type")?;
        let Value::String(kind) = of_type else { return self.schema(of_type, namespace) };
        match kind.as_str() {
            "array" | "map" => {
                let of = if kind == "array" { "items" } else { "values" };
                self.form.push_str(&format!(r#"{{"type":"{kind}","{of}":"#));
                self.schema(schema.get(of)?, namespace)?;
                self.form.push('}');
                Some(())
            }
            "record" | "error" | "enum" | "fixed" => self.named(schema, kind, namespace),
            name => self.schema(&Value::String(name.to_owned()), namespace),
        }
    }

    fn named(&mut self, schema: &Value, kind: &str, namespace: &str) -> Option<()> {
        let name = schema.get("name")?.as_str()?;
        let own = schema.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let full = full_name(name, own);
        self.form.push_str(r#"{"name":"#);
        self.quoted(&full);
        self.form.push_str(&format!(r#","type":"{kind}","#));
        self.defined.push(full.clone());
        match kind {
            "enum" => {
                self.form.push_str(r#""symbols":"#);
                self.list(schema.get("symbols")?.as_array()?, |found, symbol| {
                    found.quoted(symbol.as_str()?);
                    Some(())
                })?;
            }
            "fixed" => {
                let size = schema.get("size")?;
                let size = size.as_u64().or_else(|| size.as_str()?.parse().ok())?;
                self.form.push_str(&format!(r#""size":{size}"#));
            }
            _ => {
                let within = namespace_of(&full);
                self.form.push_str(r#""fields":"#);
                self.list(schema.get("fields")?.as_array()?, |found, field| {
                    found.form.push_str(r#"{"name":"#);
                    found.quoted(field.get("name")?.as_str()?);
                    found.form.push_str(r#","type":"#);
                    found.schema(field.get("type")?, within)?;
                    found.form.push('}');
                    Some(())
                })?;
            }
        }
        self.form.push('}');
        Some(())
    }

    fn list(&mut self, items: &[Value], mut write: impl FnMut(&mut Self, &Value) -> Option<()>) -> Option<()> {
        self.form.push('[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.form.push(',');
            }
            write(self, item)?;
        }
        self.form.push(']');
        Some(())
    }

    fn quoted(&mut self, text: &str) {
        self.form.push_str(&Value::String(text.to_owned()).to_string());
    }
}

#[cfg(test)]
mod tests {
    //! Goal: fingerprints are those of Avro's own tests (`share/test/data/schema-tests.txt`).

    use apache_avro::rabin::Rabin;

    use super::*;

    fn of(schema: &str) -> Option<u64> {
        walked(schema).map(|walked| walked.fingerprint())
    }

    #[test]
    fn fingerprints_are_those_of_avro() {
        for (schema, print) in [
            (r#""null""#, 7_195_948_357_588_979_594_i64),
            (r#"{"type": "boolean"}"#, -6_970_731_678_124_411_036),
            (r#""int""#, 8_247_732_601_305_521_295),
            (r#"{"type": "string", "logicalType": "uuid"}"#, -8_142_146_995_180_207_161),
        ] {
            assert_eq!(of(schema), Some(print.cast_unsigned()), "{schema}");
        }
    }

    #[test]
    fn fingerprints_are_those_of_apache_avro() {
        for text in [
            r#""bytes""#,
            r#"["null", "string", {"type": "array", "items": {"type": "map", "values": "double"}}]"#,
            r#"{"type":"fixed","name":"F","namespace":"a.b","size":16,"doc":"x"}"#,
            r#"{"type":"record","name":"Node","namespace":"x.y","aliases":["Old"],"doc":"d","fields":[
                {"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A","B"],"default":"A"},"default":"B"},
                {"name":"kind2","type":"Kind","aliases":["k"]},
                {"name":"at","type":["null",{"type":"long"}],"default":null},
                {"name":"left","type":["null","Node"]},{"name":"right","type":["null","x.y.Node"]}]}"#,
        ] {
            let reference = apache_avro::Schema::parse_str(text).unwrap();
            let expected = u64::from_le_bytes(reference.fingerprint::<Rabin>().bytes.try_into().unwrap());
            assert_eq!(of(text).unwrap(), expected, "{}", reference.canonical_form());
        }
        // Unlike the specification, the crate keeps the braces around a type with a logical type, and the order of a
        // field.
        let ordered = r#"{"type":"record","name":"R","fields":[{"name":"f","type":"int","order":"ignore"}]}"#;
        assert_eq!(
            of(ordered).unwrap(),
            of(r#"{"type":"record","name":"R","fields":[{"name":"f","type":"int"}]}"#).unwrap()
        );
        let logical = r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":2,"connect.name":"x"}"#;
        assert_eq!(of(logical).unwrap(), of(r#""bytes""#).unwrap());
    }

    #[test]
    fn canonical_form_keeps_what_a_reader_needs_in_its_order() {
        let schema = r#"{"doc": "d", "type": "record", "namespace": "a.b", "name": "R", "aliases": ["Q"], "fields": [
            {"type": {"type": "enum", "symbols": ["x", "y"], "name": "E"}, "name": "e", "default": "x"},
            {"name": "again", "type": ["null", "E", "c.F", "R"]},
            {"name": "m", "type": {"values": {"items": "long", "type": "array"}, "type": "map"}},
            {"name": "f", "type": {"size": 16, "namespace": "", "name": "G", "type": "fixed"}}]}"#;
        let found = walked(schema).unwrap();
        assert_eq!(
            found.form,
            concat!(
                r#"{"name":"a.b.R","type":"record","fields":["#,
                r#"{"name":"e","type":{"name":"a.b.E","type":"enum","symbols":["x","y"]}},"#,
                r#"{"name":"again","type":["null","a.b.E","c.F","a.b.R"]},"#,
                r#"{"name":"m","type":{"type":"map","values":{"type":"array","items":"long"}}},"#,
                r#"{"name":"f","type":{"name":"G","type":"fixed","size":16}}]}"#,
            )
        );
        assert_eq!(
            (found.defined, found.missing),
            (["a.b.R", "a.b.E", "G"].map(str::to_owned).to_vec(), vec!["c.F".to_owned()])
        );
    }

    #[test]
    fn other_texts_have_no_fingerprint() {
        let deep = format!("{}\"int\"{}", "[".repeat(10_000), "]".repeat(10_000));
        for text in ["", "int", "5", "{}", r#"{"type":"record","name":"R"}"#, r#"{"type":"enum","name":"E"}"#, &deep] {
            assert_eq!(of(text), None);
        }
    }
}
