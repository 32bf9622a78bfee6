//! Goal: where a person has to act, that is said once, clearly and without a secret; records wait meanwhile, and go on by
//! themselves once it is done.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use crate::database;
use crate::gates::gated::{assert_each_once, counted, gated, with_gate};
use crate::job::Job;
use crate::kafka::Port;
use crate::load::things;
use crate::operator::{Operator, Options};
use crate::redis_server::Server;
use crate::until::{DEADLINE, within};

const SECRET: &str = "hunter2-and-more";

/// What `ratchet check --online` says, and whether it is content.
fn checked(job: &Job) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
    command.args(["check", "--online", "--config"]).arg(job.write_config("check", &job.path("state-check")));
    let done = command.arg(job.write_topology()).output().expect("the built binary runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (done.status.success(), said.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn wrong_password_is_said_without_it_and_mended_while_running() {
    let server = Server::start(&["--requirepass other"]);
    let job = Job::new("password", 1);
    let url = job.path("redis-url");
    fs::write(&url, server.url(&format!(":{SECRET}@"))).expect("the job's folder is writable");
    let job = with_gate(job, &format!("${{file:{}}}", url.display()), "");
    let (is_fine, said) = checked(&job);
    assert!(
        !is_fine && said.contains("at the gate: cannot be asked") && said.contains("it rejects the user or password"),
        "{said}"
    );
    assert!(!said.contains(SECRET), "{said}");
    job.send(things(0, 0..100, 1));
    let mut operator = Operator::start(&job, "a");
    operator.await_error(&["the gate cannot be asked: records wait for it", "it rejects the user or password"]);
    within(DEADLINE, "the instance to say what it waits for", || {
        operator.get("/readyz?verbose").1.contains("the gate does not answer").then_some(())
    });
    // The right one from now on.
    let mut admin = ::redis::Client::open(server.url(":other@")).and_then(|it| it.get_connection()).expect("it runs");
    ::redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(SECRET).exec(&mut admin).expect("an administrator may");
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 100);
    let (is_fine, said) = checked(&job);
    assert!(is_fine && said.contains("at the gate: fine"), "{said}");
    let printed = operator.printed();
    assert!(!printed.contains(SECRET) && !printed.contains(":other@"), "{printed}");
    operator.stop();
}

#[test]
fn missing_right_is_named() {
    let server = Server::start(&[]);
    server.ask::<()>("ACL SETUSER gate on >word ~rgate:* +@connection");
    let job = Job::new("right", 1);
    let url = job.path("redis-url");
    fs::write(&url, server.url("gate:word@")).expect("the job's folder is writable");
    let job = with_gate(job, &format!("${{file:{}}}", url.display()), "");
    job.send(things(0, 0..100, 1));
    let mut operator = Operator::start(&job, "a");
    operator.await_error(&["NOPERM", "ACL SETUSER", "set"]);
    // The rights that docs/redis.md names.
    server.ask::<()>("ACL SETUSER gate +set +get +del +eval");
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 100);
    operator.stop();
}

/// Answers everything as a server of this version would answer HELLO.
fn server_of_version(version: &str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let hello = format!(
        "*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n${}\r\n{version}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n",
        version.len()
    );
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (mut stream, hello) = (stream, hello.clone());
            thread::spawn(move || {
                let mut read = [0; 4096];
                while let Ok(count) = stream.read(&mut read) {
                    let text = String::from_utf8_lossy(&read[..count]).into_owned();
                    // Before 7.2 there is no CLIENT SETINFO.
                    let answers = "-ERR unknown subcommand 'SETINFO'\r\n".repeat(text.matches("SETINFO").count());
                    let answers = if text.contains("HELLO") { answers + &hello } else { answers };
                    if count == 0 || stream.write_all(answers.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn server_that_is_too_old_is_refused() {
    let port = server_of_version("6.2.14");
    let job = with_gate(Job::new("old", 1), &format!("redis://127.0.0.1:{port}"), "");
    let (is_fine, said) = checked(&job);
    assert!(!is_fine && said.contains("it is version 6.2.14; 7.0 or later is required"), "{said}");
    job.send(things(0, 0..10, 1));
    let mut operator = Operator::start(&job, "a");
    operator.await_error(&["version 6.2.14", "7.0 or later"]);
    assert_eq!(job.committed(), [0]);
    operator.stop();
    // One that is only just new enough.
    let (is_fine, said) = checked(&with_gate(
        Job::new("new", 1),
        &format!("redis://127.0.0.1:{}", server_of_version("7.0.0")),
        ", on_unavailable: pass",
    ));
    assert!(!said.contains("or later is required") && is_fine, "{said}");
}

#[test]
fn server_is_spoken_to_by_tls_if_its_certificate_is_trusted() {
    // A certificate for `localhost`, from an authority of the tests' own.
    let authority = database::shared().authority();
    let file = |name: &str| authority.with_file_name(name).display().to_string();
    let port = Port::free();
    let server = Server::start(&[
        &format!("--tls-port {port} --tls-auth-clients no"),
        &format!("--tls-cert-file {} --tls-key-file {}", file("server.pem"), file("server.key")),
        &format!("--tls-ca-cert-file {}", authority.display()),
    ]);
    let job = with_gate(Job::new("tls", 1), &format!("rediss://localhost:{port}"), "");
    job.send(things(0, 0..100, 1));
    let mut distrustful = Operator::start(&job, "a");
    distrustful.await_error(&["the gate cannot be asked", "certificate"]);
    distrustful.stop();
    assert_eq!(server.marks(&job.name), 0);
    let env = vec![("SSL_CERT_FILE", authority.display().to_string())];
    let mut operator = Operator::start_with(&job, "b", &Options { env, ..Options::default() });
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 100);
    assert_eq!(server.marks(&job.name), 100);
    operator.stop();
}

#[test]
fn gate_that_cannot_be_asked_is_no_reason_to_refuse_where_records_go_on_unasked() {
    let mut server = Server::start(&[]);
    let job = gated("warned", 1, &server, ", on_unavailable: pass");
    server.kill();
    let (is_fine, said) = checked(&job);
    assert!(is_fine && said.contains("records go on unasked until it can be"), "{said}");
}
