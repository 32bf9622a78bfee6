//! Writes the options of the command line as a proxy's file.

/// A text in quotes, as YAML reads it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The name under which mistakes in a command line are shown.
pub const COMMAND_LINE: &str = "the command line";

/// The settings that are given on the command line instead of in a file.
#[derive(Clone, Copy, Debug)]
pub struct CommandLineSettings<'a> {
    /// Where the proxy listens.
    pub listen: &'a str,
    /// The service's address.
    pub upstream: &'a str,
    /// The address of metrics and health.
    pub http: &'a str,
    /// The header that identifies a caller, or `none`, if given.
    pub caller: Option<&'a str>,
    /// The kind of store, its folder, and its address if given. Only an embedded store uses the folder, and only the
    /// others use the address.
    pub store: (&'a str, &'a str, Option<&'a str>),
}

/// A proxy's file with what is given on the command line.
pub fn to_yaml(settings: &CommandLineSettings<'_>) -> String {
    let CommandLineSettings { listen, upstream, http, caller, store: (kind, dir, url) } = *settings;
    let line = |key: &str, value: &str| format!("{key}: {}\n", quoted(value));
    let caller = caller.map(|caller| line("caller", caller)).unwrap_or_default();
    let store = store(kind, dir, url);
    line("listen", listen) + &line("upstream", upstream) + &line("http", http) + &caller + &store
}

/// The line `store` of the file: the store's kind, and its folder or address.
fn store(kind: &str, dir: &str, url: Option<&str>) -> String {
    let mapping = match (kind, url) {
        ("embedded", _) => format!("dir: {}", quoted(dir)),
        (_, Some(url)) => format!("url: {}", quoted(url)),
        (_, None) => String::new(),
    };
    format!("store: {{{kind}: {{{mapping}}}}}\n")
}
