//! The files of the dashboard, from `ui/`: in the program itself, so that it needs nothing beside it. A debug build reads them
//! from the disk at every page, so that an edit is seen after a reload.
//!
//! There is no build step: what is in `ui/` is what is served, but for comments of scripts, a quarter of their bytes. One hash over all files is part of their paths, so that relative
//! imports keep it and a file can be cached for ever. What serves them is [`dashboard`](super::dashboard).

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

macro_rules! embed {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/ui/", $name)))),*]
    };
}

/// Every file that is served; a test compares the list with the directory. A list, not a crate that walks `ui/`: what npm installs
/// there for the checks must not get in.
static EMBEDDED: &[(&str, &[u8])] = embed![
    "api.js",
    "app.js",
    "core/chart.js",
    "core/html.js",
    "core/intervals.js",
    "core/json.js",
    "core/query.js",
    "core/resource.js",
    "core/signal.js",
    "core/spark.js",
    "core/visible.js",
    "icon.svg",
    "icon_red.svg",
    "index.html",
    "keys.js",
    "live.js",
    "parts/acts.js",
    "parts/bits.js",
    "parts/bulk.js",
    "parts/dialog.js",
    "parts/drain.js",
    "parts/filters.js",
    "parts/flow.js",
    "parts/json.js",
    "parts/limit_form.js",
    "parts/operation.js",
    "parts/pages.js",
    "parts/problems.js",
    "parts/queue_table.js",
    "parts/quick_filter.js",
    "parts/run_again.js",
    "parts/save.js",
    "parts/schedule_form.js",
    "parts/snooze.js",
    "parts/states.js",
    "parts/table.js",
    "parts/timeline.js",
    "parts/toast.js",
    "prefs.js",
    "router.js",
    "screens/audit.js",
    "screens/error.js",
    "screens/errors.js",
    "screens/index.js",
    "screens/job.js",
    "screens/jobs.js",
    "screens/jobs_list.js",
    "screens/kind.js",
    "screens/kinds.js",
    "screens/limits.js",
    "screens/login.js",
    "screens/operation.js",
    "screens/operations.js",
    "screens/overview.js",
    "screens/queue.js",
    "screens/queues.js",
    "screens/schedule.js",
    "screens/schedules.js",
    "screens/tokens.js",
    "screens/worker.js",
    "screens/workers.js",
    "shell.js",
    "style/base.css",
    "style/parts.css",
    "style/shell.css",
    "style/table.css",
    "theme.js",
    "words.js",
];

/// Pages that were loaded before an edit go on with the files that they began with: a screen is fetched when it is needed.
const VERSIONS_KEPT: usize = 8;

/// One version of all files.
pub(super) struct Files {
    pub(super) hash: String,
    by_name: BTreeMap<String, File>,
    /// Modules that every page needs, so that the browser fetches them together.
    preloaded: Vec<String>,
    /// And those of the first screen.
    preloaded_at_home: Vec<String>,
}

pub(super) struct File {
    bytes: Bytes,
    gzip: OnceLock<Bytes>,
    pub(super) content_type: &'static str,
}

static VERSIONS: LazyLock<Mutex<VecDeque<Arc<Files>>>> = LazyLock::new(|| {
    let embedded = EMBEDDED.iter().map(|(name, bytes)| ((*name).to_owned(), Bytes::from_static(bytes)));
    Mutex::new(VecDeque::from([Arc::new(Files::new(embedded.collect()))]))
});

/// The version that a page gets now.
pub(super) fn current() -> Arc<Files> {
    let mut versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    #[cfg(debug_assertions)]
    if let Some(files) = on_disk() {
        let files = Files::new(files);
        if versions.front().is_none_or(|newest| newest.hash != files.hash) {
            versions.push_front(Arc::new(files));
            versions.truncate(VERSIONS_KEPT);
        }
    }
    versions.truncate(VERSIONS_KEPT);
    versions.front().expect("the embedded version was put in, and something always is").clone()
}

