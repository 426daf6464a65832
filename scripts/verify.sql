-- Verifies the chain of ledger.jsonl, a ledger without closed segments, as cp-ledger(5) has it, in DuckDB: the number of lines, and of faults.
WITH lines AS (
  SELECT row_number() OVER () - 1 AS n, line, left(line, -82) AS body
  FROM read_csv('ledger.jsonl', columns = {'line': 'VARCHAR'}, header = false, delim = chr(1),
                quote = '', escape = '', max_line_size = 16777216)
), hashes AS (
  SELECT *, 'sha256:' || sha256(body) AS hash,
    'cp-ledger/1' || chr(10) || regexp_extract(line, '"origin":"([^"]*)"', 1) || chr(10) AS origin FROM lines
), links AS (
  SELECT *, coalesce(lag(hash) OVER (ORDER BY n), 'sha256:' || sha256(origin)) AS prev FROM hashes
)
SELECT count(*) AS lines, count(*) FILTER (WHERE (starts_with(line, '{"seq":' || n || ',"ts":"')
  AND right(body, 81) = ',"prev":"' || prev || '"'
  AND right(line, 82) = ',"hash":"' || hash || '"}') IS NOT TRUE) AS faults FROM links
