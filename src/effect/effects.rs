//! The effects of a task's records in one transaction, kept in one reusable buffer.

use std::ops::Range;

/// The effects of one task's records in one transaction, in the order of the records.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// The text of all parameters, the identities and versions for an inbox, and the names of text fields.
    bytes: Vec<u8>,
    /// Each parameter's range; `None` for null.
    parameters: Vec<Option<Range<usize>>>,
    calls: Vec<StoredCall>,
    records: Vec<StoredRecord>,
}

#[derive(Clone, Debug)]
struct StoredCall {
    statement: u32,
    /// The range of its parameters.
    parameters: Range<usize>,
    /// The range of the names of its row's text fields.
    texts: Option<Range<usize>>,
}

#[derive(Clone, Debug)]
struct StoredRecord {
    offset: i64,
    calls: Range<usize>,
    identity: Range<usize>,
    version: Option<Range<usize>>,
}

/// The effects of one record.
#[derive(Clone, Copy, Debug)]
pub struct Effect<'a> {
    effects: &'a Effects,
    record: &'a StoredRecord,
}

/// A call of a statement, to be carried out.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    effects: &'a Effects,
    stored: &'a StoredCall,
}

impl Effects {
    /// Removes everything and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.parameters.clear();
        self.calls.clear();
        self.records.clear();
    }

    /// The memory that [`Effects::clear`] keeps for the bytes of parameters.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The number of bytes of the parameters, identities, versions and names of text fields.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Begins the effects of the record at this source offset, with its identity and version for an inbox.
    pub fn begin(&mut self, offset: i64, identity: &[u8], version: Option<&[u8]>) {
        let identity = self.append(identity);
        let version = version.map(|version| self.append(version));
        let first_call = self.calls.len();
        self.records.push(StoredRecord { offset, calls: first_call..first_call, identity, version });
    }

    /// Adds a call of the statement with this number to the record begun last.
    pub fn call(&mut self, statement: u32) {
        let first = self.parameters.len();
        self.calls.push(StoredCall { statement, parameters: first..first, texts: None });
        self.records.last_mut().expect("a record was begun").calls.end = self.calls.len();
    }

    /// Adds a parameter to the call added last: its text, or `None` for null.
    pub fn parameter(&mut self, text: Option<&str>) {
        self.parameter_with(|bytes| {
            text.is_some_and(|text| {
                bytes.extend_from_slice(text.as_bytes());
                true
            })
        });
    }

    /// Adds a parameter whose text `write` appends, which must be UTF-8; null if it returns false.
    pub fn parameter_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let from = self.bytes.len();
        let has_text = write(&mut self.bytes);
        let range = from..self.bytes.len();
        self.parameters.push(has_text.then_some(range));
        self.calls.last_mut().expect("a call was added").parameters.end = self.parameters.len();
    }

    /// Sets the names of the text fields in the row that is the parameter of the call added last: see [`Call::texts`].
    pub fn texts(&mut self, names: &str) {
        let (last, before) = self.calls.split_last_mut().expect("a call was added");
        // Consecutive rows are mostly of the same table: their list of names is kept once.
        let previous = before.last().and_then(|call| call.texts.clone());
        let same = previous.filter(|range| self.bytes[range.clone()] == *names.as_bytes());
        last.texts = Some(same.unwrap_or_else(|| {
            let from = self.bytes.len();
            self.bytes.extend_from_slice(names.as_bytes());
            from..self.bytes.len()
        }));
    }

    /// Removes the record begun last.
    pub fn take_back(&mut self) {
        let Some(record) = self.records.pop() else { return };
        let first = self.calls.get(record.calls.start).map(|call| call.parameters.start);
        self.parameters.truncate(first.unwrap_or(self.parameters.len()));
        self.calls.truncate(record.calls.start);
        self.bytes.truncate(record.identity.start);
    }

    /// The effects of the record at `index`; panics beyond [`Effects::len`].
    pub fn get(&self, index: usize) -> Effect<'_> {
        Effect { effects: self, record: &self.records[index] }
    }

    /// The effects of each record, in order.
    pub fn iter(&self) -> impl Iterator<Item = Effect<'_>> {
        self.records.iter().map(|record| Effect { effects: self, record })
    }

    fn text(&self, range: Range<usize>) -> &str {
        std::str::from_utf8(&self.bytes[range]).expect("parameters are UTF-8")
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        from..self.bytes.len()
    }
}

impl<'a> Effect<'a> {
    /// The record's source offset.
    pub fn offset(&self) -> i64 {
        self.record.offset
    }

