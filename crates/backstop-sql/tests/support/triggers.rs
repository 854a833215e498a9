//! Triggers on the table: a database that refuses some updates, or notes them.

#![allow(dead_code, reason = "each test program uses some of it")]

use backstop_sql::store::DatabaseKind;

use crate::fresh::{Database, Fresh};

impl<DB: Database> Fresh<DB> {
    /// From now on updates of rows that meet the condition fail, until the trigger is dropped.
    pub(crate) async fn refuse_updates(&self, trigger: &str, condition: &str) {
        self.run(&match self.kind {
            DatabaseKind::Sqlite => format!(
                "create trigger {trigger} before update on outbox_event when {condition}
                 begin select raise(abort, 'refused on purpose'); end"
            ),
            DatabaseKind::Postgres => format!(
                "create function {trigger}() returns trigger language plpgsql as
                 $$ begin if {condition} then raise exception 'refused on purpose'; end if; return new; end $$;
                 create trigger {trigger} before update on outbox_event for each row execute function {trigger}()"
            ),
            DatabaseKind::Mysql => format!(
                "create trigger {trigger} before update on outbox_event for each row begin
                 if {condition} then signal sqlstate '45000' set message_text = 'refused on purpose'; end if; end"
            ),
        })
        .await;
    }

    /// Lets updates pass again.
    pub(crate) async fn drop_trigger(&self, trigger: &str) {
        let on = if self.kind == DatabaseKind::Postgres { "on outbox_event" } else { "" };
        self.run(&format!("drop trigger {trigger} {on}")).await;
    }

    /// From now on a column of every updated row is noted, in the order of the updates.
    pub(crate) async fn note_updates(&self, column: &str) {
        let number = match self.kind {
            DatabaseKind::Sqlite => "integer primary key",
            DatabaseKind::Postgres => "serial primary key",
            DatabaseKind::Mysql => "integer auto_increment primary key",
        };
        self.run(&format!("create table noted (number {number}, value varchar(100))")).await;
        let note = format!("insert into noted (value) values (new.{column})");
        self.run(&match self.kind {
            DatabaseKind::Sqlite => format!("create trigger note after update on outbox_event begin {note}; end"),
            DatabaseKind::Postgres => format!(
                "create function note() returns trigger language plpgsql as $$ begin {note}; return null; end $$;
                 create trigger note after update on outbox_event for each row execute function note()"
            ),
            DatabaseKind::Mysql => {
                format!("create trigger note after update on outbox_event for each row {note}")
            }
        })
        .await;
    }

    /// What was noted.
    pub(crate) async fn noted(&self) -> Vec<String> {
        self.texts("select value from noted order by number").await
    }
}
