use clap::Parser;

use super::*;

/// What `serve` says to an option that it refuses.
fn refusal(option: &str, value: &str) -> Option<String> {
    Cli::try_parse_from(["tidefall", "serve", option, value]).err().map(|error| error.to_string())
}

#[test]
fn limits_of_a_server_are_checked() {
    for (option, value) in [
        ("--threads", "8"),
        ("--body-max", "1MiB"),
        ("--memory", "1TiB"),
        ("--listen", "127.0.0.1:8527"),
        ("--listen", "[::1]:0"),
        ("--listen", "localhost:8527"),
    ] {
        assert_eq!(refusal(option, value), None, "{option} {value}");
    }
    for (option, value, why) in [
        ("--threads", "100000", "at most 1024 threads"),
        ("--threads", "many", "invalid digit"),
        ("--body-max", "0", "no request would fit"),
        ("--memory", "99999999TiB", "too large"),
        ("--memory", "99999999999999999999999", "too large"),
        ("--memory", "much", "not a size"),
        ("--listen", ":8527", "the address is missing"),
        ("--listen", "127.0.0.1", "write an address and a port"),
    ] {
        let refusal = refusal(option, value).unwrap_or_default();
        assert!(refusal.contains(why), "{option} {value}: {refusal}");
    }
}

#[test]
fn types_have_the_names_of_sql() {
    for ty in FieldType::ALL {
        assert_eq!(
            parse_type(&format!("v={}", ty.sql_name().to_lowercase())),
            Ok(("v".into(), ty))
        );
    }
    assert!(parse_type("v=NUMBER").unwrap_err().contains("BIGINT UNSIGNED, REAL, DOUBLE"));
    assert!(parse_type("DOUBLE").unwrap_err().contains("not name=value"));
}
