//! `backstop token`: an access token for the dashboard. Only its hash is kept anywhere.

use anyhow::Context;
use backstop_admin::{Role, Token};

pub(crate) fn run(name: &str, role: &str) -> anyhow::Result<()> {
    let text = fresh()?;
    let hash = Token::of(name, Role::Viewer, &text).hash_in_hex();
    println!("token, shown only now: {text}");
    println!();
    println!("server:");
    println!("  tokens:");
    println!("    - name: {name}");
    println!("      role: {role}");
    println!("      sha256: {hash}");
    Ok(())
}

/// Enough random bits that a fast hash hides it.
fn fresh() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).context("cannot get random numbers from the system")?;
    Ok(bytes.iter().fold("bst_".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}