/// What the newest page's files are called by: the pulse says it, so that an open page notices that there is another version.
pub(super) fn newest_hash() -> Option<String> {
    let versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    versions.front().map(|files| files.hash.clone())
}

/// The version that a page was made with.
pub(super) fn with_hash(hash: &str) -> Option<Arc<Files>> {
    let versions = VERSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = versions.iter().find(|files| files.hash == hash).cloned();
    drop(versions);
    // Before the first page of this process: a browser that has one of an earlier process.
    known.or_else(|| Some(current()).filter(|files| files.hash == hash))
}

impl Files {
    fn new(mut files: BTreeMap<String, Bytes>) -> Self {
        for (_, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".js")) {
            *bytes = without_comments(&String::from_utf8_lossy(bytes));
        }
        let mut digest = Sha256::new();
        for (name, bytes) in &files {
            digest.update((name.len() as u64).to_be_bytes());
            digest.update(name.as_bytes());
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        }
        let hash = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let (preloaded, preloaded_at_home) = (imports(&files, &["app.js"]), imports(&files, &["app.js", HOME]));
        let by_name = files.into_iter().filter_map(|(name, bytes)| {
            let content_type = content_type(&name)?;
            Some((name, File { bytes, gzip: OnceLock::new(), content_type }))
        });
        Self { hash, by_name: by_name.collect(), preloaded, preloaded_at_home }
    }

    pub(super) fn get(&self, name: &str) -> Option<&File> {
        self.by_name.get(name).filter(|_| name != SHELL)
    }

    /// The page, with links to files below `assets`.
    pub(super) fn shell(&self, assets: &str, is_home: bool) -> String {
        let shell = self.by_name.get(SHELL).map(|file| String::from_utf8_lossy(&file.bytes)).unwrap_or_default();
        let preload = |name: &String| format!("<link rel=\"modulepreload\" href=\"{assets}{name}\">");
        let preloaded = if is_home { &self.preloaded_at_home } else { &self.preloaded };
        let preload: Vec<_> = preloaded.iter().map(preload).collect();
        shell.replace("{assets}", assets).replace("{preload}", &preload.join("\n"))
    }
}

impl File {
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Made once.
    pub(super) fn gzip(&self) -> Bytes {
        let compress = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&self.bytes).and_then(|()| encoder.finish()).map(Bytes::from)
        };
        self.gzip.get_or_init(|| compress().expect("writing to memory does not fail")).clone()
    }
}

const SHELL: &str = "index.html";
const HOME: &str = "screens/overview.js";

fn content_type(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    match extension {
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        "html" => Some("text/html; charset=utf-8"),
        _ => None,
    }
}

/// Types and comments, which nobody needs who does not read the source. Lines stay where they are, so that the browser's say where
/// something went wrong. Only whole lines of `//`, and `/** … */`: neither stands in a string of ours.
fn without_comments(source: &str) -> Bytes {
    let mut shown = String::with_capacity(source.len());
    let mut inside = false;
    for line in source.lines() {
        let mut rest = line;
        loop {
            if inside {
                let Some((_, after)) = rest.split_once("*/") else { break };
                (rest, inside) = (after, false);
            } else if rest.trim_start().starts_with("//") {
                break;
            } else if let Some((before, after)) = rest.split_once("/**") {
                shown.push_str(before.trim_end_matches(|c| c == ' ' && before.trim().is_empty()));
                (rest, inside) = (after, true);
            } else {
                shown.push_str(rest);
                break;
            }
        }
        shown.push('\n');
    }
    shown.into()
}

/// What these modules import, directly or not, and the ones after the first; not what they import on demand.
fn imports(files: &BTreeMap<String, Bytes>, roots: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = roots.iter().skip(1).map(|root| (*root).to_owned()).collect();
    let mut unread: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
    while let Some(name) = unread.pop() {
        let Some(source) = files.get(&name) else { continue };
        let source = String::from_utf8_lossy(source);
        let imported =
            source.lines().filter(|line| line.starts_with("import ")).filter_map(|line| line.split('"').nth(1));
        for path in imported {
            let path = resolve(&name, path);
            if !found.contains(&path) && files.contains_key(&path) {
                found.push(path.clone());
                unread.push(path);
            }
        }
    }
    found
}

