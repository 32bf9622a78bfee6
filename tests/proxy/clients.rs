//! Clients and services in other languages, and the walk of the documentation.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::crowd::slow;
use crate::program::{Proxy, Room};

/// A service in another language; killed when dropped.
struct Foreign {
    child: Child,
    url: String,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/charges").join(name)
}

/// Starts one on a free port, which it prints.
fn start(program: &str, file: &str) -> Foreign {
    let mut command = Command::new(program);
    let command = command.arg(example(file)).arg("0").stdout(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; `make setup` installs it"));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("listening on ").expect("it says where it listens");
    Foreign { url: format!("http://127.0.0.1:{port}"), child }
}

/// What a script prints that is given this address.
#[track_caller]
fn output(program: &str, arguments: &[&str], script: &str, proxy: &Proxy) -> String {
    let mut command = Command::new(program);
    let command = command.args(arguments).arg("-").arg(format!("http://{}", proxy.address));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; `make setup` installs it"));
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{program} failed");
    String::from_utf8(done.stdout).unwrap()
}

/// The standard library, again and again until there is an answer.
const PYTHON: &str = r#"
import json, sys, urllib.request
seen = []
for attempt in range(3):
    request = urllib.request.Request(sys.argv[1] + "/charges", data=json.dumps({"amount": 10}).encode(), method="POST",
        headers={"Content-Type": "application/json", "Idempotency-Key": "python"})
    with urllib.request.urlopen(request) as answer:
        seen.append((answer.status, answer.headers.get("Idempotent-Replayed"), json.load(answer)["id"]))
print(seen)
"#;

const NODE: &str = r#"
const seen = [];
for (let attempt = 0; attempt < 3; attempt++) {
  const answer = await fetch(process.argv[2] + "/charges", {
    method: "POST", body: JSON.stringify({ amount: 10 }),
    headers: { "Content-Type": "application/json", "Idempotency-Key": "node" },
  });
  seen.push([answer.status, answer.headers.get("idempotent-replayed"), (await answer.json()).id]);
}
console.log(JSON.stringify(seen));
"#;

fn charges(proxy: &Proxy) -> String {
    let url = format!("http://{}/charges", proxy.address);
    let done =
        Command::new("curl").args(["--silent", "--fail", &url]).output().expect("curl: `make setup` installs it");
    String::from_utf8(done.stdout).unwrap().split_whitespace().collect()
}

#[test]
fn python_and_node_in_front_of_python_and_node() {
    for (program, file) in [("python3", "charges.py"), ("node", "charges.mjs")] {
        let (room, service) = (Room::new(), start(program, file));
        let proxy = room.start(&service.url, "routes: [{path: /charges, methods: [POST], key: required}]");
        let seen = output("python3", &[], PYTHON, &proxy);
        assert_eq!(seen.trim(), "[(201, None, 1), (201, 'true', 1), (201, 'true', 1)]", "{file}");
        let seen = output("node", &["--input-type=module"], NODE, &proxy);
        assert_eq!(seen.trim(), r#"[[201,null,2],[201,"true",2],[201,"true",2]]"#, "{file}");
        assert_eq!(charges(&proxy), r#"[{"id":1,"amount":10},{"id":2,"amount":10}]"#, "{file}");
    }
}

/// The client gives up and repeats, again and again, while the service is at work: it is run once.
#[tokio::test(flavor = "multi_thread")]
async fn requests_with_its_own_retries_gets_the_one_answer() {
    const SCRIPT: &str = r#"
import requests, sys
from requests.adapters import HTTPAdapter
from urllib3.util import Retry
session = requests.Session()
retries = Retry(total=30, backoff_factor=0.1, status_forcelist=[409, 502, 503, 504], allowed_methods=None)
session.mount("http://", HTTPAdapter(max_retries=retries))
answer = session.post(sys.argv[1] + "/charges", json={"amount": 10}, headers={"Idempotency-Key": "requests"}, timeout=0.5)
print(answer.status_code, answer.headers.get("Idempotent-Replayed"), answer.json()["run"])
"#;
    let (room, service) = (Room::new(), slow(Duration::from_secs(3)).await);
    let proxy = room.start(&service.url(), "");
    let said = tokio::task::block_in_place(|| output("python3", &[], SCRIPT, &proxy));
    assert_eq!((said.trim(), service.runs()), ("201 true 1", 1));
}

/// The first connections end before there is an answer.
#[test]
fn client_that_retries_after_lost_connections_makes_one_charge() {
    const SCRIPT: &str = r#"
import http.client, json, sys, time, urllib.parse
where = urllib.parse.urlparse(sys.argv[1])
for attempt in range(5):
    try:
        # Too short for the first answer to come.
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=0.001 if attempt < 2 else 30)
        connection.request("POST", "/charges", json.dumps({"amount": 7}),
            {"Content-Type": "application/json", "Idempotency-Key": "retried"})
        answer = connection.getresponse()
        body = json.load(answer)
        if answer.status == 201:
            print(body["id"])
            break
    except OSError:
        pass
    time.sleep(0.2)
"#;
    let (room, service) = (Room::new(), start("python3", "charges.py"));
    let proxy = room.start(&service.url, "");
    assert_eq!(output("python3", &[], SCRIPT, &proxy).trim(), "1");
    assert_eq!(charges(&proxy), r#"[{"id":1,"amount":7}]"#);
}

/// The commands of the walk, each with what it prints, from its page.
fn walk() -> Vec<(String, Vec<String>)> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/http-idempotency.md")).unwrap();
    let (_, walk) = page.split_once("<!-- walk -->").expect("the page has a walk");
    let (walk, _) = walk.split_once("<!-- end of walk -->").unwrap();
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    let mut is_shown = false;
    for line in walk.lines() {
        match line.strip_prefix("$ ") {
            _ if line.starts_with("```") => is_shown = !is_shown,
            Some(command) if is_shown => steps.push((command.to_owned(), Vec::new())),
            None if is_shown && !line.is_empty() => {
                steps.last_mut().expect("a command comes first").1.push(line.to_owned())
            }
            _ => {}
        }
    }
    steps
}

#[test]
fn walk_of_the_documentation_works_as_it_says() {
    let steps = walk();
    let [service, proxy, rest @ ..] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(service.0, "python3 examples/charges/charges.py 3000 &");
    let (room, running) = (Room::new(), start("python3", "charges.py"));
    // On free ports instead of those that are written.
    let words = proxy
        .0
        .strip_prefix("ratchet ")
        .and_then(|words| words.strip_suffix(" &"))
        .expect("ratchet, in the background");
    let words = words.replace("127.0.0.1:8080", "127.0.0.1:0").replace("http://127.0.0.1:3000", &running.url);
    let mut log = room.command(&format!("{words} --http 127.0.0.1:0")).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(log.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("serving address=")).expect("it listens");
    let address = line.split("serving address=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    std::thread::spawn(move || lines.for_each(drop));
    let proxy = Foreign { child: log, url: format!("http://{address}") };
    assert!(rest.len() >= 4, "{rest:?}");
    for (command, expected) in rest {
        let command = command.replace("http://127.0.0.1:8080", &proxy.url).replace("curl ", "curl --silent ");
        let done = Command::new("sh").args(["-c", &command]).output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        let said: Vec<&str> = said.lines().collect();
        for line in expected {
            assert!(said.contains(&line.as_str()), "{command}\n{line:?} is not in {said:#?}");
        }
    }
}
