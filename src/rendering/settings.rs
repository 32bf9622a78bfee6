//! What a topology's sink tells its driver.

use std::sync::Arc;

use crate::dedup::{Scalar, Source};
use crate::effect::gate::Gate;
use crate::effect::provider::Provider;
use crate::effect::{self, Sink};
use crate::postgres::steps::Database;
use crate::postgres::{self, Settings};
use crate::provider::{handler, http};
use crate::redis;
use crate::topology::Topology;
use crate::topology::sink::terms::Rate;
use crate::topology::sink::{self, Command, Parameter, Statement};

/// The driver's settings for a topology's sink, which `creates` its own tables or does not; `None` if the topology does
/// not end in a database.
pub fn settings(topology: &Topology, creates: bool) -> Option<Settings> {
    let sink::Sink::Postgres(postgres) = topology.sink()? else { return None };
    Some(Settings {
        url: postgres.url.reveal().to_owned(),
        schema: postgres.schema.clone(),
        create: creates,
        topology: topology.name.clone(),
        statements: postgres.statements.iter().map(statement).collect(),
        inbox: postgres
            .inbox
            .as_ref()
            .map(|inbox| postgres::Inbox { name: inbox.name.clone(), retention_ms: inbox.retention_ms }),
        has_text_decimals: postgres.has_text_decimals,
    })
}

/// For each statement of a topology's sink, the texts of those parameters that are constants; `None` for the others.
pub fn constants(topology: &Topology) -> Vec<Vec<Option<String>>> {
    let statements = topology.sink().map_or(&[][..], sink::Sink::statements);
    statements.iter().map(|statement| statement.with.iter().map(constant).collect()).collect()
}

fn constant(parameter: &Parameter) -> Option<String> {
    let Parameter::At(places) = parameter else { return None };
    places.iter().find_map(|path| match &path.source {
        Source::Const(Scalar::Text(text)) => Some(text.clone()),
        Source::Const(scalar) => Some(scalar.to_string()),
        _ => None,
    })
}

/// The topology's sink that commits; `None` if it does not end in one.
///
/// # Errors
/// An address or a statement that cannot be one.
pub fn sink(topology: &Topology, creates: bool) -> Result<Option<Arc<dyn Sink>>, effect::Error> {
    let Some(settings) = settings(topology, creates) else { return Ok(None) };
    Ok(Some(Arc::new(postgres::Postgres::new(settings)?)))
}

/// The topology's gate; `None` if it has none.
///
/// # Errors
/// An address that cannot be one.
pub fn gate(topology: &Topology) -> Result<Option<Arc<dyn Gate>>, effect::Error> {
    let Some(gate) = &topology.gate else { return Ok(None) };
    let address = redis::Address::read(gate.url.reveal()).map_err(|problem| effect::Error {
        kind: effect::ErrorKind::Permanent,
        message: format!("`gate.redis.url` is not the address of a server of Redis: {problem}"),
    })?;
    let settings = redis::gate::Settings { address, name: gate.name.clone(), retention_ms: gate.retention_ms };
    Ok(Some(Arc::new(redis::gate::RedisGate::new(settings))))
}

/// The provider that the topology calls; `None` if it calls none.
///
/// # Errors
/// Settings that cannot be.
pub fn provider(topology: &Topology) -> Result<Option<Arc<dyn Provider>>, effect::Error> {
    let Some(calls) = topology.http() else { return Ok(None) };
    let terms = &calls.terms;
    let settings = http::Settings {
        method: calls.method.as_str().to_owned(),
        key_header: calls.key.clone(),
        key_window: terms.policy.key,
        timeout: terms.timeout,
        in_flight: terms.in_flight,
        rate: terms.rate.map(Rate::per_second),
        body_bytes_max: terms.result.as_ref().map(|result| result.max),
        authorities: None,
    };
    Ok(Some(Arc::new(http::Http::new(settings)?)))
}

/// The handler of a topology that ends in one: what runs this function; `None` if it does not.
pub fn handler(
    topology: &Topology,
    function: handler::Function,
    database: Option<Database>,
) -> Option<Arc<dyn Provider>> {
    let terms = &topology.handler()?.terms;
    let settings = handler::Settings {
        key_window: terms.policy.key,
        timeout: terms.timeout,
        in_flight: terms.in_flight,
        rate: terms.rate.map(Rate::per_second),
        reply_bytes_max: terms.result.as_ref().map(|result| result.max),
        database,
        clock: http::system_clock(),
    };
    Some(Arc::new(handler::Handler::new(function, settings)))
}

fn statement(statement: &Statement) -> postgres::Statement {
    match &statement.command {
        Command::Sql { text, returns, expect_rows } => postgres::Statement::Sql {
            text: text.reveal().to_owned(),
            parameters: statement.with.len(),
            returns: *returns,
            expect_rows: *expect_rows,
        },
        Command::Upsert { table, key, columns } => {
            postgres::Statement::Upsert { table: table.quoted(), key: key.clone(), columns: columns.clone() }
        }
        Command::DeleteRow { table, key } => postgres::Statement::DeleteRow { table: table.quoted(), key: key.clone() },
        Command::Truncate { table } => postgres::Statement::Truncate { table: table.quoted() },
    }
}
