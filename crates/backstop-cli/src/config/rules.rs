//! Rules between settings, beyond the rules of each.

use std::collections::{BTreeMap, BTreeSet};

use backstop_core::config::Config;
use backstop_core::setting::{Faults, SettingFault};
use backstop_disk::dlq;
use backstop_sql::outbox;
use backstop_sql::queue::{self, OnFailure};
use backstop_sql::store::DatabaseKind;
use backstop_sql::{Error, TimeZone, TlsMode};

use super::fault::{Findings, Place};
use super::settings::{Database, Dlq, Handler, Mode, OnDatabase, Outbox, Queue, Settings};
use super::suggest::suggestion;
use super::walk::Places;
use crate::handlers;

/// Checks everything. What a faulty value would lead to is not said again.
pub(crate) fn check(settings: &Settings, places: &Places, findings: &mut Findings) {
    let mut rules = Rules { places, findings };
    let nothing = settings.outbox.is_empty() && settings.queue.is_empty();
    if nothing && !rules.places.has("outbox") && !rules.places.has("queue") {
        let what = "is required, or a queue: there is nothing to run; `backstop init` writes an example";
        rules.fault("outbox", what);
    }
    for outbox in &settings.outbox {
        rules.outbox(outbox);
    }
    for queue in &settings.queue {
        rules.queue(queue);
    }
    rules.apart(settings);
    rules.dead_letters(settings);
    rules.server(&settings.server);
}

struct Rules<'a> {
    places: &'a Places,
    findings: &'a mut Findings,
}