/// A relative import of a module, from the root of the files.
fn resolve(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What is served of the directory: not the checks, the types or what npm installed. `None`: the sources are not here.
#[cfg(any(debug_assertions, test))]
fn on_disk() -> Option<BTreeMap<String, Bytes>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let mut files = BTreeMap::new();
    for folder in ["", "core", "parts", "screens", "style"] {
        for entry in std::fs::read_dir(root.join(folder)).ok()?.flatten() {
            let name = entry.file_name().into_string().ok()?;
            if content_type(&name).is_some() && entry.file_type().ok()?.is_file() {
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                files.insert(path, Bytes::from(std::fs::read(entry.path()).ok()?));
            }
        }
    }
    Some(files).filter(|files| files.contains_key(SHELL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_directory_is_in_the_program() {
        let listed: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        let there = on_disk().expect("the sources are here");
        let there: Vec<&str> = there.keys().map(String::as_str).collect();
        assert_eq!(listed, there, "src/api/dashboard_list.rs is made by ui/check --list");
    }

    #[test]
    fn the_first_view_is_preloaded_and_screens_are_not() {
        let files = current();
        for name in ["core/html.js", "core/signal.js", "api.js", "live.js", "words.js"] {
            assert!(files.preloaded.iter().any(|one| one == name), "{name}: {:?}", files.preloaded);
        }
        assert!(!files.preloaded.iter().any(|name| name.starts_with("screens/") && name != "screens/index.js"));
        assert!(files.preloaded_at_home.iter().any(|name| name == HOME));
        let shell = files.shell("../_/x/", false);
        assert!(shell.contains("src=\"../_/x/app.js\"") && !shell.contains('{'), "{shell}");
    }

    #[test]
    fn comments_stay_at_home_and_lines_where_they_are() {
        let source = "// for\n/** a\n * b */\nconst x = /** @type {A} */ (y); /** c */\n  // d\n`http://${z}`;\n";
        assert_eq!(&without_comments(source)[..], b"\n\n\nconst x =  (y); \n\n`http://${z}`;\n");
        for (name, file) in current().by_name.iter().filter(|(name, _)| name.ends_with(".js")) {
            let text = String::from_utf8_lossy(&file.bytes);
            assert!(!text.contains("/**") && !text.lines().any(|line| line.trim_start().starts_with("//")), "{name}");
            let of_source =
                on_disk().expect("the sources are here")[name].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(text.lines().count(), of_source, "{name}");
        }
    }

    #[test]
    fn another_byte_is_another_hash_and_so_is_another_name() {
        let of = |name: &str, bytes: &'static [u8]| {
            Files::new(BTreeMap::from([(name.to_owned(), Bytes::from_static(bytes))])).hash
        };
        assert_eq!(of("a.js", b"1"), of("a.js", b"1"));
        assert_ne!(of("a.js", b"1"), of("a.js", b"2"));
        assert_ne!(of("a.js", b"1"), of("b.js", b"1"));
    }

    #[test]
    fn what_the_budgets_allow_is_not_exceeded() {
        let files = current();
        let size = |name: &str| files.by_name[name].gzip().len();
        let first_js: usize =
            files.preloaded_at_home.iter().map(|name| size(name)).sum::<usize>() + size("app.js") + size("theme.js");
        let css: usize = files.by_name.keys().filter(|name| name.ends_with(".css")).map(|name| size(name)).sum();
        let all: usize = files.by_name.values().map(|file| file.gzip().len()).sum();
        assert!(first_js <= 40_000, "{first_js} bytes of scripts for the first view");
        assert!(css <= 10_000, "{css} bytes of styles");
        let shell =
            File { bytes: files.shell("_/0123456789abcdef/", true).into(), gzip: OnceLock::new(), content_type: "" };
        assert!(shell.gzip().len() <= 2_000, "{} bytes of the page itself", shell.gzip().len());
        assert!(all <= 300_000, "{all} bytes in the program");
    }
}