    /// The record's identity: its store key.
    pub fn identity(&self) -> &'a [u8] {
        &self.effects.bytes[self.record.identity.clone()]
    }

    /// The record's version, whose bytes sort as versions do; `None` if the record has no version.
    pub fn version(&self) -> Option<&'a [u8]> {
        self.record.version.clone().map(|version| &self.effects.bytes[version])
    }

    /// The statements to carry out, in order.
    pub fn calls(&self) -> impl ExactSizeIterator<Item = Call<'a>> + use<'a> {
        let effects = self.effects;
        effects.calls[self.record.calls.clone()].iter().map(move |stored| Call { effects, stored })
    }
}

impl<'a> Call<'a> {
    /// The statement's number.
    pub fn statement(&self) -> u32 {
        self.stored.statement
    }

    /// The parameters' texts, `None` for null.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = Option<&'a str>> + use<'a> {
        let effects = self.effects;
        effects.parameters[self.stored.parameters.clone()]
            .iter()
            .map(move |parameter| parameter.clone().map(|range| effects.text(range)))
    }

    /// The names, as a JSON array, of the row's text fields: the fields of the row (the call's parameter) that are
    /// known to be texts and not bytes in base64. `None` if the row has no such field.
    pub fn texts(&self) -> Option<&'a str> {
        self.stored.texts.clone().map(|range| self.effects.text(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call's statement and parameters.
    type CallContents<'a> = (u32, Vec<Option<&'a str>>);

    fn contents(effects: &Effects) -> Vec<(i64, Vec<CallContents<'_>>)> {
        let calls = |effect: Effect<'_>| -> Vec<_> {
            effect.calls().map(|call| (call.statement(), texts(effects, &call))).collect()
        };
        fn texts<'a>(effects: &'a Effects, call: &Call<'_>) -> Vec<Option<&'a str>> {
            let range = |text: &str| {
                let from = text.as_ptr() as usize - effects.bytes.as_ptr() as usize;
                std::str::from_utf8(&effects.bytes[from..from + text.len()]).unwrap()
            };
            call.parameters().map(|text| text.map(range)).collect()
        }
        effects.iter().map(|effect| (effect.offset(), calls(effect))).collect()
    }

    fn add_record(effects: &mut Effects, offset: i64, text: &str) {
        effects.begin(offset, b"id", Some(b"v1"));
        effects.call(0);
        effects.parameter(Some(text));
        effects.parameter(None);
        effects.call(3);
    }

    #[test]
    fn each_record_has_its_calls_and_each_call_its_parameters() {
        let mut effects = Effects::default();
        add_record(&mut effects, 7, "a");
        add_record(&mut effects, 9, "");
        let expected = |text| vec![(0, vec![Some(text), None]), (3, vec![])];
        assert_eq!(contents(&effects), [(7, expected("a")), (9, expected(""))]);
        let effect = effects.get(1);
        assert_eq!((effect.identity(), effect.version()), (&b"id"[..], Some(&b"v1"[..])));
    }

    /// Equal lists are kept once, even after a record is removed.
    #[test]
    fn calls_have_the_names_of_their_rows_text_fields() {
        let mut effects = Effects::default();
        let row = |effects: &mut Effects, names: Option<&str>| {
            effects.begin(7, b"id", None);
            effects.call(0);
            effects.parameter(Some("{}"));
            names.into_iter().for_each(|names| effects.texts(names));
        };
        let long = r#"["a","b"]"#;
        row(&mut effects, Some(long));
        let length = effects.byte_len();
        row(&mut effects, Some(long));
        assert!(effects.byte_len() - length < long.len());
        row(&mut effects, Some(r#"["c"]"#));
        effects.take_back();
        for names in [Some(r#"["c"]"#), None, Some(long)] {
            row(&mut effects, names);
        }
        let texts: Vec<_> = effects.iter().flat_map(|effect| effect.calls()).map(|call| call.texts()).collect();
        assert_eq!(texts, [Some(long), Some(long), Some(r#"["c"]"#), None, Some(long)]);
    }

    #[test]
    fn removed_record_leaves_nothing() {
        let (mut effects, mut expected) = (Effects::default(), Effects::default());
        add_record(&mut effects, 7, "a");
        add_record(&mut effects, 8, "removed");
        effects.take_back();
        add_record(&mut effects, 9, "b");
        add_record(&mut expected, 7, "a");
        add_record(&mut expected, 9, "b");
        assert_eq!(contents(&effects), contents(&expected));
        assert_eq!(effects.byte_len(), expected.byte_len());
        effects.begin(10, b"x", None);
        effects.take_back();
        assert_eq!(effects.byte_len(), expected.byte_len(), "a record without calls");
        effects.clear();
        assert!(effects.is_empty() && effects.byte_len() == 0);
    }
}
