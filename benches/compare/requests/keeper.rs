//! Where requests are remembered in a turn: in a database of its own, a Redis of its own, or a folder of the caller.

use super::{Place, Who};
use crate::failure::Outcome;
use crate::postgres::server::{Database, Server};
use crate::redis::Redis;
use crate::usage::Usage;

/// Redis that syncs once a second, as it does by default where it keeps anything on disk.
pub const EVERYSEC: [&str; 1] = ["--appendonly yes --appendfsync everysec"];
/// Redis that syncs before it answers.
const ALWAYS: [&str; 1] = ["--appendonly yes --appendfsync always"];

/// A store, with its server.
pub enum Keeper<'a> {
    /// A folder of the caller.
    Folder,
    /// PostgreSQL.
    Postgres(&'a Server, Box<Database>),
    /// Redis.
    Redis(Redis),
}

impl<'a> Keeper<'a> {
    /// An empty one under this name, which nobody else has had.
    pub fn open(place: &'a Place<'_>, who: Who, name: &str) -> Outcome<Keeper<'a>> {
        Ok(match who {
            Who::Service | Who::Passing | Who::Embedded | Who::Repeated => Keeper::Folder,
            Who::Postgres => Keeper::postgres(place, name, "")?,
            Who::Redis => Keeper::redis(&EVERYSEC)?,
            Who::RedisAlways => Keeper::redis(&ALWAYS)?,
        })
    }

    /// A database under this name with what this SQL creates.
    pub fn postgres(place: &'a Place<'_>, name: &str, create: &str) -> Outcome<Keeper<'a>> {
        Ok(Keeper::Postgres(&place.postgres, Box::new(place.postgres.database(name, create)?)))
    }

    /// A Redis with these settings.
    pub fn redis(settings: &[&str]) -> Outcome<Keeper<'a>> {
        Ok(Keeper::Redis(Redis::start(settings)?))
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
