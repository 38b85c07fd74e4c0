//! Modules of a crate have no circles: of two siblings, each with all that lies below it, at most one uses names of the
//! other, however long the way.
//!
//! An arrow goes from the file that writes a name to the file that defines it; a re-export is followed to the
//! definition and is no arrow itself. Between a module and those below it arrows run both ways in idiomatic Rust (a
//! trait and its implementations, a type and its `impl` blocks), so they do not count. Tests and the bodies of macros
//! are not read.

use super::Finding;
use super::tree::Tree;
use super::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// Path of a module from the root of its crate; empty for the root itself.
type Module = Vec<String>;

pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for one in &workspace.crates {
        match of_sources(tree, &format!("{}/src/", one.folder)) {
            Ok(circles) => found.extend(circles.into_iter().map(|circle| circle.finding)),
            Err(finding) => return vec![finding],
        }
    }
    found
}

/// Modules that use each other's names.
#[derive(Debug)]
pub(crate) struct Circle {
    pub(crate) modules: usize,
    finding: Finding,
}

/// Circles of the modules whose files lie in `folder`.
///
/// # Errors
///
/// The finding about a file that cannot be parsed.
pub(crate) fn of_sources(tree: &Tree, folder: &str) -> Result<Vec<Circle>, Finding> {
    let files = tree
        .with_extension("rs")
        .filter(|(path, _)| path.starts_with(folder));
    let mut modules = BTreeMap::new();
    for (path, text) in files {
        let Some(module) = module_of(&path[folder.len()..]) else {
            continue;
        };
        match syn::parse_file(text) {
            Ok(file) => {
                modules.insert(module, Source::read(path, &file));
            }
            Err(error) => return Err(Finding::of_file(path, error.to_string())),
        }
    }
    leave_out_tests(&mut modules);
    let arrows = between_siblings(&arrows(&modules));
    let circles = circles(&arrows);
    let as_circle = |circle: &Vec<Module>| {
        let inside = |module: &&Module| circle.contains(module);
        let uses = circle.iter().flat_map(|from| {
            let to = arrows[from].iter().filter(move |(to, _)| inside(to));
            to.map(|(_, words)| words.as_str())
        });
        let uses: Vec<_> = uses.collect();
        let message = format!("circle of {} modules: {}", circle.len(), uses.join(", "));
        Circle {
            modules: circle.len(),
            finding: Finding::of_file(&path_of(&modules, &circle[0]), message),
        }
    };
    Ok(circles.iter().map(as_circle).collect())
}

/// The file of `module`, or of the first one below it.
fn path_of(modules: &BTreeMap<Module, Source>, module: &Module) -> String {
    let first = modules.range(module.clone()..).next();
    first.map_or_else(String::new, |(_, source)| source.path.clone())
}

/// The module that a file holds, `path` being relative to the sources; none for a file that only tests compile, and
/// for a second program.
fn module_of(path: &str) -> Option<Module> {
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let parts: Vec<_> = path.split('/').map(str::to_owned).collect();
    if parts[0] == "bin" || parts.iter().any(|part| part == "tests") {
        return None;
    }
    Some(match path {
        "lib" | "main" => Vec::new(),
        _ => parts,
    })
}

fn show(module: &[String]) -> String {
    match module {
        [] => "the crate root".to_owned(),
        parts => parts.join("::"),
    }
}

/// One file, as far as names go.
#[derive(Debug, Default)]
struct Source {
    path: String,
    /// Names that `use` brings in, each with its path.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules whose every name is brought in.
    globs: Vec<Vec<String>>,
    /// Paths of names that the code uses, private imports included.
    used: BTreeSet<Vec<String>>,
    /// Modules that only tests compile.
    test_modules: BTreeSet<String>,
}

impl Source {
    fn read(path: &str, file: &syn::File) -> Self {
        let mut source = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        source.visit_file(file);
        source
    }

