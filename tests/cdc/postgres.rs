//! PostgreSQL with logical decoding, and Debezium's connector for it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::connect::Converter;
use crate::database::{CREATE, Database, Table};
use crate::kafka::Port;
use crate::server::{Home, Server, program};
use crate::session::Session;

const PACKAGE: &str = "on Debian and Ubuntu the package postgresql";
const FOLDERS: [&str; 1] = ["/usr/lib/postgresql/*/bin"];
const DATABASE: &str = "shop";

/// A running PostgreSQL. Stopped and deleted when dropped.
pub struct Postgres {
    name: &'static str,
    converter: Converter,
    psql: PathBuf,
    port: Port,
    // In this order: the server ends before its folder is removed.
    _server: Server,
    home: Home,
}

impl Postgres {
    pub fn start() -> Postgres {
        Postgres::named("postgres")
    }

    /// Starts a server with the scenario's tables. Its files and sessions get its name.
    pub fn named(name: &'static str) -> Postgres {
        // The log has whole old rows of orders, but only keys of order_lines: both are common.
        Postgres::with(name, &format!("{CREATE}\nalter table orders replica identity full;"))
    }

    /// Its changes are written as Avro.
    pub fn in_avro(self) -> Postgres {
        Postgres { converter: Converter::Avro, ..self }
    }

    /// Starts a server with an empty data folder, and creates these tables.
    pub fn with(name: &'static str, tables: &str) -> Postgres {
        let home = Home::new("ratchet-cdc-", &["postgres", "nobody"]);
        let psql = program("psql", &FOLDERS, PACKAGE);
        let data = home.folder().join("data");
        let mut initdb = home.command(&program("initdb", &FOLDERS, PACKAGE));
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        home.prepare(initdb);
        let port = Port::free();
        let mut server = home.command(&program("postgres", &FOLDERS, PACKAGE));
        server.arg("-D").arg(&data).arg("-k").arg(home.folder()).arg("-p").arg(port.to_string());
        for setting in ["wal_level=logical", "listen_addresses=127.0.0.1", "fsync=off", "wal_sender_timeout=0"] {
            server.args(["-c", setting]);
        }
        let mut probe = client(&psql, &home, &port, "postgres");
        probe.args(["-c", "select 1"]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server::start(name, server, || probe.status().is_ok_and(|status| status.success()));
        let converter = Converter::Json { schemas: false };
        let postgres = Postgres { name, converter, psql, port, _server: server, home };
        let create = client(&postgres.psql, &postgres.home, &postgres.port, "postgres");
        Session::open(create, &format!("{name}-create-database")).run(&format!("create database {DATABASE};"));
        postgres.session(&format!("{name}-create-tables")).run(tables);
        postgres
    }
}

fn client(psql: &PathBuf, home: &Home, port: &Port, database: &str) -> Command {
    let mut command = Command::new(psql);
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"]);
    command.arg(home.folder()).arg("-p").arg(port.to_string()).stdin(Stdio::null());
    command.env("PGCLIENTENCODING", "UTF8");
    command
}

impl Database for Postgres {
    fn name(&self) -> &'static str {
        self.name
    }

    fn session(&self, name: &str) -> Session {
        Session::open(client(&self.psql, &self.home, &self.port, DATABASE), name)
    }

    fn bulk_load(&self, table: &str, rows: &[String]) -> String {
        let rows: Vec<String> = rows.iter().map(|row| row.replace('\'', "")).collect();
        format!("copy {table} from stdin with (format csv, null 'null');\n{}\n\\.\n", rows.join("\n"))
    }

    fn rows_query(&self, table: &Table) -> String {
        format!("select row_to_json(t) from {} t;", table.name)
    }

    fn pom(&self) -> &'static str {
        match self.converter {
            Converter::Json { .. } => "tests/cdc/postgres.pom.xml",
            Converter::Avro => "tests/cdc/postgres-avro.pom.xml",
        }
    }

    fn converter(&self) -> Converter {
        self.converter
    }

    fn topic_prefix(&self) -> &'static str {
        "shop"
    }

    fn topic(&self, table: &Table) -> String {
        format!("shop.public.{}", table.name)
    }

    fn further_topics(&self) -> Vec<&'static str> {
        // Logical messages.
        vec!["shop.message"]
    }

    fn connector(&self, _brokers: &str) -> Vec<(&'static str, String)> {
        [
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("database.hostname", "127.0.0.1"),
            ("database.user", "postgres"),
            ("database.password", "unused"),
            ("database.dbname", DATABASE),
            ("plugin.name", "pgoutput"),
            ("publication.autocreate.mode", "filtered"),
            ("table.include.list", "public.orders,public.order_lines"),
        ]
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()))
        .chain([("database.port", self.port.to_string())])
        .collect()
    }

    fn own_statements(&self) -> &'static str {
        "select pg_logical_emit_message(true, 'note', 'in a transaction');
         select pg_logical_emit_message(false, 'note', 'outside of any');"
    }

    fn position(&self, source: &Value) -> Vec<u64> {
        vec![source["lsn"].as_u64().unwrap_or_default()]
    }

    fn waiting_query(&self) -> &'static str {
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock';"
    }

    fn logs_commits_in_order(&self) -> bool {
        false
    }

    fn without_snapshot(&self) -> Option<(&'static str, &'static str)> {
        Some(("snapshot.mode", "no_data"))
    }
}
