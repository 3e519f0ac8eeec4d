WITH lanes AS (SELECT * FROM unnest($1::smallint[], $2::bigint[]) AS l(lane, cursor)),
picked AS MATERIALIZED (
  SELECT *, row_number() OVER page = 1 OR sum(CASE WHEN size > $6::bigint THEN 0 ELSE size END) OVER page <= $7::bigint AS kept
  FROM (
    -- a fair share of every lane first, then whatever fits, lane by lane
    SELECT r.* FROM lanes CROSS JOIN LATERAL (
      SELECT {columns}, body, coalesce(octet_length(body), 0) AS size FROM "{t}" AS o
      WHERE o.lane = lanes.lane AND o.seq > lanes.cursor AND {undelivered} ORDER BY o.seq LIMIT $3::bigint) AS r
    UNION ALL
    SELECT r.* FROM lanes CROSS JOIN LATERAL (
      SELECT {columns}, body, coalesce(octet_length(body), 0) AS size FROM "{t}" AS o
      WHERE o.lane = lanes.lane AND o.seq > lanes.cursor AND {undelivered} ORDER BY o.seq
      OFFSET $3::bigint LIMIT $4::bigint - $3::bigint) AS r
    LIMIT $5::bigint
  ) AS streamed
  WINDOW page AS (ROWS UNBOUNDED PRECEDING)
),
got AS (SELECT lane, max(seq) AS last, count(*) AS rows FROM picked WHERE kept GROUP BY lane),
full_page AS (SELECT count(*) >= $5::bigint OR NOT bool_and(kept) AS yes FROM picked)
SELECT {columns}, CASE WHEN size <= $6::bigint THEN body END AS body, size,
  NULL::timestamptz AS now, NULL::text AS snapshot, NULL::smallint[] AS more
FROM picked WHERE kept
UNION ALL
SELECT {nulls}, NULL, NULL, clock_timestamp(), pg_current_snapshot()::text, ARRAY(
  SELECT lanes.lane FROM lanes LEFT JOIN got USING (lane)
  WHERE CASE WHEN got.rows >= $4::bigint OR (SELECT yes FROM full_page) THEN EXISTS (
    SELECT FROM "{t}" AS o WHERE o.lane = lanes.lane AND o.seq > coalesce(got.last, lanes.cursor) AND {undelivered})
  ELSE false END)
