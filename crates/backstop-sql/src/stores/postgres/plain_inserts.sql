-- For rows that others insert with plain SQL. It may be run again.

-- Defaults for what such a statement leaves out, where the column has none. Rows of one transaction keep their order.
DO $backstop$
DECLARE
  missing RECORD;
BEGIN
  FOR missing IN
    -- A column without a time zone is told which one it is in: the session that inserts may be in any.
    SELECT wanted.name,
           wanted.value || CASE WHEN a.atttypid = 'timestamp'::regtype THEN $${ahead}$$ ELSE '' END AS value
    FROM (VALUES ('status', '0'), ('attempts', '0'), ('available_at', 'now()'), ('created_at', 'clock_timestamp()'))
      AS wanted (name, value)
    JOIN pg_attribute a ON a.attrelid = '{table}'::regclass AND a.attname = wanted.name
    WHERE NOT a.atthasdef AND NOT a.attisdropped
  LOOP
    EXECUTE format('ALTER TABLE {table} ALTER COLUMN %I SET DEFAULT %s', missing.name, missing.value);
  END LOOP;
END
$backstop$;

-- Wakes the nodes that listen, on the channel of the table. NOTIFY is sent by the commit, and once for each transaction.
-- Rows that are born claimed have a node that delivers them already.
CREATE OR REPLACE FUNCTION backstop_wake_up() RETURNS trigger LANGUAGE plpgsql AS $backstop$
BEGIN
  IF EXISTS (SELECT 1 FROM inserted WHERE locked_by IS NULL) THEN
    PERFORM pg_catalog.pg_notify('backstop_' || pg_catalog.md5(TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME), '');
  END IF;
  RETURN NULL;
END
$backstop$;

DROP TRIGGER IF EXISTS backstop_wake_up ON {table};
CREATE TRIGGER backstop_wake_up AFTER INSERT ON {table}
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION backstop_wake_up();
