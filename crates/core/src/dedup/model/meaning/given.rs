//! Random records and settings.

use super::*;

fn any_row() -> impl Strategy<Value = Row> {
    let kind = prop_oneof![
        8 => Just(Kind::Change), 2 => Just(Kind::Delete), 2 => Just(Kind::Read),
        1 => Just(Kind::Truncate), 1 => Just(Kind::Message), 2 => Just(Kind::Tombstone),
    ];
    let (scope, version) = (prop::option::weighted(0.9, 0_u8..4), prop::option::weighted(0.9, 0_u8..30));
    let contents = prop_oneof![5 => 0_u8..2, 1 => 0_u8..12];
    (kind, 0_u8..4, scope, version, contents).prop_map(|(kind, key, scope, version, contents)| {
        // A null value has nothing but an identity.
        let is_null = kind == Kind::Tombstone;
        let (scope, version) = (scope.filter(|_| !is_null), version.filter(|_| !is_null));
        Row { kind, key, scope, version, contents }
    })
}

pub fn any_given() -> impl Strategy<Value = Given> {
    let rows = prop_oneof![6 => prop::collection::vec(any_row(), 1), 1 => prop::collection::vec(any_row(), 2..4)];
    (rows, prop::option::weighted(0.8, 0_i64..120)).prop_map(|(mut rows, timestamp)| {
        // The scope belongs to the record, and several rows are all changes.
        let scope = rows[0].scope;
        if rows.len() > 1 {
            rows.iter_mut().for_each(|row| (row.kind, row.scope) = (Kind::Change, scope));
        }
        Given { rows, timestamp }
    })
}

pub fn any_settings() -> impl Strategy<Value = Settings> {
    let flags =
        (prop::bool::weighted(0.9), any::<bool>(), any::<bool>(), prop::bool::weighted(0.8), any::<[bool; 2]>());
    let conflicts = prop_oneof![
        1 => Just(Conflicts::NotCompared), 2 => Just(Conflicts::Dropped),
        3 => Just(Conflicts::Forwarded), 1 => Just(Conflicts::DeadLettered),
    ];
    (flags, prop::option::weighted(0.3, 1_i64..60), conflicts).prop_map(|(flags, retention, conflicts)| {
        let (versions, on_duplicate, forward_equal, forward_epochs, [drop_versionless, reads_by_version]) = flags;
        Settings {
            versions,
            retention,
            on_duplicate,
            forward_equal,
            forward_epochs,
            drop_versionless,
            reads_by_version,
            conflicts,
        }
    })
}
