//! Topologies that call a provider: what their records are, what they have agreed on with it, and what becomes of calls
//! that do not end well.

use crate::provider;
pub use crate::provider::By;
use crate::provider::Kind as Agreed;

/// A topology that calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calls {
    pub shape: Shape,
    pub agreed: provider::Kind,
    pub ends: Ends,
    pub by: By,
}

/// What its records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Things with versions, remembered for ever.
    Versions,
    /// Things with versions that restart in each epoch.
    Epochs,
    /// Changes to a table's rows: deletes and their tombstones, snapshot reads, truncates.
    Changes,
    /// Messages, remembered for a second.
    Messages,
}

/// What becomes of calls that do not end well, and of duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ends {
    /// They are given up after some attempts; whatever fails goes to the dead letters.
    Usual,
    /// They are given up after two attempts.
    Soon,
    /// They are not given up, and duplicates are answered with what the first one was.
    Answered,
    /// They are not given up, and what the provider will not do is dropped.
    Dropped,
    /// They are not given up, and the task stops before what is rejected or in doubt.
    Stops,
}

impl Ends {
    /// Whether a call may be given up.
    pub fn gives_up(self) -> bool {
        matches!(self, Self::Usual | Self::Soon)
    }

    fn attempts(self) -> u32 {
        match self {
            Self::Usual => 6,
            Self::Soon => 2,
            // More than there is time for.
            Self::Answered | Self::Dropped | Self::Stops => 1_000,
        }
    }
}

const fn of(shape: Shape, agreed: Agreed, ends: Ends) -> Calls {
    Calls { shape, agreed, ends, by: By::Http }
}

const fn handled(shape: Shape, agreed: Agreed, ends: Ends) -> Calls {
    Calls { shape, agreed, ends, by: By::Handler }
}

impl Calls {
    /// Things with versions, on each kind of agreement.
    pub const USUAL: [Self; 4] = [
        of(Shape::Versions, Agreed::Granted, Ends::Usual),
        of(Shape::Versions, Agreed::Reserved, Ends::Usual),
        of(Shape::Versions, Agreed::Keyless, Ends::Usual),
        of(Shape::Versions, Agreed::Again, Ends::Usual),
    ];
    /// All others. What is made again whatever has happened is given up at some time: it may be declined for ever.
    pub const ODD: [Self; 20] = [
        of(Shape::Versions, Agreed::Granted, Ends::Soon),
        of(Shape::Versions, Agreed::Reserved, Ends::Soon),
        of(Shape::Versions, Agreed::Keyless, Ends::Soon),
        of(Shape::Versions, Agreed::Again, Ends::Soon),
        of(Shape::Versions, Agreed::Renewed, Ends::Soon),
        of(Shape::Versions, Agreed::Granted, Ends::Answered),
        of(Shape::Versions, Agreed::Keyless, Ends::Answered),
        of(Shape::Versions, Agreed::Renewed, Ends::Usual),
        of(Shape::Versions, Agreed::Reserved, Ends::Dropped),
        of(Shape::Versions, Agreed::Granted, Ends::Stops),
        of(Shape::Versions, Agreed::Keyless, Ends::Stops),
        of(Shape::Epochs, Agreed::Granted, Ends::Answered),
        of(Shape::Epochs, Agreed::Reserved, Ends::Dropped),
        of(Shape::Epochs, Agreed::Keyless, Ends::Answered),
        of(Shape::Changes, Agreed::Granted, Ends::Answered),
        of(Shape::Changes, Agreed::Reserved, Ends::Answered),
        of(Shape::Changes, Agreed::Keyless, Ends::Dropped),
        of(Shape::Messages, Agreed::Granted, Ends::Answered),
        of(Shape::Messages, Agreed::Keyless, Ends::Answered),
        of(Shape::Messages, Agreed::Reserved, Ends::Dropped),
    ];

    /// With a key, and soon given up.
    pub const GRANTED_SOON: Self = of(Shape::Versions, Agreed::Granted, Ends::Soon);
    /// Reserved first, and soon given up.
    pub const RESERVED_SOON: Self = of(Shape::Versions, Agreed::Reserved, Ends::Soon);

    /// Messages that are forgotten.
    pub const MESSAGES: [Self; 2] =
        [of(Shape::Messages, Agreed::Granted, Ends::Answered), of(Shape::Messages, Agreed::Keyless, Ends::Answered)];

    /// By handlers, soon given up.
    pub const HANDLED_SOON: [Self; 5] = [
        handled(Shape::Versions, Agreed::Granted, Ends::Soon),
        handled(Shape::Versions, Agreed::Reserved, Ends::Soon),
        handled(Shape::Versions, Agreed::Keyless, Ends::Soon),
        handled(Shape::Versions, Agreed::Again, Ends::Soon),
        handled(Shape::Versions, Agreed::Renewed, Ends::Soon),
    ];

