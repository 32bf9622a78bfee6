//! Where a turn's requests are remembered: a database of its own, a Redis of its own, or a folder of the proxy's.

use super::{Place, Who};
use crate::failure::Outcome;
use crate::postgres::server::{Database, Server};
use crate::redis::Redis;
use crate::usage::Usage;

/// Redis, once a second: what answers survive there by default once it keeps anything on disk.
pub const EVERYSEC: [&str; 1] = ["--appendonly yes --appendfsync everysec"];
/// Redis, with each command.
const ALWAYS: [&str; 1] = ["--appendonly yes --appendfsync always"];

/// A store, with whoever runs it.
pub enum Keeper<'a> {
    /// A folder of the proxy's.
    Folder,
    /// PostgreSQL.
    Postgres(&'a Server, Database),
    /// Redis.
    Redis(Redis),
}

impl<'a> Keeper<'a> {
    /// An empty one under this name, which nobody else has had.
    pub fn open(place: &'a Place<'_>, who: Who, name: &str) -> Outcome<Keeper<'a>> {
        Ok(match who {
            Who::Service | Who::Passing | Who::Embedded | Who::Repeated => Keeper::Folder,
            Who::Postgres => Keeper::Postgres(&place.postgres, place.postgres.database(name, "")?),
            Who::Redis => Keeper::Redis(Redis::start(&EVERYSEC)?),
            Who::RedisAlways => Keeper::Redis(Redis::start(&ALWAYS)?),
        })
    }

    /// As a proxy's file has it; `folder` is the proxy's.
    pub fn yaml(&self, folder: &str) -> String {
        match self {
            Keeper::Folder => format!("{{embedded: {{dir: '{folder}'}}}}"),
            Keeper::Postgres(_, database) => format!("{{postgres: {{url: '{}'}}}}", database.url),
            Keeper::Redis(redis) => format!("{{redis: {{url: '{}'}}}}", redis.url()),
        }
    }

    /// What its server has used; a folder has none.
    pub fn usage(&self) -> Usage {
        match self {
            Keeper::Folder => Usage::default(),
            Keeper::Postgres(server, _) => server.usage(),
            Keeper::Redis(redis) => redis.usage(),
        }
    }
}
