# Rows over Spark, as in cp-scale(7): answers rows.jsonl with the script `shard` of the same directory, which each computer has. It checks that each
# shard is complete, and writes the answers to answers.parquet: spark-submit spark.py
import itertools, os
from pyspark.sql import SparkSession

job = os.getcwd()
names = ("PATH", "HOME", "CP_HOME")
environment = {name: os.environ[name] for name in names if name in os.environ}
command = f"""sh -c 'read -r name && exec "$0" "$name"' {job}/shard"""
spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
rows = sc.textFile(f"file://{job}/rows.jsonl", 64)
named = rows.mapPartitionsWithIndex(lambda n, rows: itertools.chain([f"{n:04}"], rows))
named.pipe(command, env=environment, checkCode=True).saveAsTextFile(f"file://{job}/records")

schema = """ok boolean, meta string, data struct<row: string, content: string>,
    error struct<code: string, details: struct<row: string>>"""
records = spark.read.schema(schema).option("mode", "FAILFAST").json(f"file://{job}/records")
closing = records.where("meta IS NOT NULL")
assert closing.count() == rows.getNumPartitions() and closing.where("NOT ok").isEmpty()
row = "coalesce(data.row, error.details.row) AS row"
answers = records.where("meta IS NULL").selectExpr(row, "data.content", "error.code")
answers.write.parquet(f"file://{job}/answers.parquet")
assert spark.read.parquet(f"file://{job}/answers.parquet").count() == rows.count()
