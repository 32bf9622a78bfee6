//! Goal: files and folders are read as named, and what several topologies share is checked.

use std::path::PathBuf;

use super::*;

#[test]
fn files_that_cannot_be_read_are_named() {
    let load = |env: Fake| load(Path::new("t.yaml"), &env).unwrap_err().render(false);
    assert!(load(Fake::default()).contains("t.yaml cannot be read"));
    assert!(load(Fake::default().with_file("t.yaml", b"a: b\n\xff")).contains("not UTF-8: see line 2"));
    assert!(load(Fake::default().with_file("t.yaml", "")).contains("t.yaml is empty"));
}

#[test]
fn folder_stands_for_its_own_yaml_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("deeper")).unwrap();
    write("b.yaml", WHOLE);
    write("a.yaml", &with("name: a"));
    write("deeper/c.yaml", "nonsense");
    write("notes.txt", "nonsense");
    let loaded = load_all(&[folder.path().to_owned()], &Process).unwrap();
    assert_eq!(loaded.iter().map(|loaded| loaded.topology.name.as_str()).collect::<Vec<_>>(), ["a", "t"]);
    let empty = tempfile::tempdir().unwrap();
    assert!(load_all(&[empty.path().to_owned()], &Process).unwrap_err().render(false).contains("holds no topology"));
}

#[test]
fn duplicate_name_is_reported_along_with_other_mistakes() {
    let env = Fake::default().with_file("a", WHOLE).with_file("b", WHOLE).with_file("c", with("name: C"));
    let paths = ["a", "b", "c"].map(PathBuf::from);
    let diagnostics = load_all(&paths, &env).unwrap_err();
    let places: Vec<_> = diagnostics.mistakes().iter().map(Mistake::position).collect();
    assert_eq!(places, [Some(("b", 1, 7)), Some(("c", 4, 7))]);
}

#[test]
fn shared_output_is_rejected_unless_both_topologies_allow_it() {
    let named = |name: &str, rest: &str| with(&format!("name: {name}\n{rest}"));
    // The files in which mistakes are reported; checks that they are the expected ones.
    let reported = |first: &str, second: &str| {
        let env = Fake::default().with_file("a", named("a", first)).with_file("b", named("b", second));
        let Err(diagnostics) = load_run(&["a", "b"].map(PathBuf::from), &env) else { return Vec::new() };
        let wrong = diagnostics.mistakes().iter().filter(|mistake| !mistake.is_warning());
        wrong
            .map(|mistake| {
                assert!(mistake.message().contains("write to one output topic"), "{}", mistake.message());
                assert!(mistake.help_text().is_some_and(|help| help.contains("`existing: append`")));
                mistake.position().expect("it has a place").0.to_owned()
            })
            .collect::<Vec<_>>()
    };
    let (plain, append) = ("output: {topic: all}", "output: {topic: all, existing: append}");
    for (first, second, file) in [(plain, plain, "b"), (append, plain, "b"), (plain, append, "a")] {
        assert_eq!(reported(first, second), [file]);
    }
    assert!(reported(append, append).is_empty());
    assert!(reported("output: {topic: a.all}", "output: {topic: b.all}").is_empty());
    // The outputs of a pattern are tried with sample names.
    let pattern = "input: {pattern: '^shop[.](a|b)$'}\noutput: {topic: 'clean.{topic}'}";
    assert_eq!(reported("output: {topic: clean.shop.b}", pattern), ["b"]);
    assert!(reported("output: {topic: clean.shop.c}", pattern).is_empty());
}
