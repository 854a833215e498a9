//! The workspace on disk: where it is, and which files it holds.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Folders whose Rust files are ours to check.
const SOURCE_FOLDERS: [&str; 4] = ["crates", "xtask", "examples", "faults"];

/// The root of the clone this program belongs to.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// Finds the workspace above the manifest that cargo names, or else above the one this program was built from.
    pub(crate) fn find() -> Result<Self> {
        let named = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let built = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        // A test that calls this program hands down the manifest of its own crate: walk up until `xtask` shows.
        let root = [named, Some(built)]
            .into_iter()
            .flatten()
            .find_map(|start| {
                start
                    .ancestors()
                    .find(|folder| folder.join("xtask/Cargo.toml").is_file())
                    .map(Path::to_path_buf)
            })
            .context("the workspace was not found; run this as `cargo xtask` from inside the clone")?;
        Ok(Self { root })
    }

    /// A path inside the workspace.
    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// How a path is shown to people: relative to the root.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// Every Rust file under `crates/`, `xtask/`, `examples/` and `faults/`, sorted.
    pub(crate) fn rust_files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for folder in SOURCE_FOLDERS {
            collect(&self.root.join(folder), "rs", &mut files)?;
        }
        files.sort();
        Ok(files)
    }

    /// Every Markdown file of the workspace, sorted.
    pub(crate) fn markdown_files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        collect(&self.root, "md", &mut files)?;
        files.sort();
        Ok(files)
    }
}

/// The last part of a path as text.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What a folder holds, sorted; nothing if there is no such folder.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let cannot = || format!("cannot list {}; check its permissions", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        paths.push(entry.with_context(cannot)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The text of a file, with an error that names it.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .with_context(|| format!("cannot read {}; check that it is readable UTF-8", path.display()))
}

/// Writes a file, with an error that names it.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}; check its permissions", path.display()))
}

/// Makes a folder and its parents, with an error that names it.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .with_context(|| format!("cannot make the folder {}; check its permissions", path.display()))
}

fn collect(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    for path in entries(folder)? {
        let name = file_name(&path);
        // Build output and hidden folders are not ours; a link could lead anywhere, or round in circles.
        if path.is_symlink() || name == "target" || name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            collect(&path, extension, files)?;
        } else if path.extension() == Some(OsStr::new(extension)) {
            files.push(path);
        }
    }
    Ok(())
}
