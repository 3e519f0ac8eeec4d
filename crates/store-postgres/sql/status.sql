WITH undelivered AS (
  SELECT count(*) FILTER (WHERE status = 'pending') AS pending,
    count(*) FILTER (WHERE status = 'processing') AS processing,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    count(*) AS all_of_them,
    (extract(epoch FROM clock_timestamp() - min(created_at)) * 1000000)::bigint AS age,
    (array_agg(DISTINCT type) FILTER (WHERE last_error LIKE 'deferred:%'))[1:100] AS deferred
  FROM "{t}" WHERE {undelivered}),
invalid AS (SELECT count(*) AS rows FROM "{t}" WHERE status = 'invalid'),
size AS (
  SELECT greatest(reltuples::bigint, pg_stat_get_live_tuples(oid)) AS rows FROM pg_class
  WHERE oid = to_regclass('"{t}"'))
SELECT u.pending, u.processing, u.failed,
  CASE WHEN size.rows > 1000000 THEN greatest(size.rows - u.all_of_them - invalid.rows, 0)
  ELSE (SELECT count(*) FROM "{t}" WHERE status = 'published') END,
  invalid.rows, size.rows > 1000000, u.age, u.deferred
FROM undelivered AS u, invalid, size
