//! Sizes as people write them: `8MiB`, `64k`, `1.5 MB`, or a bare number of bytes.

/// Parses a size in bytes. `K`, `M` and `G` alone are powers of 1,024, as `KiB` is; `kB`, `MB` and
/// `GB` are powers of 1,000.
///
/// # Errors
/// What is wrong with the text, and what may be written.
pub fn parse(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no size; write 65536, 64KiB, 8MiB or 1GiB");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| bad())?;
    let factor: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(bad()),
    };
    let bytes = number * factor as f64;
    // Beyond 2^53 a double no longer counts single bytes; nobody has a petabyte of body.
    if bytes > 9e15 { Err(bad()) } else { Ok(bytes.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("8388608", 8 << 20),
            ("8MiB", 8 << 20),
            ("8M", 8 << 20),
            ("64 k", 64 << 10),
            ("1.5MB", 1_500_000),
            ("1GiB", 1 << 30),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "8 bananas", "-1", "1.2.3M", "99999999999G"] {
            assert!(parse(text).unwrap_err().contains("64KiB"), "{text}");
        }
    }
}
