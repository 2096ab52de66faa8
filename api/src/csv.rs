//! Cells of CSV files.

/// Quotes by RFC 4180. A text that a spreadsheet would evaluate as a formula is made a plain text.
pub fn quoted(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '@', '\t', '\r'])
        || (text.starts_with('-') && text.parse::<f64>().is_err());
    let text = if formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn csv_text_is_quoted_and_no_formula() {
        for (text, cell) in [
            ("sgd", "sgd"),
            ("[64,32]", "\"[64,32]\""),
            ("a \"b\"", "\"a \"\"b\"\"\""),
            ("-0.5", "-0.5"),
            ("=1+1", "'=1+1"),
            ("-cmd", "'-cmd"),
        ] {
            assert_eq!(quoted(text), cell);
        }
    }
}
