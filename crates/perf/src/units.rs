//! Quantities as people write and read them.

/// Reads a number of bytes: `1500`, `6MB`, `1GiB`, `64k`. `k M G` alone are powers of 1000, as `kB MB GB` are;
/// `KiB MiB GiB` are powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "k" | "kB" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        "Ki" | "KiB" => 1 << 10,
        "Mi" | "MiB" => 1 << 20,
        "Gi" | "GiB" => 1 << 30,
        "Ti" | "TiB" => 1 << 40,
        other => {
            return Err(format!("`{other}` is no unit of bytes: use kB MB GB (1000) or KiB MiB GiB (1024)"));
        }
    };
    let number: f64 = number.parse().map_err(|_| format!("`{text}` does not begin with a number"))?;
    let bytes = number * factor as f64;
    if bytes.fract() != 0.0 || bytes >= u64::MAX as f64 {
        return Err(format!("`{text}` is not a whole number of bytes"));
    }
    Ok(bytes as u64)
}

/// A number of bytes in the largest unit in which it is whole: `6MB`, `1GiB`, `1448B`.
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 6] = [
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1_000),
    ];
    let whole = UNITS.iter().find(|(_, unit)| count >= *unit && count.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{count}B"), |(name, unit)| format!("{}{name}", count / unit))
}

/// A rate in bits per second with three digits: `26.5 Gbit/s`.
pub fn bit_rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, "bit/s")
}

/// A value with three digits and the prefix k, M or G.
pub fn scaled(value: f64, unit: &str) -> String {
    let (value, prefix) = match value.abs() {
        v if v >= 999.5e6 => (value / 1e9, "G"),
        v if v >= 999.5e3 => (value / 1e6, "M"),
        v if v >= 999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{} {prefix}{unit}", digits(value))
}

/// A value with five significant digits, whatever its size: for tables of many kinds of values.
pub fn plain(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if (1e-3..1e6).contains(&v) => {
            let decimals = (4 - v.log10().floor() as i32).clamp(0, 8);
            format!("{value:.*}", decimals.unsigned_abs() as usize)
        }
        _ => format!("{value:.4e}"),
    }
}

/// A value with three significant digits, without an exponent.
pub fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        v if v >= 0.09995 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_their_units() {
        assert_eq!(parse_bytes("6MB"), Ok(6_000_000));
        assert_eq!(parse_bytes("1 GiB"), Ok(1 << 30));
        assert_eq!(parse_bytes("1.5k"), Ok(1500));
        assert_eq!(parse_bytes("0"), Ok(0));
        for bad in ["", "MB", "6 parsecs", "-1", "0.0001k", "1e3"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_written_as_they_are_read() {
        for count in [1, 1448, 6_000_000, 1 << 30, 10 << 30, 65_536] {
            assert_eq!(parse_bytes(&bytes(count)), Ok(count));
        }
        assert_eq!(bytes(6_000_000), "6MB");
        assert_eq!(bytes(1 << 30), "1GiB");
    }

    #[test]
    fn five_digits_of_any_size() {
        assert_eq!(
            [0.0, 1.5e-7, 0.012_345_6, 1.0, 12_345.6, 987_654.0, 26_512_345_678.0].map(plain),
            ["0", "1.5000e-7", "0.012346", "1.0000", "12346", "987654", "2.6512e10"]
        );
    }

    #[test]
    fn three_digits() {
        assert_eq!(bit_rate(26_512_345_678.0), "26.5 Gbit/s");
        assert_eq!(bit_rate(999_900.0), "1.00 Mbit/s");
        assert_eq!(
            [0.0123, 0.1234, 1.234, 12.34, 123.4].map(digits),
            ["0.0123", "0.123", "1.23", "12.3", "123"]
        );
    }
}
