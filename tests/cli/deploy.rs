//! What is in deploy/, without the tools that it is for: each file in the renders of tests/deploy has no mistakes, each of
//! its pods has bounds, and the units leave no core dumps. `make deploy-check` compares the renders with what the chart
//! writes, and checks the units with systemd-analyze.

use std::fs;
use std::path::Path;

use super::{Ran, Room};

/// The files in the ConfigMaps of a render, and their texts: `NAME.yaml: |` and the lines below it, which are indented.
fn files(rendered: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut within = false;
    for line in rendered.lines() {
        if let Some(name) = line.strip_prefix("  ").and_then(|line| line.strip_suffix(": |"))
            && name.ends_with(".yaml")
        {
            files.push((name.to_owned(), String::new()));
            within = true;
        } else if let (true, Some(text), Some((_, file))) = (within, line.strip_prefix("    "), files.last_mut()) {
            file.push_str(text);
            file.push('\n');
        } else {
            within = false;
        }
    }
    files
}

fn accepts(room: &Room, words: &str) -> Ran {
    let mut command = room.command(words);
    command.env("LOG_LEVEL", "debug").env("DATABASE_URL", "postgres://ann@db/shop").env("REDIS_PASSWORD", "hunter2");
    let ran = Ran::from(command.output().unwrap()).ended(0).said(&["fine"]);
    // Some of the topologies leave open whether their producers partition by identity; there is nothing else to warn of.
    let is_other = |line: &&str| line.contains('⚠') && !line.contains("duplicates are recognised within one partition");
    assert_eq!(ran.stderr.lines().find(is_other), None);
    ran
}

/// The renders of tests/deploy.
fn renders() -> Vec<String> {
    let cases = fs::read_dir(root().join("tests/deploy")).unwrap();
    cases.filter_map(|case| fs::read_to_string(case.unwrap().path().join("rendered.yaml")).ok()).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The objects of a render that are of one of these kinds.
fn objects<'a>(rendered: &'a str, kinds: &[&str]) -> Vec<&'a str> {
    let is_one = |object: &&str| {
        object.lines().any(|line| line.strip_prefix("kind: ").is_some_and(|kind| kinds.contains(&kind)))
    };
    rendered.split("---\n").filter(is_one).collect()
}

#[test]
fn memory_with_secrets_in_it_is_not_dumped() {
    let units: Vec<_> = fs::read_dir(root().join("deploy/systemd")).unwrap().map(|unit| unit.unwrap().path()).collect();
    assert_eq!(units.len(), 2);
    for unit in units {
        let text = fs::read_to_string(&unit).unwrap();
        assert!(text.lines().any(|line| line == "LimitCORE=0"), "{}", unit.display());
    }
    // The containers of the program's image: `ratchet` and `proxy`.
    let compose = fs::read_to_string(root().join("docker-compose.yml")).unwrap();
    assert_eq!(compose.matches("image: ratchet:local").count(), compose.matches("ulimits: {core: 0}").count());
}

#[test]
fn pods_have_limits_and_network_policies_by_themselves() {
    let mut pods = 0;
    for rendered in renders() {
        let policies = objects(&rendered, &["NetworkPolicy"]);
        for object in objects(&rendered, &["StatefulSet", "Deployment"]) {
            let limits = object.split("          limits:\n").nth(1).unwrap_or_else(|| panic!("no limits: {object}"));
            assert!(limits.trim_start().starts_with("memory: "), "{limits}");
            let component = object.lines().find(|line| line.contains("app.kubernetes.io/component: ")).unwrap();
            let policy = policies.iter().find(|policy| policy.contains(component));
            let policy = policy.unwrap_or_else(|| panic!("no policy: {object}"));
            // Nobody outside the cluster reads metrics.
            let from = "- ports: [{port: metrics, protocol: TCP}]\n      from:\n        - namespaceSelector:";
            assert!(policy.contains(from), "{policy}");
            pods += 1;
        }
    }
    assert_eq!(pods, 8);
}

#[test]
fn chart_writes_files_without_mistakes() {
    let (mut workers, mut proxies) = (0, 0);
    for rendered in renders() {
        let room = Room::new();
        // The Secret's file, which a pod has elsewhere.
        let secrets = room.write("password", "hunter2").parent().unwrap().display().to_string();
        let files = files(&rendered);
        let topologies = files.iter().filter(|(name, _)| !["ratchet.yaml", "proxy.yaml"].contains(&name.as_str()));
        let topologies: String = topologies.map(|(name, _)| format!(" topologies/{name}")).collect();
        for (name, text) in files {
            let text = text.replace("/run/secrets/kafka", &secrets);
            match name.as_str() {
                "proxy.yaml" => {
                    room.write(&name, text);
                    accepts(&room, "proxy --config proxy.yaml --check").never_said("⚠");
                    proxies += 1;
                }
                "ratchet.yaml" => drop(room.write(&name, text)),
                _ => drop(room.write(&format!("topologies/{name}"), text)),
            }
        }
        if !topologies.is_empty() {
            accepts(&room, &format!("check{topologies} --config ratchet.yaml"));
            workers += 1;
        }
    }
    assert_eq!((workers, proxies), (4, 4));
}
