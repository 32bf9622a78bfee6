//! What the Helm chart writes for the program: each file in the renders of tests/deploy has no mistakes.
//! `make deploy-check` compares the renders with what the chart writes.

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

#[test]
fn chart_writes_files_without_mistakes() {
    let (mut workers, mut proxies) = (0, 0);
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deploy");
    for case in fs::read_dir(cases).unwrap() {
        let Ok(rendered) = fs::read_to_string(case.unwrap().path().join("rendered.yaml")) else { continue };
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
