//! The line ends of files on disk.
//!
//! Files are generated, compared and merged with `\n`. Git can check them out with `\r\n`, so a file that has those is read
//! as if it had the others, and written with those again: a change of one line stays a change of one line.

use std::path::Path;

use crate::project;

/// Whether all lines end with `\r\n`. A file with both ends is the user's own and taken as it is.
fn is_crlf(text: &str) -> bool {
    let lines = text.matches('\n').count();
    lines > 0 && text.matches("\r\n").count() == lines
}

/// The text as it is generated.
pub(crate) fn to_lf(text: String) -> String {
    if is_crlf(&text) { text.replace("\r\n", "\n") } else { text }
}

/// The text as it goes into a file of a project: with the ends that the file has, or for a new one those of `PROJECT`.
pub(crate) fn for_file(root: &Path, path: &Path, text: &str) -> String {
    let has_crlf = |path: &Path| std::fs::read_to_string(path).map(|text| is_crlf(&text));
    let wanted = match has_crlf(path) {
        Ok(crlf) => crlf,
        // The system does not find the interpreter of a script with such a first line.
        Err(_) => !text.starts_with("#!") && has_crlf(&root.join(project::FILE)).unwrap_or(false),
    };
    if wanted && !text.contains('\r') { text.replace('\n', "\r\n") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_line_ends_are_left_alone() {
        for (text, read) in
            [("a\r\nb\r\n", "a\nb\n"), ("a\nb\r\n", "a\nb\r\n"), ("a\r\nb", "a\nb"), ("a", "a"), ("", "")]
        {
            assert_eq!(to_lf(text.to_owned()), read);
        }
    }

    #[test]
    fn files_keep_their_line_ends() {
        let dir = tempfile::tempdir().unwrap();
        let check = |name: &str, text: &str| for_file(dir.path(), &dir.path().join(name), text);
        assert_eq!(check("new", "a\n"), "a\n");
        std::fs::write(dir.path().join("PROJECT"), "a\r\n").unwrap();
        std::fs::write(dir.path().join("lf"), "a\nb\n").unwrap();
        std::fs::write(dir.path().join("crlf"), "a\r\nb\r\n").unwrap();
        assert_eq!(check("new", "a\nb\n"), "a\r\nb\r\n");
        assert_eq!(check("script", "#!/bin/sh\n"), "#!/bin/sh\n");
        assert_eq!(check("lf", "c\n"), "c\n");
        assert_eq!(check("crlf", "c\n"), "c\r\n");
    }
}
