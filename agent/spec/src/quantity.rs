//! The numeric values of quantities: `100m` is 0.100, `1Ki` is 1024.

use super::scalars::Quantity;

/// Binary suffixes and their exponents of two.
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
/// Decimal suffixes and their exponents of ten.
const DECIMAL: [(&str, i32); 9] =
    [("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// The largest accepted exponent of ten, positive or negative. Kubernetes' own suffixes range only from nano to exa.
const LARGEST_EXPONENT: u32 = 40;

impl From<&str> for Quantity {
    fn from(text: &str) -> Quantity {
        Quantity(text.to_owned())
    }
}

impl Quantity {
    /// The amount in decimal notation, as kOps writes it into flags (`resource.Quantity.AsDec`): `100m` becomes `0.100`, and `1Ki` becomes
    /// `1024`. A text that is no quantity stays unchanged.
    pub fn decimal(&self) -> String {
        self.parts().map_or_else(|| self.0.clone(), |(digits, scale)| decimal(digits, scale))
    }

    /// The amount as a floating-point number. `None` if the text is not a quantity.
    pub fn as_f64(&self) -> Option<f64> {
        self.parts().and_then(|(digits, scale)| decimal(digits, scale).parse().ok())
    }

    /// The amount as `digits` × 10^-`scale`.
    fn parts(&self) -> Option<(i128, i32)> {
        let text = self.0.trim();
        if let Some((number, exponent)) =
            BINARY.iter().find_map(|(suffix, exponent)| Some((text.strip_suffix(suffix)?, exponent)))
        {
            let (digits, scale) = number_parts(number)?;
            return Some((digits.checked_mul(1 << exponent)?, scale));
        }
        if let Some((number, exponent)) =
            DECIMAL.iter().find_map(|(suffix, exponent)| Some((text.strip_suffix(suffix)?, exponent)))
        {
            let (digits, scale) = number_parts(number)?;
            return Some((digits, scale - exponent));
        }
        match text.split_once(['e', 'E']) {
            Some((number, exponent)) => {
                let exponent: i32 = exponent.parse().ok()?;
                let (digits, scale) = number_parts(number)?;
                (exponent.unsigned_abs() <= LARGEST_EXPONENT).then(|| (digits, scale - exponent))
            }
            None => number_parts(text),
        }
    }
}

fn number_parts(number: &str) -> Option<(i128, i32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.starts_with(['+', '-']) || fraction.len() > 30 {
        return None;
    }
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, i32::try_from(fraction.len()).ok()?))
}

fn decimal(digits: i128, scale: i32) -> String {
    let Ok(places) = usize::try_from(scale) else {
        let zeros = if digits == 0 { 0 } else { usize::try_from(-scale).unwrap_or(0) };
        return format!("{digits}{}", "0".repeat(zeros));
    };
    if places == 0 {
        return digits.to_string();
    }
    let sign = if digits < 0 { "-" } else { "" };
    let padded = format!("{:0>width$}", digits.unsigned_abs(), width = places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_in_decimal_as_go_writes_them() {
        for (quantity, expected) in [
            ("100m", "0.100"),
            ("1500m", "1.500"),
            ("20", "20"),
            ("1.5", "1.5"),
            ("1Ki", "1024"),
            ("1.5Gi", "1610612736.0"),
            ("2k", "2000"),
            ("1e3", "1000"),
            ("-5m", "-0.005"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(Quantity::from(quantity).decimal(), expected, "{quantity}");
        }
        assert_eq!(Quantity::from("1500m").as_f64(), Some(1.5));
        assert_eq!(Quantity::from("x").as_f64(), None);
    }

    #[test]
    fn an_exponent_out_of_bounds_is_rejected() {
        for quantity in ["1e-70000", "1e70000", "1e41", "1e-2147483648", "1e2147483647", "1e-2147483647"] {
            assert_eq!(Quantity::from(quantity).decimal(), quantity);
            assert_eq!(Quantity::from(quantity).as_f64(), None);
        }
        assert_eq!(Quantity::from("1e40").decimal(), format!("1{}", "0".repeat(40)));
        assert_eq!(Quantity::from("-0.5e-40").decimal(), format!("-0.{}5", "0".repeat(40)));
    }
}