impl Rules<'_> {
    fn fault(&mut self, path: &str, what: impl Into<String>) {
        if !self.findings.is_faulty(path) {
            let place = self.places.of(path);
            self.findings.fault(place, path, what);
        }
    }

    /// A component's settings by its own rules.
    fn own(&mut self, path: &str, config: &impl Config) {
        let mut faults = Faults::default();
        config.check(&mut faults);
        self.faults(path, &faults.into_vec());
    }

    /// What a component says of its own settings.
    fn faults(&mut self, path: &str, faults: &[SettingFault]) {
        let told = faults.iter().map(|fault| (format!("{path}.{}", fault.path()), &fault.rule));
        // First what is wrong already: one setting may break several rules.
        let told: Vec<_> = told.filter(|(path, _)| !self.findings.is_faulty(path)).collect();
        for (path, rule) in told {
            let place = self.places.of(&path);
            self.findings.fault(place, &path, rule);
        }
    }

    fn warn(&mut self, path: &str, what: impl Into<String>) {
        let place = self.places.of(path);
        self.findings.warn(place, path, what);
    }

    /// A section and its line, for a fault that stands elsewhere.
    fn told(&self, path: &str) -> String {
        match self.places.of(path) {
            Place::File { line, .. } => format!("{path} on line {line}"),
            Place::Variable(_) => path.to_owned(),
        }
    }

    fn outbox(&mut self, outbox: &Outbox) {
        let (Outbox { path, mode, database, .. }, config) = (outbox, outbox.config());
        self.own(path, &config);
        if *mode == Mode::MultiNode && !config.claim_locking.enabled {
            let what =
                "multi-node requires claim-locking.enabled: true, so that two nodes do not take the same row";
            self.fault(&format!("{path}.claim-locking.enabled"), what);
        }
        let kind = DatabaseKind::of(database.url.reveal()).ok();
        if database.table.behind_pooler && kind.is_some_and(|kind| kind != DatabaseKind::Postgres) {
            self.fault(&format!("{path}.database.behind-pooler"), "is for PostgreSQL only");
        }
        if kind == Some(DatabaseKind::Sqlite)
            && TimeZone::new(&database.table.time_zone).is_ok_and(|zone| zone != TimeZone::default())
        {
            self.fault(
                &format!("{path}.database.time-zone"),
                "has no effect on SQLite, which keeps times in UTC",
            );
        }
        self.tls(path, database);
        self.beside_java(outbox);
        self.guard(outbox);
        if *mode != Mode::WriterOnly && outbox.handlers.is_empty() {
            let what = "is required: without handlers every event would be dead at once; for change-data capture use \
                        mode: writer-only";
            self.fault(&format!("{path}.handlers"), what);
        }
        self.without_effect(outbox, &config);
        self.handlers(&outbox.handlers);
    }

    fn queue(&mut self, queue: &Queue) {
        let (Queue { path, database, .. }, config) = (queue, queue.config());
        self.own(path, &config);
        let kind = DatabaseKind::of(database.url.reveal()).ok();
        if database.table.behind_pooler && kind.is_some_and(|kind| kind != DatabaseKind::Postgres) {
            self.fault(&format!("{path}.database.behind-pooler"), "is for PostgreSQL only");
        }
        self.tls(path, database);
        self.handlers(&queue.handlers);
        if queue.handlers.is_empty() && !self.places.has(&format!("{path}.handlers")) {
            self.warn(path, "has no handlers, so no events are taken from it: it is shown, and purged");
        }
        let idle = [
            ("retry", config.worker.on_failure == OnFailure::Retry, "on-failure: retry"),
            ("dead-letter-timeout", queue.dlq.is_some(), "dlq"),
        ];
        for (key, has_effect, without) in idle {
            let path = format!("{path}.{key}");
            if self.places.has(&path) && !has_effect {
                self.warn(&path, format!("has no effect without {without}"));
            }
        }
        self.switched_off(&format!("{path}.purge"), config.purge.enabled);
    }

    /// A group that is given and not switched on.
    fn switched_off(&mut self, group: &str, enabled: bool) {
        if self.places.has(group) && !enabled && !self.places.has(&format!("{group}.enabled")) {
            self.warn(group, "has no effect without enabled: true");
        }
    }

    /// What the settings for TLS say for themselves, and beside the URL.
    fn tls<T>(&mut self, path: &str, database: &Database<T>) {
        let path = format!("{path}.database");
        match DatabaseKind::check_with(database.url.reveal(), &database.tls) {
            Err(Error::Settings { faults }) => self.faults(&path, &faults),
            // Said where the value was read, or true only beside these settings.
            Err(Error::Url { why, .. }) => {
                self.fault(&format!("{path}.url"), format!("cannot be used: {why}"));
            }
            _ => {}
        }
        let mode = format!("{path}.tls.mode");
        if database.tls.mode == Some(TlsMode::VerifyCa) && !self.findings.is_faulty(&mode) {
            let what = "leaves the server's name unchecked, and the system's root certificates count beside `ca`, so any \
                        authority among them could vouch for an impostor; use verify-full where the certificate has the \
                        host's name";
            self.warn(&mode, what);
        }
    }

    /// The Java framework knows of claims, and of nothing else that could keep two from the same row.
    fn beside_java(&mut self, Outbox { path, mode, database, .. }: &Outbox) {
        if !database.table.beside_java {
            return;
        }
        if *mode != Mode::MultiNode {
            let what = format!(
                "needs mode: multi-node, not {mode}: only claims keep two processes from taking the same row"
            );
            self.fault(&format!("{path}.database.beside-java"), what);
        }
        if self.places.has(&format!("{path}.claim-locking.hot-grace")) {
            let what = "has no effect with database.beside-java: born claims last as long as any other";
            self.warn(&format!("{path}.claim-locking.hot-grace"), what);
        }
    }

    /// A lock belongs to a session, and behind a pooler no session is a node's own.
    fn guard(&mut self, Outbox { path, mode, database, .. }: &Outbox) {
        let alone = matches!(mode, Mode::SingleNode | Mode::Ordered);
        if alone && database.table.guard && database.table.behind_pooler {
            let what = format!(
                "does not work in mode {mode} behind a pooler: use mode: multi-node, or make sure that there is one \
                 process, and write guard: false"
            );
            let key =
                if self.places.has(&format!("{path}.database.guard")) { "guard" } else { "behind-pooler" };
            let what = if key == "guard" { what } else { format!("database.guard {what}") };
            self.fault(&format!("{path}.database.{key}"), what);
        }
    }

    /// Settings that have no effect in the mode, or while their group is switched off.
    fn without_effect(&mut self, Outbox { path, mode, .. }: &Outbox, config: &outbox::Config) {
        let idle: &[&str] = match mode {
            Mode::MultiNode => &[],
            Mode::SingleNode => &["claim-locking"],
            Mode::Ordered => &[
                "claim-locking",
                "retry",
                "dispatcher.worker-count",
                "dispatcher.max-attempts",
                "dispatcher.hot-queue-capacity",
                "dispatcher.cold-queue-capacity",
            ],
            Mode::WriterOnly => {
                &["claim-locking", "retry", "dispatcher", "poller", "handlers", "dlq", "database.guard"]
            }
        };
        for key in idle {
            let path = format!("{path}.{key}");
            if self.places.has(&path) {
                self.warn(&path, format!("has no effect in mode {mode}"));
            }
        }
        let groups = [("purge", config.purge.enabled), ("claim-locking", config.claim_locking.enabled)];
        for (group, enabled) in groups {
            let path = format!("{path}.{group}");
            let told = idle.contains(&group) || (group == "claim-locking" && *mode == Mode::MultiNode);
            if !told {
                self.switched_off(&path, enabled);
            }
        }
    }

    fn handlers(&mut self, handlers: &[Handler]) {
        let mut pairs = BTreeMap::new();
        for handler in handlers {
            self.handler(handler);
            for event_type in handler.event_type.iter().filter(|name| !name.is_empty()) {
                let pair = (handler.aggregate_type.as_deref(), event_type);
                if let Some(before) = pairs.insert(pair, &handler.path) {
                    let path = format!("{}.event-type", handler.path);
                    self.fault(&path, format!("`{event_type}` has a handler already: {before}"));
                }
            }
        }
    }

    fn handler(&mut self, handler: &Handler) {
        if handler.is_for_the_rest() {
            let others = handler.event_type.len() > 1 || handler.aggregate_type.is_some();
            if others || handler.dlq.is_some() {
                let what = "`*` must be alone: it takes all events that have no other handler, so it has neither an \
                            aggregate-type nor a dlq of its own";
                self.fault(&format!("{}.event-type", handler.path), what);
            }
        }
        match handlers::Target::of(handler).as_slice() {
            [target] => self.faults(&format!("{}.{}", handler.path, target.word()), &target.faults()),
            [] => self.fault(&handler.path, "names no target; add one of log, http, kafka"),
            several => {
                let words: Vec<_> = several.iter().map(handlers::Target::word).collect();
                self.fault(&handler.path, format!("must have one of {}, not several", words.join(", ")));
            }
        }
    }

    /// Outboxes and queues of one file share a process: names and tables must be apart. Metrics are, by the names.
    fn apart(&mut self, settings: &Settings) {
        let (mut names, mut tables) = (BTreeMap::new(), BTreeMap::new());
        for outbox in &settings.outbox {
            self.has_own_name(outbox, &outbox.path, settings.outbox.len(), &mut names);
            let table = &outbox.database.table.table;
            self.has_own_tables(outbox, &outbox.path, &outbox.database, &[("table", table)], &mut tables);
        }
        for queue in &settings.queue {
            self.has_own_name(queue, &queue.path, settings.queue.len(), &mut names);
            let queue::Tables { table, log_table, .. } = &queue.database.table;
            let own = [("table", table), ("log-table", log_table)];
            // That the two are one is told by its own rules.
            let own = if table == log_table { &own[..1] } else { &own[..] };
            self.has_own_tables(queue, &queue.path, &queue.database, own, &mut tables);
        }
    }

    fn has_own_name<'a, C: OnDatabase>(
        &mut self,
        component: &'a C,
        path: &'a str,
        of: usize,
        names: &mut BTreeMap<&'a str, &'a str>,
    ) {
        let (word, _) = C::WORDS;
        if of > 1 && !self.places.has(&format!("{path}.name")) {
            self.fault(&format!("{path}.name"), "is required where there are several");
        } else if let Some(before) = names.insert(component.name(), path) {
            let (name, taken) = (component.name(), self.told(before));
            let what = format!("the name `{name}` is taken by {taken}; give each {word} its own");
            self.fault(&format!("{path}.name"), what);
        }
    }

    fn has_own_tables<'a, C: OnDatabase, T>(
        &mut self,
        component: &'a C,
        path: &str,
        database: &'a Database<T>,
        own: &[(&str, &'a String)],
        tables: &mut BTreeMap<(&'a str, &'a str), String>,
    ) {
        let (url, word) = (database.url.reveal(), C::WORDS.0);
        for (key, table) in own.iter().filter(|(_, table)| !url.is_empty() && !table.is_empty()) {
            let user = format!("{word} `{}`", component.name());
            if let Some(before) = tables.insert((url, table.as_str()), user) {
                self.fault(&format!("{path}.database.{key}"), format!("{before} has this table already"));
            }
        }
    }

    /// Directories are apart, and those that outboxes name are there.
    fn dead_letters(&mut self, settings: &Settings) {
        let (mut names, mut directories) = (BTreeMap::new(), BTreeMap::new());
        for Dlq { path, name, config } in &settings.dlq {
            self.own(path, config);
            let dlq::Config { directory, rolling, .. } = config;
            if let Some(before) = names.insert(name.as_str(), path) {
                let what = format!(
                    "the name `{name}` is taken by {}; give each directory its own",
                    self.told(before)
                );
                self.fault(&format!("{path}.name"), what);
            }
            if let Some(before) =
                directories.insert(directory, name).filter(|_| !directory.as_os_str().is_empty())
            {
                let what = format!("dlq `{before}` has this directory already");
                self.fault(&format!("{path}.directory"), what);
            }
            self.switched_off(&format!("{path}.rolling"), rolling.enabled);
        }
        let mut users = Vec::new();
        for outbox in &settings.outbox {
            let handlers = outbox.handlers.iter().map(|handler| (&handler.path, &handler.dlq));
            users.push((&outbox.path, &outbox.dlq));
            users.extend(handlers);
        }
        users.extend(settings.queue.iter().map(|queue| (&queue.path, &queue.dlq)));
        let mut used = BTreeSet::new();
        for (path, name) in users {
            let Some(name) = name.as_deref() else { continue };
            used.insert(name);
            if !names.contains_key(name) {
                self.fault(&format!("{path}.dlq"), unknown_directory(name, &names));
            }
        }
        for Dlq { path, name, .. } in &settings.dlq {
            if !used.contains(name.as_str()) {
                let what =
                    format!("no outbox, queue or handler says dlq: {name}, so nothing is written there");
                self.warn(path, what);
            }
        }
    }

    fn server(&mut self, server: &backstop_admin::Config) {
        self.own("server", server);
        let mut names = BTreeMap::new();
        for (index, token) in server.tokens.iter().enumerate().filter(|(_, token)| !token.name.is_empty()) {
            let path = format!("server.tokens[{index}]");
            if let Some(before) = names.insert(&token.name, path.clone()) {
                let what = format!("the name `{}` is taken by {}", token.name, self.told(&before));
                self.fault(&format!("{path}.name"), what);
            }
        }
    }
}

fn unknown_directory(name: &str, known: &BTreeMap<&str, &String>) -> String {
    let closest = match suggestion(name, known.keys().copied()) {
        _ if known.is_empty() => "; there is no section `dlq` at the top level".to_owned(),
        none if none.is_empty() => {
            format!("; known are {}", known.keys().copied().collect::<Vec<_>>().join(", "))
        }
        closest => closest,
    };
    format!("there is no dlq with the name `{name}`{closest}")
}
