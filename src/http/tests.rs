//! Goal: the examples in the documentation of the layer are compiled with the crate.

#[test]
fn examples_of_the_page_are_those_of_the_modules() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/http-idempotency.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, layer) = page.split_once("\n## The layer\n").expect("a section on the layer");
    let examples: Vec<&str> = layer.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 3, "in a folder, in PostgreSQL, in Redis");
    let modules =
        [include_str!("mod.rs"), include_str!("../effect/postgres/requests.rs"), include_str!("../redis/requests.rs")];
    let lines = modules.into_iter().flat_map(str::lines);
    let compiled: Vec<&str> = lines.filter_map(|line| line.strip_prefix("//! ")).collect();
    for line in examples.iter().flat_map(|example| example.lines()).filter(|line| !line.is_empty()) {
        assert!(compiled.contains(&line), "{line}");
    }
}
