//! MariaDB with a row-based binlog, and Debezium's connector for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::connect::Converter;
use crate::database::{CREATE, Database, Table, tuples};
use crate::kafka::Port;
use crate::server::{Home, Server, program};
use crate::session::Session;

const PACKAGE: &str = "on Debian and Ubuntu the package mariadb-server";
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/libexec"];
const DATABASE: &str = "shop";

/// A running MariaDB. Stopped and deleted when dropped.
pub struct MariaDb {
    client: PathBuf,
    port: Port,
    // In this order: the server ends before its folder is removed.
    _server: Server,
    home: Home,
}

impl MariaDb {
    /// Starts a server with an empty data folder, and creates the tables.
    pub fn start() -> MariaDb {
        let home = Home::new("ratchet-cdc-", &["mysql", "nobody"]);
        let data = home.folder().join("data");
        let mut install = home.command(&program("mariadb-install-db", &FOLDERS, PACKAGE));
        install.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        home.prepare(install);
        let port = Port::free();
        let mut server = home.command(&program("mariadbd", &FOLDERS, PACKAGE));
        server.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        server.arg(format!("--socket={}", socket(&home).display())).arg(format!("--port={port}"));
        server.arg(format!("--pid-file={}", home.folder().join("pid").display()));
        server.args(["--bind-address=127.0.0.1", "--server-id=77", "--log-bin=binlog", "--binlog-format=ROW"]);
        server.args([
            "--binlog-row-image=FULL",
            "--character-set-server=utf8mb4",
            "--innodb-flush-log-at-trx-commit=0",
        ]);
        let program = program("mariadb", &FOLDERS, "on Debian and Ubuntu the package mariadb-client");
        let mut probe = client(&program, &home);
        probe.args(["-e", "select 1"]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server::start("mariadb", server, || probe.status().is_ok_and(|status| status.success()));
        let mariadb = MariaDb { client: program, port, _server: server, home };
        let create = client(&mariadb.client, &mariadb.home);
        Session::open(create, "mariadb-create").run(&format!("create database {DATABASE}; use {DATABASE}; {CREATE}"));
        mariadb
    }
}

fn socket(home: &Home) -> PathBuf {
    home.folder().join("socket")
}

fn client(program: &Path, home: &Home) -> Command {
    let mut command = Command::new(program);
    command.args(["--no-defaults", "--user=root", "--default-character-set=utf8mb4"]);
    command.args(["--batch", "--raw", "--skip-column-names", "--unbuffered"]);
    command.arg(format!("--socket={}", socket(home).display())).stdin(Stdio::null());
    command
}

impl Database for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn session(&self, name: &str) -> Session {
        let mut command = client(&self.client, &self.home);
        command.arg(DATABASE);
        Session::open(command, name)
    }

    fn bulk_load(&self, table: &str, rows: &[String]) -> String {
        format!("insert into {table} values {};", tuples(rows))
    }

    fn rows_query(&self, table: &Table) -> String {
        let pairs: Vec<String> = table.columns.iter().map(|column| format!("'{column}', {column}")).collect();
        format!("select json_object({}) from {};", pairs.join(", "), table.name)
    }

    fn pom(&self) -> &'static str {
        "tests/cdc/mariadb.pom.xml"
    }

    fn converter(&self) -> Converter {
        Converter::Json { schemas: true }
    }

    fn topic_prefix(&self) -> &'static str {
        "store"
    }

    fn topic(&self, table: &Table) -> String {
        format!("store.shop.{}", table.name)
    }

    fn further_topics(&self) -> Vec<&'static str> {
        // Schema changes; without the topic the connector waits for ever. It creates the schema history's topic itself.
        vec![self.topic_prefix()]
    }

    fn connector(&self, brokers: &str) -> Vec<(&'static str, String)> {
        [
            ("connector.class", "io.debezium.connector.mariadb.MariaDbConnector"),
            ("database.hostname", "127.0.0.1"),
            ("database.user", "root"),
            ("database.password", ""),
            ("database.server.id", "5401"),
            ("database.include.list", DATABASE),
            ("table.include.list", "shop.orders,shop.order_lines"),
            ("schema.history.internal.kafka.bootstrap.servers", brokers),
            ("schema.history.internal.kafka.topic", "store.schema-history"),
        ]
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()))
        .chain([("database.port", self.port.to_string())])
        .collect()
    }

    fn own_statements(&self) -> &'static str {
        "flush binary logs;"
    }

    fn position(&self, source: &Value) -> Vec<u64> {
        let file = source["file"].as_str().and_then(|file| file.rsplit('.').next()?.parse().ok());
        let number = |name: &str| source[name].as_u64().unwrap_or_default();
        vec![file.unwrap_or_default(), number("pos"), number("row")]
    }

    fn waiting_query(&self) -> &'static str {
        // Not `innodb_trx`: that is a copy, which is not refreshed while it is read more often than every 100 ms.
        "select variable_value from information_schema.global_status
         where variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS';"
    }

    fn logs_commits_in_order(&self) -> bool {
        true
    }

    fn without_snapshot(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}