    /// By handlers.
    pub const HANDLED: [Self; 21] = [
        handled(Shape::Versions, Agreed::Granted, Ends::Usual),
        handled(Shape::Versions, Agreed::Reserved, Ends::Usual),
        handled(Shape::Versions, Agreed::Keyless, Ends::Usual),
        handled(Shape::Versions, Agreed::Again, Ends::Usual),
        handled(Shape::Versions, Agreed::Renewed, Ends::Usual),
        handled(Shape::Versions, Agreed::Granted, Ends::Soon),
        handled(Shape::Versions, Agreed::Reserved, Ends::Soon),
        handled(Shape::Versions, Agreed::Keyless, Ends::Soon),
        handled(Shape::Versions, Agreed::Again, Ends::Soon),
        handled(Shape::Versions, Agreed::Renewed, Ends::Soon),
        handled(Shape::Versions, Agreed::Granted, Ends::Answered),
        handled(Shape::Versions, Agreed::Reserved, Ends::Answered),
        handled(Shape::Versions, Agreed::Keyless, Ends::Answered),
        handled(Shape::Versions, Agreed::Reserved, Ends::Dropped),
        handled(Shape::Versions, Agreed::Keyless, Ends::Dropped),
        handled(Shape::Versions, Agreed::Granted, Ends::Stops),
        handled(Shape::Versions, Agreed::Keyless, Ends::Stops),
        handled(Shape::Epochs, Agreed::Granted, Ends::Answered),
        handled(Shape::Epochs, Agreed::Reserved, Ends::Dropped),
        handled(Shape::Epochs, Agreed::Keyless, Ends::Answered),
        handled(Shape::Epochs, Agreed::Keyless, Ends::Dropped),
    ];

    /// The fields of its records that its requests are made of.
    fn body(self) -> &'static str {
        match self.shape {
            Shape::Versions => "id: value.id, version: value.version, amount: value.amount",
            Shape::Epochs => "id: value.id, epoch: value.epoch, version: value.version, amount: value.amount",
            Shape::Changes => "id: key.id, version: value.version, amount: value.amount",
            // Each record of a thing asks for the same.
            Shape::Messages => "id: value.id, amount: value.amount",
        }
    }

    fn rules(self) -> &'static str {
        match self.shape {
            Shape::Versions => "identity: [value.id]\nversion: {of: value.version, as: integer}\n",
            Shape::Epochs => "identity: [value.id]\nversion: {of: value.version, as: integer}\nepoch: [value.epoch]\n",
            Shape::Changes => {
                "identity: [key.id]\nversion: {of: value.version, as: integer}\n\
                 kinds: {of: value.op, delete: [d], read: [r], truncate: [t], table: [value.table]}\n\
                 on_null_value: follow_delete\n"
            }
            Shape::Messages => "identity: [value.id]\nretention: 1s\n",
        }
    }

    /// The topology.
    pub fn topology(self) -> String {
        let Self { shape, agreed, ends, by } = self;
        let format =
            if shape == Shape::Changes { "key_format: json, value_format: json" } else { "value_format: json" };
        let duplicates = if ends == Ends::Answered { "on_duplicate: result\n" } else { "" };
        // The window of a key is the simulated provider's.
        let key = match by {
            By::Http => "    idempotency_key: {header: Idempotency-Key, honoured_for: 4s, margin: 1500ms}\n",
            By::Handler => "    honoured_for: 4s\n    margin: 1500ms\n",
        };
        let key = if agreed.has_key() { key } else { "" };
        let reserve = if agreed == Agreed::Reserved { "    reserve: always\n" } else { "" };
        let in_doubt = match (agreed, ends) {
            (_, Ends::Stops) => "    on_in_doubt: fail\n",
            (Agreed::Again | Agreed::Renewed, _) => "    on_in_doubt: retry\n",
            (Agreed::Keyless, _) => "    on_in_doubt: dead_letter\n",
            (Agreed::Granted | Agreed::Reserved, _) => "",
        };
        let failed = match ends {
            Ends::Dropped => "    on_rejected: drop\n    on_conflict: drop\n",
            Ends::Stops => "    on_rejected: fail\n",
            Ends::Usual | Ends::Soon | Ends::Answered => "",
        };
        let (rules, body, attempts) = (self.rules(), self.body(), ends.attempts());
        let sink = match by {
            By::Http => format!("  http:\n    url: http://simulated/charges\n    body: {{json: {{{body}}}}}\n"),
            By::Handler => "  handler:\n".to_owned(),
        };
        format!(
            "name: shop\n\
             input: {{topics: [orders], {format}}}\n\
             {rules}{duplicates}\
             sink:\n\
             {sink}{key}{reserve}\
             \x20   timeout: 500ms\n\
             \x20   in_flight: 8\n\
             \x20   retry: {{first: 50ms, max: 1s, attempts: {attempts}}}\n\
             {in_doubt}{failed}\
             \x20   result: {{topic: shop.results}}\n"
        )
    }
}
