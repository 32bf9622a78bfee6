pub fn draw(_: &crate::part::Plot) -> String {
    String::new()
}
