//! Which file of the library names which other: each path in the sources is followed, through imports and re-exports, to
//! the file with the definition. Unit tests do not count.
//!
//! The rooms in `crates` belong to it: the root re-exports each one, under the name by which its own crate knows it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// For each file, the files that it names.
pub type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

type Segments = Vec<String>;

/// Keywords before a name that is defined.
const DEFINITIONS: &[&str] = &["struct", "enum", "union", "fn", "trait", "type", "const", "static"];

#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Where the files of its child modules are.
    folder: PathBuf,
    parent: Option<usize>,
    children: HashMap<String, usize>,
    defined: HashSet<String>,
    imported: HashMap<String, Segments>,
    globs: Vec<Segments>,
    named: HashSet<Segments>,
}

/// The modules of the library; the first is its root.
pub struct Modules {
    all: Vec<Module>,
    /// The folder of the packages.
    checkout: PathBuf,
}

impl Modules {
    /// Reads the library of the package in `checkout`.
    pub fn of(checkout: &Path) -> Self {
        let mut modules = Self { all: Vec::new(), checkout: checkout.to_owned() };
        let folder = checkout.join("src");
        modules.all.push(Module { file: folder.join("lib.rs"), folder, ..Module::default() });
        modules.read(0);
        modules
    }

    /// For each file the files that it names, as paths below the sources of their crate, such as `engine/task.rs`.
    pub fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (at, module) in self.all.iter().enumerate() {
            let known = imports.entry(self.below_sources(&module.file)).or_default();
            for path in &module.named {
                let defined_by = self.resolve(at, path, &mut HashSet::new());
                known.extend(defined_by.filter(|file| *file != module.file).map(|file| self.below_sources(file)));
            }
        }
        imports
    }

    fn below_sources(&self, file: &Path) -> PathBuf {
        let file = file.strip_prefix(&self.checkout).expect("it is in the checkout");
        file.iter().skip_while(|part| *part != "src").skip(1).collect()
    }

    /// The rooms that each room names, as it writes them after `crate::`.
    pub fn rooms(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for module in &self.all[1..] {
            let file = self.below_sources(&module.file);
            let room = file.iter().next().and_then(|part| part.to_str()).expect("the names are Unicode");
            let room = room.strip_suffix(".rs").unwrap_or(room);
            let paths = module.named.iter().chain(module.imported.values()).chain(&module.globs);
            let known = paths.filter(|path| path[0] == "crate").filter_map(|path| path.get(1));
            let known = known.filter(|name| *name != room && self.all[0].children.contains_key(*name)).cloned();
            rooms.entry(room.to_owned()).or_default().extend(known);
        }
        rooms
    }

    fn read(&mut self, module: usize) {
        let file = self.all[module].file.clone();
        let text = fs::read_to_string(&file).expect("the file can be read");
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.walk(module, tokens, true);
    }

    fn walk(&mut self, module: usize, tokens: TokenStream, has_items: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += match token {
                TokenTree::Punct(sign) if sign.as_char() == '#' => match tokens.get(at + 1) {
                    Some(TokenTree::Group(attribute)) if is_of_tests(&attribute.stream()) => item(&tokens[at..]),
                    _ => 2,
                },
                TokenTree::Group(group) => {
                    self.walk(module, group.stream(), false);
                    1
                }
                // `use<..>` in a type captures lifetimes.
                TokenTree::Ident(word) if word == "use" && !tokens.get(at + 1).is_some_and(is('<')) => {
                    let rest = &tokens[at + 1..];
                    let end = rest.iter().position(is(';')).expect("an import ends");
                    self.import(module, &rest[..end], &[]);
                    end + 2
                }
                TokenTree::Ident(word) if word == "mod" && has_items => {
                    self.child(module, &tokens[at + 1..]);
                    3
                }
                TokenTree::Ident(word) if has_items && DEFINITIONS.contains(&word.to_string().as_str()) => {
                    self.all[module].defined.extend(tokens.get(at + 1).map(ToString::to_string));
                    1
                }
                TokenTree::Ident(_) => {
                    let (path, length) = path(&tokens[at..]);
                    self.all[module].named.insert(path);
                    length
                }
                _ => 1,
            };
        }
    }

    /// Adds a child module; `tokens` begin with its name.
    fn child(&mut self, parent: usize, tokens: &[TokenTree]) {
        let name = tokens[0].to_string();
        let folder = self.all[parent].folder.join(&name);
        match &tokens[1] {
            TokenTree::Group(group) => {
                let file = self.all[parent].file.clone();
                let at = self.add(parent, name, file, folder);
                self.walk(at, group.stream(), true);
            }
            _ => self.add_file(parent, name, folder),
        }
    }

    /// Adds a child module that has a file of its own.
    fn add_file(&mut self, parent: usize, name: String, folder: PathBuf) {
        let beside = folder.with_extension("rs");
        let file = if beside.exists() { beside } else { folder.join("mod.rs") };
        let at = self.add(parent, name, file, folder);
        self.read(at);
    }

    fn add(&mut self, parent: usize, name: String, file: PathBuf, folder: PathBuf) -> usize {
        let at = self.all.len();
        self.all.push(Module { file, folder, parent: Some(parent), ..Module::default() });
        self.all[parent].children.insert(name, at);
        at
    }

    /// Adds the names of an import, whose path begins with `before`.
    fn import(&mut self, module: usize, tree: &[TokenTree], before: &[String]) {
        // `::name` is another crate.
        if tree.first().is_some_and(is(':')) {
            return;
        }
        let (own, length) = path(tree);
        let all: Segments = before.iter().cloned().chain(own).collect();
        match &tree[length..] {
            [] => match &all[..] {
                [package, room] if module == 0 && package.starts_with("ratchet_") => {
                    let folder = self.checkout.join("crates").join(&package["ratchet_".len()..]).join("src").join(room);
                    self.add_file(0, room.clone(), folder);
                }
                _ => self.name(module, all.last().cloned(), all),
            },
            [TokenTree::Ident(_), name] => self.name(module, Some(name.to_string()), all),
            [.., TokenTree::Punct(_)] => self.all[module].globs.push(all),
            [.., TokenTree::Group(group)] => {
                let parts: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in parts.split(is(',')).filter(|part| !part.is_empty()) {
                    self.import(module, part, &all);
                }
            }
            other => panic!("an import of an unknown form: {other:?}"),
        }
    }

    fn name(&mut self, module: usize, name: Option<String>, mut path: Segments) {
        let mut name = name.expect("an import has a name");
        // `{self, …}`
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
            name = if name == "self" { path[path.len() - 1].clone() } else { name };
        }
        self.all[module].imported.insert(name, path);
    }

    /// The file with the definition of `path`, as `module` names it; `None` for a module, and for a name of another crate.
    fn resolve(&self, module: usize, path: &[String], sought: &mut HashSet<(usize, String)>) -> Option<&Path> {
        let (mut module, length) = self.start(module, path);
        for (at, name) in path.iter().enumerate().skip(length) {
            let here = &self.all[module];
            if let Some(child) = here.children.get(name) {
                module = *child;
            } else if here.defined.contains(name) {
                return Some(&here.file);
            } else if sought.insert((module, name.clone())) {
                let rest = &path[at..];
                let imported = here.imported.get(name).map(|import| [import, &rest[1..]].concat());
                let globs = here.globs.iter().map(|glob| [glob, rest].concat());
                return imported.into_iter().chain(globs).find_map(|path| self.resolve(module, &path, sought));
            } else {
                // The imports lead back to this name, so another crate defines it.
                return None;
            }
        }
        None
    }

    /// The module where the search for a path begins, and the number of segments that lead there.
    fn start(&self, module: usize, path: &[String]) -> (usize, usize) {
        let supers = path.iter().take_while(|segment| *segment == "super").count();
        match path[0].as_str() {
            "crate" => (0, 1),
            "self" => (module, 1),
            _ => ((0..supers).fold(module, |module, _| self.all[module].parent.expect("there is one above")), supers),
        }
    }
}

fn is(sign: char) -> impl Fn(&TokenTree) -> bool {
    move |token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// The path at the beginning of the tokens, and its number of tokens, including a `::` at its end.
fn path(tokens: &[TokenTree]) -> (Segments, usize) {
    let (mut path, mut at) = (Segments::new(), 0);
    while let Some(TokenTree::Ident(segment)) = tokens.get(at).filter(|_| at == 3 * path.len()) {
        path.push(segment.to_string());
        let separated = tokens[at + 1..].iter().take(2).filter(|token| is(':')(token)).count() == 2;
        at += if separated { 3 } else { 1 };
    }
    (path, at.max(1))
}

fn is_of_tests(attribute: &TokenStream) -> bool {
    let text = attribute.to_string();
    text.starts_with("cfg") && text.contains("test") && !text.contains("not")
}

/// The number of tokens of the item at the beginning, with its attributes.
fn item(tokens: &[TokenTree]) -> usize {
    let is_import = tokens.iter().find_map(|token| match token {
        TokenTree::Ident(word) if word != "pub" => Some(word == "use"),
        _ => None,
    });
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && is_import != Some(true),
        token => is(';')(token),
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}
