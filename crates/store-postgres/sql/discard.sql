WITH matching AS (
  SELECT count(*) AS rows FROM "{t}" WHERE status IN ('pending', 'failed', 'invalid') AND {matches}),
picked AS MATERIALIZED (
  SELECT id FROM "{t}" WHERE status IN ('pending', 'failed', 'invalid') AND {matches}
  ORDER BY seq LIMIT $1 FOR UPDATE),
changed AS (
  DELETE FROM "{t}" AS o USING picked WHERE o.id = picked.id RETURNING o.id, o.type, o.ordering_key, o.status),
logged AS (
  INSERT INTO "{t}_log" (who, why, action, row_id, type, ordering_key, status)
  SELECT $7, $8, 'discard', id, type, ordering_key, status FROM changed RETURNING 1),
done AS (SELECT count(*) AS rows FROM logged)
-- what waited behind them is read again at once
SELECT matching.rows, done.rows,
  CASE WHEN done.rows > 0 THEN pg_notify('posthaste_' || '"{t}"'::regclass::oid, 'rewind') END
FROM matching, done
