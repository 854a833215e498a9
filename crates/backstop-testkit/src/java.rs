//! The table of the Java framework that Backstop takes over from, as that framework creates it.

/// Its statements, for a database's JSON type, small integer and moment without a time zone.
///
/// ```
/// let on_mysql = backstop_testkit::java::table("JSON", "TINYINT", "DATETIME(6)");
/// assert!(on_mysql.starts_with("CREATE TABLE outbox_event"));
/// ```
pub fn table(json: &str, small: &str, moment: &str) -> String {
    format!(
        "CREATE TABLE outbox_event (
           event_id VARCHAR(36) PRIMARY KEY,
           event_type VARCHAR(128) NOT NULL,
           aggregate_type VARCHAR(64),
           aggregate_id VARCHAR(128),
           tenant_id VARCHAR(64),
           payload {json} NOT NULL,
           headers {json},
           status {small} NOT NULL,
           attempts INT NOT NULL DEFAULT 0,
           available_at {moment} NOT NULL,
           created_at {moment} NOT NULL,
           done_at {moment},
           last_error TEXT,
           locked_by VARCHAR(128),
           locked_at {moment}
         );
         CREATE INDEX idx_status_available ON outbox_event(status, available_at, created_at)"
    )
}
