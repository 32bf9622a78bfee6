//! Goal: what the documentation shows of the layer is what is compiled with the crate.

#[test]
fn examples_of_the_page_are_those_of_the_module() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/http-idempotency.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, layer) = page.split_once("\n## The layer\n").expect("a section on the layer");
    let examples: Vec<&str> = layer.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 3, "in a folder, in PostgreSQL, in Redis");
    let compiled: Vec<&str> = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    for line in examples.iter().flat_map(|example| example.lines()).filter(|line| !line.is_empty()) {
        assert!(compiled.contains(&line), "{line}");
    }
}
