//! `backstop target`: the targets of a daemon that runs. A disabled one lives in its memory, so the daemon is asked.

mod args;

use anyhow::bail;
use serde_json::{Value, json};

pub(crate) use args::Command;

use crate::api::Api;
use crate::output::{Output, count};
use crate::plain::{escaped, plain};

/// What the daemon calls components that are targets.
const KINDS: [&str; 2] = ["webhook", "topic"];

/// Stands between whose events a target is for and its own name, where the daemon shows it.
pub(crate) const ARROW: &str = " → ";

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(&args).await,
        Command::Enable(args) => enable(&args).await,
    }
}

async fn list(args: &args::List) -> anyhow::Result<()> {
    let targets = targets(&Api::of(&args.reach, &args.config)?).await?;
    let mut output = Output::new();
    for target in &targets {
        let line = if args.json {
            escaped(&target.0.to_string())
        } else {
            let parts = [target.text("kind"), target.name(), target.health("status"), target.health("why")];
            plain(parts.join("  ").trim_end())
        };
        if !output.line(&line)? {
            return Ok(());
        }
    }
    output.end()?;
    eprintln!("{}", count(targets.len() as u64, "target", "targets"));
    Ok(())
}

async fn enable(args: &args::Enable) -> anyhow::Result<()> {
    let api = Api::of(&args.reach, &args.config)?;
    let targets = targets(&api).await?;
    let meant: Vec<_> = targets.iter().filter(|target| target.is_called(&args.name)).collect();
    let listed = |targets: &[&Target]| -> String {
        let names: Vec<_> = targets.iter().map(|target| format!("\n  {}", plain(target.name()))).collect();
        names.concat()
    };
    let [target] = meant[..] else {
        let name = plain(&args.name);
        match (meant.len(), targets.len()) {
            (0, 0) => bail!("the daemon has no targets"),
            (0, _) => {
                bail!("there is no target {name}; there are{}", listed(&targets.iter().collect::<Vec<_>>()))
            }
            (many, _) => bail!("{many} targets are called {name}; name one as a whole{}", listed(&meant)),
        }
    };
    let asked = json!({"kind": target.text("kind"), "name": target.name(), "operation": "enable"});
    let done = api.post("/api/v1/operations", &asked).await?;
    let told = done["told"].as_str().unwrap_or_default();
    eprintln!("{}: {}", plain(target.name()), plain(told));
    Ok(())
}

/// A target, as the daemon reports it.
struct Target(Value);

impl Target {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.text("name")
    }

    fn health(&self, key: &str) -> &str {
        self.0["health"][key].as_str().unwrap_or_default()
    }

    /// By its own name, or by the one that also tells whose events it is for.
    fn is_called(&self, name: &str) -> bool {
        let own = self.name().rsplit_once(ARROW).map(|(_, own)| own);
        self.name() == name || own == Some(name)
    }
}

async fn targets(api: &Api) -> anyhow::Result<Vec<Target>> {
    let all = api.components().await?.into_iter().map(Target);
    Ok(all.filter(|target| KINDS.contains(&target.text("kind"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_called_by_its_own_name_or_the_whole() {
        let target = Target(json!({"name": "orders: OrderPlaced (Order) → https://example.com"}));
        for name in ["https://example.com", "orders: OrderPlaced (Order) → https://example.com"] {
            assert!(target.is_called(name), "{name}");
        }
        for name in ["", "example.com", "orders", "→ https://example.com"] {
            assert!(!target.is_called(name), "{name}");
        }
    }
}