    fn import(&mut self, tree: &syn::UseTree, mut at: Vec<String>, is_private: bool) {
        let (name, own) = match tree {
            syn::UseTree::Path(path) => {
                at.push(path.ident.to_string());
                return self.import(&path.tree, at, is_private);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, at.clone(), is_private);
                }
                return;
            }
            syn::UseTree::Glob(_) => {
                self.globs.push(at.clone());
                if is_private {
                    self.used.insert(at);
                }
                return;
            }
            syn::UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            syn::UseTree::Rename(rename) => (rename.ident.to_string(), rename.rename.to_string()),
        };
        let own = match (name.as_str(), at.last()) {
            ("self", Some(module)) if own == "self" => module.clone(),
            _ => own,
        };
        if name != "self" {
            at.push(name);
        }
        if is_private {
            self.used.insert(at.clone());
        }
        self.imports.insert(own, at);
    }
}

impl Visit<'_> for Source {
    fn visit_item(&mut self, item: &syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_for_tests) {
            return syn::visit::visit_item(self, item);
        }
        if let syn::Item::Mod(item) = item {
            self.test_modules.insert(item.ident.to_string());
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        let is_private = matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, Vec::new(), is_private);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let parts = path.segments.iter().map(|part| part.ident.to_string());
        self.used.insert(parts.collect());
        syn::visit::visit_path(self, path);
    }
}

fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    // Also `all(test, feature = "…")`.
    let tokens = list.tokens.to_string();
    list.path.is_ident("cfg") && (tokens == "test" || tokens.starts_with("all (test ,"))
}

/// Takes out the modules that a `#[cfg(test)] mod name;` declares, and those below them.
fn leave_out_tests(modules: &mut BTreeMap<Module, Source>) {
    let mut tests = Vec::new();
    for (module, source) in modules.iter() {
        let below = |name: &String| module.iter().chain([name]).cloned().collect::<Module>();
        tests.extend(source.test_modules.iter().map(below));
    }
    modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
}

/// Module → the modules whose names it uses, each with one such name.
fn arrows(modules: &BTreeMap<Module, Source>) -> BTreeMap<&Module, BTreeMap<Module, String>> {
    let of_module = |(from, source): (&'_ Module, &Source)| {
        let homes = source.used.iter().filter_map(|path| {
            let home = home(modules, from, path, 0)?;
            (home != *from).then(|| (home, path.last().cloned().unwrap_or_default()))
        });
        homes.collect()
    };
    let all = modules.iter();
    all.map(|(from, source)| (from, of_module((from, source))))
        .collect()
}

/// The module that defines what `path` names in `from`; none for names of other crates and local ones.
fn home(
    modules: &BTreeMap<Module, Source>,
    from: &Module,
    path: &[String],
    depth: usize,
) -> Option<Module> {
    // Imports may name each other in a loop of `pub use`, which rustc lets through for globs.
    if depth > 16 {
        return None;
    }
    let (first, rest) = path.split_first()?;
    let (mut at, mut rest) = match first.as_str() {
        "crate" => (Module::new(), rest),
        "self" => (from.clone(), rest),
        "super" => (from[..from.len().checked_sub(1)?].to_vec(), rest),
        name => {
            let child: Module = from.iter().cloned().chain([name.to_owned()]).collect();
            if modules.contains_key(&child) {
                (child, rest)
            } else {
                let import = modules.get(from)?.imports.get(name)?;
                if import.as_slice() == path {
                    return None;
                }
                let full: Vec<_> = import.iter().chain(rest).cloned().collect();
                return home(modules, from, &full, depth + 1);
            }
        }
    };
    while let Some((next, after)) = rest.split_first() {
        if next == "super" {
            at.pop()?;
        } else {
            let child: Module = at.iter().cloned().chain([next.clone()]).collect();
            if !modules.contains_key(&child) {
                break;
            }
            at = child;
        }
        rest = after;
    }
    let Some(name) = rest.first() else {
        return Some(at);
    };
    let source = modules.get(&at)?;
    match source.imports.get(name) {
        // Brought in from elsewhere: what another crate defines is no arrow to this module.
        Some(import) => home(modules, &at, import, depth + 1),
        None => {
            let from_globs = source.globs.iter();
            let found = from_globs.filter_map(|glob| home(modules, &at, glob, depth + 1));
            let mut found = found.filter(|module| modules[module].path != source.path);
            // A glob hides where its names come from: they count as of this module unless it is the only one.
            match (found.next(), found.next()) {
                (Some(only), None) if source.used.is_empty() => Some(only),
                _ => Some(at),
            }
        }
    }
}

