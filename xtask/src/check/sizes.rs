//! The size of source files: one subject a file, short enough to read at once.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::Result;

const MOST_LINES: usize = 600;
const MOST_LINES_OF_TESTS: usize = 800;

/// Checks all `.rs` files below the root, but for what builds leave.
pub fn check(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    let mut wrong = Vec::new();
    for file in files {
        let lines = fs::read_to_string(&file)?.lines().count();
        let name = file.strip_prefix(root).unwrap_or(&file);
        let most = most_lines(name);
        if lines > most {
            wrong.push(format!("{} has {lines} lines, {most} are the most: split it by subject", name.display()));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        let kind = entry.file_type()?;
        if kind.is_dir() && name != "target" && !hidden {
            collect(&entry.path(), files)?;
        } else if kind.is_file() && Path::new(&name).extension().is_some_and(|end| end == "rs") {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn most_lines(file: &Path) -> usize {
    let is_tests = file.iter().any(|part| part == "tests" || part == "tests.rs");
    if is_tests { MOST_LINES_OF_TESTS } else { MOST_LINES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_named_with_its_limit() {
        let root = tempfile::tempdir().unwrap();
        for (file, lines) in [("src/a.rs", 601), ("src/b.rs", 600), ("tests/c.rs", 800), ("target/d.rs", 5000)] {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "\n".repeat(lines)).unwrap();
        }
        let error = check(root.path()).unwrap_err().to_string();
        assert_eq!(error, "src/a.rs has 601 lines, 600 are the most: split it by subject");
    }
}
