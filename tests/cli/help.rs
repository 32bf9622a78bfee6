//! Help, examples, completions, suggestions.

use super::Room;

const COMMANDS: [&str; 14] = [
    "run",
    "check",
    "test",
    "replay",
    "infer",
    "capture",
    "changelog",
    "effects",
    "settle",
    "proxy",
    "requests",
    "demo",
    "schema",
    "completions",
];

#[test]
fn every_help_has_examples_and_goes_to_standard_output() {
    let room = Room::new();
    for command in COMMANDS.map(|command| format!("{command} --help")).iter().chain(&["--help".to_owned()]) {
        let ran = room.run(command).ended(0).quietly();
        assert!(ran.stdout.contains("Examples:\n"), "{command}:\n{}", ran.stdout);
        assert!(ran.stdout.contains("Usage: ratchet"), "{command}:\n{}", ran.stdout);
    }
}

#[test]
fn main_help_lists_every_command() {
    let ran = Room::new().run("--help").ended(0);
    for command in COMMANDS {
        assert!(ran.stdout.lines().any(|line| line.trim_start().starts_with(command)), "{command} is missing");
    }
}

#[test]
fn missing_command_shows_the_help_as_an_error() {
    Room::new().run("").ended(2).wrote(&[]).said(&["Usage: ratchet", "Examples:"]);
}

#[test]
fn similar_command_is_suggested() {
    Room::new()
        .run("replai payments.yaml")
        .ended(2)
        .wrote(&[])
        .said(&["'replai'", "a similar subcommand exists: 'replay'"]);
}

#[test]
fn similar_option_is_suggested() {
    Room::new()
        .run("replay payments.yaml --explian")
        .ended(2)
        .said(&["'--explian'", "a similar argument exists: '--explain'"]);
}

#[test]
fn missing_topology_is_a_user_error() {
    for command in ["run", "check", "test", "replay"] {
        Room::new().run(command).ended(2).said(&["<TOPOLOGY>"]);
    }
}

#[test]
fn version_is_printed() {
    let version = concat!("ratchet ", env!("CARGO_PKG_VERSION"));
    Room::new().run("--version").ended(0).quietly().wrote(&[version]);
}

#[test]
fn completions_know_the_commands_in_every_shell() {
    let room = Room::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = room.run(&format!("completions {shell}")).ended(0).quietly();
        for word in ["replay", "check", "junit", "infer", "until-drained"] {
            assert!(ran.stdout.contains(word), "{shell}: {word} is missing");
        }
    }
}

#[test]
fn bash_accepts_the_completions() {
    let room = Room::new();
    let script = room.write("ratchet.bash", room.run("completions bash").ended(0).stdout);
    let test = format!("source {} && complete -p ratchet", script.display());
    let output = std::process::Command::new("bash").args(["-c", &test]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn unknown_shell_lists_the_known_ones() {
    Room::new().run("completions tcsh").ended(2).said(&["bash", "zsh", "fish"]);
}
