WITH matching AS (
  SELECT count(*) AS rows FROM "{t}" WHERE status IN ('pending', 'failed', 'invalid') AND {matches}),
picked AS MATERIALIZED (
  SELECT id, seq, status AS was FROM "{t}" WHERE status IN ('pending', 'failed', 'invalid') AND {matches}
  ORDER BY seq LIMIT $1 FOR UPDATE),
-- dead letters go to the end, in the order they had
placed AS MATERIALIZED (SELECT id, was, CASE WHEN was = 'invalid' THEN {next_seq} ELSE seq END AS place FROM picked),
changed AS (
  UPDATE "{t}" AS o SET status = 'pending', attempts = 0, due_at = clock_timestamp(), last_error = NULL,
    seq = placed.place
  FROM placed WHERE o.id = placed.id
  RETURNING o.id, o.type, o.ordering_key, placed.was),
logged AS (
  INSERT INTO "{t}_log" (who, why, action, row_id, type, ordering_key, status)
  SELECT $7, $8, 'retry', id, type, ordering_key, was FROM changed RETURNING 1),
done AS (SELECT count(*) AS rows FROM logged)
SELECT matching.rows, done.rows,
  CASE WHEN done.rows > 0 THEN pg_notify('posthaste_' || '"{t}"'::regclass::oid, 'rewind') END
FROM matching, done