/// The arrows, each lifted to the two siblings in or below which it begins and ends, with what ties them. Arrows
/// between a module and one below it go.
fn between_siblings(
    arrows: &BTreeMap<&Module, BTreeMap<Module, String>>,
) -> BTreeMap<Module, BTreeMap<Module, String>> {
    let mut lifted: BTreeMap<Module, BTreeMap<Module, String>> = BTreeMap::new();
    for (from, to, name) in arrows
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |(to, name)| (*from, to, name)))
    {
        let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let (Some(a), Some(b)) = (from.get(..=shared), to.get(..=shared)) else {
            continue;
        };
        let words = format!("{} uses {name} of {}", show(from), show(to));
        lifted.entry(b.to_vec()).or_default();
        let of_from = lifted.entry(a.to_vec()).or_default();
        of_from.entry(b.to_vec()).or_insert(words);
    }
    lifted
}

/// The sets of modules that reach each other, found by what each can reach.
fn circles(arrows: &BTreeMap<Module, BTreeMap<Module, String>>) -> Vec<Vec<Module>> {
    let reach = |start: &Module| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start.clone()];
        while let Some(module) = open.pop() {
            for to in arrows[&module].keys() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, _> = arrows.keys().map(|from| (from, reach(from))).collect();
    let mut found: Vec<Vec<Module>> = Vec::new();
    for (from, to) in &reached {
        if !to.contains(*from) || found.iter().any(|circle| circle.contains(from)) {
            continue;
        }
        let back = to.iter().filter(|other| reached[other].contains(*from));
        found.push(back.cloned().collect());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the findings about the sources of a crate in `a/src/`.
    #[track_caller]
    fn expect(files: &[(&str, &str)], expected: &[&str]) {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add(&format!("a/src/{path}"), text);
        }
        let circles = of_sources(&tree, "a/src/").expect("the samples are Rust");
        let found: Vec<_> = circles
            .iter()
            .map(|circle| circle.finding.to_string())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn two_modules_that_use_each_other_are_found() {
        expect(
            &[
                ("lib.rs", "mod b; mod c;"),
                ("b.rs", "use crate::c::C; pub struct B(C);"),
                ("c.rs", "pub struct C; fn f() { super::b::B::new(); }"),
            ],
            &["a/src/b.rs: circle of 2 modules: b uses C of c, c uses new of b"],
        );
    }

    #[test]
    fn a_module_and_those_below_it_may_use_each_other() {
        let child = ("b/c.rs", "use super::B; pub fn f(_: B) {}");
        let parent = ("b.rs", "mod c; pub struct B; fn g() { c::f(B) }");
        expect(&[parent, child], &[]);
        // The child ties its parent to the parent's sibling.
        let other = ("d.rs", "use crate::b::B; pub struct D(B);");
        expect(&[parent, child, other], &[]);
        let child = ("b/c.rs", "use crate::d::D; pub fn f(_: D) {}");
        expect(
            &[parent, child, other],
            &["a/src/b.rs: circle of 2 modules: b::c uses D of d, d uses B of b"],
        );
    }

    #[test]
    fn a_re_export_is_followed_and_is_no_arrow() {
        expect(
            &[
                ("lib.rs", "mod b; mod c; pub use b::B;"),
                ("b.rs", "pub struct B;"),
                ("c.rs", "use crate::B; pub struct C(B);"),
            ],
            &[],
        );
        expect(
            &[
                ("lib.rs", "mod b; mod c; pub use b::B;"),
                ("b.rs", "use crate::c::C; pub struct B(C);"),
                ("c.rs", "use crate::B; pub struct C(B);"),
            ],
            &["a/src/b.rs: circle of 2 modules: b uses C of c, c uses B of b"],
        );
    }

    #[test]
    fn tests_and_other_crates_are_left_out() {
        expect(
            &[
                ("lib.rs", "mod b; mod c;"),
                (
                    "b.rs",
                    "use std::fmt; pub struct B; #[cfg(test)] mod t { use crate::c::C; } \
                     #[cfg(all(test, unix))] mod u { use crate::c::C; }",
                ),
                ("c.rs", "use crate::b::B; pub struct C(B);"),
                ("c/tests.rs", "use crate::b::B;"),
            ],
            &[],
        );
    }
}
