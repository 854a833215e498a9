-- For rows that others insert with plain SQL: defaults for what such a statement leaves out, where the column has none.
-- It may be run again. There are no wake-ups here: polling finds the rows.

SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'status' AND column_default IS NULL) > 0,
  'ALTER TABLE {table} ALTER COLUMN status SET DEFAULT 0', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'attempts' AND column_default IS NULL) > 0,
  'ALTER TABLE {table} ALTER COLUMN attempts SET DEFAULT 0', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'available_at' AND column_default IS NULL) > 0,
  'ALTER TABLE {table} ALTER COLUMN available_at SET DEFAULT (utc_timestamp(6){ahead})', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'created_at' AND column_default IS NULL) > 0,
  'ALTER TABLE {table} ALTER COLUMN created_at SET DEFAULT (utc_timestamp(6){ahead})', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;
