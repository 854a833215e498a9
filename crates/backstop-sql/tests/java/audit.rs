//! The table's own record of what must not happen, and a look at every field.

use backstop_sql::store::DatabaseKind;

use crate::framework::Framework;

/// What no update may do: take a row from an owner whose lock is younger than the time-out (which the tests set to five
/// minutes on both sides), move a row that has ended, forget a try, or write what the framework does not know.
const WRONG: &str =
    "(OLD.locked_by IS NOT NULL AND NEW.locked_by IS NOT NULL AND NEW.locked_by <> OLD.locked_by
      AND OLD.locked_at >= NEW.locked_at - INTERVAL MINUTES)
    OR (OLD.status IN (1, 3) AND NEW.status <> OLD.status)
    OR NEW.status NOT IN (0, 1, 2, 3) OR NEW.attempts < OLD.attempts
    OR (NEW.locked_by IS NULL) <> (NEW.locked_at IS NULL)
    OR (NEW.status IN (1, 3) AND NEW.locked_by IS NOT NULL)
    OR NEW.created_at <> OLD.created_at OR NEW.event_type <> OLD.event_type";

const TOLD: &str = "CONCAT(OLD.event_id, ': ', OLD.status, ' ', COALESCE(OLD.locked_by, '-'), ' > ', NEW.status, ' ', \
                    COALESCE(NEW.locked_by, '-'))";

/// Lets the table write down every update that must not happen.
pub(crate) async fn watch(java: &Framework) {
    java.run_text("CREATE TABLE audit_fault (what VARCHAR(400) NOT NULL)").await;
    if java.kind == DatabaseKind::Postgres {
        let wrong = WRONG.replace("INTERVAL MINUTES", "INTERVAL '5 minutes'");
        java.run_text(&format!(
            "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
               IF {wrong} THEN INSERT INTO audit_fault VALUES ({TOLD}); END IF;
               RETURN NULL;
             END $$;
             CREATE TRIGGER audit AFTER UPDATE ON outbox_event FOR EACH ROW EXECUTE FUNCTION audit()"
        ))
        .await;
    } else {
        let wrong = WRONG.replace("INTERVAL MINUTES", "INTERVAL 5 MINUTE");
        java.run_text(&format!(
            "CREATE TRIGGER audit AFTER UPDATE ON outbox_event FOR EACH ROW
             INSERT INTO audit_fault SELECT {TOLD} FROM (SELECT 1) AS one WHERE {wrong}"
        ))
        .await;
    }
}

/// What the table has written down.
pub(crate) async fn faults(java: &Framework) -> Vec<String> {
    java.texts("SELECT what FROM audit_fault").await
}

/// Rows with a field that the framework could not have written itself, one for each reason.
pub(crate) async fn strange_rows(java: &Framework) -> Vec<String> {
    let reasons = [
        ("status", "status NOT IN (0, 1, 2, 3)"),
        ("attempts", "attempts < 0"),
        ("a try without an error", "attempts > 0 AND last_error IS NULL"),
        ("an error that is too long", "CHAR_LENGTH(last_error) > 4000"),
        ("half a lock", "(locked_by IS NULL) <> (locked_at IS NULL)"),
        ("an ended row that is locked", "status IN (1, 3) AND locked_by IS NOT NULL"),
        ("done at no time", "status = 1 AND done_at IS NULL"),
        ("dead without a reason", "status = 3 AND last_error IS NULL"),
        ("waiting, and done at some time", "status IN (0, 2) AND done_at IS NOT NULL"),
        ("done before it was created", "done_at < created_at"),
        ("due before it was created", "available_at < created_at"),
    ];
    let each = reasons.map(|(reason, condition)| {
        format!("SELECT CONCAT(event_id, ': {reason}') FROM outbox_event WHERE {condition}")
    });
    java.texts(&each.join(" UNION ALL ")).await
}
